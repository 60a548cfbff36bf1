// The view: the range of bytes drawn, the selection, and input by mouse, touch and keys.

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const LEAST = 12; // bytes in view

function makeView(data) {
  const root = rootOf(data);
  return {
    data,
    root,
    from: 0,
    to: data.size,
    focus: root,
    selected: null,
    hover: null,
    column: -1,
    shares: sharesOf(data),
    findings: data.findings.filter(([, , severity]) => severity !== "note").map(([start, end]) => [start, end]),
    listeners: [],
    frame: 0,
  };
}

const MANY = 80;

// The bytes of all bodies by column or, if there are too many columns, by kind of buffer.
function sharesOf(data) {
  const { fields } = data,
    all = data.fields.bodies,
    made = [];
  if (!all) return made;
  if (fields.firstOf.length <= MANY) {
    fields.firstOf.forEach((field, column) =>
      made.push({ paint: { column }, label: fields.name[field], part: fields.total[field] / all }),
    );
  } else {
    const sums = { validity: 0, offsets: 0, values: 0 };
    for (const [buffer, size] of Object.entries(fields.buffers)) sums[roleOf(buffer)] += size;
    for (const [role, size] of Object.entries(sums))
      made.push({ paint: { column: 0, role }, label: role, part: size / all });
  }
  const rest = 1 - made.reduce((sum, each) => sum + each.part, 0);
  made.push({ paint: { fill: "other", pattern: "hatch" }, label: "padding", part: Math.max(0, rest) });
  return made;
}

// --- moving --------------------------------------------------------------------------------------------------------

function show(view, from, to, options = {}) {
  const size = view.data.size,
    wide = Math.min(Math.max(to - from, Math.min(LEAST, size)), size);
  const middle = (from + to) / 2;
  const start = Math.max(0, Math.min(size - wide, middle - wide / 2));
  cancelAnimationFrame(view.motion);
  if (options.smooth && !calm.matches) return glide(view, start, start + wide);
  view.from = start;
  view.to = start + wide;
  settle(view);
}

function glide(view, from, to) {
  const begin = performance.now(),
    { from: a, to: b } = view;
  const step = (now) => {
    const t = Math.min(1, (now - begin) / 240),
      eased = 1 - (1 - t) ** 3;
    // The width changes by a constant factor, so that a zoom over many sizes looks even.
    const wide = (b - a) * ((to - from) / (b - a)) ** eased,
      done = b - a === to - from ? eased : (b - a - wide) / (b - a - (to - from));
    view.from = Math.max(0, a + (from - a) * done);
    view.to = Math.min(view.data.size, view.from + wide);
    if (t >= 1) {
      view.from = from;
      view.to = to;
    }
    settle(view);
    if (t < 1) view.motion = requestAnimationFrame(step);
  };
  view.motion = requestAnimationFrame(step);
}

// The innermost part that holds all that is in view.
function settle(view) {
  let node = view.root;
  for (;;) {
    const { kids } = node,
      i = childAt(kids, view.from);
    if (i >= kids.n || kids.start(i) > view.from || kids.end(i) < view.to) break;
    const next = kids.get(i);
    if (!next.kids.n) break;
    node = next;
  }
  const moved = !node.isSame(view.focus);
  view.focus = node;
  for (const listen of view.listeners) listen(moved);
  redraw(view);
}

function redraw(view) {
  if (view.frame) return;
  view.frame = requestAnimationFrame(() => {
    view.frame = 0;
    view.draw();
  });
}

function zoomTo(view, node) {
  const room = node.parent && node.kids.n === 0 ? node.size * 0.35 : 0;
  show(view, node.start - room, node.end + room, { smooth: true });
}

function zoomBy(view, factor, at = (view.from + view.to) / 2) {
  const size = view.data.size,
    wide = Math.min(size, Math.max(LEAST, (view.to - view.from) * factor));
  const start = Math.max(0, Math.min(size - wide, at - (at - view.from) * (wide / (view.to - view.from))));
  show(view, start, start + wide);
}

function up(view) {
  const around = view.focus.start < view.from || view.focus.end > view.to ? view.focus : view.focus.parent || view.root;
  zoomTo(view, around);
}

function select(view, node, options = {}) {
  view.selected = node;
  if (node && options.reveal && (node.end <= view.from || node.start >= view.to)) {
    const half = (view.to - view.from) / 2,
      middle = (node.start + node.end) / 2;
    show(view, middle - half, middle + half);
  }
  view.picked();
  redraw(view);
}

// --- what is where -------------------------------------------------------------------------------------------------

// The part at a point of the picture; parts too narrow to hit one by one are returned as one.
function hit(view, place, px, py) {
  if (!place || px < place.gutter) return null;
  const offset = view.from + (px - place.gutter) / place.scale,
    pixel = 1.5 / place.scale;
  let wanted = 0;
  while (wanted < 3 && py - RULER >= ROWS[wanted + 1][0]) wanted++;
  let node = view.root;
  for (let row = 0; row <= wanted; row++) {
    const { kids } = node,
      i = childAt(kids, offset);
    if (i >= kids.n || kids.start(i) > offset) break;
    if (kids.end(i) - kids.start(i) < pixel && kids.n > 1) {
      const first = childAt(kids, offset - pixel / 2),
        last = Math.min(kids.n - 1, childAt(kids, offset + pixel / 2));
      if (last > first) return together(node, first, last);
    }
    node = kids.get(i);
  }
  return node === view.root ? null : node;
}

