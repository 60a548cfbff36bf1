"""The page on performance with its plots, and the README's table, from the figures that ``make bench`` keeps.

``make docs`` writes them; ``test_guide.py`` holds that they are those of ``benchmarks/results.json``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environment import ROOT
from marked import filled

sys.path.insert(0, str(ROOT / "benchmarks"))

from harness import front, plots
from harness.figures import Row, line, show, size, times
from run import SUITES

RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
PICTURES = ROOT / "docs" / "pictures"
PREFIX = "performance-"

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
        f"{PREFIX}{slug(plot.title)}.svg": (PLOTS[plot.title], plots.picture(plot))
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


def missing(results: Mapping[str, Any]) -> str:
    """What the results lack, as they may be of a run of some parts."""
    drawn = {plot.title for plot in plots.plots(results["rows"])}
    lacking = [title for name, title in SUITES.items() if name not in results["groups"]]
    lacking += [
        each.what
        for each in front.ROWS
        if each.group in results["groups"] and not front.figures(results["rows"], [each])
    ]
    lacking += [title for title in PLOTS if title not in drawn]
    return "; ".join(lacking)


def selected(chosen: Sequence[front.Figure], note: str) -> Iterator[str]:
    """A table of rows with a note for each: why we are faster, or what to do instead."""
    yield line(["what", "shmarrow", "beside", "factor", "spread", note])
    yield line(["---", "---:", "---", "---:", "---", "---"])
    for each in chosen:
        said = each.why if each.ratio >= 1 else each.advice
        yield line([each.what, each.ours, f"{each.instead} {each.theirs}", times(each.ratio), each.spread, said])
    yield ""


def spark(rows: Sequence[Row]) -> Iterator[str]:
    """All rows of Spark, if they were measured."""
    found = [each for each in rows if each["group"] == "spark"]
    if not found:
        return
    yield "## Spark\n"
    yield "CPU seconds of the driver, the JVM and all Python workers. [Spark](spark.md) has the ways.\n"
    yield line(["what", "shmarrow", "beside", "factor", "spread"])
    yield line(["---", "---:", "---", "---:", "---"])
    for each in found:
        beside = f"{each['peer']} {show(each['peers'][each['peer']], each['unit'])}"
        spread = "" if each["low"] == each["high"] else f"{times(each['low'])} to {times(each['high'])}"
        yield line([each["name"], show(each["ours"], each["unit"]), beside, times(each["ratio"]), spread])
    yield ""


def page(results: Mapping[str, Any]) -> str:
    """The page as it should be."""
    return filled(PAGE, results="\n".join(_results(results)))


def _results(results: Mapping[str, Any]) -> Iterator[str]:
    if results["quick"]:
        yield "These figures are those of a quick run, on smaller data and with fewer rounds.\n"
    yield "## What is fast, and why\n"
    yield from selected(front.fast(results["rows"]), "why")
    yield "## What is slow, and what to do instead\n"
    yield from selected(front.slow(results["rows"]), "instead")
    yield from spark(results["rows"])
    for each in results["skipped"]:
        yield f"Not measured: {each['reason']}.\n"
    if lacking := missing(results):
        yield f"Missing in these results, and measured by `make bench`: {lacking}.\n"
    yield "## How it scales\n"
    yield "Both axes are logarithmic; lower is better.\n"
    for name, (caption, _) in pictures(results).items():
        yield f"![{caption}](pictures/{name})"
    yield ""
    yield from machine(results["machine"])


def readme(text: str, results: Mapping[str, Any]) -> str:
    """The README with the table of these results."""
    before, heading, after = text.partition(front.HEADINGS)
    return before + front.table(results["rows"]) + after[after.index("\n\n") + 1 :] if heading else text


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
    README.write_text(readme(README.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
