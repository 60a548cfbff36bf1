"""The guide and the reference: built once by Sphinx, without warnings or dead links, with the whole public API."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import performance
import pytest
from browser import chromium
from environment import ROOT

NEEDS = ("sphinx", "furo", "myst_parser", "sphinx_copybutton")
MISSING = [name for name in NEEDS if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"the guide is built with {', '.join(MISSING)}"),
    pytest.mark.timeout(420),
]

MODULES = (
    "shmarrow",
    "shmarrow.objects",
    "shmarrow.extension",
    "shmarrow.ipc",
    "shmarrow.segment",
    "shmarrow.spark",
    "shmarrow.store",
    "shmarrow.tensor",
    "shmarrow.torch",
    "shmarrow.types",
    "shmarrow.xray",
)
"""The public modules."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the HTML pages."""
    out = tmp_path_factory.mktemp("guide")
    # The list of members beside each page of the reference takes a third of the time, and is left out here.
    command = [sys.executable, "-m", "sphinx", "-q", "-j", "2", "-D", "toc_object_entries=0"]
    command += ["-b", "html", "-d", str(out / "trees")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [*command, str(ROOT / "docs"), str(out / "html")], capture_output=True, text=True, timeout=400, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    (out / "warnings").write_text(ran.stderr, encoding="utf-8")
    return out / "html"


def test_it_builds_without_warnings(built: Path) -> None:
    assert (built.parent / "warnings").read_text(encoding="utf-8") == ""


# --- links ---


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attributes if value is not None}
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if tag in ("a", "area") and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Page]:
    found = {path: Page(path.read_text(encoding="utf-8")) for path in built.rglob("*.html")}
    assert len(found) > 30
    return found


def dead(pages: dict[Path, Page], path: Path, link: str) -> bool:
    """Whether a link within the guide leads to no file, or to no anchor of it."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return True
    return bool(parts.fragment) and target in pages and unquote(parts.fragment) not in pages[target].anchors


def test_dead_links_are_recognised(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text('<p id="here"><a href="b.html">')
    pages = {page: Page(page.read_text())}
    links = ["#here", "a.html#here", "https://example.com/none", "b.html", "#there", "a.html#there"]
    assert [dead(pages, page, link) for link in links] == [False, False, False, True, True, True]


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    found = [f"{path.name}: {link}" for path, page in pages.items() for link in page.links if dead(pages, path, link)]
    assert found == []
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_pages_load_nothing_from_the_network(pages: dict[Path, Page]) -> None:
    remote = {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc}
    assert remote == set()
    assert not [
        f"{path.name}: {link}" for path, page in pages.items() for link in page.loaded if dead(pages, path, link)
    ]


def test_every_page_is_in_the_sidebar(built: Path, pages: dict[Path, Page]) -> None:
    """Sphinx warns of pages that no toctree has; this holds that the toctrees come from the lists of the index."""
    index = pages[built / "index.html"]
    listed = {(built / unquote(urlsplit(link).path)).resolve() for link in index.links if not urlsplit(link).scheme}
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    top = {built / path.with_suffix(".html") for path in sources if path.parts[0] != "reference"}
    assert sorted(path.name for path in top - listed) == ["index.html"]


# --- generated pages ---


@pytest.mark.skipif(not performance.RESULTS.is_file(), reason="needs benchmarks/results.json, which make bench writes")
def test_the_page_on_performance_is_that_of_the_results() -> None:
    results = json.loads(performance.RESULTS.read_text(encoding="utf-8"))
    assert performance.PAGE.read_text(encoding="utf-8") == performance.page(results), "run make docs"
    readme = performance.README.read_text(encoding="utf-8")
    assert performance.readme(readme, results) == readme, "run make docs"


# --- the reference ---


@pytest.fixture(scope="module")
def inventory(built: Path) -> set[str]:
    """The names of all Python objects that the reference describes."""
    from sphinx.util.inventory import InventoryFile

    with (built / "objects.inv").open("rb") as file:
        found = InventoryFile.load(file, "", lambda base, path: path)
    return {name for kind, names in found.items() if kind.startswith("py:") for name in names}


def public_names(module: Any) -> list[str]:
    """The public names of a module; those of its own package where it has no ``__all__``."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    ours = f"{module.__name__}."
    return [
        name
        for name in dir(module)
        if not name.startswith("_") and getattr(getattr(module, name), "__module__", "").startswith(ours)
    ]


