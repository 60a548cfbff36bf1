// The tree that is drawn: object → messages → metadata and body → columns or FlatBuffers tables → buffers.
//
// A node is {start, end, label, paint, parent, index, depth, kids}. `kids` is a lazy list {n, start(i), end(i), get(i)},
// ordered and disjoint. Lists are views of arrays, so a hundred thousand batches cost nothing until they are drawn.

const MESSAGE = "Columnar.rst, Encapsulated message format";
const SCHEMA = 1,
  DICTIONARY = 2,
  BATCH = 3;
const PURPOSE = {
  [SCHEMA]: "the fields: names and types of the columns",
  [DICTIONARY]: "the values of a dictionary-encoded column",
};
const PAINT_OF_MESSAGE = ["other", "schema", "dictionary", "batch", "batch", "batch"];

class Node {
  constructor(parent, index, start, end, label, paint, more) {
    this.parent = parent;
    this.index = index;
    this.start = start;
    this.end = end;
    this.label = label;
    this.paint = paint;
    this.depth = parent ? parent.depth + 1 : 0;
    this.chapter = "";
    this.value = "";
    this.note = "";
    this.region = -1;
    this.column = -1;
    this.list = null;
    this.makeKids = null;
    Object.assign(this, more);
  }
  get kids() {
    if (!this.list) this.list = this.makeKids ? this.makeKids(this) : NOTHING;
    return this.list;
  }
  get key() {
    return this.parent ? `${this.parent.key}/${this.index}` : "";
  }
  get size() {
    return this.end - this.start;
  }
  isSame(other) {
    return !!other && other.key === this.key;
  }
}

const NOTHING = { n: 0, start: () => 0, end: () => 0, get: () => null };

// A list over arrays of starts and ends that creates its nodes on access.
function listOf(starts, ends, make) {
  const made = new Map();
  return {
    n: starts.length,
    start: (i) => starts[i],
    end: (i) => ends[i],
    get(i) {
      let node = made.get(i);
      if (!node) {
        if (made.size > 5000) made.clear();
        made.set(i, (node = make(i)));
      }
      return node;
    },
  };
}

// The first child that ends after an offset.
function childAt(kids, offset) {
  return firstWhere(0, kids.n, (i) => kids.end(i) > offset);
}

// --- the object ----------------------------------------------------------------------------------------------------

function rootOf(data) {
  const root = new Node(null, 0, 0, data.size, data.name, { fill: "other" });
  root.makeKids = () => topLevel(data, root);
  return root;
}

// Messages and the bytes between them.
function topLevel(data, root) {
  const starts = [],
    ends = [],
    makers = [];
  const add = (start, end, make) => {
    starts.push(start);
    ends.push(end);
    makers.push(make);
  };
  const { messages } = data;
  let at = 0;
  for (let i = 0; i < messages.n; i++) {
    const start = Math.max(messages.start[i], at),
      end = messages.end[i];
    if (start > at) addBetween(data, at, start, add);
    if (end <= start) continue;
    add(start, end, (parent, index) => messageNode(data, i, parent, index, start));
    at = end;
  }
  if (at < data.size) addBetween(data, at, data.size, add);
  return listOf(starts, ends, (index) => makers[index](root, index));
}

// Bytes outside messages, from walked regions; those of one part, such as the footer, are grouped.
function addBetween(data, from, to, add) {
  const { regions } = data;
  let at = from,
    i = firstWhere(0, regions.n, (r) => regions.start[r] >= from);
  const rest = (end) => {
    if (end > at) add(at, end, unlisted(data, at, end));
    at = end;
  };
  while (i < regions.n && regions.start[i] < to) {
    if (regions.start[i] < at) {
      i++;
      continue;
    }
    rest(regions.start[i]);
    const part = partOf(regions.path[i]),
      first = i,
      start = at;
    while (i < regions.n && regions.start[i] < to && partOf(regions.path[i]) === part) {
      at = Math.max(at, Math.min(regions.end[i], to));
      i++;
      if (part === "file" || part === "stream") break;
    }
    let end = at;
    if (part === "footer" && data.footer) end = at = Math.max(at, Math.min(data.footer[1], to));
    const alone = i === first + 1 && part !== "footer";
    add(start, end, (parent, index) =>
      alone ? regionNode(data, first, parent, index, end) : groupNode(data, part, first, parent, index, start, end),
    );
  }
  rest(to);
}

