// What stands around the picture: facts, details of the selection, the table, columns and findings.

const $ = (id) => document.getElementById(id);
const PAGE = 200;

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function showFacts({ facts }) {
  $("name").textContent = facts.name;
  const texts = [
    facts.kind, size(facts.size), `${grouped(facts.size)} bytes`,
    facts.columns.length ? `${grouped(facts.columns.length)} columns` : "",
    facts.batches ? `${grouped(facts.batches)} record batches` : "",
    facts.dictionaries ? `${grouped(facts.dictionaries)} dictionary batches` : "",
    facts.compression ? facts.compression : "", facts.version ? `metadata ${facts.version}` : "",
    facts.endianness === "big" ? "big-endian" : "",
  ];
  $("facts").append(...texts.filter(Boolean).map((text) => element("li", text)));
  const hidden = facts.batches - facts.shown;
  if (hidden > 0 && facts.columns.length) {
    const which = facts.shown ? `Batches ${facts.first} to ${facts.first + facts.shown - 1} are shown buffer by buffer` : "No batch is shown buffer by buffer";
    $("note").textContent = `${which}; of the others only metadata and body. For others run: shmarrow xray ${facts.name} --batch A:B --html OUT`;
  }
}

function showLegend(picture) {
  const items = [["values", "", 0], ["offsets, sizes, views", "bars", 0], ["validity", "dots", 0], ["padding", "hatched", -1], ["metadata", "", -2], ["footer and its pointers", "", -3]];
  $("legend").replaceChildren(...items.map(([text, texture, which]) => {
    const swatch = element("span", "", "swatch"), { colors, hues } = picture;
    const color = which === -1 ? colors.pad : which === -2 ? colors.meta : which === -3 ? colors.foot : hues[0];
    swatch.style.background = texture === "" ? color
      : texture === "bars" ? `repeating-linear-gradient(90deg, ${color} 0 2px, transparent 2px 5px)`
      : texture === "dots" ? `radial-gradient(${color} 30%, transparent 34%) 0 0 / 5px 5px`
      : `repeating-linear-gradient(135deg, ${color} 0 2px, transparent 2px 5px)`;
    swatch.style.borderColor = color;
    const item = element("li");
    item.append(swatch, text);
    return item;
  }));
}

function showDetail(model, node) {
  const panel = $("detail");
  panel.replaceChildren(element("h2", node === model.root ? "The whole object" : node.what));
  const facts = model.facts, bytes = node.end - node.start;
  const rows = [
    ["bytes", `${grouped(node.start)} – ${grouped(node.end)}  (0x${node.start.toString(16)} – 0x${node.end.toString(16)})`],
    ["size", `${size(bytes)}${bytes >= 1024 ? `, ${grouped(bytes)} bytes` : ""}${facts.size ? `, ${percent(bytes / facts.size)} of the object` : ""}`],
    ["kind", facts.kinds[node.kind] ? `${node.kind}: ${facts.kinds[node.kind]}` : node.kind],
    ["value", node.value], ["where", node.path], ["specification", node.chapter],
    ["first bytes", node.bytes ? node.bytes.replace(/(..)/g, "$1 ").trim() : ""],
  ];
  const list = element("dl");
  for (const [name, text] of rows) if (text) list.append(element("dt", name), element("dd", text, name === "first bytes" ? "mono" : ""));
  panel.append(list);
}

function percent(part) {
  return part >= 0.0995 ? `${(part * 100).toFixed(0)} %` : part >= 0.001 ? `${(part * 100).toFixed(1)} %` : "< 0.1 %";
}

const HEADINGS = [["part", (n) => n.what], ["start", (n) => n.start], ["end", (n) => n.end], ["size", (n) => n.end - n.start], ["value", (n) => n.value || ""]];

/** The parts of a node as a table, 200 rows at a time; headings sort it. */
class Table {
  constructor(model, onSelect, onEnter) {
    Object.assign(this, { model, onSelect, onEnter, sorted: 1, down: false });
    $("table").tHead.rows[0].append(...HEADINGS.map(([name], i) => {
      const cell = element("th"), button = element("button", name);
      cell.scope = "col";
      button.onclick = () => { this.down = this.sorted === i ? !this.down : i === 3; this.sorted = i; this.show(this.node); };
      cell.append(button);
      return cell;
    }));
    $("more").onclick = () => this.append();
  }

