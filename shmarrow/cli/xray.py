# SPDX-License-Identifier: Apache-2.0
"""``shmarrow xray``: every byte of an Arrow object explained.

Invariants:

* without options only the footer, or the prefixes of messages, and a few messages are read, whatever the size; the
  options choose what is walked byte by byte;
* regions are printed as the walk yields them, and are not held in memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from shmarrow.cli.command import TARGET, Fields, Grid, WrongUsage, argument, command, exact_size, render
from shmarrow.cli.targets import open_bytes
from shmarrow.display import one_line
from shmarrow.display import size as size_text
from shmarrow.errors import DEFAULT_LIMITS, printable
from shmarrow.xray.model import value_text

if TYPE_CHECKING:
    from shmarrow.xray import Finding, Overview, Region

_LISTED = 16
"""Messages that an overview lists."""
_WHAT = 44
"""Characters of what a region is, on a terminal."""
_NARROW = 60
"""Narrower terminals wrap lines, which would otherwise be cut before they say anything."""
_WITH_PATH = ("table", "vtable", "root")
"""Kinds of regions that are shown with their path below the message."""
_BODY = ("buffer", "length")
_FINDINGS = 10_000


@command(
    *TARGET,
    argument("--batch", metavar="N|A:B", help="explain each byte of these record batches, counted from 0"),
    argument("--range", metavar="N|A:B", help="explain each byte from offset A up to B"),
    argument("--html", metavar="OUT", help="draw the object to scale, as one HTML page; - is standard output"),
    argument("--overwrite", action="store_true", help="replace OUT even if it is not such a page"),
    argument("--all", action="store_true", help="explain each byte"),
)
def xray(arguments: argparse.Namespace) -> int:
    """Explain the bytes of an object."""
    from shmarrow.xray import Overview, walk

    with open_bytes(arguments.target, arguments.accept_users) as source:
        found = Overview(source, DEFAULT_LIMITS)
        chosen = _chosen(found, arguments)
        findings = _Findings()
        if arguments.html is not None:
            _page(found, arguments, chosen.get("batches"))
        elif not chosen and not arguments.all:
            _overview(found, arguments.json)
        elif arguments.json:
            regions = walk(found, report=findings, **chosen)
            _print_json({"name": found.name, "kind": found.kind, "size": found.size}, regions, findings)
        else:
            regions = walk(found, report=findings, **chosen)
            for line in _lines(regions, found.size) if sys.stdout.isatty() else map(_cells, regions):
                print(line)
            render(False, None, *findings.text())
    return 0


def _page(found: Overview, arguments: argparse.Namespace, batches: slice | None) -> None:
    """Write the HTML page, and report its size."""
    from shmarrow.xray import page

    out = arguments.html
    if arguments.range is not None or arguments.all:
        raise WrongUsage("--html goes with --batch only")
    if not out or out.startswith("shm:"):
        raise WrongUsage(f"--html expects a path or -, found {out!r}")
    if out != "-":
        size = page.write(found, out, batches=batches, overwrite=arguments.overwrite)
        render(arguments.json, {"page": out, "bytes": size}, f"{printable(out)}: {size_text(size)}")
    elif arguments.json:
        raise WrongUsage("--html - prints the page, which --json cannot contain")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(page.render(found, batches=batches).encode("utf-8"))


# --- arguments --------------------------------------------------------------------------------------------------


def _chosen(found: Overview, arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the walk that the options stand for."""
    if arguments.batch is not None and arguments.range is not None:
        raise WrongUsage("--batch and --range cannot be combined")
    if arguments.batch is not None:
        return {"batches": _span("--batch", arguments.batch, len(found.blocks), f"the batches of {found.name}")}
    if arguments.range is not None:
        span = _span("--range", arguments.range, found.size, f"the bytes of {found.name}")
        return {"start": span.start, "stop": span.stop}
    return {}


def _span(option: str, text: str, count: int, what: str) -> slice:
    """What ``A:B`` or ``N`` selects of so many things; it must not be nothing."""
    first, colon, last = text.partition(":")
    try:
        start = int(first, 0) if first or not colon else 0
        stop = (int(last, 0) if last else count) if colon else start + 1
    except ValueError:
        start = stop = -1
    if not 0 <= start < min(stop, count):
        raise WrongUsage(f"{option} expects N or A:B within {what}, of which there are {count}; found {text!r}")
    return slice(start, stop)


