"""A headless Chromium driven over its pipe: real mouse and keys, everything it logs and everything it asks for."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.running import PATIENCE

BINARIES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell", "chrome-headless-shell")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--allow-pre-commit-input", "--remote-debugging-pipe", "about:blank"),
)

CONNECT = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
"""Commands come by file 3 and answers go by 4; no Python between fork and exec, where threads may hold a lock."""


class Browser:
    """One page at a time; ``messages`` and ``requests`` are those since it was opened."""

    def __init__(self, binary: str, profile: Path) -> None:
        there, self._write = os.pipe()
        self._read, back = os.pipe()
        command = ["sh", "-c", CONNECT, binary, f"--user-data-dir={profile}", *FLAGS]
        self._process = subprocess.Popen(command, stdin=there, stdout=back)
        for end in (there, back):
            os.close(end)
        self._buffer, self._number, self._loaded, self._downloading = b"", 0, set[str](), False
        self._session: str | None = None
        self.messages: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]  # the first of all may be no page
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        size = {"width": 1366, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            assert chunk, "the browser does not answer"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, about: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.messages.append(about["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(f"{about['type']}: {about['args']}")
        elif method == "Log.entryAdded":
            self.messages.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Page.lifecycleEvent" and about["name"] == "load":
            self._loaded.add(about["loaderId"])
        elif method == "Browser.downloadProgress":
            assert about["state"] != "canceled", "the browser gave the download up"
            self._downloading = about["state"] == "inProgress"

    def open(self, page: Path) -> None:
        """Open a file and wait until it and its images are there."""
        self.messages.clear()
        self.requests.clear()
        answer = self.call("Page.navigate", url=page.absolute().as_uri())
        assert "errorText" not in answer, answer
        asked = answer["loaderId"]
        while asked not in self._loaded:  # and not another page whose end of loading is told late
            self._receive()

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def download(self, script: str, folder: Path) -> None:
        """Run a script that saves a file in a folder, and wait until the whole file is there."""
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=True)
        self._downloading = True
        self.evaluate(script)
        while self._downloading:
            self._receive()

    def unfold(self) -> None:
        """Open every folded part of the page, and wait until what is in it has its size."""
        self.evaluate(
            "document.querySelectorAll('details').forEach((part) => { part.open = true; });"
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def press(self, key: str) -> None:
        """Press and release a key by its name, such as ``ArrowDown`` or ``a``."""
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Enter": 13, "Escape": 27}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = codes.get(key) or ord(key.upper())
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def write(self, text: str) -> None:
        """Write a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(timeout=PATIENCE)
        os.close(self._write)
        os.close(self._read)