def public() -> Iterator[tuple[str, Any]]:
    """Each public object by its name, once for each module that has it."""
    for name in MODULES:
        if importlib.util.find_spec(name) is None:
            continue
        module = importlib.import_module(name)
        for each in public_names(module):
            value = getattr(module, each)
            if not inspect.ismodule(value):
                yield f"{name}.{each}", value


def names_of(value: Any, name: str, all_names: dict[int, list[str]]) -> list[str]:
    """All public names of the same object: ``shmarrow.Limits`` is ``shmarrow.ipc.Limits``, too."""
    return all_names[id(value)] if callable(value) else [name]


def test_every_public_name_and_member_is_described(inventory: set[str]) -> None:
    everything = list(public())
    names: dict[int, list[str]] = {}
    for name, value in everything:
        names.setdefault(id(value), []).append(name)

    def described(name: str, value: Any) -> bool:
        return any(each in inventory for each in names_of(value, name, names))

    missing = [name for name, value in everything if not described(name, value)]
    members = 0
    for name, value in everything:
        if not inspect.isclass(value):
            continue
        for member in dir(value):
            owner = next((cls for cls in value.__mro__ if member in cls.__dict__), None)
            if member.startswith("_") or owner is None or not owner.__module__.startswith("shmarrow"):
                continue
            members += 1
            places = [*names_of(value, name, names), *names.get(id(owner), [])]
            places += [full for cls in value.__mro__ for full in names.get(id(cls), [])]
            if not any(f"{place}.{member}" in inventory for place in places):
                missing.append(f"{name}.{member}")
    assert sorted(missing) == []
    assert members > 1000
    assert len(everything) > 300


def test_every_entry_of_the_reference_has_a_text(built: Path) -> None:
    """Neither nothing at all, nor what Python says of a named tuple's fields, nor only the bases of a class."""
    from sphinx import addnodes

    silent, entries = [], 0
    for path in (built.parent / "trees" / "reference").glob("*.doctree"):
        for entry in pickle.loads(path.read_bytes()).findall(addnodes.desc):
            entries += 1
            own = [each.astext() for each in entry[-1] if not isinstance(each, (addnodes.desc, addnodes.index))]
            if not own or own[0].startswith("Alias for field") or (len(own) == 1 and own[0].startswith("Bases:")):
                silent.append(entry[0].astext())
    assert silent == []
    assert entries > 1000


# --- in a browser ---


def brightness(page: Any) -> float:
    """The mean of red, green and blue of the background, from 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) / 3


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def served(built: Path) -> Iterator[str]:
    """The address of the pages: from files, a browser refuses the search its excerpts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_browser_shows_it(served: str) -> None:
    """Search, dark mode, copying code and narrow screens, without errors and without the network."""
    troubles: list[str] = []
    with chromium() as browser:
        context = browser.new_context(color_scheme="light", viewport={"width": 1300, "height": 900})
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        local = (served, "data:")
        page.on("request", lambda sent: None if sent.url.startswith(local) else troubles.append(sent.url))

        page.goto(f"{served}/index.html")
        assert brightness(page) > 230
        page.emulate_media(color_scheme="dark")
        assert brightness(page) < 40
        page.click(".sidebar-tree >> text=Streams and files >> nth=0")
        assert page.locator("h1").inner_text().startswith("Streams and files")

        block = page.locator("div.highlight-python").first
        block.hover()
        block.locator("button.copybtn").click()
        page.locator("input.sidebar-search").click()
        page.keyboard.press("Control+V")
        assert page.locator("input.sidebar-search").input_value().startswith("import datetime as dt")

        page.locator("input.sidebar-search").fill("StreamDecoder")
        page.keyboard.press("Enter")
        result = page.locator("ul.search li a", has_text="shmarrow.ipc.StreamDecoder").first
        result.click()
        page.wait_for_url("**/reference/ipc.html**")
        page.locator("dt[id='shmarrow.ipc.StreamDecoder']").wait_for(state="visible")

        page.set_viewport_size({"width": 400, "height": 800})
        for name in ("index.html", "store.html", "reference/ipc.html"):
            page.goto(f"{served}/{name}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, name
    assert troubles == []
