"use strict";
// The object's bytes as a tree: the object, its messages, their metadata and body, columns, buffers.

/** Read the compressed block of the page: a JSON document and runs of numbers. */
async function readBlock() {
  const text = document.getElementById("data").textContent;
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const words = new DataView(bytes.buffer);
  const count = words.getUint32(4, true);
  let at = 8 + 4 * count;
  const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(at, (at += words.getUint32(0, true)))));
  const runs = [];
  for (let i = 0; i < count; i++) {
    runs.push(readNumbers(bytes.subarray(at, (at += words.getUint32(8 + 4 * i, true)))));
  }
  return { facts, runs };
}

/** Zigzag-encoded integers of 7 bits a byte, lowest first; exact up to 2^53. */
function readNumbers(bytes) {
  let count = 0;
  for (let i = 0; i < bytes.length; i++) count += bytes[i] < 128;
  const numbers = new Float64Array(count);
  for (let i = 0, n = 0; n < count; n++) {
    let value = 0, scale = 1;
    while (bytes[i] >= 128) { value += (bytes[i++] - 128) * scale; scale *= 128; }
    value += bytes[i++] * scale;
    numbers[n] = value % 2 ? -(value + 1) / 2 : value / 2;
  }
  return numbers;
}

function sums(numbers) {
  for (let i = 1; i < numbers.length; i++) numbers[i] += numbers[i - 1];
  return numbers;
}

/** The first position in a sorted array whose value is greater than `value`. */
function above(array, value, key = (item) => item) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(array[middle]) > value) high = middle; else low = middle + 1;
  }
  return low;
}

const RECORD_BATCH = 3, HAS_COLUMNS = 3;

/** The object and everything in it; nodes are made when they are first asked for. */
class Model {
  constructor({ facts, runs }) {
    this.facts = facts;
    const [gaps, meta, body, kinds, numbers, offsets, lengths, counts, widths, leaves] = runs;
    this.readParts(gaps, sums(meta), sums(body), sums(kinds), sums(numbers));
    this.readBuffers(offsets, lengths, counts, widths, leaves);
    this.regions = facts.regions.map((each) => this.region(each));
    this.root = { start: 0, end: facts.size, kind: "object", what: `${facts.kind} ${facts.name}`, chapter: "", level: -1 };
  }

  /** Messages, the regions between them, and what is left, in order and without overlap. */
  readParts(gaps, meta, body, kinds, numbers) {
    const { facts } = this;
    const parts = facts.between.map((each) => this.region(each));
    this.blocks = new Map();
    let end = 0;
    for (let i = 0; i < gaps.length; i++) {
      const start = end + gaps[i];
      end = start + meta[i] + body[i];
      const name = facts.names[kinds[i]] || "message";
      const part = {
        start, end, kind: "message", message: kinds[i], number: numbers[i], meta: meta[i], body: body[i],
        what: kinds[i] === RECORD_BATCH || kinds[i] === 2 ? `${name} ${numbers[i]}` : `${name} message`,
        chapter: "Columnar.rst, Encapsulated message format",
      };
      parts.push(part);
      if (kinds[i] === RECORD_BATCH) this.blocks.set(numbers[i], part);
    }
    this.parts = filled(parts, 0, facts.size, (start, stop) => ({ start, end: stop, kind: "gap", what: "bytes between messages" }));
    this.parts.forEach((part, index) => { part.level = 0; part.index = index; part.column = -1; });
  }

  /** Offsets and lengths of the buffers of some batches, relative to the body. */
  readBuffers(offsets, lengths, counts, widths, leaves) {
    const { facts } = this;
    this.from = new Float64Array(widths.length + 1);
    widths.forEach((width, i) => { this.from[i + 1] = this.from[i] + width; });
    this.leafOf = leaves;
    this.offsets = offsets;
    this.lengths = lengths;
    this.counts = counts;
    const width = widths[0] || 0, step = facts.step || 8;
    let batch = 0;
    for (let i = 0, behind = 0; i < lengths.length; i++) {
      while (i >= this.from[batch + 1]) { batch++; behind = 0; }
      if (facts.regular && i >= width) lengths[i] += lengths[i - width];
      offsets[i] += Math.ceil(behind / step) * step;
      behind = offsets[i] + lengths[i];
    }
    for (let i = 2 * facts.nodes; i < counts.length; i++) counts[i] += counts[i - 2 * facts.nodes];
    this.bytes = new Float64Array(facts.columns.length);
    this.eachBuffer((leaf, length) => { if (leaf[2] >= 0) this.bytes[leaf[2]] += length; });
  }

  eachBuffer(call) {
    const { leaves, regular } = this.facts;
    const width = leaves.length;
    for (let i = 0; i < this.lengths.length; i++) call(leaves[regular ? i % width : this.leafOf[i]], this.lengths[i]);
  }

  region([start, end, kind, what, path, chapter, value, bytes]) {
    return { start, end, kind, what, path, chapter, value, bytes, column: -1 };
  }