  show(node) {
    this.node = node;
    const key = HEADINGS[this.sorted][1], sign = this.down ? -1 : 1;
    this.rows = [...this.model.inside(node)].sort((a, b) => sign * (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : a.start - b.start));
    this.shown = 0;
    $("listing-title").textContent = node === this.model.root ? "Parts of the object" : `Inside ${node.what}`;
    $("table").tBodies[0].replaceChildren();
    [...$("table").tHead.rows[0].cells].forEach((cell, i) => cell.setAttribute("aria-sort", i !== this.sorted ? "none" : this.down ? "descending" : "ascending"));
    this.append();
  }

  append() {
    const body = $("table").tBodies[0];
    for (const node of this.rows.slice(this.shown, this.shown + PAGE)) {
      const row = body.insertRow();
      row.node = node;
      node.row = row;
      HEADINGS.forEach(([name, key], i) => {
        const cell = row.insertCell();
        if (i === 0) {
          const button = element("button", node.what);
          button.onclick = () => this.onSelect(node);
          button.ondblclick = () => this.onEnter(node);
          cell.append(button);
        } else {
          cell.textContent = i === 3 ? size(key(node)) : i < 3 ? grouped(key(node)) : key(node);
          cell.className = i < 4 ? "number" : "value";
        }
      });
    }
    this.shown = Math.min(this.rows.length, this.shown + PAGE);
    $("more").hidden = this.shown >= this.rows.length;
    $("more").textContent = `Show more (${grouped(this.rows.length - this.shown)} left)`;
  }

  mark(node) {
    for (const row of $("table").tBodies[0].querySelectorAll("[aria-selected]")) row.removeAttribute("aria-selected");
    if (node && node.row && node.row.isConnected) {
      node.row.setAttribute("aria-selected", "true");
      node.row.scrollIntoView({ block: "nearest" });
    }
  }
}

/** The columns with their share of the bytes; at most 300 are listed, the search finds others. */
function showColumns(model, picture, onColumn) {
  const { columns } = model.facts;
  if (!columns.length) { $("schema").hidden = true; return; }
  const total = Math.max(1, model.bytes.reduce((sum, each) => sum + each, 0));
  const wanted = $("search").value.toLowerCase();
  const found = columns.map((_, i) => i).filter((i) => columns[i][0].toLowerCase().includes(wanted));
  $("columns").replaceChildren(...found.slice(0, 300).map((i) => {
    const item = element("li"), button = element("button"), swatch = element("span", "", "swatch"), bar = element("span", "", "bar");
    swatch.style.background = swatch.style.borderColor = bar.style.background = picture.hues[i % picture.hues.length];
    bar.style.width = `${Math.max(0.5, (model.bytes[i] / total) * 100)}%`;
    button.setAttribute("aria-pressed", String(picture.highlighted === i));
    button.append(swatch, element("b", columns[i][0]), element("i", columns[i][1]), element("em", model.bytes[i] ? `${size(model.bytes[i])}, ${percent(model.bytes[i] / total)}` : ""), bar);
    button.onclick = () => onColumn(i);
    item.append(button);
    return item;
  }));
  $("columns-note").textContent = found.length > 300 ? `and ${grouped(found.length - 300)} more` : found.length ? "" : "no column has such a name";
}

function showFindings(model, onRange) {
  const { findings, more_findings: more } = model.facts;
  if (!findings.length) { $("findings").replaceWith(element("p", "None: every byte is as the specification says, as far as this page has read.")); return; }
  $("findings").append(...findings.map(([start, end, severity, message, remedy]) => {
    const item = element("li", undefined, severity), button = element("button");
    button.append(element("b", severity), element("span", `${grouped(start)} – ${grouped(end)}: ${message}`), element("i", remedy));
    button.onclick = () => onRange(start, end);
    item.append(button);
    return item;
  }));
  if (more) $("findings").append(element("li", `and ${grouped(more)} more`));
}
