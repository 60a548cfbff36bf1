// The panels: facts, breadcrumbs, the selected part, and the table.

const byId = (id) => document.getElementById(id);
const PAGE = 200;

// --- numbers and elements ------------------------------------------------------------------------------------------

function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

function bytes(size) {
  if (size < 1024) return `${count(size)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let value = size / 1024,
    unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function percent(part) {
  const value = part * 100;
  if (value >= 99.95 || value === 0) return `${Math.round(value)} %`;
  return value < 0.1 ? "< 0.1 %" : `${value.toFixed(1)} %`;
}

// An element; strings become text and are never markup.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "colour") made.style.background = value;
    else if (name === "text") made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((each) => each !== null && each !== ""));
  return made;
}

// --- facts ---------------------------------------------------------------------------------------------------------

function showFacts(data) {
  byId("name").textContent = data.name;
  const rows = data.rows.reduce((sum, each) => sum + each, 0);
  const complete = data.rows.length === data.batches && data.batches > 0;
  const facts = [
    ["", data.kind],
    [bytes(data.size), data.size >= 1024 ? `${count(data.size)} bytes` : ""],
    [count(data.fields.firstOf.length), "columns"],
    [count(data.batches), data.batches === 1 ? "batch" : "batches"],
    [complete ? count(rows) : "", "rows"],
    [
      data.dictionaries ? count(data.dictionaries) : "",
      data.dictionaries === 1 ? "dictionary batch" : "dictionary batches",
    ],
    ["", data.compression || (data.batches ? "not compressed" : "")],
    ["", data.version ? `metadata ${data.version}` : ""],
    ["", `${data.endianness}-endian`],
  ];
  byId("facts").replaceChildren(
    ...facts
      .filter(([value, label]) => value || (label && !/^(rows|dictionary)/.test(label)))
      .filter(([value]) => value !== "0")
      .map(([value, label]) =>
        make(
          "span",
          {},
          value && make("b", { text: value }),
          value && label ? " " : "",
          label && make("i", { text: label }),
        ),
      ),
  );
}

// Tell what the page leaves out, and the command that draws it.
function showNotice(data) {
  const [first, stop] = data.reached,
    notice = byId("notice");
  if (stop - first >= data.batches) return;
  notice.textContent =
    `This page shows the buffers of record batches ${count(first)} to ${count(stop - 1)}, of ${count(data.batches)}; ` +
    "the others are drawn as a whole. To see others: shmarrow xray FILE --html OUT --batch A:B";
  notice.hidden = false;
}

function showJumps(view) {
  const { data } = view,
    { kids } = view.root,
    found = new Map();
  const note = (node) => {
    if (node && !found.has(node.kind)) found.set(node.kind, node);
  };
  for (let i = 0; i < Math.min(kids.n, 400); i++) note(kids.get(i));
  for (let i = Math.max(0, kids.n - 6); i < kids.n; i++) note(kids.get(i));
  const titles = {
    "record batch": "First batch",
    "dictionary batch": "First dictionary",
    end: "End of stream",
    size: "Footer size",
    magic: "Magic",
  };
  const jumps = [...found]
    .filter(([kind]) => kind !== "padding")
    .map(([kind, node]) => [
      titles[kind] || (kind === "schema" ? "Schema" : kind === "footer" ? "Footer" : nameOf(node)),
      node,
    ]);
  const last = firstFromEnd(kids, "record batch");
  if (last && data.batches > 1)
    jumps.splice(1 + jumps.findIndex(([title]) => title === "First batch"), 0, ["Last batch", last]);
  byId("jumps").replaceChildren(
    ...jumps.slice(0, 12).map(([title, node]) =>
      make(
        "button",
        {
          type: "button",
          on: {
            click: () => {
              select(view, node);
              zoomTo(view, node);
            },
          },
        },
        make("i", { colour: colourOf(node.paint) }),
        title,
      ),
    ),
  );
}

function firstFromEnd(kids, kind) {
  for (let i = kids.n - 1; i >= Math.max(0, kids.n - 50); i--) if (kids.get(i).kind === kind) return kids.get(i);
  return null;
}

// --- the selected part -----------------------------------------------------------------------------------------------

function where(node) {
  const path = pathOf(node)
    .slice(1, -1)
    .filter((each) => each.kind !== "body")
    .map((each) => each.label);
  return path.join(" › ");
}

function tipOf(view, node) {
  const share = percent(node.size / view.data.size);
  const lines = [
    `bytes ${count(node.start)} – ${count(node.end)} · ${bytes(node.size)} · ${share}`,
    where(node),
    node.value,
    node.chapter,
  ];
  return [make("b", { text: nameOf(node) }), ...lines.filter(Boolean).map((text) => make("div", { text }))];
}

// The sentence on what a part is: that of the most specific name. Buffers drawn from spans include their length prefix.
function sentenceOf(data, node) {
  const context = [node.chapter.slice(node.chapter.indexOf(", ") + 2), node.parent ? node.parent.kind : "", data.kind],
    part = node.region < 0 ? "" : node.label.replace(/[: ]+(\d|\(shared).*$/, ""),
    names = [part, `${roleIn(node)} ${node.kind}`, node.kind];
  const tried = names.flatMap((name) => [...context.map((each) => `${name}, ${each}`), name]);
  const found = tried.find((name) => Object.hasOwn(data.sentences, name));
  const packed = node.kind === "buffer" && node.region < 0 && data.compression;
  return [found, packed ? "compressed buffer" : ""].map((name) => data.sentences[name]).join(" ").trim();
}

// The role of a buffer, such as "offsets", without the number that data buffers and levels of an index have.
function roleIn(node) {
  const name = node.path === undefined ? node.label : node.path.slice(node.path.lastIndexOf(" / ") + 3);
  return name.replace(/( of level)? \d+$/, "");
}

function showSelected(view) {
  const node = view.selected,
    box = byId("selected");
  if (!node) {
    box.replaceChildren(
      make("p", { class: "muted", text: "Click a part of the picture, or use the arrow keys in it." }),
    );
    return;
  }
  const facts = [
    ["bytes", `${count(node.start)} – ${count(node.end)}`],
    ["hex", `0x${node.start.toString(16)} – 0x${node.end.toString(16)}`],
    ["size", node.size >= 1024 ? `${bytes(node.size)} (${count(node.size)} B)` : bytes(node.size)],
    ["share", percent(node.size / view.data.size)],
    ["kind", node.kind],
    ["in", where(node)],
    ["value", node.value],
    ["more", node.kids.n ? "" : node.note],
  ];
  const list = make(
    "dl",
    {},
    ...facts
      .filter(([, text]) => text)
      .flatMap(([term, text]) => [make("dt", { text: term }), make("dd", {}, make("bdi", { text }))]),
  );
  const dump = node.kids.n ? "" : hexOf(view.data, node);
  box.replaceChildren(
    make("b", {}, make("bdi", { text: nameOf(node) })),
    make(
      "p",
      { class: "meaning" },
      sentenceOf(view.data, node),
      node.chapter && make("span", { class: "muted", text: ` Specification: ${node.chapter}.` }),
    ),
    list,
    dump && make("pre", { class: "hex", text: dump, "aria-label": "The first bytes, in hexadecimal and as text" }),
  );
  byId("announce").textContent =
    `${nameOf(node)}, bytes ${count(node.start)} to ${count(node.end)}, ${bytes(node.size)}`;
}

// A hex dump of a region of metadata, 8 bytes per line.
function hexOf(data, node) {
  const { raw } = data,
    i = firstWhere(0, raw.start.length, (k) => raw.start[k] + raw.hex[k].length / 2 > node.start);
  if (i >= raw.start.length || raw.start[i] > node.start) return "";
  const skip = node.start - raw.start[i],
    n = Math.min(raw.hex[i].length / 2 - skip, node.size, 128),
    lines = [];
  for (let at = 0; at < n; at += 8) {
    const from = 2 * (skip + at),
      hex = raw.hex[i].slice(from, from + 2 * Math.min(8, n - at)),
      part = hex.match(/../g).map((byte) => parseInt(byte, 16));
    const text = part.map((x) => (x > 32 && x < 127 ? String.fromCharCode(x) : "·")).join("");
    lines.push(
      `${String(node.start + at).padStart(8)}  ${hex.replace(/..\B/g, "$& ").padEnd(23)}  ${text}`,
    );
  }
  if (node.size > n) lines.push(`${"".padStart(8)}  … ${count(node.size - n)} more`);
  return lines.join("\n");
}

function showCrumbs(view) {
  const path = pathOf(view.focus);
  byId("crumbs").replaceChildren(
    ...path.map((node, i) =>
      make(
        "li",
        {},
        make(
          "button",
          {
            type: "button",
            ...(i === path.length - 1 ? { "aria-current": "location" } : {}),
            on: { click: () => zoomTo(view, node) },
          },
          make("bdi", { text: i ? nameOf(node) : "whole object" }),
        ),
      ),
    ),
  );
}

// --- the table -----------------------------------------------------------------------------------------------------

const COLUMNS = [
  ["Part", "", (node) => nameOf(node), null],
  ["Start", "num", (node) => count(node.start), (kids, i) => kids.start(i)],
  ["End", "num", (node) => count(node.end), (kids, i) => kids.end(i)],
  ["Size", "num", (node) => bytes(node.size), (kids, i) => kids.end(i) - kids.start(i)],
  ["Value", "says", (node) => node.value, null],
];
const sorting = { by: 1, down: false, page: 0 };

// The parts in view. For a message: the metadata, then the columns of the body.
function rowsOf(node) {
  const { kids } = node,
    body = kids.n === 2 && kids.get(1).kind === "body" ? kids.get(1).kids : NOTHING;
  if (!body.n) return kids;
  const pick = (name) => (i) => (i ? body[name](i - 1) : kids[name](0));
  return { n: body.n + 1, start: pick("start"), end: pick("end"), get: pick("get") };
}

function showTable(view) {
  const kids = rowsOf(view.focus),
    order = orderOf(kids),
    pages = Math.max(1, Math.ceil(kids.n / PAGE));
  sorting.page = Math.min(sorting.page, pages - 1);
  byId("rows-of").textContent = view.focus.parent ? nameOf(view.focus) : "the whole object";
  const heads = COLUMNS.map(([title, kind], i) =>
    make(
      "th",
      {
        scope: "col",
        class: kind,
        ...(i === sorting.by ? { "aria-sort": sorting.down ? "descending" : "ascending" } : {}),
      },
      make("button", { type: "button", on: { click: () => sortBy(view, i) } }, title),
    ),
  );
  byId("rows").tHead.replaceChildren(make("tr", {}, ...heads));
  const from = sorting.page * PAGE,
    to = Math.min(kids.n, from + PAGE),
    rows = [];
  for (let k = from; k < to; k++) rows.push(rowOfTable(view, kids.get(order ? order[k] : k)));
  byId("rows").tBodies[0].replaceChildren(...rows);
  const turn = (by, title, off) =>
    make(
      "button",
      {
        type: "button",
        ...(off ? { disabled: "" } : {}),
        "aria-label": by < 0 ? "Previous rows" : "Next rows",
        on: {
          click: () => {
            sorting.page += by;
            showTable(view);
          },
        },
      },
      title,
    );
  byId("pager").replaceChildren(
    ...(pages > 1
      ? [
          make("span", { class: "muted", text: `${count(from + 1)}–${count(to)} of ${count(kids.n)}` }),
          turn(-1, "‹", !sorting.page),
          turn(1, "›", sorting.page === pages - 1),
        ]
      : [make("span", { class: "muted", text: kids.n === 1 ? "1 part" : `${count(kids.n)} parts` })]),
  );
  markRow(view);
}

function orderOf(kids) {
  const [, , text, number] = COLUMNS[sorting.by];
  if (sorting.by === 1 && !sorting.down) return null;
  const keys = Array.from({ length: kids.n }, (_, i) => (number ? number(kids, i) : text(kids.get(i))));
  const order = Array.from(keys, (_, i) => i),
    compare = number ? (a, b) => keys[a] - keys[b] : (a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0);
  return order.sort((a, b) => (sorting.down ? compare(b, a) : compare(a, b)) || a - b);
}

function sortBy(view, i) {
  sorting.down = sorting.by === i ? !sorting.down : i === 3;
  sorting.by = i;
  sorting.page = 0;
  showTable(view);
  byId("rows").tHead.querySelectorAll("button")[i].focus();
}

function partCell(node, text, act) {
  const swatch = make("span", { class: "swatch", colour: colourOf(node.paint) });
  const button = make("button", { type: "button", on: { click: act } }, make("bdi", { text }));
  return make("span", { class: "part" }, swatch, button);
}

function rowOfTable(view, node) {
  const act = () => {
    select(view, node, { reveal: true });
    if (node.kids.n) zoomTo(view, node);
  };
  const cells = COLUMNS.map(([, kind, text], i) =>
    i ? make("td", { class: kind, text: text(node) }) : make("td", {}, partCell(node, text(node), act)),
  );
  const row = make(
    "tr",
    {
      on: {
        pointerenter: () => {
          view.hover = node;
          redraw(view);
        },
        pointerleave: () => {
          view.hover = null;
          redraw(view);
        },
      },
    },
    ...cells,
  );
  row.dataset.key = node.key;
  return row;
}

function markRow(view) {
  for (const row of byId("rows").tBodies[0].rows)
    row.classList.toggle("on", !!view.selected && row.dataset.key === view.selected.key);
}
