
// Brains that can be turned: a translucent surface, parcels, connections, seen from a direction without perspective.
(function () {
  const VIEWS = { left: [180, 0], right: [0, 0], above: [-90, 90], front: [90, 0] };
  const ARROWS = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const SIGNS = { L: [-1, 0, 0], R: [1, 0, 0], A: [0, 1, 0], P: [0, -1, 0], S: [0, 0, 1], I: [0, 0, -1] };
  const CENTRE = [0, -18, 5], HALF = 112, SIGN_AT = [84, 104, 92], GREYS = 8;
  const mesh = JSON.parse(document.getElementById("surface").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer;
  const corners = new Int16Array(bytes(mesh.corners)), faces = new Uint16Array(bytes(mesh.faces));
  const outwards = new Float32Array((3 * faces.length) / 4); // of each face, from its diagonals
  for (let face = 0; face < faces.length / 4; face++) {
    const [a, b, c, d] = [0, 1, 2, 3].map((one) => corners.subarray(3 * faces[4 * face + one], 3 * faces[4 * face + one] + 3));
    const [u, v] = [[c, a], [d, b]].map(([to, from]) => [to[0] - from[0], to[1] - from[1], to[2] - from[2]]);
    const way = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
    outwards.set(way.map((one) => one / (Math.hypot(...way) || 1)), 3 * face);
  }
  const hex = document.body.dataset.colours;
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];

  function colour(share) {
    const step = Math.max(0, Math.min(255, Math.round(127.5 * (1 + share))));
    return "#" + hex.slice(6 * step, 6 * step + 6);
  }
  function axes([azimuth, height]) { // to the right, upwards, and out of the screen
    const [a, e] = [azimuth, height].map((degrees) => (degrees * Math.PI) / 180);
    const [ca, sa, ce, se] = [Math.cos(a), Math.sin(a), Math.cos(e), Math.sin(e)];
    return [[-sa, ca, 0], [-se * ca, -se * sa, ce], [ce * ca, ce * sa, se]];
  }

  function setUp(section) {
    const given = JSON.parse(section.querySelector("script").textContent);
    const canvas = section.querySelector("canvas"), output = section.querySelector("output");
    const range = section.querySelector("input"), rows = [...section.querySelectorAll("tbody tr")];
    const context = canvas.getContext("2d"), limit = Math.max(...given.values.map(Math.abs)) || 1;
    const joins = given.ends.length > 0, count = given.values.length;
    let view = [...VIEWS.left], chosen = -1, drawn = [], side = 0, seen = false, last = null;

    function project(place, [right, up, out]) {
      const at = place.map((value, i) => value - CENTRE[i]), scale = side / 2 / HALF;
      return [side / 2 + scale * dot(at, right), side / 2 - scale * dot(at, up), dot(at, out)];
    }
    function surface([right, up, out]) {
      const buckets = Array.from({ length: 2 * GREYS }, () => new Path2D()), scale = side / 2 / HALF;
      const points = new Float32Array((2 * corners.length) / 3);
      for (let i = 0; i < corners.length / 3; i++) {
        const at = [0, 1, 2].map((axis) => corners[3 * i + axis] / 10 - CENTRE[axis]);
        points.set([side / 2 + scale * dot(at, right), side / 2 - scale * dot(at, up)], 2 * i);
      }
      for (let face = 0; face < faces.length / 4; face++) {
        const facing = dot(outwards.subarray(3 * face, 3 * face + 3), out);
        const rim = (1 - Math.min(1, Math.abs(facing))) ** 2; // dark where the surface is seen from its edge
        const path = buckets[Math.min(GREYS - 1, Math.floor(rim * GREYS)) + (facing > 0) * GREYS]; // the far side first
        for (let corner = 0; corner < 4; corner++) {
          const at = 2 * faces[4 * face + corner];
          path[corner ? "lineTo" : "moveTo"](points[at], points[at + 1]);
        }
        path.closePath();
      }
      buckets.forEach((path, level) => {
        context.fillStyle = `rgba(60, 66, 74, ${0.04 + (0.3 * (level % GREYS)) / (GREYS - 1)})`;
        context.fill(path);
      });
    }
    function disc(at, radius, fill, line) {
      context.beginPath();
      context.arc(at[0], at[1], radius, 0, 2 * Math.PI);
      context.fillStyle = fill;
      context.fill();
      context.strokeStyle = "#000";
      context.lineWidth = line;
      context.stroke();
    }
    function item(one) {
      const share = given.values[one.i] / limit, bold = one.i === chosen;
      if (!joins) return disc(one.from, (side / 2 / HALF) * (3 + 3 * Math.abs(share)), colour(share), bold ? 3 : 0.5);
      for (const [paint, width] of [["#000", bold ? 7 : 0], [colour(share), bold ? 4 : 1 + 2.5 * Math.abs(share)]]) {
        if (!width) continue;
        context.beginPath();
        context.moveTo(one.from[0], one.from[1]);
        context.lineTo(one.to[0], one.to[1]);
        context.strokeStyle = paint;
        context.lineWidth = width;
        context.stroke();
      }
      for (const end of [one.from, one.to]) disc(end, bold ? 5 : 3, "#000", 0);
    }
    function draw() {
      const pixels = window.devicePixelRatio || 1, now = axes(view);
      side = Math.max(200, Math.min(canvas.parentElement.clientWidth || 480, 560));
      canvas.style.width = canvas.style.height = side + "px";
      canvas.width = canvas.height = Math.round(side * pixels);
      context.scale(pixels, pixels);
      context.fillStyle = "#fff";
      context.fillRect(0, 0, side, side);
      surface(now);
      const places = given.places.map((place) => project(place, now));
      drawn = given.values.slice(0, range.value).map((_, i) => {
        const [from, to] = joins ? given.ends[i].map((end) => places[end]) : [places[i], places[i]];
        return { i, from, to, depth: (from[2] + to[2]) / 2 };
      });
      drawn.sort((a, b) => (a.i === chosen) - (b.i === chosen) || a.depth - b.depth);
      drawn.forEach(item);
      context.fillStyle = "#333";
      context.font = "bold 13px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      for (const [sign, way] of Object.entries(SIGNS)) {
        if (Math.abs(dot(way, now[2])) > 0.8) continue; // it points at the reader, or away
        const [x, y] = project(way.map((one, i) => one * SIGN_AT[i] + CENTRE[i]), now);
        context.fillText(sign, x, y);
      }
    }
    function choose(i) {
      rows[chosen]?.classList.remove("chosen");
      chosen = i;
      if (i >= 0) {
        const name = joins ? given.ends[i].map((end) => given.parcels[end]).join(" to ") : given.parcels[i];
        rows[i]?.classList.add("chosen");
        output.textContent = `${i + 1} of ${count}: ${name}, ${given.number} ${rows[i]?.lastElementChild.textContent || given.values[i]}`;
      }
      draw();
    }
    function far(one, x, y) { // of a place on the screen from a connection or a parcel
      const [ax, ay] = one.from, [dx, dy] = [one.to[0] - ax, one.to[1] - ay], long = dx * dx + dy * dy;
      const share = long ? Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / long)) : 0;
      return Math.hypot(x - ax - share * dx, y - ay - share * dy);
    }
    function turn(azimuth, height) {
      view = [view[0] + azimuth, Math.max(-90, Math.min(90, view[1] + height))];
      draw();
    }

    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      last = [event.clientX, event.clientY];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons && last) {
        turn((last[0] - event.clientX) / 2, (event.clientY - last[1]) / 2);
        last = [event.clientX, event.clientY];
        return;
      }
      const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      const near = drawn.map((one) => [far(one, x, y), one.i]).filter(([away]) => away < 8).sort((a, b) => a[0] - b[0]);
      if (near.length && near[0][1] !== chosen) choose(near[0][1]);
    });
    canvas.addEventListener("keydown", (event) => {
      const way = ARROWS[event.key], step = { n: 1, p: -1 }[event.key], most = Number(range.value);
      if (event.ctrlKey || event.metaKey || event.altKey || (!way && !step)) return;
      event.preventDefault();
      if (way) turn(10 * way[0], 10 * way[1]);
      else choose((chosen + step + (chosen < 0 && step < 0 ? 1 : 0) + most) % most);
    });
    section.querySelectorAll("[data-view]").forEach((button) => button.addEventListener("click", () => {
      view = [...VIEWS[button.dataset.view]];
      draw();
    }));
    rows.forEach((row, i) => row.addEventListener("pointerenter", () => { if (i < range.value) choose(i); }));
    range.max = count;
    range.value = count;
    range.addEventListener("input", () => {
      range.nextElementSibling.textContent = `${range.value} of ${count}`;
      choose(chosen < range.value ? chosen : -1);
    });
    range.nextElementSibling.textContent = `${count} of ${count}`;
    const bar = section.querySelector(".legend"), scale = bar.getContext("2d"), ends = section.querySelectorAll(".bar span");
    for (let i = 0; i < 256; i++) {
      scale.fillStyle = colour(i / 127.5 - 1);
      scale.fillRect(i, 0, 1, 10);
    }
    [-1, 1].forEach((sign, i) => { ends[i].textContent = `${given.number} ${sign < 0 ? "−" : ""}${limit.toPrecision(2)}`; });
    new IntersectionObserver(([entry]) => { // drawn when it is first seen
      if (entry.isIntersecting && !seen) { seen = true; draw(); }
    }, { rootMargin: "50%" }).observe(canvas);
    window.addEventListener("resize", () => { if (seen) draw(); });
    window.addEventListener("beforeprint", draw);
  }
  document.querySelectorAll(".turned").forEach(setUp);
})();
