// Drawing: colours, textures, the picture and the ribbon. Nothing here changes what is shown.

const ROWS = [
  [0, 38],
  [40, 26],
  [68, 80],
  [150, 132],
]; // top and height of messages, parts, columns, buffers
const BOTTOM = ROWS[3][0] + ROWS[3][1];
const ROW_NAMES = ["messages", "parts", "columns", "buffers"];
const RULER = 24;
const COLOURS = 7;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const SMALL = FONT.replace("12px", "11px");

// --- colours -------------------------------------------------------------------------------------------------------

let theme = null;

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = [
    "bg",
    "card",
    "line",
    "text",
    "muted",
    "accent",
    "hover",
    "magic",
    "schema",
    "dictionary",
    "batch",
    "footer",
    "end",
    "table",
    "vtable",
    "vector",
    "string",
    "root",
    "other",
    "hatch",
    "hatch-bg",
    "gap",
    "metadata",
    "body",
  ];
  const fill = Object.fromEntries(names.map((name) => [name, read(name)]));
  const base = Array.from({ length: COLOURS }, (_, i) => rgb(read(`c${i}`)));
  const card = rgb(fill.card);
  const shade = (part) => base.map((each) => hex(each.map((x, k) => Math.round(x * part + card[k] * (1 - part)))));
  theme = {
    fill,
    roles: { values: shade(1), offsets: shade(0.62), validity: shade(0.34), column: shade(0.86) },
    ink: new Map(),
  };
}

