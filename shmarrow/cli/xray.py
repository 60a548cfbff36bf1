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
from itertools import islice
from typing import TYPE_CHECKING, Any

from shmarrow.cli.report import Fields, Table, WrongUsage, reporting, show, size_text
from shmarrow.cli.targets import add_target, open_bytes
from shmarrow.errors import DEFAULT_LIMITS, ShmarrowError, counted, printable

if TYPE_CHECKING:
    from shmarrow.xray import Finding, Overview, Region

_LISTED, _COLUMNS = 16, 24
"""Messages and columns that an overview lists."""
_SUMMED = 1000
"""Batches whose buffers an overview adds up."""
_WHAT = 44
"""Characters of what a region is, on a terminal."""
_NARROW = 60
"""Narrower terminals wrap lines, which would otherwise be cut before they say anything."""
_WITH_PATH = ("table", "vtable", "field", "root")
"""Kinds of regions that are shown with their path below the message."""
_BODY = ("buffer", "length")
_SPECIFICATION = "Columnar.rst, "
_FINDINGS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``xray``."""
    add_target(parser)
    parser.add_argument("--batch", metavar="N|A:B", help="explain each byte of these record batches, counted from 0")
    parser.add_argument("--range", metavar="A:B", help="explain each byte from offset A up to B")
    parser.add_argument(
        "--html", metavar="OUT", help="draw the object to scale, as a self-contained HTML page; - is standard output"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT even if it is not such a page")
    parser.add_argument("--all", action="store_true", help="explain each byte, each field and each element")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Explain the bytes of an object."""
    from shmarrow.xray import Overview

    chosen = _chosen(arguments)
    with open_bytes(arguments.target, arguments.trust) as (_, source):
        found = Overview(source, DEFAULT_LIMITS)
        _check(found, arguments, chosen)
        if arguments.html is not None:
            _page(found, arguments, chosen)
            return 0
        findings = _Findings()
        if not chosen and not arguments.all:
            for finding in found.findings:
                findings(finding)
            _overview(found, findings, arguments.json)
            return 0
        from shmarrow.xray import walk

        regions = walk(found, elements=arguments.all, report=findings, **chosen)
        if arguments.json:
            _print_json({"name": found.name, "kind": found.kind, "size": found.size}, regions, findings)
        elif sys.stdout.isatty():
            _print_lines(regions, found.size)
            _print_findings(findings)
        else:
            for region in regions:
                print(*map(printable, _words(region)), sep="\t")
            _print_findings(findings)
    return 0


def _page(found: Overview, arguments: argparse.Namespace, chosen: dict[str, Any]) -> None:
    """Write the HTML page, and report its size."""
    from shmarrow.xray import page

    if arguments.range is not None or arguments.all:
        raise WrongUsage("--html goes with --batch only")
    if not arguments.html or arguments.html.startswith("shm:"):
        raise WrongUsage(f"--html expects a path or -, found {arguments.html!r}")
    if arguments.html == "-" and arguments.json:
        raise WrongUsage("--html - prints the page, which --json cannot contain")
    batches = chosen.get("batches")
    if isinstance(batches, int):
        batches = slice(batches, batches + 1 or None)
    if arguments.html == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(page.render(found, batches=batches).encode("utf-8"))
        return
    size = page.write(found, arguments.html, batches=batches, overwrite=arguments.overwrite)
    if arguments.json:
        print(json.dumps({"page": arguments.html, "bytes": size}))
    else:
        print(f"{printable(arguments.html)}: {size_text(size)}", file=sys.stderr)


# --- arguments --------------------------------------------------------------------------------------------------


