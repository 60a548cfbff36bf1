"""The rows of the results that are chosen for users: the README's table and plot, of the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from harness.figures import show, times
from harness.plots import DARK, LIGHT, variables
from harness.tables import line


class Shown(NamedTuple):
    """A row for users: where it is found, the peer, how both are called, and why it is fast, or what to do instead."""

    group: str
    name: str
    peer: str
    what: str
    instead: str
    note: str = ""


ROWS = (
    Shown("processes", "a batch of 1024 MiB as an argument of a Pool", "pickled",
          "pass a 1 GiB batch to a worker process", "pickle"),
    Shown("interchange", "a mapped file of 1024 MiB of numbers as a polars DataFrame", "polars scan_ipc",
          "a 1 GiB file of numbers as a Polars DataFrame", "Polars' `scan_ipc`"),
    Shown("spark", "a table of the driver to 3 Python jobs", "createDataFrame and mapInArrow",
          "a table of the driver to 3 Python jobs in Spark", "`createDataFrame`, `mapInArrow`"),
    Shown("opening", "open, one column by index; 10,000 columns, schema not seen before", "pyarrow",
          "open a file of 10,000 columns and read one", "pyarrow"),
    Shown("tensors", "1,024 MiB between processes: name to first element", "pyarrow read_tensor",
          "from a name to the first element of a 1 GiB tensor", "pyarrow's `read_tensor`"),
    Shown("values", "validate fully 10,000,000 strings, ASCII", "pyarrow",
          "validate 10 million strings", "pyarrow"),
    Shown("tensors", "open 1,000 tensors and have one", "safetensors",
          "open 1,000 tensors in one object and use one", "safetensors"),
    Shown("spark", "publish 256 MiB, until 4 fresh workers have had its first value", "sc.broadcast",
          "a 256 MiB value to 4 fresh Spark workers", "`sc.broadcast`"),
    Shown("cold", "from the start of `python -c` to the first value", "pyarrow",
          "start Python, open a file, read a value", "pyarrow"),
    Shown("writing", "write 1,024 MiB of float64, 16 columns", "pyarrow",
          "write 1 GiB into shared memory", "pyarrow"),
    Shown("store", "get 800 bytes, an ndarray, of 1,000 names", "lmdb",
          "get 800 bytes from a store of 1,000 objects", "LMDB"),
    Shown("objects", "put, until a process that waits has the first value", "semaphore",
          "publish an object to a waiting process", "a semaphore and `SharedMemory`"),
    Shown("building", "build 1,000,000 float from a list", "pyarrow",
          "build 1 million floats from a list", "pyarrow"),
)  # fmt: skip
"""Wins and losses alike. Rows that were not measured, such as Spark's, are left out."""


class Figure(NamedTuple):
    """A row for users with its figures."""

    what: str
    instead: str
    ours: str
    theirs: str
    ratio: float
    note: str


def figures(rows: Iterable[Mapping[str, Any]], chosen: Iterable[Shown] = ROWS) -> list[Figure]:
    """The chosen rows that were measured, the largest ratio first."""
    found = []
    known = list(rows)
    for shown in chosen:
        for row in known:
            if row["group"] == shown.group and row["name"].startswith(shown.name) and shown.peer in row["peers"]:
                theirs, unit = row["peers"][shown.peer], row["unit"]
                ratio = row["ratio"] if row["peer"] == shown.peer else theirs / row["ours"]
                ours, peers = show(row["ours"], unit), show(theirs, unit)
                found.append(Figure(shown.what, shown.instead, ours, peers, ratio, shown.note))
                break
    return sorted(found, key=lambda each: -each.ratio)


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The README's table."""
    lines = [line(["what", "shmarrow", "instead", "ratio"]), line(["---"] * 4)]
    for each in figures(rows):
        lines.append(line([each.what, each.ours, f"{each.instead} {each.theirs}", times(each.ratio)]))
    return "\n".join(lines) + "\n"


WIDTH, LABELS, ROW, TOP = 860, 350, 38, 66
ENDS = (0.1, 1000.0)

STYLE = """
.bars text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
.bars .title { font-size: 15px; font-weight: 600; }
.bars .dim { fill: var(--dim); font-size: 12px; }
.bars .ratio { font-weight: 600; }
.bars .paper { fill: var(--paper); }
.bars .grid { stroke: var(--grid); }
.bars .one { stroke: var(--dim); stroke-width: 1.5; }
.bars .win { fill: var(--c0); }
.bars .loss { fill: var(--c1); }
"""


def picture(results: Mapping[str, Any]) -> str:
    """The README's plot: how many times as fast, on a logarithmic axis, as an SVG file with its own background."""
    found = figures(results["rows"])
    height = TOP + ROW * len(found) + 44
    described = "; ".join(f"{each.what}: {times(each.ratio)} beside {_plain(each.instead)}" for each in found)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(described)}">\n<style>\n.bars {{ {variables(LIGHT)} }}\n'
        f"@media (prefers-color-scheme: dark) {{ .bars {{ {variables(DARK)} }} }}{STYLE}</style>\n"
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>\n'
        '<text class="title" x="20" y="30">How many times as fast as the usual tool</text>\n'
    )
    machine = results["machine"]
    versions = f"pyarrow {machine['versions'].get('pyarrow')}"
    note = f"Logarithmic axis. {machine['cores']} cores, {machine['python']}, {versions}."
    foot = f'<text class="dim" x="20" y="{height - 14}">{escape(note)}</text>\n</svg>\n'
    return head + "\n".join(_drawn(found)) + "\n" + foot


def _at(ratio: float) -> float:
    low, high = ENDS
    share = math.log(min(max(ratio, low), high) / low) / math.log(high / low)
    return LABELS + 10 + share * (WIDTH - LABELS - 90)


def _drawn(found: Sequence[Figure]) -> Iterator[str]:
    bottom = TOP + ROW * len(found)
    for ratio in (0.1, 1, 10, 100, 1000):
        x = _at(ratio)
        kind = "one" if ratio == 1 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>'
        yield f'<text class="dim" x="{x:.1f}" y="{TOP - 12}" text-anchor="middle">{ratio:,g}×</text>'
    for number, each in enumerate(found):
        y = TOP + ROW * number
        start, end = sorted((_at(1), _at(each.ratio)))
        kind = "win" if each.ratio >= 1 else "loss"
        yield f'<text x="{LABELS}" y="{y + 13}" text-anchor="end">{escape(each.what)}</text>'
        beside = f"{each.ours}, {_plain(each.instead)} {each.theirs}"
        yield f'<text class="dim" x="{LABELS}" y="{y + 26}" text-anchor="end" font-size="11">{escape(beside)}</text>'
        yield f'<rect class="{kind}" x="{start:.1f}" y="{y + 4}" width="{max(end - start, 2):.1f}" height="16" rx="2"/>'
        yield f'<text class="ratio" x="{max(end, _at(1)) + 8:.1f}" y="{y + 17}">{times(each.ratio)}</text>'


def _plain(text: str) -> str:
    return text.replace("`", "")
