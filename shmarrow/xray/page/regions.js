// Nodes of walked regions: FlatBuffers tables, prefixes, and buffers drawn one by one.

const PAINT_OF_REGION = {
  magic: "magic",
  prefix: "root",
  root: "root",
  table: "table",
  vtable: "vtable",
  vector: "vector",
  block: "vector",
  string: "string",
  end: "end",
  size: "root",
  length: "root",
  gap: "gap",
  unknown: "gap",
  overlap: "gap",
  footer: "footer",
  message: "other",
};

function regionNode(data, i, parent, index, end) {
  const { regions } = data,
    kind = regions.kind[i];
  const paint = {
    fill: PAINT_OF_REGION[kind] || "other",
    pattern: kind === "padding" ? "hatch" : kind === "gap" || kind === "unknown" ? "cross" : "",
  };
  const more = {
    kind,
    chapter: regions.chapter[i],
    value: regions.value[i],
    path: regions.path[i],
    region: i,
  };
  if (kind === "buffer") {
    const parts = regions.path[i].split(" / "),
      buffer = parts[parts.length - 1];
    paint.column = hashOf(parts.length > 2 ? parts[1] : "");
    paint.role = roleOf(buffer);
  }
  return new Node(parent, index, regions.start[i], Math.min(regions.end[i], end), regions.what[i], paint, more);
}

// The regions within a range; bytes left out because of the budget become a node of their own.
function regionList(data, parent, from, to) {
  const { regions } = data,
    starts = [],
    ends = [],
    makers = [];
  let at = from,
    i = firstWhere(0, regions.n, (r) => regions.start[r] >= from);
  for (; i < regions.n && regions.start[i] < to; i++) {
    const start = regions.start[i],
      end = Math.min(regions.end[i], to),
      which = i;
    if (start < at || regions.kind[i] === "overlap") continue;
    if (start > at) {
      starts.push(at);
      ends.push(start);
      makers.push(unlisted(data, at, start));
    }
    starts.push(start);
    ends.push(end);
    makers.push((node, index) => regionNode(data, which, node, index, to));
    at = end;
  }
  if (!starts.length) return NOTHING;
  if (at < to) {
    starts.push(at);
    ends.push(to);
    makers.push(unlisted(data, at, to));
  }
  return listOf(starts, ends, (index) => makers[index](parent, index));
}

function hashOf(text) {
  let made = 0;
  for (let i = 0; i < text.length; i++) made = (made * 31 + text.charCodeAt(i)) >>> 0;
  return made;
}

function roleOf(buffer) {
  if (buffer === "validity") return "validity";
  return buffer === "offsets" || buffer === "sizes" || buffer === "type_ids" ? "offsets" : "values";
}