function rgb(text) {
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

function hex(parts) {
  return `#${parts.map((x) => x.toString(16).padStart(2, "0")).join("")}`;
}

function luminance(colour) {
  const [r, g, b] = rgb(colour).map((x) => (x <= 10 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Black or white, whichever is easier to read on a colour.
function inkOn(colour) {
  if (!theme.ink.has(colour)) theme.ink.set(colour, luminance(colour) > 0.18 ? "#000000" : "#ffffff");
  return theme.ink.get(colour);
}

function colourOf(paint) {
  if (paint.column === undefined) return theme.fill[paint.pattern === "hatch" ? "hatch-bg" : paint.fill];
  return theme.roles[paint.role || "column"][paint.column % COLOURS];
}

// --- cells ---------------------------------------------------------------------------------------------------------

function resize(canvas) {
  const box = canvas.getBoundingClientRect(),
    scale = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(box.width * scale)),
    high = Math.max(1, Math.round(box.height * scale));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, box.width, box.height);
  return { g, wide: box.width, high: box.height };
}

function cell(g, x, y, wide, high, paint, label, dim) {
  const colour = colourOf(paint),
    gap = wide > 5 ? 1 : 0;
  g.globalAlpha = dim ? 0.22 : 1;
  g.fillStyle = colour;
  if (gap && wide > 14) {
    g.beginPath();
    g.roundRect(x, y, wide - gap, high, 3);
    g.fill();
  } else g.fillRect(x, y, wide - gap, high);
  if (wide > 3) texture(g, x, y, wide - gap, high, paint);
  if (label && wide > 26 && high >= 16)
    write(
      g,
      label,
      x + 6,
      y + Math.min(high / 2, 20),
      wide - 12,
      paint.pattern === "hatch" ? theme.fill.muted : inkOn(colour),
      colour,
      paint,
    );
  g.globalAlpha = 1;
}

// Hatching of padding, dots of validity, ticks of offsets: readable without colours.
function texture(g, x, y, wide, high, paint) {
  const hatch = paint.pattern === "hatch" || paint.pattern === "cross";
  if (!hatch && paint.role !== "validity" && paint.role !== "offsets") return;
  g.save();
  g.beginPath();
  g.rect(x, y, wide, high);
  g.clip();
  if (hatch) {
    g.strokeStyle = paint.pattern === "cross" ? inkOn(colourOf(paint)) : theme.fill.hatch;
    g.lineWidth = 1;
    g.beginPath();
    for (let at = x - high - ((x - high) % 7); at < x + wide; at += 7) {
      g.moveTo(at, y + high);
      g.lineTo(at + high, y);
    }
    g.stroke();
  } else {
    g.fillStyle = theme.roles.values[paint.column % COLOURS];
    g.globalAlpha *= 0.55;
    if (paint.role === "offsets")
      for (let at = x - (x % 6) + 6; at < x + wide; at += 6) g.fillRect(at, y + high - 9, 1.4, 9);
    else
      for (let top = y + 26; top < y + high - 2; top += 8)
        for (let at = x - (x % 8) + 5; at < x + wide - 1; at += 8) g.fillRect(at, top, 2, 2);
  }
  g.restore();
}

function write(g, text, x, y, wide, ink, back, paint) {
  const short = fitted(g, text, wide);
  if (!short) return;
  g.textBaseline = "middle";
  if (paint && paint.pattern) {
    g.fillStyle = back;
    g.fillRect(x - 3, y - 8, g.measureText(short).width + 6, 16);
  }
  g.fillStyle = ink;
  g.fillText(short, x, y);
}

// A text cut to a width, with an ellipsis.
function fitted(g, text, wide) {
  const most = text.slice(0, Math.ceil(wide / 2));
  if (most.length === text.length && g.measureText(text).width <= wide) return text;
  const at = firstWhere(0, most.length, (k) => g.measureText(`${most.slice(0, k + 1)}…`).width > wide);
  return at > 1 ? `${most.slice(0, at)}…` : "";
}

// --- the picture ---------------------------------------------------------------------------------------------------

function drawPicture(canvas, state) {
  const { g, wide, high } = resize(canvas);
  g.font = FONT;
  const gutter = wide > 700 ? 76 : 0,
    scale = (wide - gutter) / (state.to - state.from);
  const place = { g, state, gutter, wide, scale, x: (offset) => gutter + (offset - state.from) * scale, found: [] };
  drawRuler(place);
  g.save();
  g.beginPath();
  g.rect(gutter, 0, wide - gutter, high);
  g.clip();
  drawList(place, state.root, 0);
  drawMarks(place);
  for (const [node, ink, width] of [
    [state.hover, theme.fill.text, 1.5],
    [state.selected, theme.fill.accent, 2.5],
  ])
    if (node) outline(place, node, ink, width);
  if (state.hover || state.selected) drawReferences(place, state.hover || state.selected);
  g.restore();
  if (gutter) {
    g.font = SMALL;
    g.fillStyle = theme.fill.muted;
    g.textBaseline = "middle";
    ROWS.forEach(([top, tall], i) => g.fillText(ROW_NAMES[i], 0, RULER + top + tall / 2));
  }
  canvas.dataset.from = state.from;
  canvas.dataset.to = state.to;
  canvas.dataset.gutter = gutter;
  return place;
}

function drawRuler({ g, state, gutter, wide, x, scale }) {
  const step = niceStep(110 / scale);
  g.font = SMALL;
  g.textBaseline = "alphabetic";
  for (let at = Math.ceil(state.from / step) * step; at <= state.to; at += step) {
    const label = step >= 1024 && at % 1024 === 0 ? bytes(at) : count(at);
    g.fillStyle = theme.fill.line;
    g.fillRect(x(at), 14, 1, 8);
    g.fillStyle = theme.fill.muted;
    if (x(at) + g.measureText(label).width + 4 <= wide && x(at) >= gutter - 1) g.fillText(label, x(at) + 3, 18);
  }
  g.font = FONT;
}

// A power of two, as sizes and offsets are multiples of those.
function niceStep(least) {
  return Math.max(1, 2 ** Math.ceil(Math.log2(least)));
}

// The children of a node in their row, and theirs below. Those narrower than a pixel are drawn together.
function drawList(place, node, row) {
  const { kids } = node,
    { state, x, scale } = place;
  const [top, tall] = ROWS[row],
    y = RULER + top,
    least = 1.5 / scale;
  let i = childAt(kids, state.from);
  while (i < kids.n && kids.start(i) < state.to) {
    const start = kids.start(i),
      end = kids.end(i);
    if (end - start >= least) {
      drawNode(place, kids.get(i), row);
      i++;
      continue;
    }
    let next = firstWhere(i + 1, kids.n, (k) => kids.start(k) >= start + least || kids.end(k) - kids.start(k) >= least);
    if (row === 0)
      while (next < kids.n && kids.start(next) < state.to && kids.end(next) - kids.start(next) < least) next++;
    const stop = kids.end(next - 1),
      first = kids.get(i);
    const left = x(start),
      width = Math.max((stop - start) * scale, 1);
    if (row === 0) {
      drawRun(place, kids, i, next, left, width);
      i = next;
      continue;
    }
    cell(place.g, left, y, width, BOTTOM - top, { ...first.paint, pattern: "" }, "", isDim(state, first));
    i = next;
  }
}

// Messages too narrow to be told apart: stripes, and below them the share of each column.
function drawRun(place, kids, first, next, left, wide) {
  const { g } = place,
    middle = kids.get((first + next) >> 1),
    paint = { ...middle.paint, pattern: "" };
  const [[top, tall], [part, low]] = ROWS,
    back = colourOf(paint),
    label = `${count(next - first)} parts, around ${nameOf(middle)}`;
  cell(g, left, RULER + top, wide, tall, paint, "");
  g.fillStyle = theme.fill.card;
  g.globalAlpha = 0.28;
  for (let x = left + 3; x < left + wide - 2; x += 4) g.fillRect(x, RULER + top, 1, tall);
  g.globalAlpha = 1;
  if (wide > 60)
    write(g, label, left + 9, RULER + top + tall / 2, wide - 18, inkOn(back), back, { pattern: "stripes" });
  cell(g, left, RULER + part, wide, low, { fill: "body" }, middle.kind === "record batch" ? "metadata and bodies" : "");
  if (middle.kind === "record batch") drawBands(place, left, wide);
}

function drawNode(place, node, row) {
  const { g, state, x, scale, gutter, wide } = place;
  const left = Math.max(x(node.start), gutter - 1),
    right = Math.min(x(node.end), wide + 8);
  const [top, tall] = ROWS[row],
    deep = row < 3 && node.kids.n > 0;
  const low = deep ? top + tall : BOTTOM;
  const full = row === 1 && node.kind === "body" && !node.kids.n;
  if (deep || full)
    cell(g, left, RULER + top, right - left, tall, node.paint, labelIn(node, right - left), isDim(state, node));
  else cell(g, left, RULER + top, right - left, low - top, node.paint, labelIn(node, right - left), isDim(state, node));
  if (full) drawBands(place, left, right - left);
  if (!deep) return;
  if ((node.end - node.start) * scale >= 3 || row > 0) drawList(place, node, row + 1);
  else drawBands(place, left, right - left);
}

const SHORTENED = new Set(["table", "vector", "block"]); // their first word is their kind, which the colour tells

function labelIn(node, wide) {
  if (node.kind === "buffer" && node.field && wide > 7 * nameOf(node).length) return nameOf(node);
  if (node.kind === "record batch" && node.value && wide > 170) return `${node.label} · ${node.value}`;
  if (node.region >= 0 && node.kind === "string") return node.value;
  if (node.region >= 0 && SHORTENED.has(node.kind)) return node.label.slice(node.label.indexOf(" ") + 1);
  return node.label;
}

function isDim(state, node) {
  return state.column >= 0 && node.column >= 0 && node.column !== state.column;
}

// Batches too narrow for their columns: what shares their bytes, from top to bottom.
function drawBands(place, left, wide) {
  const { g, state } = place,
    top = RULER + ROWS[2][0],
    tall = BOTTOM - ROWS[2][0];
  if (!state.shares.length) return cell(g, left, top, wide, tall, { fill: "body" }, "");
  const from = Math.max(left, place.gutter),
    inside = Math.min(left + wide, place.wide) - from;
  let y = top;
  for (const { paint, label, part } of state.shares) {
    const high = part * tall,
      text = wide > 300 && high >= 16 ? `${label} · ${percent(part)} of the bytes` : "";
    if (high > 0)
      cell(
        g,
        from,
        y,
        inside,
        Math.max(high - (high > 4 ? 1 : 0), 0.5),
        paint,
        text,
        state.column >= 0 && paint.column !== state.column,
      );
    y += high;
  }
}

function rowOf(node) {
  const top = ROWS[node.depth - 1][0];
  const last = node.depth < 4 && node.kids.n ? node.depth - 1 : 3;
  return [RULER + top, ROWS[last][0] + ROWS[last][1] - top];
}

function outline({ g, x, scale, gutter, wide }, node, ink, width) {
  if (node.depth < 1 || node.depth > 4) return;
  const [top, tall] = node.many ? [RULER + ROWS[node.depth - 1][0], ROWS[node.depth - 1][1]] : rowOf(node);
  const left = Math.max(x(node.start), gutter - 9),
    right = Math.min(Math.max(x(node.end), x(node.start) + 3), wide + 9);
  g.strokeStyle = ink;
  g.lineWidth = width;
  g.strokeRect(left + 0.5, top + 0.5, Math.max(right - left - 2, 2), tall - 1);
}

// Findings: a bar below the ruler.
function drawMarks({ g, state, x }) {
  for (const [start, end] of state.findings) {
    if (end < state.from || start > state.to) continue;
    g.fillStyle = theme.fill.gap;
    g.fillRect(x(start), RULER - 3, Math.max((end - start) * state.scale || 0, 3), 3);
  }
}

// Where the offsets in a table or vector lead.
function drawReferences({ g, x, state }, node) {
  const targets = node.region >= 0 ? state.data.regions.references[node.region] : [];
  if (!targets.length) return;
  const [top, tall] = rowOf(node),
    from = (x(node.start) + x(node.end)) / 2,
    y = top + tall - 8;
  g.strokeStyle = theme.fill.text;
  g.fillStyle = theme.fill.text;
  g.lineWidth = 1.5;
  for (const target of targets) {
    const to = x(target) + 1.5,
      dip = Math.min(60, 14 + Math.abs(to - from) / 6);
    g.beginPath();
    g.moveTo(from, y);
    g.quadraticCurveTo((from + to) / 2, y - dip * 2, to, y);
    g.stroke();
    g.beginPath();
    g.moveTo(to, y + 3);
    g.lineTo(to - 3.5, y - 4);
    g.lineTo(to + 3.5, y - 4);
    g.fill();
  }
}

// --- the ribbon ----------------------------------------------------------------------------------------------------

const RIBBON = { top: 52, tall: 32 };

function drawRibbon(canvas, state) {
  const { g, wide, high } = resize(canvas),
    gutter = wide > 700 ? 76 : 0;
  const scale = (wide - gutter) / state.data.size,
    x = (offset) => gutter + offset * scale;
  const { top, tall } = RIBBON,
    { kids } = state.root,
    least = 1.2 / scale;
  g.font = SMALL;
  drawArcs(g, state, x);
  for (let i = 0; i < kids.n;) {
    const start = kids.start(i);
    let next = i + 1,
      stop = kids.end(i);
    if (stop - start < least) {
      next = firstWhere(next, kids.n, (k) => kids.start(k) >= start + least || kids.end(k) - kids.start(k) >= least);
      stop = kids.end(next - 1);
    }
    const node = kids.get(i);
    cell(
      g,
      x(start),
      top,
      Math.max((stop - start) * scale, 1.2),
      tall,
      node.paint,
      next === i + 1 ? node.label : "",
      false,
    );
    i = next;
  }
  const left = x(state.from),
    right = Math.max(x(state.to), left + 3);
  g.fillStyle = theme.fill.card;
  g.globalAlpha = 0.6;
  g.fillRect(gutter, top, left - gutter, tall);
  g.fillRect(right, top, wide - right, tall);
  g.globalAlpha = 1;
  g.strokeStyle = theme.fill.accent;
  g.lineWidth = 2;
  g.strokeRect(left, top - 2, Math.max(right - left, 2), tall + 4);
  g.globalAlpha = 0.35;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(left, top + tall + 2);
  g.lineTo(gutter, high);
  g.moveTo(right, top + tall + 2);
  g.lineTo(wide, high);
  g.stroke();
  g.globalAlpha = 1;
  g.fillStyle = theme.fill.muted;
  g.textBaseline = "middle";
  if (gutter) {
    if (state.data.footer) g.fillText("blocks", 0, 24);
    g.fillText("messages", 0, top + tall / 2);
  }
  const end = bytes(state.data.size);
  g.fillText("0", gutter, high - 12);
  g.fillText(end, wide - g.measureText(end).width, high - 12);
  for (const [start, stop] of state.findings) {
    g.fillStyle = theme.fill.gap;
    g.fillRect(x(start), top + tall + 5, Math.max((stop - start) * scale, 3), 4);
  }
}

// The blocks of the footer: an arc to each message, or to some of many.
function drawArcs(g, state, x) {
  const { data } = state,
    { messages } = data;
  if (!data.footer || !messages.n) return;
  const from = (x(data.footer[0]) + x(data.footer[1])) / 2,
    step = Math.max(1, Math.floor(messages.n / 90));
  const many = Math.ceil(messages.n / step);
  g.lineWidth = 1.3;
  for (let i = 0; i < messages.n; i += step) {
    if (messages.kind[i] === SCHEMA) continue;
    const to = x(messages.start[i]) + 1,
      high = 6 + 44 * Math.min(1, Math.abs(from - to) / (x(data.size) - x(0)));
    g.strokeStyle = theme.fill[PAINT_OF_MESSAGE[messages.kind[i]] || "batch"];
    g.globalAlpha = many > 30 ? 0.45 : 0.85;
    g.beginPath();
    g.moveTo(from, RIBBON.top);
    g.bezierCurveTo(from, RIBBON.top - high * 1.25, to, RIBBON.top - high * 1.25, to, RIBBON.top - 3);
    g.stroke();
    g.fillStyle = g.strokeStyle;
    g.beginPath();
    g.moveTo(to, RIBBON.top - 1);
    g.lineTo(to - 3, RIBBON.top - 7);
    g.lineTo(to + 3, RIBBON.top - 7);
    g.fill();
  }
  g.globalAlpha = 1;
}