function together(parent, first, last) {
  const { kids } = parent,
    a = kids.get(first),
    b = kids.get(last);
  return new Node(
    parent,
    first,
    a.start,
    b.end,
    `${count(last - first + 1)} parts: ${nameOf(a)} to ${nameOf(b)}`,
    a.paint,
    { kind: "parts narrower than a pixel", many: true, value: "zoom in to tell them apart" },
  );
}

// --- mouse and fingers ---------------------------------------------------------------------------------------------

function listenToPointers(view, canvas, tip) {
  const fingers = new Map();
  let dragged = 0,
    pinch = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const offsetAt = (x) => view.from + (x - view.place.gutter) / view.place.scale;
  canvas.addEventListener(
    "wheel",
    (event) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const wide = view.to - view.from;
      if (!sideways && event.deltaY > 0 && wide >= view.data.size) return; // nothing to zoom out of: the page scrolls
      event.preventDefault();
      if (sideways) {
        const by = ((event.deltaX || event.deltaY) / 800) * wide;
        show(view, view.from + by, view.to + by);
      } else zoomBy(view, Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 180), offsetAt(at(event)[0]));
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, at(event));
    dragged = pinch = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event),
      before = fingers.get(event.pointerId);
    if (!before) return hover(view, tip, hit(view, view.place, x, y), x, y, event.pointerType);
    fingers.set(event.pointerId, [x, y]);
    dragged += Math.abs(x - before[0]);
    if (fingers.size === 2) {
      const [[a], [b]] = [...fingers.values()],
        gap = Math.max(20, Math.abs(a - b));
      if (pinch) zoomBy(view, pinch / gap, offsetAt((a + b) / 2));
      pinch = gap;
    } else if (dragged > 3) {
      canvas.classList.add("dragging");
      const by = (before[0] - x) / view.place.scale;
      show(view, view.from + by, view.to + by);
    }
  });
  const release = (event) => {
    const was = fingers.delete(event.pointerId);
    canvas.classList.remove("dragging");
    if (was && dragged <= 3 && event.type === "pointerup") select(view, hit(view, view.place, ...at(event)));
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => hover(view, tip, null));
  canvas.addEventListener("dblclick", (event) => {
    const node = hit(view, view.place, ...at(event));
    if (node) zoomTo(view, node);
  });
}

function hover(view, tip, node, x = 0, y = 0, pointer = "mouse") {
  const same = node ? node.isSame(view.hover) && !node.many : !view.hover;
  view.hover = node;
  if (!node || pointer === "touch") {
    tip.hidden = true;
  } else {
    if (!same) tip.replaceChildren(...tipOf(view, node));
    tip.hidden = false;
    const stage = tip.parentElement.getBoundingClientRect(),
      box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(x + 14, stage.width - box.width))}px`;
    tip.style.top = `${y + 18 + box.height > stage.height + 60 ? Math.max(0, y - box.height - 10) : y + 18}px`;
  }
  if (!same) redraw(view);
}

// The frame in the ribbon is dragged, or placed by a click.
function listenToRibbon(view, canvas) {
  const go = (event) => {
    const box = canvas.getBoundingClientRect(),
      gutter = box.width > 700 ? 76 : 0;
    const middle = ((event.clientX - box.left - gutter) / (box.width - gutter)) * view.data.size,
      half = (view.to - view.from) / 2;
    show(view, middle - half, middle + half);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (view.to - view.from >= view.data.size) {
      const box = canvas.getBoundingClientRect(),
        gutter = box.width > 700 ? 76 : 0;
      const offset = ((event.clientX - box.left - gutter) / (box.width - gutter)) * view.data.size,
        { kids } = view.root;
      const i = childAt(kids, offset);
      if (i < kids.n) {
        const node = kids.get(i);
        select(view, node);
        zoomTo(view, node);
      }
    } else go(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons & 1 && view.to - view.from < view.data.size) go(event);
  });
}

// --- keys ----------------------------------------------------------------------------------------------------------

const KEYS = {
  ArrowRight: (view) => step(view, 1),
  ArrowLeft: (view) => step(view, -1),
  ArrowDown(view) {
    const { selected } = view;
    if (!selected) return step(view, 1);
    if (selected.kids.n) select(view, firstInView(view, selected), { reveal: true });
  },
  ArrowUp(view) {
    const around = view.selected && view.selected.parent;
    if (around && around.parent) select(view, around, { reveal: true });
  },
  Enter(view) {
    if (view.selected) zoomTo(view, view.selected);
  },
  Escape(view) {
    up(view);
    if (view.selected && view.selected.parent && view.selected.parent.parent) select(view, view.selected.parent);
  },
  Home: (view) => zoomTo(view, view.root),
  "+": (view) => zoomBy(view, 0.5),
  "=": (view) => zoomBy(view, 0.5),
  "-": (view) => zoomBy(view, 2),
};

function step(view, by) {
  const { selected } = view;
  if (!selected || !selected.parent) return select(view, firstInView(view, view.focus), { reveal: true });
  const { kids } = selected.parent,
    next = selected.index + by;
  if (next >= 0 && next < kids.n) select(view, kids.get(next), { reveal: true });
}

function firstInView(view, node) {
  const { kids } = node,
    i = childAt(kids, Math.max(view.from, node.start));
  return kids.n ? kids.get(Math.min(i, kids.n - 1)) : null;
}

function listenToKeys(view, canvas) {
  canvas.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(view);
  });
}