  /** What is inside a node, in order; an empty list for the smallest parts. */
  inside(node) {
    if (node.inside) return node.inside;
    let found = [];
    if (node === this.root) found = this.parts;
    else if (node.kind === "message" && node.meta !== undefined) found = this.ofMessage(node);
    else if (node.kind === "body") found = this.isDetailed(node.parent) ? this.columnsOf(node) : this.known(node);
    else if (node.kind === "metadata" || node.kind === "footer") found = this.known(node);
    else if (node.buffers) found = filled(node.buffers, node.start, node.end, padding, true);
    found.forEach((each, index) => { each.parent = node; each.index = index; each.level = node.level + 1; });
    node.inside = found;
    return found;
  }

  ofMessage(node) {
    const middle = node.start + node.meta;
    const made = [{ start: node.start, end: middle, kind: "metadata", what: "prefix and metadata", chapter: node.chapter, column: -1 }];
    if (node.body) {
      made.push({ start: middle, end: node.end, kind: "body", what: "body", chapter: "Columnar.rst, RecordBatch message", column: -1 });
    }
    return made;
  }

  isDetailed(part) {
    const { first, shown } = this.facts;
    return part.message === RECORD_BATCH && part.number >= first && part.number < first + shown;
  }

  /** Regions of the walk that are in the page. */
  known(node) {
    if (!this.facts.covered.some(([start, end]) => start <= node.start && node.end <= end)) return [];
    const first = above(this.regions, node.start - 1, (each) => each.start);
    const made = [];
    for (let i = first; i < this.regions.length && this.regions[i].start < node.end; i++) {
      if (this.regions[i].kind !== "overlap") made.push({ ...this.regions[i] });
    }
    return made;
  }

  /** The columns of a batch; each has its buffers. */
  columnsOf(node) {
    const { facts } = this, { leaves, strings, columns, regular, nodes } = facts;
    const batch = node.parent.number - facts.first;
    const made = [];
    let column = null;
    for (let i = this.from[batch]; i < this.from[batch + 1]; i++) {
      const leaf = leaves[regular ? i - this.from[batch] : this.leafOf[i]];
      const [path, role, number, field, type, chapter] = leaf;
      const start = node.start + this.offsets[i], end = start + this.lengths[i];
      if (!column || column.column !== number) {
        const [name, kind] = columns[number] || ["?", "?"];
        column = {
          kind: "column", what: `column '${name}'`, column: number, value: kind, buffers: [], start: Infinity, end: -Infinity,
          chapter: "Columnar.rst, RecordBatch message",
        };
        made.push(column);
      }
      const count = (batch * nodes + field) * 2;
      const value = nodes ? `${strings[type]}, ${grouped(this.counts[count])} slots, ${grouped(this.counts[count + 1])} null` : strings[type];
      column.buffers.push({
        kind: "buffer", role: strings[role], what: `${strings[role]} of '${strings[path]}'`, column: number,
        start, end, value, chapter: strings[chapter],
      });
      if (end > start) { column.start = Math.min(column.start, start); column.end = Math.max(column.end, end); }
    }
    for (const each of made) if (each.start > each.end) each.start = each.end = each.buffers[0].start;
    return filled(made, node.start, node.end, padding, true);
  }
}

function padding(start, end) {
  return { start, end, kind: "padding", what: "padding", chapter: "Columnar.rst, Buffer Alignment and Padding", column: -1 };
}

/** Sort parts, cut what an earlier one has already, and fill the holes between them. Empty parts are kept on request. */
function filled(parts, start, end, make, keepEmpty = false) {
  const made = [];
  let at = start;
  for (const part of [...parts].sort((a, b) => a.start - b.start || b.end - a.end)) {
    if (part.end <= part.start) { if (keepEmpty) made.push(part); continue; }
    if (part.end <= at) { part.overlaps = true; if (keepEmpty) made.push(part); continue; }
    if (part.start > at) made.push(make(at, Math.min(part.start, end)));
    if (part.start < at) part.start = at;
    made.push(part);
    at = part.end;
  }
  if (at < end) made.push(make(at, end));
  return made;
}

function grouped(number) {
  return number.toLocaleString("en-US");
}

/** A number of bytes for people. */
function size(bytes) {
  for (const [unit, scale] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]]) {
    if (bytes >= scale) return `${(bytes / scale).toFixed(bytes < 10 * scale ? 2 : 1)} ${unit}`;
  }
  return `${bytes} B`;
}

/** The columns of a schema and their colors: eight hues that people with color blindness can tell apart. */
const HUES = {
  light: ["#0072b2", "#e08e00", "#008f68", "#b8578f", "#3d9fd6", "#cf5200", "#7a5fc7", "#8a7a00"],
  dark: ["#4aa8e0", "#f0b040", "#35c19a", "#e08dbb", "#86ccf4", "#f5874f", "#ab96ee", "#cdbb3a"],
};
