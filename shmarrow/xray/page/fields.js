// The columns of the schema, with their bytes; findings; the legend.

// --- columns -------------------------------------------------------------------------------------------------------

function showFields(view, most = PAGE) {
  const { fields } = view.data,
    query = byId("search").value.trim().toLowerCase(),
    found = [];
  if (!fields.n) return;
  byId("fields-card").hidden = false;
  let more = 0;
  for (let i = 0; i < fields.n; i++) {
    if (query && !fields.name[i].toLowerCase().includes(query)) continue;
    if (found.length < most) found.push(i);
    else more++;
  }
  const all = fields.firstOf.reduce((sum, i) => sum + fields.total[i], 0),
    shown = view.data.spans.reduce((sum, span) => sum + span.count, 0);
  const some = shown < view.data.batches ? ` in the ${count(shown)} batches of this page` : "";
  byId("fields-note").textContent = all ? `Bytes of buffers${some}, without padding: ${bytes(all)}` : "";
  const items = found.map((i) => fieldItem(view, i, all));
  if (more)
    items.push(
      make(
        "li",
        {},
        make(
          "button",
          { type: "button", on: { click: () => showFields(view, most * 5) } },
          "",
          make("span", { class: "label", text: `${count(more)} more` }),
        ),
      ),
    );
  if (!found.length) items.push(make("li", { class: "muted", text: "No matching columns." }));
  byId("fields").replaceChildren(...items);
}

function fieldItem(view, i, all) {
  const { fields } = view.data,
    column = fields.column[i],
    colour = theme.roles.values[column % COLOURS];
  const bar = make("i", { colour });
  bar.style.width = `${all ? (100 * fields.total[i]) / all : 0}%`;
  const item = make(
    "button",
    {
      type: "button",
      "aria-pressed": String(view.column === column && !fields.depth[i]),
      title: fields.name[i],
      on: { click: () => pickColumn(view, column) },
    },
    make("span", { class: "swatch", colour }),
    make(
      "span",
      { class: "label" },
      make("bdi", { text: fields.name[i] || "(no name)" }),
      " ",
      make("span", { class: "type", text: fields.type[i] }),
    ),
    make("span", {
      class: "num muted",
      text: all ? `${bytes(fields.total[i])} · ${percent(fields.total[i] / all)}` : "",
    }),
    make("span", { class: "share" }, bar),
  );
  item.style.paddingLeft = `${6 + 14 * Math.min(fields.depth[i], 8)}px`;
  return make("li", {}, item);
}

// Highlight a column, and select it in the first batch in view that contains it.
function pickColumn(view, column) {
  view.column = view.column === column ? -1 : column;
  showFields(view);
  redraw(view);
  if (view.column < 0) return;
  const node = columnNode(view, column);
  if (node) {
    select(view, node, { reveal: true });
    if (view.to - view.from > 60 * node.parent.size) zoomTo(view, node.parent);
  }
}

function columnNode(view, column) {
  const { kids } = view.root;
  for (let i = childAt(kids, view.from), tried = 0; i < kids.n && tried < 3000; i++, tried++) {
    const body =
      kids.get(i).message === undefined || kids.get(i).kind !== "record batch" ? null : kids.get(i).kids.get(1);
    if (!body || !body.span) continue;
    const at = firstWhere(0, body.kids.n, (k) => body.kids.get(k).column >= column);
    if (at < body.kids.n && body.kids.get(at).column === column) return body.kids.get(at);
  }
  return null;
}

// --- findings and legend -------------------------------------------------------------------------------------------

function showFindings(view) {
  const { findings, more_findings: more } = view.data;
  if (!findings.length) return;
  byId("findings-card").hidden = false;
  const mark = byId("marked"),
    errors = findings.filter(([, , severity]) => severity !== "note").length;
  const total = errors || findings.length,
    word = errors ? "finding" : "note";
  mark.textContent = `${count(total)}${more ? "+" : ""} ${word}${total === 1 ? "" : "s"}`;
  mark.classList.add(["error", "warning", "note"].find((each) => findings.some(([, , severity]) => severity === each)));
  mark.hidden = false;
  mark.addEventListener("click", () => byId("findings-card").scrollIntoView({ block: "center" }));
  byId("findings").replaceChildren(
    ...findings.map(([start, end, severity, message, remedy]) =>
      make(
        "li",
        {},
        make(
          "button",
          { type: "button", on: { click: () => goToFinding(view, start, end) } },
          make("b", { class: severity, text: severity }),
          ` at ${count(start)}: `,
          make("bdi", { text: message }),
        ),
        remedy && make("div", { class: "muted" }, make("bdi", { text: remedy })),
      ),
    ),
  );
}

function goToFinding(view, start, end) {
  const room = Math.max(32, (end - start) * 0.5);
  show(view, start - room, Math.max(end, start + 1) + room, { smooth: true });
  let node = view.root;
  for (;;) {
    const i = childAt(node.kids, start);
    if (i >= node.kids.n || node.kids.start(i) > start || node.kids.end(i) < end) break;
    node = node.kids.get(i);
  }
  if (node.parent) select(view, node);
}

const LEGEND = [
  ["validity: one bit per value; 0 is null", { column: 0, role: "validity" }, "columns"],
  ["offsets, sizes", { column: 0, role: "offsets" }, "columns"],
  ["values, data", { column: 0, role: "values" }, "columns"],
  ["padding", { fill: "other", pattern: "hatch" }, ""],
  ["metadata", { fill: "metadata" }, ""],
  ["table", { fill: "table" }, ""],
  ["vtable", { fill: "vtable" }, ""],
  ["vector", { fill: "vector" }, ""],
  ["string", { fill: "string" }, ""],
  ["not explained", { fill: "gap", pattern: "cross" }, "findings"],
];

function showLegend(view) {
  const fits = ([, , only]) => !only || (only === "findings" ? view.data.findings.length : view.data.fields.n);
  byId("legend").replaceChildren(
    ...LEGEND.filter(fits).map(([label, paint]) => {
      const canvas = make("canvas", { "aria-hidden": "true" });
      requestAnimationFrame(() => {
        const { g, wide, high } = resize(canvas);
        cell(g, 0, 0, wide, high, paint, "");
        if (paint.role === "validity")
          for (let i = 3; i < wide; i += 5) {
            g.fillStyle = theme.roles.values[0];
            g.fillRect(i, 3, 2, 2);
            g.fillRect(i, 8, 2, 2);
          }
      });
      return make("span", {}, canvas, label);
    }),
  );
}
