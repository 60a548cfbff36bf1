"""The page ``docs/performance.md`` and its plots, from the figures that ``make bench`` keeps.

``python tests/support/performance.py`` writes them; ``test_guide.py`` holds that they are those of
``benchmarks/results.json``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from harness import plots  # noqa: E402
from harness.figures import size, times  # noqa: E402
from harness.front import Shown, figures  # noqa: E402
from harness.tables import line  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "pictures"
PREFIX = "performance-"

INTRODUCTION = """\
# Performance

Opening is fast and independent of size: a reader maps an object and decodes only what it is asked for. Many tiny
operations are slow, because each costs some microseconds of Python. Figures are medians; the factor is the other tool's
time divided by shmarrow's, so above 1 shmarrow is faster. `make bench` measures all of this, and much more, on your
machine, in turns with the other tools.
"""

FAST = (
    Shown("processes", "a batch of 1024 MiB as an argument of a Pool", "pickled",
          "pass a 1 GiB batch to a worker process", "pickle", "only a handle is sent; the worker maps the object"),
    Shown("scale", "1 TB, 100,000 batches: first open of a fresh process, one column", "pyarrow",
          "open a file of 1 TB in a fresh process, read a value", "pyarrow", "only the footer and one batch are read"),
    Shown("interchange", "a mapped file of 1024 MiB of numbers as a polars DataFrame", "polars scan_ipc",
          "a 1 GiB file of numbers as a Polars DataFrame", "Polars' `scan_ipc`", "numbers need no check"),
    Shown("opening", "open, one column by index; 10,000 columns, schema not seen before", "pyarrow",
          "open a file of 10,000 columns and read one", "pyarrow", "the fields of other columns are not decoded"),
    Shown("tensors", "1,024 MiB between processes: name to first element", "pickle, queue",
          "a 1 GiB tensor to another process", "pickle and a queue", "the tensor is mapped"),
    Shown("values", "validate fully 10,000,000 strings, ASCII", "pyarrow",
          "check 10 million strings", "pyarrow", "whole buffers are checked at once"),
    Shown("tensors", "10,000 x 10,000 float32, 1 % filled, to CSR", "pyarrow",
          "a sparse matrix of 100 million cells to CSR", "pyarrow", "scipy and numpy do it on the buffers"),
    Shown("tensors", "open 1,000 tensors and have one", "safetensors",
          "open 1,000 tensors in one object and use one", "safetensors", "the others are not decoded"),
    Shown("scale", "16 processes over 256 MiB: memory of all (PSS)", "pyarrow, copied",
          "memory of 16 readers of 256 MiB", "a copy for each", "all readers map the same pages"),
    Shown("writing", "write 1,024 MiB of float64, 16 columns", "pyarrow",
          "write 1 GiB into shared memory", "pyarrow", "the memory's speed is the limit of both"),
)  # fmt: skip
"""Why each is fast."""

SLOW = (
    Shown("opening", "open, one column by index; 5 columns, schema not seen before", "pyarrow",
          "open a small file and read a column", "pyarrow", "keep the file open, or use one file of many batches"),
    Shown("writing", "write a batch of 5 columns, schema not seen before", "pyarrow",
          "write a small file", "pyarrow", "write many batches with one writer"),
    Shown("interchange", "a mapped file of 123 MiB of text as a polars DataFrame", "pyarrow",
          "123 MiB of text as a Polars DataFrame", "pyarrow, unchecked",
          "text is checked, as Polars may crash on invalid text; objects of a store are checked once"),
    Shown("store", "get 800 bytes, an ndarray, of 1,000 names", "lmdb",
          "get 800 bytes from a store of 1,000 objects", "LMDB", "LMDB for tiny values; or one object of many rows"),
    Shown("store", "put 800 bytes, an ndarray, beside 1,000 names", "lmdb",
          "put 800 bytes beside 1,000 objects", "LMDB", "LMDB for tiny values; or collect rows into batches"),
    Shown("store", "8 readers, 4 writers, 80 kB: gets", "lmdb",
          "80 kB objects, 8 readers beside 4 writers", "LMDB", "attach objects once, and keep them"),
    Shown("objects", "put, until a process that waits has the first value", "semaphore",
          "publish an object to a waiting process", "a semaphore and `SharedMemory`", "`sa.Ring` for a steady rate"),
    Shown("building", "build 1,000,000 float from a list", "pyarrow",
          "build 1 million floats from a list", "pyarrow", "pass numpy arrays, Series or pyarrow arrays"),
    Shown("building", "time64: from a list", "pyarrow",
          "build 1 million `datetime.time` from a list", "pyarrow", "pass a numpy array of integers, and cast"),
    Shown("building", "binary: from a list", "pyarrow",
          "build 1 million `bytes` from a list", "pyarrow", "pass a pyarrow array"),
)  # fmt: skip
"""Advice: what to do or to use instead."""

PLOTS = {
    "Open a file and read one column": "Reading one column takes about the same time however many columns a file has",
    "Hand a tensor to another process": "A mapped tensor is there at once, whatever its size",
    "Get 800 bytes from a store": "Getting an object takes about the same time among ten names and among a million",
    "Put 800 bytes into a store": "Putting an object takes about the same time beside ten names and beside a million",
    "Memory (PSS) of all readers of 256 MiB": "Readers of one object share its memory",
}
"""The plots of the page, each with what it shows."""


def slug(title: str) -> str:
    """A title as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def pictures(results: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The caption and the SVG of each plot, by the name of its file."""
    return {
        f"{PREFIX}{slug(plot.title)}.svg": (PLOTS[plot.title], plots.picture([plot]))
        for plot in plots.plots(results["rows"])
        if plot.title in PLOTS
    }


def machine(facts: Mapping[str, Any]) -> Iterator[str]:
    """Describe the machine of the figures."""
    kind = ", a virtual machine" if facts["virtual"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    yield "## The machine\n"
    yield f"{facts['processor']}, {facts['cores']} cores, {size(facts['memory'])} of memory{kind}; {facts['kernel']};"
    yield f"{facts['python']}; {versions}. Measured on {facts['date']}.\n"


def selected(results: Mapping[str, Any], chosen: Sequence[Shown], note: str) -> Iterator[str]:
    """A table of chosen rows, the largest factor first, with a note for each."""
    yield line(["what", "shmarrow", "beside", "factor", note])
    yield line(["---", "---:", "---", "---:", "---"])
    for each in figures(results["rows"], chosen):
        yield line([each.what, each.ours, f"{each.instead} {each.theirs}", times(each.ratio), each.note])
    yield ""


def page(results: Mapping[str, Any]) -> str:
    """The page as it should be."""
    return "\n".join(_page(results)).rstrip() + "\n"


def _page(results: Mapping[str, Any]) -> Iterator[str]:
    yield INTRODUCTION
    if results["quick"]:
        yield "These figures are those of a quick run, on smaller data and with fewer rounds.\n"
    yield "## What is fast, and why\n"
    yield from selected(results, FAST, "why")
    yield "## What is slow, and what to do instead\n"
    yield from selected(results, SLOW, "instead")
    yield "## How it scales\n"
    yield "Both axes are logarithmic; lower is better.\n"
    for name, (caption, _) in pictures(results).items():
        yield f"![{caption}](pictures/{name})"
    yield ""
    yield from machine(results["machine"])
    yield "All figures: `python benchmarks/report.py benchmarks/results.json` writes `benchmarks/report.html`."


def main() -> None:
    if not RESULTS.is_file():
        print(f"{RESULTS} is missing, `make bench` writes it: the page on performance stays as it is")
        return
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    drawn = pictures(results)
    for path in PICTURES.glob(f"{PREFIX}*.svg"):
        if path.name not in drawn:
            path.unlink()
    for name, (_, text) in drawn.items():
        (PICTURES / name).write_text(text, encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
