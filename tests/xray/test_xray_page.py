"""``shmarrow xray --html``: the page that draws an object to scale, opened in a real browser.

Invariants: where something is drawn, and what the page says of it, is compared with what pyarrow's buffers and
offsets in the specification say; no page asks the network for anything, or reports an error.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import decompress

import forms
import numpy as np
import pyarrow as pa
import pytest
from browser import chromium
from sparse_file import sparse_file

import shmarrow as sa
from shmarrow import xray
from shmarrow.cli import main
from shmarrow.errors import InvalidArgument, InvalidType, StorageError
from shmarrow.ipc.flatbuffers.tables import TABLES
from shmarrow.layout import LISTING
from shmarrow.xray import page as pages
from shmarrow.xray.sentences import PARTS
from shmarrow.xray.walker import NAMES

HOSTILE = [
    "</script><script>window.injected = 1</script>", "<img src=x onerror='window.injected=1'>", "\u202etxet",
    "\x00\x1b[31m", "😀", "x" * 10_000, "", "a / b", "]]>", "@@DATA@@", "&lt;b&gt;",
]  # fmt: skip


class Tab:
    """A page in a browser, and the troubles that it had."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.url = ""
        self.troubles: list[str] = []
        self.listeners = {
            "console": lambda message: self.troubles.append(message.text) if message.type == "error" else None,
            "pageerror": lambda error: self.troubles.append(str(error)),
            "request": lambda sent: self.troubles.append(sent.url) if sent.url != self.url else None,
            "dialog": lambda dialog: (self.troubles.append(dialog.message), dialog.dismiss()),
        }
        for event, listener in self.listeners.items():
            page.on(event, listener)

    def close(self) -> None:
        """Stop listening; another test goes on in the same window."""
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)

    def open(self, target: Any, **options: Any) -> float:
        """Write the page of a target, and open it; the seconds until it is drawn."""
        path = self.folder / "page.html"
        pages.write(target, path, **options)
        return self.show(path)

    def show(self, path: Path) -> None:
        """Open a page, and wait until it is drawn."""
        self.url = path.as_uri()
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready]", state="attached")
        assert self.troubles == []

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def at(self, offset: float, row: int) -> tuple[float, float]:
        """Return the position at which a byte is drawn, in the row of messages, parts, columns or buffers."""
        box = self.page.locator("#picture").bounding_box()
        start, end, gutter = self.view()
        x = box["x"] + gutter + (offset - start) / (end - start) * (box["width"] - gutter)
        return x, box["y"] + (40, 76, 130, 240)[row]

    def view(self) -> list[float]:
        """The first and last offset in view, and where the first one is drawn."""
        found = self.page.evaluate("""new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
            const { from, to, gutter } = byId('picture').dataset;
            done([from, to, gutter]);
        })))""")
        return [float(each) for each in found]

    def hover(self, offset: float, row: int) -> list[str]:
        """The lines that are shown where the mouse points at a byte."""
        self.page.mouse.move(*self.at(offset, row))
        return self.text("#tip").splitlines() if self.page.locator("#tip").is_visible() else []

    def press(self, *keys: str) -> str:
        """Press keys in the picture; the part that is selected then."""
        self.page.focus("#picture")
        for key in keys:
            self.page.keyboard.press(key)
        return self.text("#selected").splitlines()[0]

    def rows(self) -> list[list[str]]:
        """The cells of the table."""
        found = self.page.evaluate(
            "[...byId('rows').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText))"
        )
        return [[str(cell) for cell in row] for row in found]

    def crumbs(self) -> list[str]:
        return [str(each) for each in self.page.locator("#crumbs button").all_inner_texts()]


@pytest.fixture(scope="module")
def window() -> Iterator[Any]:
    """One window for all tests: each opens its own page in it."""
    with chromium() as browser, closing(browser.new_context(reduced_motion="reduce")) as context:
        yield context.new_page()


@pytest.fixture
def tab(window: Any, tmp_path: Path) -> Iterator[Tab]:
    window.emulate_media(color_scheme="light")
    window.set_viewport_size({"width": 1200, "height": 900})
    made = Tab(window, tmp_path)
    yield made
    made.close()
    assert made.troubles == []


