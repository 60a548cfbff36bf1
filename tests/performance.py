"""The page ``docs/performance.md`` and its plots, from the figures that ``make bench`` keeps.

``python tests/performance.py`` writes them; ``test_guide.py`` holds that they are those of ``benchmarks/results.json``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from harness import plots  # noqa: E402
from harness.figures import show, size, times  # noqa: E402
from harness.tables import comparable, line, losses, missed  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "pictures"
PREFIX = "performance-"

WORST = 15
"""Losses that are listed at the top of the page; the tables have all of them."""

INTRODUCTION = """\
# Performance

Every figure here comes from `make bench`, which runs shmarrow and each installed peer in turns, on the same data, on
one machine. Run it on yours: `make bench-quick` takes under three minutes; `make bench` takes longer and writes
`benchmarks/report.html`, a page with all details. This page is generated from `benchmarks/results.json`.

- A figure is the **median** of all rounds.
- The factor is the peer's figure divided by ours: **above 1, shmarrow is faster** (or smaller); below 1, the peer is.
- "Itself" compares shmarrow with itself under other conditions, for example with one batch instead of 100,000.
"""


def slug(title: str) -> str:
    """A title as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def pictures(results: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The title and the SVG of each plot, by the name of its file."""
    return {
        f"{PREFIX}{slug(plot.title)}.svg": (plot.title, plots.picture([plot])) for plot in plots.plots(results["rows"])
    }


def machine(facts: Mapping[str, Any]) -> Iterator[str]:
    """What the figures were measured on."""
    kind = ", a virtual machine" if facts["virtual"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    yield "## The machine\n"
    yield f"{facts['processor']}, {facts['cores']} cores, {size(facts['memory'])} of memory{kind}; {facts['kernel']};"
    yield f"{facts['python']}; {versions}. Measured on {facts['date']}.\n"


def beside(rows: Sequence[Mapping[str, Any]]) -> str:
    """The peers' figures in the rows of one name, with the factor of each."""
    found: dict[str, str] = {}
    for row in rows:
        for peer, value in row["peers"].items():
            ratio = row["ratio"] if peer == row["peer"] else value / row["ours"] if row["ours"] else None
            factor = "" if ratio is None else f" ({times(ratio)})"
            if peer not in found or peer == row["peer"]:
                found[peer] = f"{peer} {show(value, row['unit'])}{factor}"
    return ", ".join(found.values())


def required(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether the rows of one name reach what is required of them."""
    asked = [row for row in rows if row["reached"] is not None]
    return "; ".join(
        dict.fromkeys(f"{row['required']}: {'reached' if row['reached'] else '**missed**'}" for row in asked)
    )


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each name."""
    yield line(["what", "shmarrow", "beside", "required"])
    yield line(["---", "---:", "---", "---"])
    named: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        named.setdefault(row["name"], []).append(row)
    for name, same in named.items():
        ours = show(same[-1]["ours"], same[-1]["unit"])
        yield line([name.replace("|", "\\|"), ours, beside(same).replace("|", "\\|"), required(same)])
    yield ""


def page(results: Mapping[str, Any]) -> str:
    """The page as it should be."""
    return "\n".join(_page(results)).rstrip() + "\n"


def _page(results: Mapping[str, Any]) -> Iterator[str]:
    rows = results["rows"]
    asked = [row for row in rows if row["reached"] is not None]
    yield INTRODUCTION
    if results["quick"]:
        yield "These figures are those of a quick run, on smaller data and with fewer rounds.\n"
    yield from machine(results["machine"])
    yield "## At a glance\n"
    measured = len({(row["group"], row["name"]) for row in rows})
    reached = sum(row["reached"] for row in asked)
    yield f"{measured} measurements; {reached} of {len(asked)} requirements are reached. In the plots, both axes are"
    yield "logarithmic, and lower is better.\n"
    yield from (f"![{title}](pictures/{name})" for name, (title, _) in pictures(results).items())
    yield ""
    yield "## Where others are faster\n"
    worse = [each for each in losses(rows) if comparable(each[1])]
    yield f"{len(worse)} comparisons are lost; the largest differences are these.\n" if worse else "Nowhere.\n"
    if worse:
        yield line(["what", "shmarrow", "peer", "", "factor"])
        yield line(["---", "---:", "---", "---:", "---:"])
        for ratio, peer, row in worse[:WORST]:
            ours, theirs = show(row["ours"], row["unit"]), show(row["peers"][peer], row["unit"])
            yield line([row["name"], ours, peer, theirs, times(ratio)])
        yield ""
    if absent := missed(rows):
        yield "## Requirements that are missed\n"
        yield line(["what", "beside", "result", "required"])
        yield line(["---", "---", "---", "---"])
        for row in absent:
            doubt = " (within the spread)" if row["doubtful"] else ""
            yield line([row["name"], row["peer"] or "", row["result"], row["required"] + doubt])
        yield ""
    yield "## All figures\n"
    for group, about in results["groups"].items():
        found = [row for row in rows if row["group"] == group]
        if found:
            yield f"### {about['title']}\n"
            yield from table(found)


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