// The footer or an unlisted message. Its FlatBuffer becomes one part, like the metadata of other messages.
function groupNode(data, part, first, parent, index, start, end) {
  const kind = part === "footer" ? "footer" : "message",
    paint = { fill: kind === "footer" ? "footer" : "other" };
  const chapter = data.regions.chapter[first];
  return new Node(parent, index, start, end, part, paint, {
    kind,
    chapter,
    value: kind === "footer" ? "the schema once more, and where each message is" : "",
    makeKids: (node) =>
      listOf(
        [start],
        [end],
        () =>
          new Node(node, 0, start, end, "metadata", paint, {
            kind: "metadata",
            chapter,
            value: "a FlatBuffer",
            makeKids: (inner) => regionList(data, inner, start, end),
          }),
      ),
  });
}

function unlisted(data, start, end) {
  const footer = data.footer && start >= data.footer[0] && end <= data.footer[1];
  return (parent, index) =>
    new Node(
      parent,
      index,
      start,
      end,
      footer ? "footer" : "not included in this page",
      { fill: footer ? "footer" : "other" },
      { kind: footer ? "footer" : "left out", note: `shmarrow xray FILE --range ${start}:${end} explains them` },
    );
}

function partOf(path) {
  const at = path.indexOf(" / ");
  return at < 0 ? path : path.slice(0, at);
}

// --- messages ------------------------------------------------------------------------------------------------------

function messageLabel(data, i) {
  const { kind, number } = data.messages,
    name = data.names[kind[i]] || "message";
  const walked = firstWhere(0, data.regions.n, (r) => data.regions.start[r] >= data.messages.start[i]);
  if (kind[i] > BATCH && data.regions.start[walked] === data.messages.start[i])
    return partOf(data.regions.path[walked]);
  return kind[i] === SCHEMA ? "schema" : `${name} ${number[i]}`;
}

function messageNode(data, i, parent, index, start) {
  const { messages } = data,
    kind = messages.kind[i],
    number = messages.number[i];
  const rows = kind === BATCH && number < data.rows.length ? data.rows[number] : null;
  return new Node(
    parent,
    index,
    start,
    messages.end[i],
    messageLabel(data, i),
    { fill: PAINT_OF_MESSAGE[kind] || "batch" },
    {
      kind: data.names[kind] || "message",
      chapter: MESSAGE,
      message: i,
      value: rows === null ? PURPOSE[kind] || "" : `${count(rows)} ${rows === 1 ? "row" : "rows"}`,
      makeKids: (node) => partsOf(data, i, node),
    },
  );
}

// Metadata and body.
function partsOf(data, i, parent) {
  const { messages } = data,
    middle = Math.min(messages.start[i] + messages.metadata[i], messages.end[i]);
  const starts = [parent.start],
    ends = [middle];
  if (middle < parent.end) {
    starts.push(middle);
    ends.push(parent.end);
  }
  return listOf(starts, ends, (index) =>
    index ? bodyNode(data, i, parent, middle) : metadataNode(data, parent, middle),
  );
}

function metadataNode(data, parent, end) {
  return new Node(
    parent,
    0,
    parent.start,
    end,
    "metadata",
    { fill: parent.kind === "schema" ? "schema" : "metadata" },
    {
      kind: "metadata",
      chapter: MESSAGE,
      value: "a prefix and a FlatBuffer: what the message is, and where its buffers are",
      makeKids: (node) => {
        const kids = regionList(data, node, node.start, node.end);
        if (!kids.n) node.note = `${explain(data, parent)} explains each byte`;
        return kids;
      },
    },
  );
}

function explain(data, message) {
  const i = message.message;
  return data.messages.kind[i] === BATCH
    ? `shmarrow xray FILE --html OUT --batch ${data.messages.number[i]}`
    : `shmarrow xray FILE --range ${message.start}:${message.end}`;
}

function bodyNode(data, i, parent, start) {
  const span = data.messages.kind[i] === BATCH ? spanOf(data, data.messages.number[i]) : null;
  return new Node(
    parent,
    1,
    start,
    parent.end,
    "body",
    { fill: "body" },
    {
      kind: "body",
      chapter: "Columnar.rst, RecordBatch message",
      value: "the buffers of each column",
      span,
      makeKids: (node) => {
        if (span) return columnList(data, node, span, data.messages.number[i] - span.first);
        const kids = regionList(data, node, node.start, node.end);
        if (!kids.n)
          node.note = `the buffers of this message are not in this page; ${explain(data, parent)} draws them`;
        return kids;
      },
    },
  );
}

