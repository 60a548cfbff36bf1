// Decoding: base64 → deflate → a header and arrays of numbers (written by data.py).

async function readData(text) {
  const packed = atob(text.trim());
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const blob = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(blob.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(blob.subarray(4, 4 + length)));
  const arrays = {};
  let at = 4 + length;
  for (const [name, width, count] of header.arrays) {
    const from = at;
    lazily(arrays, name, () => unpack(blob, from, width, count));
    at += width * count;
  }
  return model(header, arrays);
}

// A property computed on first access: the first drawing needs few of the arrays.
function lazily(object, name, make) {
  Object.defineProperty(object, name, {
    configurable: true,
    enumerable: true,
    get() {
      const value = make();
      Object.defineProperty(object, name, { value, writable: true, enumerable: true });
      return value;
    },
  });
}

// Signed numbers of `width` bytes: the lowest bytes of all of them first, the highest last.
function unpack(blob, at, width, count) {
  const low = new Int32Array(count),
    made = new Float64Array(count),
    four = Math.min(width, 4);
  for (let k = 0; k < four; k++) {
    const plane = at + k * count,
      shift = 8 * k,
      last = k === width - 1;
    for (let i = 0; i < count; i++) low[i] |= (last ? (blob[plane + i] << 24) >> 24 : blob[plane + i]) << shift;
  }
  if (width <= 4) {
    for (let i = 0; i < count; i++) made[i] = low[i];
    return made;
  }
  const high = new Int32Array(count);
  for (let k = 4; k < width; k++) {
    const plane = at + k * count,
      shift = 8 * (k - 4),
      last = k === width - 1;
    for (let i = 0; i < count; i++) high[i] |= (last ? (blob[plane + i] << 24) >> 24 : blob[plane + i]) << shift;
  }
  for (let i = 0; i < count; i++) made[i] = (low[i] >>> 0) + high[i] * 4294967296;
  return made;
}

function sums(differences) {
  const made = new Float64Array(differences.length);
  let at = 0;
  for (let i = 0; i < made.length; i++) made[i] = at += differences[i];
  return made;
}

// The first position in [low, high) for which `test` is true, by binary search.
function firstWhere(low, high, test) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The data model: messages, spans of batches with their buffers, fields and regions.
function model(header, arrays) {
  const metadata = sums(arrays.metadata),
    body = sums(arrays.body),
    n = metadata.length;
  const start = new Float64Array(n),
    end = new Float64Array(n);
  let at = 0;
  for (let i = 0; i < n; i++) {
    start[i] = at + arrays.gap[i];
    at = end[i] = start[i] + metadata[i] + body[i];
  }
  const messages = { n, start, end, metadata, body, kind: arrays.kind, number: sums(arrays.number) };
  const spans = header.spans.map((span, i) => decodeSpan(span, i, arrays, header.strings));
  const regionStart = sums(arrays["region start"]);
  const regions = {
    n: regionStart.length,
    start: regionStart,
    end: regionStart.map((from, i) => from + arrays["region size"][i]),
    kind: arrays["region kind"],
    chapter: arrays["region chapter"],
    what: header.what,
    path: header.path,
    value: header.value,
    references: referencesOf(regionStart, arrays["reference count"], arrays.references),
  };
  const rawStart = sums(arrays["raw start"]);
  let next = 0;
  const rawAt = arrays["raw size"].map((size) => (next += size) - size);
  return {
    ...header,
    messages,
    spans,
    regions,
    rows: sums(arrays.rows),
    fields: fieldsOf(header, arrays),
    raw: { start: rawStart, size: arrays["raw size"], at: rawAt, bytes: arrays.raw },
  };
}

// A span of batches: its leaves, and the offset and length of each buffer, row by row.
function decodeSpan(span, index, arrays, strings) {
  const made = { first: span.first, count: span.count };
  lazily(made, "places", () => placesOf(span, index, arrays));
  lazily(made, "leaves", () => leavesOf(span, arrays, strings));
  return made;
}

function placesOf(span, index, arrays) {
  const length = arrays[`length ${index}`],
    offset = arrays[`offset ${index}`];
  const wide = arrays[`leaf column ${span.leaves}`].length,
    align = span.align;
  for (let i = wide; i < length.length; i++) length[i] += length[i - wide];
  for (let row = 0; row < span.count; row++) {
    let end = 0;
    for (let i = row * wide; i < (row + 1) * wide; i++) {
      if (length[i] > 0) {
        offset[i] += Math.ceil(end / align) * align;
        end = offset[i] + length[i];
      } else {
        offset[i] = end; // empty buffers have no offset
      }
    }
  }
  return { wide, offset, length };
}

function leavesOf(span, arrays, strings) {
  const named = (name) => Array.from(arrays[`leaf ${name} ${span.leaves}`], (i) => strings[i]);
  const column = arrays[`leaf column ${span.leaves}`],
    groups = [];
  for (let i = 0; i < column.length; i++) if (!i || column[i] !== column[i - 1]) groups.push(i);
  groups.push(column.length);
  return {
    column,
    field: arrays[`leaf field ${span.leaves}`],
    buffer: named("buffer"),
    chapter: named("chapter"),
    groups,
  };
}

function fieldsOf(header, arrays) {
  const own = arrays.field_bytes,
    depth = arrays.field_depth,
    column = arrays.field_column,
    n = own.length;
  const total = Float64Array.from(own),
    firstOf = [];
  const stack = [];
  for (let i = 0; i < n; i++) {
    if (!depth[i]) firstOf.push(i);
    stack.length = depth[i];
    for (const parent of stack) total[parent] += own[i];
    stack.push(i);
  }
  const { names: name, types: type, buffers, bodies } = header.fields;
  return { n, own, total, depth, column, firstOf, name, type, buffers, bodies };
}

function referencesOf(starts, counts, all) {
  const made = new Array(starts.length);
  let at = 0;
  for (let i = 0; i < starts.length; i++) {
    made[i] = Array.from(all.subarray(at, at + counts[i]), (difference) => starts[i] + difference);
    at += counts[i];
  }
  return made;
}