# --- the overview -----------------------------------------------------------------------------------------------


def _overview(found: Overview, as_json: bool) -> None:
    from shmarrow.xray import summary

    facts = {
        "name": found.name,
        "kind": found.kind,
        "size": found.size,
        "version": found.version,
        "endianness": found.endianness,
        "columns": None if found.schema is None else len(found.schema),
        "batches": len(found.blocks),
        "dictionaries": len(found.dictionaries),
        "compression": found.compression,
    }
    regions, findings = summary(found, _LISTED), _Findings(found.findings)
    if as_json:
        _print_json(facts, regions, findings)
        return
    texts = {**facts, "size": exact_size(found.size)}
    rows = [(*_numbers(each), each.what, value_text(each.value)) for each in regions]
    text: list[Grid | str] = ["", Grid(("start", "end", "size", "what", "value"), rows, (3, 4), True)]
    text += findings.text()
    if len(found.blocks) and sys.stdout.isatty():
        text += ["", "--batch N explains each byte of a record batch, --all each byte of the object"]
    render(False, None, Fields({name: "" if value is None else str(value) for name, value in texts.items()}), *text)


# --- regions and findings ---------------------------------------------------------------------------------------


def _numbers(region: Region) -> tuple[str, str, str]:
    return str(region.start), str(region.end), str(region.end - region.start)


def _cells(region: Region) -> str:
    """A region as cells for programs: start, end, kind, what, path, chapter, and the value as JSON."""
    value = "" if region.value is None else json.dumps(region.value)
    return "\t".join([str(region.start), str(region.end), *map(printable, (*region[2:6], value))])


def _lines(regions: Iterable[Region], size: int) -> Iterator[str]:
    """Aligned lines for a terminal, one for each region, under headings that name the part and the chapter."""
    width = max(shutil.get_terminal_size((100, 24)).columns, _NARROW)
    digits = max(len(str(size)), 5)
    heading = ""
    yield f"{'start':>{digits}}  {'end':>{digits}}  {'size':>{digits}}  what, and its value"
    for region in regions:
        part, _, inner = region.path.partition(" / ")
        chapter, value = region.chapter, value_text(region.value)
        if region.kind in _BODY:  # each buffer has a chapter of its own
            chapter, value = "body", value or chapter.removeprefix("Columnar.rst, ")
        found = f"{part}: {chapter}" if chapter else part
        if found != heading and (region.kind != "padding" or not heading.startswith(part)):
            yield from ("", printable(found))
            heading = found
        what = f"{region.what} [{inner}]" if region.kind in _WITH_PATH and inner else region.what
        numbers = [f"{number:>{digits}}" for number in _numbers(region)]
        yield one_line("  ".join([*numbers, f"{what:<{_WHAT}}", value]).rstrip(), width)


class _Findings(list["Finding"]):
    """Findings as they come; more than a terminal can show are counted."""

    left_out = 0

    def __call__(self, finding: Finding) -> None:
        if len(self) < _FINDINGS:
            self.append(finding)
        else:
            self.left_out += 1

    def text(self) -> list[Grid | str]:
        rows = [(each.severity, f"{each.start}:{each.end}", f"{each.message}; {each.remedy}") for each in self]
        if self.left_out:
            rows.append(("note", "", f"and {self.left_out} more"))
        return ["", Grid(("finding", "bytes", "what"), rows, (0, 1, 2))] if rows else []


def _print_json(facts: dict[str, Any], regions: Iterable[Region], findings: _Findings) -> None:
    """One JSON object, written while the regions come."""
    write = sys.stdout.write
    write(json.dumps(facts)[:-1] + ', "regions": [')
    comma = ""
    for region in regions:
        write(comma + json.dumps(region._asdict()))
        comma = ", "
    write('], "findings": ' + json.dumps([each._asdict() for each in findings]))
    write(f', "findings_left_out": {findings.left_out}}}\n')
