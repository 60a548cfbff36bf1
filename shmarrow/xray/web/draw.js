// Drawing: bands of bytes to scale, from whole messages down to buffers, and the footer's pointers above them.

const BAND = 46, GAP = 6, ARCS = 58, MAX_ARCS = 64;
const BANDS = ["messages", "metadata | body", "columns", "buffers"];

class Picture {
  constructor(model, canvas, ribbon) {
    this.model = model;
    this.canvas = canvas;
    this.ribbon = ribbon;
    this.view = [0, model.root.end];
    this.selected = null;
    this.hovered = null;
    this.highlighted = -1;
    this.patterns = new Map();
  }

  get dark() { return document.documentElement.dataset.theme === "dark"; }

  readTheme() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = Object.fromEntries(["bg", "ink", "muted", "line", "meta", "magic", "foot", "hole", "pad", "accent"].map((n) => [n, color(n)]));
    this.hues = HUES[this.dark ? "dark" : "light"];
    this.patterns.clear();
  }

  resize() {
    for (const canvas of [this.canvas, this.ribbon]) {
      const { width, height } = canvas.getBoundingClientRect(), scale = devicePixelRatio || 1;
      canvas.width = Math.max(1, Math.round(width * scale));
      canvas.height = Math.max(1, Math.round(height * scale));
      canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    }
    this.width = this.canvas.getBoundingClientRect().width;
    this.patterns.clear();
  }

  x(byte) { return ((byte - this.view[0]) / (this.view[1] - this.view[0])) * this.width; }
  byte(x) { return this.view[0] + (x / this.width) * (this.view[1] - this.view[0]); }
  top(level) { return ARCS + level * (BAND + GAP); }

  draw() {
    const context = (this.context = this.canvas.getContext("2d"));
    const height = this.canvas.getBoundingClientRect().height;
    context.clearRect(0, 0, this.width, height);
    context.font = "12px ui-sans-serif, system-ui, sans-serif";
    context.textBaseline = "middle";
    this.drawBand(this.model.root);
    this.drawArcs();
    this.drawScale();
    this.outline(this.hovered, this.colors.muted);
    this.outline(this.selected, this.colors.accent);
    this.drawRibbon();
  }

  /** The parts of a node that are in view; those narrower than a pixel are drawn as one line each. */
  drawBand(node) {
    const parts = this.model.inside(node).filter((each) => each.end > each.start);
    const level = node.level + 1;
    if (!parts.length || level >= BANDS.length) return;
    const left = Math.max(0, this.x(node.start)), right = Math.min(this.width, this.x(node.end));
    let i = Math.max(0, above(parts, this.byte(left), (each) => each.end));
    for (let x = left; x < right && i < parts.length; ) {
      const part = parts[i], from = Math.max(left, this.x(part.start)), to = Math.min(right, this.x(part.end));
      if (to - from >= 1.5) {
        this.drawPart(part, from, to, level);
        if (to - from >= 5) this.drawBand(part);
        x = to;
        i++;
      } else {
        x = Math.floor(from) + 1;
        this.context.fillStyle = this.base(part);
        this.context.globalAlpha = 0.75;
        this.context.fillRect(x - 1, this.top(level), 1, BAND);
        this.context.globalAlpha = 1;
        i = Math.max(i + 1, above(parts, this.byte(x), (each) => each.end));
      }
    }
  }

  base(part) {
    if (part.column >= 0) return this.hues[part.column % this.hues.length];
    const { colors } = this;
    if (part.kind === "message") return part.message === RECORD_BATCH ? this.hues[4] : part.message === 2 ? this.hues[3] : part.message === 1 ? colors.meta : this.hues[2];
    if (part.kind === "padding") return colors.pad;
    if (part.kind === "magic" || part.kind === "end" || part.kind === "size") return colors.magic;
    if (part.kind === "footer" || part.kind === "block") return colors.foot;
    if (part.kind === "gap" || part.kind === "unknown" || part.kind === "overlap") return colors.hole;
    if (part.kind === "body") return this.hues[4];
    if (part.kind === "buffer") return this.hues[2];
    return colors.meta;
  }

  /** How a part is filled: solid, or with a texture that tells padding, validity and offsets from values. */
  drawPart(part, from, to, level) {
    const context = this.context, y = this.top(level), color = this.base(part);
    const texture = part.kind === "padding" ? "hatched" : part.role === "validity" ? "dots" : /^(offsets|sizes|type_ids|views|indices)/.test(part.role || "") ? "bars" : part.kind === "vtable" || part.kind === "vector" ? "bars" : "";
    const width = Math.max(1, to - from - (to - from > 3 ? 1 : 0));
    const dim = this.highlighted >= 0 && part.column >= 0 && part.column !== this.highlighted;
    context.globalAlpha = dim ? 0.25 : 1;
    context.fillStyle = color;
    if (texture) context.globalAlpha *= texture === "hatched" ? 0.16 : 0.4;
    context.fillRect(from, y, width, BAND);
    context.globalAlpha = dim ? 0.25 : 1;
    if (texture && width > 2) {
      context.fillStyle = this.pattern(texture, color);
      context.fillRect(from, y, width, BAND);
    }
    context.globalAlpha = 1;
    const text = this.label(part);
    if (width > 26 && text) {
      context.save();
      context.beginPath();
      context.rect(from, y, width - 3, BAND);
      context.clip();
      context.fillStyle = texture ? this.colors.ink : readable(color);
      const lines = width > 60 && part.kind !== "padding" ? [text, size(part.end - part.start)] : [text];
      lines.forEach((line, i) => context.fillText(line, from + 5, y + BAND / 2 + (i - (lines.length - 1) / 2) * 15));
      context.restore();
    }
  }

  label(part) {
    if (part.kind === "padding") return part.end - part.start > 16 ? "padding" : "";
    if (part.role) return part.role;
    if (part.kind === "column") return part.what.slice(8, -1);
    return part.what;
  }

  pattern(kind, color) {
    const key = kind + color;
    if (!this.patterns.has(key)) {
      const tile = document.createElement("canvas"), scale = devicePixelRatio || 1, side = 8;
      tile.width = tile.height = side * scale;
      const context = tile.getContext("2d");
      context.scale(scale, scale);
      context.strokeStyle = context.fillStyle = color;
      context.lineWidth = 1.4;
      context.beginPath();
      if (kind === "hatched") {
        for (const shift of [-side, 0, side]) { context.moveTo(shift, side); context.lineTo(shift + side, 0); }
        context.stroke();
      } else if (kind === "dots") {
        for (const [x, y] of [[2, 2], [6, 6]]) context.fillRect(x - 1, y - 1, 2.2, 2.2);
      } else {
        context.moveTo(2, 0); context.lineTo(2, side); context.moveTo(6, 0); context.lineTo(6, side);
        context.stroke();
      }
      const made = this.context.createPattern(tile, "repeat");
      made.setTransform(new DOMMatrix().scale(1 / scale));
      this.patterns.set(key, made);
    }
    return this.patterns.get(key);
  }

  /** The footer's blocks as curves from the footer to the batches; of many, evenly chosen ones. */
  drawArcs() {
    const { facts, blocks } = this.model, context = this.context;
    if (!facts.footer || !blocks.size) return;
    const from = this.x((facts.footer[0] + facts.footer[1]) / 2);
    const every = Math.max(1, Math.ceil(blocks.size / MAX_ARCS));
    const chosen = this.selected && this.partOf(this.selected);
    for (const [number, part] of blocks) {
      const marked = part === chosen;
      if (number % every && !marked) continue;
      const to = this.x(part.start);
      if (to < -20 || to > this.width + 20) continue;
      context.strokeStyle = marked ? this.colors.accent : this.colors.foot;
      context.globalAlpha = marked ? 1 : Math.max(0.25, 0.7 - blocks.size / 120);
      context.lineWidth = marked ? 2 : 1.2;
      context.beginPath();
      context.moveTo(from, ARCS);
      const high = Math.max(4, ARCS - Math.min(ARCS - 6, 12 + Math.abs(from - to) / 9));
      context.bezierCurveTo(from, high, to, high, to, ARCS - 5);
      context.stroke();
      context.beginPath();
      context.moveTo(to, ARCS - 1);
      context.lineTo(to - 3.5, ARCS - 8);
      context.lineTo(to + 3.5, ARCS - 8);
      context.fillStyle = context.strokeStyle;
      context.fill();
    }
    context.globalAlpha = 1;
  }

  partOf(node) {
    let at = node;
    while (at && at.level > 0) at = at.parent;
    return at;
  }

  drawScale() {
    const context = this.context, y = this.top(BANDS.length) + 8, [a, b] = this.view;
    context.strokeStyle = this.colors.line;
    context.fillStyle = this.colors.muted;
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(this.width, y);
    const raw = (b - a) / Math.max(2, this.width / 130);
    const step = Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(1, raw))));
    for (let at = Math.ceil(a / step) * step; at <= b; at += step) {
      const x = this.x(at);
      context.moveTo(x, y);
      context.lineTo(x, y + 5);
      context.fillText(grouped(at), Math.min(x + 3, this.width - 60), y + 14);
    }
    context.stroke();
  }

  drawRibbon() {
    const context = this.ribbon.getContext("2d"), { width, height } = this.ribbon.getBoundingClientRect();
    const end = this.model.root.end;
    context.clearRect(0, 0, width, height);
    const parts = this.model.parts;
    for (let i = 0, x = 0; i < parts.length && x < width; ) {
      const from = (parts[i].start / end) * width, to = (parts[i].end / end) * width;
      context.fillStyle = this.base(parts[i]);
      context.globalAlpha = 0.55;
      context.fillRect(from, 4, Math.max(1, to - from - (to - from > 3 ? 1 : 0)), height - 8);
      x = Math.max(to, Math.floor(from) + 1);
      i = Math.max(i + 1, above(parts, (x / width) * end, (each) => each.end));
    }
    context.globalAlpha = 1;
    context.strokeStyle = this.colors.accent;
    context.lineWidth = 2;
    const from = (this.view[0] / end) * width, to = (this.view[1] / end) * width;
    context.strokeRect(Math.max(1, from), 1, Math.max(3, Math.min(width, to) - from - 2), height - 2);
  }

  outline(node, color) {
    if (!node || node.level < 0 || node.level >= BANDS.length) return;
    const from = Math.max(-2, this.x(node.start)), to = Math.min(this.width + 2, this.x(node.end));
    if (to < 0 || from > this.width) return;
    this.context.strokeStyle = color;
    this.context.lineWidth = 2.5;
    this.context.strokeRect(from, this.top(node.level) - 1, Math.max(2, to - from), BAND + 2);
  }

  /** The node that is drawn at a point. */
  at(x, y) {
    const level = Math.floor((y - ARCS) / (BAND + GAP));
    if (level < 0 || level >= BANDS.length) return null;
    const byte = this.byte(x);
    let node = this.model.root;
    while (node.level < level) {
      const parts = this.model.inside(node).filter((each) => each.end > each.start);
      const found = parts[above(parts, byte, (each) => each.end)];
      if (!found || found.start > byte) return node.level < 0 ? null : node;
      node = found;
    }
    return node;
  }
}

/** Black or white, whichever can be read on a color. */
function readable(color) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#10151c" : "#ffffff";
}
