// Decoding: base64 → deflate → JSON (written by data.py).

async function readData(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return model(await new Response(stream).json());
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
function model(data) {
  const { gap, metadata, body, kind, step } = data.messages,
    n = gap.length,
    start = new Float64Array(n),
    end = new Float64Array(n),
    number = new Float64Array(n);
  for (let i = 0, at = 0, last = 0; i < n; i++) {
    start[i] = at + gap[i];
    at = end[i] = start[i] + metadata[i] + body[i];
    number[i] = last += step[i];
  }
  data.leaves.forEach((leaves) => (leaves.groups = groupsOf(leaves.column)));
  return {
    ...data,
    messages: { n, start, end, metadata, body, kind, number },
    spans: data.spans.map((span) => spanOfData(span, data.leaves[span.leaves])),
    regions: { n: data.regions.start.length, ...data.regions },
    fields: fieldsOf(data.fields),
  };
}

// A span of batches: its leaves, and the offset and length of each buffer, row by row.
function spanOfData(span, leaves) {
  const { first, count } = span,
    wide = leaves.column.length,
    offset = new Float64Array(wide * count),
    length = new Float64Array(wide * count);
  for (let row = 0; row < count; row++) {
    for (let leaf = 0, end = 0; leaf < wide; leaf++) {
      const i = row * wide + leaf,
        from = leaf * count + row;
      offset[i] = end + span.gaps[from];
      end = offset[i] + (length[i] = span.lengths[from]);
    }
  }
  return { first, count, leaves, places: { wide, offset, length } };
}

// Where the leaves of each column start, and where the last one ends.
function groupsOf(column) {
  const groups = [];
  for (let i = 0; i < column.length; i++) if (!i || column[i] !== column[i - 1]) groups.push(i);
  return [...groups, column.length];
}

function fieldsOf(fields) {
  const { own, depth } = fields,
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
  return { ...fields, n, total, firstOf };
}