TABLE = pa.table(
    {
        "id": pa.array([1, None, 3] * 500, pa.int32()),
        "name": pa.array(["a", "bc", None] * 500),
        "list": pa.array([[1, 2], None, [3]] * 500),
        "kind": pa.array(["x", "y", "x"] * 500).dictionary_encode(),
    }
)


@pytest.fixture
def table_file(tmp_path: Path) -> Path:
    """A file of three batches."""
    (tmp_path / "table.arrow").write_bytes(forms.peers_file(*TABLE.to_batches(max_chunksize=500)))
    return tmp_path / "table.arrow"


def numbers(text: str) -> list[int]:
    """The whole numbers in a text, with commas between thousands."""
    return [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", text)]


# --- in Python --------------------------------------------------------------------------------------------------


def test_what_is_asked_for_is_checked(table_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="expected a batch from 0 to 2, found 3"):
        pages.render(table_file, batches=3)
    for wrong in (slice(0, 3, 2), slice(2, 2)):
        with pytest.raises(InvalidArgument, match="one batch or several consecutive ones"):
            pages.render(table_file, batches=wrong)
    with pytest.raises(InvalidType, match="an int or a slice"):
        pages.render(table_file, batches="1")  # type: ignore[arg-type]
    with pytest.raises(StorageError):
        pages.write(table_file, tmp_path / "missing" / "page.html")


def data_of(page: str) -> bytes:
    """What a page says of the object, which it holds compressed."""
    block = re.search(r'id="data">([^<]*)<', page)
    assert block is not None
    return decompress(b64decode(block[1]))


def test_no_values_of_columns_are_in_a_page() -> None:
    file = forms.file_of(forms.numbers(40))
    data = data_of(pages.render(file))
    for column in sa.ipc.open_file(file).get_batch(0).columns:
        values = column.to_numpy(zero_copy_only=False).tobytes()[8:24]
        assert values not in data
        assert values.hex().encode() not in data
    assert b"vtable of Schema" in data


def test_a_page_replaces_nothing_but_pages(table_file: Path, tmp_path: Path, capsys: Any) -> None:
    def status(out: object, *more: str) -> int:
        return main(["xray", str(table_file), "--html", str(out), *more])

    before = table_file.read_bytes()
    linked, own, mine = tmp_path / "linked.html", tmp_path / "own.html", "<!doctype html><title>mine</title>"
    linked.symlink_to(table_file)
    own.write_text(mine)
    for out in (table_file, linked):
        for more in ([], ["--overwrite"]):
            assert status(out, *more) == 1
            assert "is the object that is drawn" in capsys.readouterr().err
    assert table_file.read_bytes() == before
    assert (status(own), own.read_text()) == (4, mine)
    assert "pass --overwrite" in capsys.readouterr().err
    assert status(own, "--overwrite", "--batch", "1:3") == 0
    assert capsys.readouterr().out.startswith(f"{own}: ")
    assert own.read_text().startswith("<!doctype html>\n<html")
    for _ in range(2):  # a page is replaced by the next one
        assert pages.write(table_file, tmp_path / "new.html") == (tmp_path / "new.html").stat().st_size
    assert (status("shm:page"), status(tmp_path / "missing" / "out.html")) == (2, 3)


def test_a_page_on_standard_output_does_not_tell_the_directory(
    table_file: Path, tmp_path: Path, capfdbinary: Any
) -> None:
    cut = tmp_path / "of-somebody" / "cut.arrow"
    cut.parent.mkdir()
    cut.write_bytes(table_file.read_bytes()[:-40])
    assert main(["xray", str(cut), "--html", "-"]) == 0
    page = capfdbinary.readouterr().out.decode()
    assert page == pages.render(cut)
    assert b'"name":"cut.arrow"' in data_of(page)
    assert b"of-somebody" not in data_of(page) + page.encode()


def test_each_kind_of_part_has_a_sentence() -> None:
    roles = {spec.role for layout in LISTING.values() for spec in layout.buffers}
    wanted = {*xray.KINDS, *NAMES.values(), "metadata", "metadata, footer", "body", "column", "left out"}
    wanted |= {f"{role} buffer" for role in {*roles, "indices", "data", "elements", "indptr"}}
    wanted |= {f"table {name}" for name in TABLES if not name.startswith("Sparse") or name == "SparseTensor"}
    assert wanted <= set(xray.KINDS | PARTS)
    # A context is the name of a chapter, or of what is around the part.
    contexts = {name.partition(", ")[2] for name in PARTS} - {"", "footer", "bundle"}
    assert contexts <= {*[layout.chapter for layout in LISTING.values()], "Variadic buffers", "Sparse Tensor"}


# --- in a browser -----------------------------------------------------------------------------------------------


def test_hovering_names_buffers_and_their_offsets(tab: Tab, table_file: Path) -> None:
    """Each buffer is where pyarrow finds it in the mapped file."""
    tab.open(table_file)
    mapped = pa.memory_map(str(table_file))
    base = mapped.read_buffer().address
    mapped.seek(0)
    batch = pa.ipc.open_file(mapped).get_batch(1)
    id, name, lists, kind = batch.columns
    expected = {
        "validity of id": id.buffers()[0], "values of id": id.buffers()[1], "offsets of name": name.buffers()[1],
        "data of name": name.buffers()[2], "offsets of list": lists.buffers()[1],
        "values of list.item": lists.buffers()[3], "indices of kind": kind.indices.buffers()[1],
    }  # fmt: skip
    tab.press("ArrowRight")
    tab.page.click("#jumps >> text=First batch")
    tab.press("ArrowRight", "Enter")
    assert tab.crumbs() == ["whole object", "record batch 1"]
    for label, buffer in expected.items():
        start = buffer.address - base
        lines = tab.hover(start + buffer.size * 0.4, 3)
        assert lines[0] == label
        assert numbers(lines[1])[:2] == [start, start + buffer.size]
        assert lines[2].startswith("record batch 1 › ")
        assert lines[-1].startswith("Columnar.rst, ")
    column = tab.hover(id.buffers()[1].address - base + 100, 2)
    assert (column[0], column[3]) == ("column id", "int32")


def test_metadata_byte_by_byte(tab: Tab) -> None:
    """The magic string and the prefix of the schema message are where the specification puts them."""
    data = forms.file_of(forms.numbers(3))
    tab.open(data)
    tab.press("Home", "ArrowRight")
    assert "magic" in tab.press("Home")
    assert tab.text("#selected .hex").split()[1:7] == ["41", "52", "52", "4f", "57", "31"]
    assert tab.press("ArrowRight") == "padding, 2 bytes"
    assert tab.press("ArrowRight") == "schema"
    prefix = tab.press("ArrowDown", "ArrowDown")
    assert prefix.startswith("message prefix")
    assert numbers(tab.text("#selected dd"))[:2] == [8, 16]
    assert tab.text("#selected .hex").split()[1:5] == ["ff", "ff", "ff", "ff"]
    assert tab.press("ArrowUp") == "metadata"
    assert tab.press("Enter", "Escape", "Escape", "Home") in ("schema", "metadata")
    assert tab.crumbs() == ["whole object"]


def test_zooming(tab: Tab, table_file: Path) -> None:
    tab.open(table_file)
    size = table_file.stat().st_size

    def view() -> tuple[float, ...]:
        return tuple(tab.view()[:2])

    assert view() == (0, size)
    tab.page.mouse.move(*tab.at(size / 2, 0))
    tab.page.mouse.wheel(0, -120)
    start, end = view()
    assert 0 < start < end < size
    assert (start + end) / 2 == pytest.approx(size / 2, rel=0.02)  # what is below the pointer stays there
    x, y = tab.at((start + end) / 2, 0)
    tab.page.mouse.down()
    tab.page.mouse.move(x - 100, y)
    tab.page.mouse.up()
    assert view()[0] > start
    tab.page.click("#zoom-all")
    assert view() == (0, size)
    block = xray.overview(table_file).blocks[2].tolist()
    tab.page.mouse.dblclick(*tab.at(block[0] + 200, 0))
    assert view() == (block[0], sum(block))
    assert tab.crumbs()[-1] == "record batch 2"
    assert [row[0] for row in tab.rows()] == ["metadata", "column id", "column name", "column list", "column kind"]
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("nam")
    assert tab.page.locator("#fields li").count() == 1
    tab.page.keyboard.press("Enter")
    assert tab.text("#selected").startswith("column name")


def test_the_table_says_what_the_picture_shows(tab: Tab, table_file: Path) -> None:
    tab.open(table_file)
    rows = tab.rows()
    ends = [numbers(row[2])[0] for row in rows]
    assert [numbers(row[1])[0] for row in rows] == [0, *ends[:-1]]
    assert ends[-1] == table_file.stat().st_size
    assert [row[0] for row in rows if "batch" in row[0]] == [
        "dictionary batch 0",
        "record batch 0",
        "record batch 1",
        "record batch 2",
    ]
    tab.page.click("#rows th >> text=Size")
    sizes = [numbers(row[2])[0] - numbers(row[1])[0] for row in tab.rows()]
    assert sizes == sorted(sizes, reverse=True)
    assert tab.page.get_attribute("#rows th:nth-child(4)", "aria-sort") == "descending"


def test_half_a_million_buffers(tab: Tab) -> None:
    """1,000 columns by 200 batches, all that a page has room for: below 2 MB."""
    random = np.random.default_rng(14)
    batches = []
    for _ in range(16):
        texts = [pa.array(["y" * length]) for length in random.integers(0, 300, 500)]
        columns = [texts[i // 2] if i % 2 else pa.array(random.integers(0, 9, 1)) for i in range(1000)]
        batches.append(pa.record_batch(columns, [f"column {i}" for i in range(1000)]))
    stream = forms.peers_stream(*batches)
    blocks = xray.overview(stream).blocks.tolist()
    parts = [stream[block[0] : sum(block)] for block in blocks]
    target = b"".join([stream[: blocks[0][0]], *[parts[i] for i in random.integers(0, 16, 200)], stream[-8:]])
    found = xray.overview(target)
    assert (len(found.blocks), len(found.buffer_roles)) == (200, 2500)

    path = tab.folder / "page.html"
    assert pages.write(found, path) < 2_000_000
    tab.show(path)
    assert tab.text("#facts").split("\n")[2:4] == ["1,000 columns", "200 batches"]
    batch = found.batch(177)
    place = int(np.argmax(batch.buffers[:, 1]))
    start, length = (batch.buffers[place] + (batch.body, 0)).tolist()
    path_of = found.buffer_roles[place].path
    tab.page.click("#rows >> text=/^record batch 177$/")
    for _ in range((int(path_of.split()[1]) + 1) // 200):
        tab.page.click("#pager >> text=›")
    tab.page.click(f"#rows >> text=/^column {path_of}$/")
    rows = {row[0]: numbers(" ".join(row[1:3])) for row in tab.rows()}
    assert rows[f"data of {path_of}"] == [start, start + length]
    lines = tab.hover(start + length / 2, 3)
    assert lines[0] == f"data of {path_of}"
    assert numbers(lines[1])[:2] == [start, start + length]


def test_what_does_not_fit_is_told(tab: Tab, tmp_path: Path) -> None:
    """A terabyte and 100,000 batches: offsets beyond 2**32 are right, and the page says what it leaves out."""
    path = tmp_path / "sparse.arrow"
    sparse_file(path)
    found = xray.overview(path)
    tab.open(found, batches=slice(99_990, 99_992))
    assert "99,990 to 99,991, of 100,000" in tab.text("#notice")
    assert tab.crumbs()[0] == "whole object"
    block = found.blocks[99_990].tolist()
    lines = tab.hover(block[0] + block[1] + block[2] * 0.25, 3)
    assert lines[0] == "values of i"
    assert numbers(lines[1])[:2] == [block[0] + block[1], block[0] + block[1] + 8 * 700_000]
    tab.page.click("#zoom-all")
    assert "100,00" in tab.text("#pager")
    tab.page.click("#jumps >> text=Last batch")
    assert tab.text("#selected").startswith("record batch 99999")
    assert numbers(tab.text("#selected dd"))[0] == found.blocks[-1, 0]


def test_names_from_strangers(tab: Tab) -> None:
    table = pa.table(
        [pa.array([1, 2, 3])] * len(HOSTILE), names=HOSTILE, metadata={"</script>": "<script>alert(1)</script>"}
    )
    tab.open(forms.peers_file(table))
    assert tab.page.evaluate("window.injected") is None
    names = [str(each) for each in tab.page.locator("#fields .label bdi").all_inner_texts()]
    assert names[0] == HOSTILE[0]
    assert names[2:5] == ["\\u202etxet", "\\x00\\x1b[31m", "😀"]
    assert names[5].endswith("(10000 characters)")
    assert names[6:] == ["(no name)", "a / b", "]]>", "@@DATA@@", "&lt;b&gt;"]
    tab.page.click("#jumps >> text=Schema")
    assert tab.page.locator("script").count() == 2


def objects(folder: Path) -> Iterator[tuple[str, Any]]:
    """One object of each kind, and some that are broken."""
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.arange(12.0).reshape(3, 4)), sink)
    yield "tensor", sink.getvalue().to_pybytes()
    sa.save_tensors({"weight": np.eye(3), "bias": np.arange(2.0)}, folder / "bundle.arrow")
    yield "bundle", folder / "bundle.arrow"
    views = pa.table({"v": pa.array([f"long enough to be out of line {i}" for i in range(20)], pa.string_view())})
    yield "stream", forms.peers_stream(*views.to_batches(max_chunksize=10), compression="zstd")
    whole = forms.file_of(forms.numbers(3), forms.numbers(5))
    yield "file", whole[:-40]
    block = xray.overview(whole).blocks[1].tolist()
    yield "file", whole[: block[0] + 8] + b"\xff" * 60 + whole[block[0] + 68 :]


def test_the_selected_part_is_explained(tab: Tab, table_file: Path) -> None:
    tab.open(table_file)

    def explained(offset: int, row: int) -> str:
        tab.page.mouse.click(*tab.at(offset, row))
        return tab.text("#selected .meaning")

    block = xray.overview(table_file).blocks[0].tolist()
    message = explained(block[0] + sum(block[1:]) // 2, 0)
    assert message.startswith("A message with some of the rows: the metadata lists the position and length of each")
    assert message.endswith("Specification: Columnar.rst, Encapsulated message format.")
    tab.page.click("#jumps >> text=First batch")
    assert explained(block[0] + block[1] + 30, 3).startswith("The validity bitmap: one bit per value")  # 500 bits
    regions = {region.what.partition(":")[0]: region for region in xray.walk(table_file, batches=0)}
    lists, strings = (regions[f"offsets of column '{name}'"] for name in ("list", "name"))
    assert "list starts in the child column" in explained(lists.start + 900, 3)
    assert "value starts in the data buffer, in bytes" in explained(strings.start + 900, 3)
    assert tab.press("Home", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft") == "dictionary batch 0"
    assert tab.press("ArrowLeft", "ArrowLeft") == "padding, 2 bytes"
    assert tab.text("#selected .meaning").startswith("Unused bytes, zero by convention, that align the next part")


def test_compression_and_names_of_columns_in_sentences(tab: Tab) -> None:
    """A column named like a part is still explained as a column."""
    table = pa.table({name: pa.array(range(999)) for name in ("schema", "table Schema", "__proto__", "magic")})
    tab.open(forms.peers_stream(table, compression="zstd"))
    tab.page.click("#jumps >> text=First batch")
    assert tab.press("ArrowDown", "ArrowRight", "ArrowDown") == "column schema"
    for name in ("table Schema", "__proto__", "magic"):
        assert tab.press("ArrowRight") == f"column {name}"
        assert tab.text("#selected .meaning").startswith("The buffers of one column in this batch")
    assert tab.press("ArrowDown") == "values of magic"
    assert "are compressed: a buffer starts with its uncompressed length" in tab.text("#selected .meaning")


UNEXPLAINED = """readData(byId('data').textContent).then((data) => {
    const found = new Set(), visit = (node) => {
        if (node.parent && !sentenceOf(data, node)) found.add(node.kind);
        for (let i = 0; i < Math.min(node.kids.n, 50); i++) visit(node.kids.get(i));
    };
    visit(rootOf(data));
    return [...found];
})"""


def test_all_kinds_of_objects(tab: Tab, tmp_path: Path) -> None:
    for kind, target in objects(tmp_path):
        tab.open(target)
        found = xray.overview(target)
        assert tab.text("#facts").split("\n")[0] == kind == found.kind
        rows = tab.rows()
        assert numbers(rows[0][1])[0] == 0
        assert numbers(rows[-1][2])[0] == found.size
        assert tab.page.evaluate(UNEXPLAINED) == []
        tab.press("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", "Enter", "Escape", "End")
        errors = [each for each in found.findings if each.severity == "error"]
        assert bool(errors) <= tab.page.locator("#findings-card").is_visible()
    assert "finding" in tab.text("#marked")  # the last one, whose second batch is broken
    tab.page.locator("#findings button").first.click()
    assert tab.text("#selected") != ""


# --- colours, names and roles -----------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_dark_and_light(tab: Tab, table_file: Path) -> None:
    tab.open(table_file)
    read = """Object.fromEntries(['bg', 'card', 'text', 'muted', 'accent', 'error', 'warning', 'note'].map(
        (name) => [name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()]))"""
    inks = """[...Object.values(theme.roles).flat(), ...['magic', 'schema', 'dictionary', 'batch', 'footer', 'end',
        'table', 'vtable', 'vector', 'string', 'root', 'metadata', 'body', 'gap'].map((name) => theme.fill[name])]
        .map((fill) => [fill, inkOn(fill)])"""
    corner = "Array.from(document.getElementById('picture').getContext('2d').getImageData(200, 40, 1, 1).data)"
    pictures = []
    for name in ("light", "dark"):
        assert tab.page.get_attribute("html", "data-theme") == name
        colours = tab.page.evaluate(read)
        assert (luminance(colours["card"]) > 0.5) == (name == "light")
        for back in ("bg", "card"):
            for front in ("text", "muted", "accent", "error", "warning", "note"):
                assert contrast(colours[front], colours[back]) >= 4.5, (name, front, back)
        for fill, ink in tab.page.evaluate(inks):
            assert contrast(fill, ink) >= 4.5, (name, fill, ink)
        pictures.append(tab.page.evaluate(corner))
        tab.page.click("#theme")
        tab.page.wait_for_timeout(50)
    assert pictures[0] != pictures[1]
    tab.page.emulate_media(color_scheme="dark")
    tab.page.wait_for_selector("html[data-theme=dark]")  # the page follows, when the browser tells it


def test_names_and_roles(tab: Tab, table_file: Path) -> None:
    tab.open(table_file)
    problems = tab.page.evaluate("""() => {
        const found = [], named = (e) => (e.getAttribute('aria-label') || e.innerText || '').trim();
        for (const e of document.querySelectorAll('button, canvas[role], [role=region], nav, section')) {
            const by = document.getElementById(e.getAttribute('aria-labelledby') || '');
            const name = by ? by.textContent.trim() : named(e);
            if (!name && e.checkVisibility()) found.push('no name: ' + e.outerHTML.slice(0, 90));
        }
        for (const e of document.querySelectorAll('input')) if (!e.labels.length) found.push('no label: ' + e.id);
        for (const name of ['aria-labelledby', 'aria-describedby'])
            for (const e of document.querySelectorAll(`[${name}]`))
                if (!document.getElementById(e.getAttribute(name))) found.push(name);
        const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
        if (new Set(ids).size !== ids.length) found.push('ids');
        if (document.querySelectorAll('h1').length !== 1 || !document.documentElement.lang) found.push('h1 or lang');
        for (const e of document.querySelectorAll('th')) if (e.scope !== 'col') found.push('th');
        for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) found.push('tabindex');
        return found;
    }""")
    assert problems == []
    tab.page.keyboard.press("?")
    assert tab.page.locator("#help").is_visible()
    tab.page.keyboard.press("Escape")
    tab.page.set_viewport_size({"width": 360, "height": 700})
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
