// Startup: read the data, draw it, and connect the event listeners.

function connect(view) {
  const picture = byId("picture"),
    ribbon = byId("ribbon"),
    tip = byId("tip");
  view.draw = () => {
    view.place = drawPicture(picture, view);
    drawRibbon(ribbon, view);
  };
  view.picked = () => {
    showSelected(view);
    markRow(view);
  };
  view.listeners.push((moved) => {
    if (!moved) return;
    sorting.page = 0;
    showCrumbs(view);
    showTable(view);
  });
  listenToPointers(view, picture, tip);
  listenToRibbon(view, ribbon);
  listenToKeys(view, picture);
  byId("zoom-in").addEventListener("click", () => zoomBy(view, 0.5));
  byId("zoom-out").addEventListener("click", () => zoomBy(view, 2));
  byId("zoom-all").addEventListener("click", () => zoomTo(view, view.root));
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  new ResizeObserver(() => redraw(view)).observe(picture);
  listenToSearch(view);
  listenToTheme(view);
}

function listenToSearch(view) {
  const search = byId("search"),
    picture = byId("picture");
  search.addEventListener("input", () => showFields(view));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search.value = "";
      showFields(view);
      picture.focus();
    }
    const first = byId("fields").querySelector("button");
    if (event.key === "Enter" && first) {
      first.click();
      picture.focus();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey || byId("help").open)
      return;
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
    }
    if (event.key === "?") byId("help").showModal();
  });
}

// Follow the system's theme until the switch is used.
function listenToTheme(view) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (name) => {
    document.documentElement.dataset.theme = name;
    readTheme();
    showJumps(view);
    showLegend(view);
    showFields(view);
    showTable(view);
    redraw(view);
  };
  byId("theme").addEventListener("click", () =>
    apply(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  );
  dark.addEventListener("change", () => apply(dark.matches ? "dark" : "light"));
  apply(dark.matches ? "dark" : "light");
}

function failed(message) {
  const notice = byId("notice");
  notice.textContent = message;
  notice.hidden = false;
}

async function start() {
  if (typeof DecompressionStream !== "function")
    return failed("This browser cannot decompress the data of this page; any browser since 2023 can.");
  const view = makeView(await readData(byId("data").textContent));
  byId("fields-card").hidden = true;
  showFacts(view.data);
  showNotice(view.data);
  connect(view);
  showCrumbs(view);
  showFindings(view);
  showSelected(view);
  const asked = view.data.asked && view.root.kids;
  if (asked) {
    const { messages } = view.data;
    const first = firstWithNumber(messages, view.data.asked[0]),
      last = firstWithNumber(messages, view.data.asked[1] - 1);
    if (first >= 0 && last >= 0) show(view, messages.start[first], messages.end[last]);
  }
  view.draw();
  performance.mark("drawn");
  document.documentElement.dataset.ready = Math.round(performance.now());
}

function firstWithNumber(messages, number) {
  for (let i = 0; i < messages.n; i++) if (messages.kind[i] === BATCH && messages.number[i] === number) return i;
  return -1;
}

start().catch((error) => {
  failed(`This page cannot be drawn: ${error.message}`);
  console.error(error);
});
