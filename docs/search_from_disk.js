// Browsers start no worker for a page that is opened from the disk, and the search asks for one. Here a hidden frame of the
// page takes its part: the script runs inside, and messages go in and out as events.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "search"
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.tell(new MessageEvent("message", { data }))
      const script = this.frame.contentDocument.createElement("script")
      this.loaded = new Promise(done => (script.onload = done))
      script.src = new URL(address, location.href).href
      this.frame.contentDocument.body.append(script)
    }
    tell(event) {
      this.dispatchEvent(event)
      if (this.onmessage) this.onmessage(event)
    }
    postMessage(data) {
      const inside = this.frame.contentWindow
      this.loaded.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
