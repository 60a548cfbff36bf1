// The state of the page: what is in view and what is selected; mouse, touch and keyboard.

async function start() {
  const model = new Model(await readBlock());
  const picture = new Picture(model, $("map"), $("ribbon"));
  let focus = model.root; // the node whose parts the table lists
  let waiting = false;

  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; picture.draw(); });
  };
  const look = (a, b) => {
    const end = model.root.end, width = Math.min(end, Math.max(16, b - a));
    const from = Math.min(Math.max(0, a), end - width);
    picture.view = [from, from + width];
    redraw();
  };
  const lookAt = (node) => {
    const room = (node.end - node.start) * 0.02;
    if (node === model.root) look(0, node.end); else look(node.start - room, node.end + room);
  };
  const crumbs = () => {
    const path = [];
    for (let at = focus; at; at = at.parent || (at === model.root ? null : model.root)) path.unshift(at);
    $("crumbs").replaceChildren(...path.map((node) => {
      const button = element("button", node === model.root ? "object" : node.what);
      button.onclick = () => enter(node);
      return button;
    }));
  };
  const focusOn = (node) => {
    if (focus !== node) { focus = node; table.show(node); }
    crumbs();
  };
  const select = (node) => {
    picture.selected = node;
    if (node !== model.root && node.level >= 0) focusOn(node.parent || model.root);
    showDetail(model, node);
    table.mark(node);
    redraw();
  };
  const enter = (node) => {
    const into = model.inside(node).length ? node : node.parent || model.root;
    picture.selected = node === model.root ? null : node;
    focusOn(into);
    showDetail(model, node);
    table.mark(node);
    lookAt(node);
  };
  const table = new Table(model, select, enter);
  const columnClicked = (i) => {
    picture.highlighted = picture.highlighted === i ? -1 : i;
    showColumns(model, picture, columnClicked);
    redraw();
  };
  const rangeClicked = (from, to) => {
    let node = model.root;
    for (;;) {
      const inner = model.inside(node).find((each) => each.start <= from && to <= each.end && each.end > each.start);
      if (!inner) break;
      node = inner;
    }
    if (node !== model.root) select(node);
    look(from - (to - from) - 64, to + (to - from) + 64);
  };

  // --- theme ---
  const setTheme = (name) => {
    document.documentElement.dataset.theme = name;
    picture.readTheme();
    showLegend(picture);
    showColumns(model, picture, columnClicked);
    redraw();
  };
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  prefersDark.onchange = () => setTheme(prefersDark.matches ? "dark" : "light");
  $("theme").onclick = () => setTheme(picture.dark ? "light" : "dark");

  // --- mouse and touch ---
  const zoom = (factor, x = picture.width / 2) => {
    const at = picture.byte(x), [a, b] = picture.view;
    look(at - (at - a) * factor, at + (b - at) * factor);
  };
  const map = $("map"), pointers = new Map();
  let moved = 0;
  const place = (event) => { const box = map.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  map.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const shift = (event.deltaX / picture.width) * (picture.view[1] - picture.view[0]);
      look(picture.view[0] + shift, picture.view[1] + shift);
    } else zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) / 200), place(event)[0]);
  }, { passive: false });
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    moved = 0;
  });
  map.addEventListener("pointermove", (event) => {
    const [x, y] = place(event), before = pointers.get(event.pointerId);
    if (!before) {
      const node = picture.at(x, y);
      if (node !== picture.hovered) {
        picture.hovered = node;
        showDetail(model, node || picture.selected || model.root);
        redraw();
      }
      return;
    }
    moved += Math.abs(x - before[0]);
    const [first, second] = [...pointers.values()];
    if (second) {
      const other = before === first ? second : first;
      const near = Math.abs(before[0] - other[0]) || 1, far = Math.abs(x - other[0]) || 1;
      zoom(near / far, (x + other[0]) / 2);
    } else {
      const shift = ((before[0] - x) / picture.width) * (picture.view[1] - picture.view[0]);
      look(picture.view[0] + shift, picture.view[1] + shift);
    }
    pointers.set(event.pointerId, [x, y]);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    map.addEventListener(name, (event) => {
      const at = pointers.get(event.pointerId);
      pointers.delete(event.pointerId);
      if (name === "pointerup" && at && moved < 4) select(picture.at(...at) || model.root);
    });
  }
  map.addEventListener("pointerleave", () => { picture.hovered = null; showDetail(model, picture.selected || model.root); redraw(); });
  map.addEventListener("dblclick", (event) => { const node = picture.at(...place(event)); if (node) enter(node); });
  const drag = (event) => {
    if (!event.buttons) return;
    const box = $("ribbon").getBoundingClientRect(), width = picture.view[1] - picture.view[0];
    const middle = ((event.clientX - box.left) / box.width) * model.root.end;
    look(middle - width / 2, middle + width / 2);
  };
  $("ribbon").addEventListener("pointerdown", drag);
  $("ribbon").addEventListener("pointermove", drag);

  // --- keyboard ---
  const beside = (step) => {
    const node = picture.selected;
    if (!node) { const first = model.inside(focus)[0]; if (first) select(first); return; }
    const next = model.inside(node.parent || model.root)[node.index + step];
    if (next) { select(next); show(next); }
  };
  const show = (node) => { // bring a node into view, if it is out of it or too small to be seen
    const [a, b] = picture.view, width = picture.x(node.end) - picture.x(node.start);
    if (node.end <= a || node.start >= b) look(node.start - (b - a) / 2, node.start + (b - a) / 2);
    else if (width < 2) lookAt({ start: node.start - 8 * (node.end - node.start), end: node.end + 8 * (node.end - node.start) });
  };
  const up = () => {
    const node = picture.selected || focus, outer = node.parent || model.root;
    enter(outer);
    if (outer === model.root) select(model.root);
  };
  const keys = {
    ArrowLeft: () => beside(-1), ArrowRight: () => beside(1),
    ArrowUp: () => { const node = picture.selected; select(node && node.parent ? node.parent : model.root); },
    ArrowDown: () => { const first = model.inside(picture.selected || model.root).find((each) => each.end > each.start); if (first) { select(first); show(first); } },
    Enter: () => enter(picture.selected || focus), Escape: up, Home: () => { enter(model.root); select(model.root); },
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    "/": () => $("search").focus(), "?": () => $("help").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const tag = event.target.tagName, typing = tag === "INPUT" || $("help").open;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing) { if (event.key === "Escape" && tag === "INPUT") map.focus(); return; }
    if (tag === "BUTTON" && (event.key === "Enter" || event.key === " ")) return;
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  $("whole").onclick = keys.Home;
  $("in").onclick = keys["+"];
  $("out").onclick = keys["-"];
  $("help-button").onclick = keys["?"];
  $("search").oninput = () => showColumns(model, picture, columnClicked);
  new ResizeObserver(() => { picture.resize(); redraw(); }).observe(map);

  showFacts(model);
  showFindings(model, rangeClicked);
  picture.readTheme();
  picture.resize();
  setTheme(prefersDark.matches ? "dark" : "light");
  table.show(model.root);
  crumbs();
  showDetail(model, model.root);
  picture.draw();
  document.documentElement.dataset.drawn = Math.round(performance.now());
}

start().catch((error) => { document.body.prepend(element("p", `This page could not be drawn: ${error.message}`, "failed")); throw error; });