def _chosen(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the walk that the options stand for."""
    if arguments.batch is not None and arguments.range is not None:
        raise WrongUsage("--batch and --range cannot be combined")
    chosen: dict[str, Any] = {}
    if arguments.batch is not None:
        first, last = _pair("--batch", arguments.batch)
        chosen["batches"] = first if last is False else slice(first, last)
    if arguments.range is not None:
        first, last = _pair("--range", arguments.range)
        if last is False:
            raise WrongUsage(f"--range expects A:B, found {arguments.range!r}")
        chosen |= {"start": first or 0, "stop": last}
    return chosen


def _check(found: Overview, arguments: argparse.Namespace, chosen: dict[str, Any]) -> None:
    """Refuse batches and bytes that the object does not have, and ranges of none."""
    batches, count, size = chosen.get("batches"), len(found.blocks), found.size
    if isinstance(batches, slice):
        empty = not range(*batches.indices(count)) and bool(count or batches.start)
    else:
        empty = batches is not None and batches >= count
    if empty:
        expected = f"batches from 0 to {count - 1}" if count else "none, as the object has no record batches"
        raise WrongUsage(f"{found.name}: --batch expects {expected}, found {arguments.batch!r}")
    if "start" in chosen:
        start, stop = chosen["start"], chosen["stop"]
        if start >= (size if stop is None else min(stop, size)):
            raise WrongUsage(f"{found.name}: expected a range within its {size} bytes, found {arguments.range!r}")


def _pair(option: str, text: str) -> tuple[Any, Any]:
    """Two numbers, or None where one is left out; False as the second where there is no colon."""
    try:
        first, colon, last = text.partition(":")
        numbers = [int(each, 0) if each or not colon else None for each in ((first, last) if colon else (first,))]
    except ValueError:
        raise WrongUsage(f"{option} expects numbers as in 3 or 0:10, found {text!r}") from None
    if any(number is not None and number < 0 for number in numbers):
        raise WrongUsage(f"{option} counts from the start, from 0 on; found {text!r}")
    return (numbers[0], numbers[1]) if colon else (numbers[0], False)


# --- the overview -----------------------------------------------------------------------------------------------


def _overview(found: Overview, findings: _Findings, as_json: bool) -> None:
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
    regions = summary(found, _LISTED)
    many, columns = _sums(found)
    if as_json:
        _print_json({**facts, "summed_batches": many, "column_bytes": columns}, regions, findings)
        return
    texts = {**facts, "size": f"{size_text(found.size)} ({counted(found.size, 'byte')})"}
    words = [(*_numbers(each), each.what, _value(each, 200)) for each in regions]
    text: list[Fields | Table | str] = [
        Fields({name: "" if value is None else str(value) for name, value in texts.items()}), "",
        Table(("start", "end", "size", "what", "value"), words, (3, 4), True),
    ]  # fmt: skip
    if columns:
        rows = [(name, str(sum(sizes.values())), _sizes(sizes)) for name, sizes in _ends(columns)]
        text += ["", *([f"the buffers of the first {many} batches:"] if many < len(found.blocks) else [])]
        text.append(Table(("column", "bytes", "buffers"), rows, (0, 2), True))
    show(*text)
    _print_findings(findings)
    if len(found.blocks) and sys.stdout.isatty():
        print("\n--batch N explains each byte of a record batch, --all each byte of the object")


def _sums(found: Overview) -> tuple[int, list[tuple[str, dict[str, int]]]]:
    """Add up the buffers of the first batches: their number, and for each column the bytes by kind of buffer."""
    if found.schema is None:
        return 0, []
    most = max(1, min(_SUMMED, 2_000_000 // max(1, len(found.buffer_roles))))
    count = min(len(found.blocks), most)
    names = found.schema.names
    made: list[tuple[str, dict[str, int]]] = [(name, {}) for name in names]
    try:
        batches = [found.batch(i) for i in range(count)]
        pairs = [(found.roles_of(batch), batch.buffers[:, 1].tolist()) for batch in batches]
    except ShmarrowError:
        return 0, []  # the walk says which batch cannot be read, and why
    for roles, sizes in pairs:
        for role, size in zip(roles, sizes, strict=False):
            kind = role.buffer.partition(" ")[0]
            own = made[role.column][1]
            own[kind] = own.get(kind, 0) + size
    return count, made


def _ends(columns: list[Any]) -> Iterator[tuple[str, dict[str, int]]]:
    """The first and last columns of many, with the sum of those between."""
    if len(columns) <= _COLUMNS:
        yield from columns
        return
    half = _COLUMNS // 2
    yield from columns[:half]
    total: dict[str, int] = {}
    for _, sizes in columns[half:-half]:
        for kind, size in sizes.items():
            total[kind] = total.get(kind, 0) + size
    yield f"... {len(columns) - _COLUMNS} columns ...", total
    yield from columns[-half:]


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join([f"{kind} {size}" for kind, size in sizes.items() if size])


# --- regions ----------------------------------------------------------------------------------------------------


class _Findings(list["Finding"]):
    """Findings as they come; more than a terminal can show are counted."""

    left_out = 0

    def __call__(self, finding: Finding) -> None:
        if len(self) < _FINDINGS:
            self.append(finding)
        else:
            self.left_out += 1


def _numbers(region: Region) -> tuple[str, str, str]:
    return str(region.start), str(region.end), str(region.end - region.start)


def _value(region: Region, most: int) -> str:
    """Format the value of a region on one line."""
    value = region.value
    if value is None:
        return ""
    if isinstance(value, dict):
        text = ", ".join([f"{key} {_word(each)}" for key, each in value.items()])
    else:
        text = _word(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _word(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["at"]:
        return f"→ {value['at']}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _words(region: Region) -> tuple[str, ...]:
    """A region as cells for programs: start, end, kind, what, path, chapter, and the value as JSON."""
    value = "" if region.value is None else json.dumps(region.value)
    return str(region.start), str(region.end), region.kind, region.what, region.path, region.chapter, value


def _print_lines(regions: Iterable[Region], size: int) -> None:
    """Aligned lines on a terminal, one for each region, under headings that name the part and the chapter."""
    width = max(shutil.get_terminal_size((100, 24)).columns, _NARROW)
    digits = max(len(str(size)), 5)
    heading = ""
    print(f"{'start':>{digits}}  {'end':>{digits}}  {'size':>{digits}}  what, and its value")
    for region in regions:
        part, _, inner = region.path.partition(" / ")
        chapter, value = region.chapter, _value(region, width)
        if region.kind in _BODY:  # each buffer has a chapter of its own
            chapter, value = "body", value or chapter.removeprefix(_SPECIFICATION)
        found = f"{part}: {chapter}" if chapter else part
        if found != heading and (region.kind != "padding" or not heading.startswith(part)):
            print(f"\n{printable(found)}")
            heading = found
        what = f"{region.what} [{inner}]" if region.kind in _WITH_PATH and inner else region.what
        numbers = [f"{number:>{digits}}" for number in (region.start, region.end, region.end - region.start)]
        print(printable("  ".join([*numbers, f"{what:<{_WHAT}}", value]).rstrip())[:width])


def _print_findings(findings: _Findings) -> None:
    """Findings, as tables on a terminal or lines with tabs."""
    if not findings:
        return
    rows = [(each.severity, f"{each.start}:{each.end}", f"{each.message}; {each.remedy}") for each in findings]
    if findings.left_out:
        rows.append(("note", "", f"and {findings.left_out} more"))
    show("", Table(("finding", "bytes", "what"), rows, (0, 1, 2)))


def _print_json(facts: dict[str, Any], regions: Iterable[Region], findings: _Findings) -> None:
    """One JSON object, written while the regions come."""
    write = sys.stdout.write
    write(json.dumps(facts)[:-1] + ', "regions": [')
    comma = ""
    left = iter(regions)
    while some := list(islice(left, 1000)):
        write(comma + ", ".join([json.dumps(each._asdict()) for each in some]))
        comma = ", "
    write('], "findings": ' + json.dumps([each._asdict() for each in findings]))
    write(f', "findings_left_out": {findings.left_out}}}\n')