function spanOf(data, number) {
  const at = firstWhere(0, data.spans.length, (i) => data.spans[i].first + data.spans[i].count > number);
  return at < data.spans.length && data.spans[at].first <= number ? data.spans[at] : null;
}

// --- columns and buffers -------------------------------------------------------------------------------------------

// The columns of one batch. A column extends from its first buffer to that of the next column.
function columnList(data, body, span, row) {
  const { groups } = span.leaves,
    { wide, offset } = span.places,
    base = row * wide,
    n = groups.length - 1;
  const startOf = (g) => (g ? body.start + offset[base + groups[g]] : body.start);
  const columns = [];
  for (let g = 0; g < n; g++) if (edge(g + 1) > edge(g)) columns.push(g);
  function edge(g) {
    return g < n ? startOf(g) : body.end;
  }
  const list = listOf(
    columns.map(edge),
    columns.map((g) => edge(g + 1)),
    (index) => {
      const g = columns[index],
        column = span.leaves.column[groups[g]],
        field = data.fields.firstOf[column];
      let own = groups[g + 1] - 1; // the last buffer that is the column's own, not a child's
      while (own > groups[g] && span.leaves.field[own] !== span.leaves.field[groups[g]]) own--;
      return new Node(
        body,
        index,
        edge(g),
        edge(g + 1),
        data.fields.name[field],
        { column },
        {
          kind: "column",
          column,
          value: data.fields.type[field],
          chapter: span.leaves.chapter[own],
          makeKids: (node) => bufferList(data, node, span, base, groups[g], groups[g + 1], body),
        },
      );
    },
  );
  return list;
}

function bufferList(data, column, span, base, first, last, body) {
  const starts = [],
    ends = [],
    which = [];
  const add = (start, end, leaf) => {
    if (end > start) {
      starts.push(start);
      ends.push(end);
      which.push(leaf);
    }
  };
  let at = column.start;
  for (let leaf = first; leaf < last; leaf++) {
    const length = span.places.length[base + leaf];
    if (length <= 0) continue;
    const start = body.start + span.places.offset[base + leaf];
    add(at, start, -1);
    add(start, start + length, leaf);
    at = start + length;
  }
  add(at, column.end, -1);
  return listOf(starts, ends, (index) => {
    const leaf = which[index];
    if (leaf < 0) {
      return new Node(
        column,
        index,
        starts[index],
        ends[index],
        "padding",
        { fill: "other", pattern: "hatch" },
        {
          kind: "padding",
          chapter: "Columnar.rst, Buffer Alignment and Padding",
          column: column.column,
          value: "aligns the buffer that follows",
        },
      );
    }
    return bufferNode(data, column, index, starts[index], ends[index], span.leaves, leaf);
  });
}

function bufferNode(data, column, index, start, end, leaves, leaf) {
  const field = leaves.field[leaf],
    buffer = leaves.buffer[leaf],
    inner = fieldPath(data, field);
  const region = firstWhere(0, data.regions.n, (r) => data.regions.start[r] >= start);
  const walked =
    region < data.regions.n &&
    data.regions.start[region] === start &&
    data.regions.kind[region] !== "padding";
  return new Node(
    column,
    index,
    start,
    end,
    buffer,
    { column: column.column, role: roleOf(buffer) },
    {
      kind: "buffer",
      column: column.column,
      chapter: leaves.chapter[leaf],
      field: inner,
      value: walked ? data.regions.what[region] : `${buffer} of ${inner}: ${data.fields.type[field]}`,
    },
  );
}

// The path of a field: its name after those of its parents.
function fieldPath(data, field) {
  const { depth, name } = data.fields,
    names = [name[field]];
  for (let i = field, want = depth[field] - 1; want >= 0; i--) {
    if (depth[i] === want) {
      names.push(name[i]);
      want--;
    }
  }
  return names.reverse().join(".");
}

function pathOf(node) {
  const made = [];
  for (let each = node; each; each = each.parent) made.push(each);
  return made.reverse();
}

function nameOf(node) {
  if (node.kind === "buffer" && node.field !== undefined) return `${node.label} of ${node.field}`;
  return node.kind === "column" ? `column ${node.label}` : node.label;
}
