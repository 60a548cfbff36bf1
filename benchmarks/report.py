"""Writes what people read of the results, from the JSON file alone.

    python benchmarks/report.py results.json                                # report.html beside it
    python benchmarks/report.py results.json --markdown "^opening.few"      # a table of rows
    python benchmarks/report.py results.json --readme peers.svg             # the README's plot; prints its table

The page works without a network and without scripts; a script only adds the search box.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import front, plots
from harness.figures import show, size, times
from harness.tables import losses, markdown, missed, uncertain

SHOWN = 25
"""Rows of the list of losses that are shown before it is unfolded."""

SCALE = (0.05, 1000.0)
"""Ratios at the left and the right end of a bar."""


PARTS: dict[str, type | tuple[type, ...]] = {
    "machine": dict,
    "quick": bool,
    "rounds": int,
    "seconds": (int, float),
    "groups": dict,
    "rows": list,
    "skipped": list,
    "failed": list,
}
"""The keys of results, with the types of their values."""


def page(results: Mapping[str, Any]) -> str:
    """The report, one self-contained page."""
    return "".join(_page(results))


def _page(results: Mapping[str, Any]) -> Iterator[str]:
    rows = results["rows"]
    asked = [row for row in rows if row["reached"] is not None]
    reached = sum(row["reached"] for row in asked)
    worse, absent = losses(rows), missed(rows)
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>shmarrow benchmarks</title>\n<style>\n:root {{ {plots.variables(plots.LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {plots.variables(plots.DARK)} }} }}\n"
        f"{plots.STYLE}{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>shmarrow benchmarks</h1>\n"
    )
    yield _machine(results)
    yield '<div class="counts">'
    compared = len({(row["group"], row["name"], peer) for row in rows for peer in row["peers"]})
    for number, text in (
        (f"{len(rows)}", "rows"),
        (f"{compared}", "comparisons"),
        (f"{reached} of {len(asked)}", "requirements reached"),
        (f"{len(worse)}", "comparisons in which a peer is better"),
    ):
        yield f"<div><b>{number}</b> {text}</div>"
    yield "</div>\n"
    for title, found in (("Left out", results["skipped"]), ("Failed", results["failed"])):
        if found:
            listed = "; ".join(f"{each['part']}: {each.get('reason') or each.get('error')}" for each in found)
            yield f'<p class="note"><b>{title}:</b> {escape(listed)}</p>\n'
    yield READING
    yield f'<h2 id="losses">Where a peer is better <small>{len(worse)}, the worst first</small></h2>\n'
    yield from _losses(worse)
    yield f'<h2 id="missed">Required and not reached <small>{len(absent)}</small></h2>\n'
    yield from _table(absent, grouped=True)
    found_plots = plots.plots(rows)
    if found_plots:
        yield '<h2 id="plots">How it scales</h2>\n<div class="plots">'
        yield from (f"<figure>{plots.svg(plot)}</figure>" for plot in found_plots)
        yield "</div>\n<p>Both axes are logarithmic. Bars at our points show the smallest and the largest round.</p>\n"
    yield '<h2 id="rows">All rows</h2>\n'
    yield '<input type="search" placeholder="Filter rows" aria-label="Filter rows" hidden>\n'
    for name, group in results["groups"].items():
        own = [row for row in rows if row["group"] == name]
        if own:
            yield (
                f'<section><h3 id="{name}">{escape(group["title"])} <small>{len(own)} rows, {group["seconds"]:,.0f} s, '
                f"load average before: {group['load']:g}</small></h3>\n"
            )
            yield from _table(own)
            yield "</section>\n"
    yield f"</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"


def _machine(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    facts = [
        f"{machine['processor']}{' (virtual machine)' if machine['virtual'] else ''}",
        f"{machine['cores']} cores",
        size(machine["memory"]),
        machine["kernel"],
        machine["python"],
        f"load average {machine['load']:g} at the start",
        machine["date"],
        f"{results['rounds']} rounds",
        f"{results['seconds'] / 60:,.0f} minutes",
    ]
    if results["quick"]:
        facts.append("quick: smaller data, fewer rounds")
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return f'<p class="facts">{escape(" · ".join(facts))}<br>{escape(versions)}</p>\n'


def _losses(worse: Sequence[tuple[float, str, Mapping[str, Any]]]) -> Iterator[str]:
    if not worse:
        yield "<p>Nowhere in this run.</p>\n"
        return
    yield from _loss_table(worse[:SHOWN])
    if rest := worse[SHOWN:]:
        yield f"<details><summary>{len(rest)} more</summary>\n"
        yield from _loss_table(rest)
        yield "</details>\n"


def _loss_table(worse: Sequence[tuple[float, str, Mapping[str, Any]]]) -> Iterator[str]:
    yield '<div class="scroll"><table class="losses"><thead>'
    yield "<tr><th>what<th class=n>shmarrow<th>peer<th><th class=n>peer / shmarrow<th></tr></thead><tbody>\n"
    for ratio, peer, row in worse:
        unit = row["unit"]
        yield (
            f'<tr><td><a href="#{row["group"]}">{escape(row["group"])}</a> {escape(row["name"])}'
            f"<td class=n>{show(row['ours'], unit)}<td>{escape(peer)}<td class=n>{show(row['peers'][peer], unit)}"
            f"<td class=n>{times(ratio)}"
            f"<td class=doubt>{'within the spread' if uncertain(row, peer) else ''}</tr>\n"
        )
    yield "</tbody></table></div>\n"


def _table(rows: Sequence[Mapping[str, Any]], *, grouped: bool = False) -> Iterator[str]:
    if not rows:
        yield "<p>None.</p>\n"
        return
    yield (
        '<div class="scroll"><table class="rows"><thead><tr><th>what<th class=n>shmarrow<th>peer<th>'
        f"<th>{_scale()}<th class=n>result<th>required<th></tr></thead><tbody>\n"
    )
    for row in rows:
        unit, peer = row["unit"], row["peer"]
        link = f'<a href="#{row["group"]}">{escape(row["group"])}</a> ' if grouped else ""
        also = ", ".join(f"{name} {show(value, unit)}" for name, value in row["peers"].items() if name != peer)
        notes = [also] if also else []
        for side, parts in row["extra"].get("parts", {}).items():
            notes.append(f"{side}: {', '.join(f'{part} {show(value, unit)}' for part, value in parts.items())}")
        small = "".join(f"<small>{escape(note)}</small>" for note in notes)
        mark = {None: "", True: '<span class="yes">reached</span>', False: '<span class="no">not reached</span>'}
        doubt = ' <span class="doubt">within the spread</span>' if row["doubtful"] else ""
        theirs = "" if peer is None else show(row["peers"][peer], unit)
        yield (
            f"<tr><td>{link}{escape(row['name'])}{small}<td class=n>{show(row['ours'], unit)}"
            f"<td>{escape(peer or '')}<td class=n>{theirs}<td>{_bar(row)}<td class=n>{escape(row['result'])}"
            f"<td>{escape(row['required'])}<td>{mark[row['reached']]}{doubt}</tr>\n"
        )
    yield "</tbody></table></div>\n"


BAR, LINE = 164, 14


def _at(ratio: float) -> float:
    """Return the position of a ratio on a bar, in pixels."""
    low, high = SCALE
    share = (math.log(min(max(ratio, low), high)) - math.log(low)) / (math.log(high) - math.log(low))
    return 4 + share * (BAR - 8)


def _scale() -> str:
    marks = "".join(
        f'<text x="{_at(ratio):.1f}" y="11" text-anchor="middle">{ratio:g}×</text>' for ratio in (0.1, 1, 10, 100)
    )
    return f'<svg class="bar" width="{BAR}" height="{LINE}" role="img" aria-label="peer / shmarrow">{marks}</svg>'


def _bar(row: Mapping[str, Any]) -> str:
    """The spread of a ratio and its median, beside the line at which both sides are equal."""
    if row["ratio"] is None:
        return ""
    kind = "win" if row["ratio"] >= 1 else "loss"
    one, low, high, middle = (_at(ratio) for ratio in (1, row["low"], row["high"], row["ratio"]))
    start, end = sorted((one, middle))
    return (
        f'<svg class="bar {kind}" width="{BAR}" height="{LINE}" role="img" aria-label="{times(row["low"])} to '
        f'{times(row["high"])}">'
        f"<title>{times(row['ratio'])}, rounds from {times(row['low'])} to {times(row['high'])}</title>"
        f'<rect x="{start:.1f}" y="5" width="{end - start:.1f}" height="4"/>'
        f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7"/>'
        f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="0" y2="{LINE}"/>'
        f'<circle cx="{middle:.1f}" cy="7" r="4"/></svg>'
    )


READING = """<p class="note"><b>How to read this.</b> Both sides of a row ran in one process, or in processes that took
turns, on the same data. Figures are medians. The ratio is the peer's figure divided by ours, so above 1× shmarrow is
better; its dot is the median over the rounds, and its line runs from the smallest to the largest round.</p>
"""

STYLE = """
:root { --good: var(--c2); --bad: var(--c1); color-scheme: light dark; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 32px 24px 80px; }
h1 { margin: 0 0 8px; font-size: 30px; letter-spacing: -.01em; }
h2 { margin: 44px 0 12px; font-size: 22px; }
h3 { margin: 32px 0 8px; font-size: 17px; }
h2 small, h3 small { font-weight: 400; font-size: 14px; color: var(--dim); margin-left: 8px; }
a { color: var(--c0); text-decoration: none; } a:hover { text-decoration: underline; }
.facts, .note { color: var(--dim); max-width: 100ch; } .note b { color: var(--ink); }
.counts { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.counts div { border: 1px solid var(--grid); border-radius: 10px; padding: 12px 18px; color: var(--dim); }
.counts b { display: block; font-size: 24px; color: var(--ink); font-variant-numeric: tabular-nums; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)); gap: 16px; }
figure { margin: 0; border: 1px solid var(--grid); border-radius: 10px; padding: 6px; }
.plot { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; border: 1px solid var(--grid); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { text-align: left; padding: 6px 12px; vertical-align: top; border-bottom: 1px solid var(--grid); }
tr:last-child td { border-bottom: 0; } tbody tr:hover { background: color-mix(in srgb, var(--grid) 45%, transparent); }
.rows { table-layout: fixed; min-width: 1100px; }
.rows th:nth-child(2), .rows th:nth-child(4), .rows th:nth-child(6) { width: 8%; }
.rows th:nth-child(3) { width: 11%; } .rows th:nth-child(5) { width: 188px; }
.rows th:nth-child(7) { width: 10%; } .rows th:nth-child(8) { width: 9.5%; }
summary { cursor: pointer; color: var(--c0); padding: 8px 0; }
th { font-weight: 600; color: var(--dim); white-space: nowrap; }
td small { display: block; color: var(--dim); }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.yes { color: var(--good); } .no { color: var(--bad); font-weight: 600; } .doubt { color: var(--dim); }
.yes, .no { white-space: nowrap; }
.bar { display: block; margin-top: 4px; } .bar text { font-size: 10px; fill: var(--dim); }
.bar .one { stroke: var(--dim); } .bar .spread { stroke-width: 2; opacity: .6; }
.bar rect { opacity: .3; }
.win rect, .win circle { fill: var(--good); } .win .spread { stroke: var(--good); }
.loss rect, .loss circle { fill: var(--bad); } .loss .spread { stroke: var(--bad); }
input { font: inherit; color: inherit; background: transparent; border: 1px solid var(--dim); border-radius: 8px;
  padding: 6px 12px; width: min(360px, 100%); }
input:focus-visible, a:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
"""

SCRIPT = """
const box = document.querySelector("input");
box.hidden = false;
box.addEventListener("input", () => {
  const wanted = box.value.toLowerCase();
  for (const section of document.querySelectorAll("section")) {
    let shown = 0;
    for (const row of section.querySelectorAll("tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    section.hidden = !shown;
  }
});
"""


def load(path: Path) -> dict[str, Any]:
    """The results in a file; ends the program with one line if it has none."""
    try:
        results = json.loads(path.read_text())
    except OSError as error:
        sys.exit(f"benchmarks: {path} cannot be read: {error.strerror}; `make bench` writes it")
    except (ValueError, RecursionError) as error:
        sys.exit(f"benchmarks: {path} is not JSON: {error}; `make bench` writes it")
    if not isinstance(results, dict):
        results = {}
    for key, kind in PARTS.items():
        if not isinstance(results.get(key), kind):
            sys.exit(
                f"benchmarks: {path} is not a result of benchmarks/run.py: it has no {key!r}; `make bench` writes it"
            )
    try:
        page(results)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        sys.exit(
            f"benchmarks: {path} is not a result of this benchmarks/run.py: {type(error).__name__}: {error}; "
            "`make bench` writes it"
        )
    return results


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="what benchmarks/run.py wrote with --json")
    parser.add_argument(
        "--html", type=Path, metavar="OUT", help="report.html beside the results, if nothing is asked for"
    )
    parser.add_argument(
        "--markdown", metavar="REGEX", help="print a table of rows whose `suite.part: name` contains this"
    )
    parser.add_argument("--readme", type=Path, metavar="OUT", help="the README's plot, an SVG file; prints its table")
    arguments = parser.parse_args(words)
    results = load(arguments.results)
    if arguments.markdown is not None:
        try:
            re.compile(arguments.markdown)
        except re.error as error:
            sys.exit(f"benchmarks: {arguments.markdown!r} is not a regular expression: {error}")
        print(markdown(results["rows"], pattern=arguments.markdown))
    if arguments.readme is not None:
        arguments.readme.write_text(front.picture(results))
        print(front.table(results["rows"]))
    if arguments.html is not None or not (arguments.readme or arguments.markdown is not None):
        (arguments.html or arguments.results.with_name("report.html")).write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
