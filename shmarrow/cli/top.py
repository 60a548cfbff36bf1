"""``shmarrow top``: contents, attached processes and operations per second of the stores and rings of this host.

Looking takes no lock and no pin, and uses no object. Rates come from counters in the stores; that of gets is counted
without a lock, and so approximate.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from shmarrow.cli import rings
from shmarrow.cli.host import COUNTERS, look, opened, pins_text, reason, seconds, shared_stores
from shmarrow.cli.report import aligned, print_json, reporting, size_text
from shmarrow.errors import counted, printable

_SHORTEST = 0.05
_LEFT = ("store", "user", "attached")
_HEADERS = (
    "store", "user", "objects", "size", "removed", "capacity", "room", "puts/s", "gets/s", "evicted/s", "attached",
)  # fmt: skip
_DROPPED = ("evicted/s", "capacity", "user", "removed", "puts/s", "gets/s")
"""The columns that are dropped on a narrow terminal, in this order."""
_SHOWN = ("puts", "hits", "evictions")
"""The rates in tables; JSON has all."""

Sample = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``top``."""
    parser.add_argument(
        "stores",
        metavar="STORE",
        nargs="*",
        help="shm:NAME, a directory, or a ring; default: all stores and rings in shared memory",
    )
    parser.add_argument(
        "--interval", type=_interval, default=1.0, metavar="SECONDS", help="refresh interval; default: 1"
    )
    parser.add_argument("--count", type=_count, metavar="N", help="stop after N refreshes")
    parser.add_argument("--json", action="store_true", help="print a JSON object per refresh, and errors as JSON")
    parser.add_argument("--trust", action="store_true", help="also open stores that other users own or may write to")


def _interval(text: str) -> float:
    return max(seconds(text), _SHORTEST)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return int(text)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Show the stores until Ctrl-C."""
    for where in arguments.stores:
        if rings.is_ring(where):
            continue
        with opened(arguments, where):
            pass  # what cannot be opened at the start is an error; later it is a row that says so
    try:
        show = _as_json if arguments.json else _as_table if sys.stdout.isatty() else _as_lines
        show(_looks(arguments))
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print()
    return 0


def _looks(arguments: argparse.Namespace) -> Iterator[tuple[float, list[Sample]]]:
    """The times of refreshes and the samples, each with ``rates``, which are None at first."""
    before: dict[str, Sample] = {}
    last = 0.0
    number = 0
    due = time.monotonic()
    while True:
        at, now = time.time(), time.monotonic()
        places = arguments.stores or [*shared_stores(), *rings.shared_rings()]
        looks = [(rings.look if rings.is_ring(where) else look)(where, arguments.trust) for where in places]
        found = [each for each in looks if each is not None]
        for each in found:
            if "error" not in each:
                each["rates"] = _rates(before.get(_name(each)), each, now - last)
        yield at, found
        number += 1
        if number == arguments.count:
            return
        before, last = {_name(each): each for each in found if "error" not in each}, now
        due = max(due + arguments.interval, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def _name(found: Sample) -> str:
    name: str = found["ring"] if "ring" in found else found["store"]
    return name


def _rates(before: Sample | None, now: Sample, elapsed: float) -> dict[str, float] | None:
    """Operations per second; None for a new or recreated store or ring."""
    counters = ("frames",) if "ring" in now else COUNTERS
    if before is None or any(now[name] < before.get(name, 0) for name in counters):
        return None
    return {name: round((now[name] - before.get(name, 0)) / elapsed, 3) for name in counters}


# --- showing ----------------------------------------------------------------------------------------------------


def _as_json(looks: Iterator[tuple[float, list[Sample]]]) -> None:
    for at, found in looks:
        of_rings = [each for each in found if "ring" in each]
        print_json({"time": at, "stores": [each for each in found if "ring" not in each], "rings": of_rings})


def _as_lines(looks: Iterator[tuple[float, list[Sample]]]) -> None:
    """Print one tab-separated line per store and refresh."""
    print("time", *_HEADERS, sep="\t", flush=True)
    for at, found in looks:
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        for each in found:
            *cells, pins = _cells(each)
            print(clock, *cells, ", ".join(pins), sep="\t", flush=True)


def _as_table(looks: Iterator[tuple[float, list[Sample]]]) -> None:
    """Print a table that replaces the previous one."""
    drawn = 0
    for at, found in looks:
        title = f"{time.strftime('%H:%M:%S', time.localtime(at))}  {counted(len(found), 'store')}"
        lines = [title, *_table([line for each in found for line in _lines_of(each)])]
        sys.stdout.write((f"\033[{drawn}F\033[J" if drawn else "") + "\n".join(lines) + "\n")
        sys.stdout.flush()
        drawn = len(lines)


def _table(rows: list[list[str]]) -> list[str]:
    """Return the lines of a table that fits the terminal, without empty columns."""
    size = shutil.get_terminal_size()
    kept = [number for number in range(len(_HEADERS)) if any(row[number] for row in rows)]
    for name in (None, *_DROPPED):
        kept = [number for number in kept if _HEADERS[number] != name]
        left = [i for i, number in enumerate(kept) if _HEADERS[number] in _LEFT]
        lines = aligned([_HEADERS[i] for i in kept], [[row[i] for i in kept] for row in rows], left) if rows else []
        if max(map(len, lines), default=0) <= size.columns:
            break
    return [line[: size.columns] for line in lines[: size.lines - 2]]


def _lines_of(found: Sample) -> Iterator[list[str]]:
    """Yield the cells of a store: a line for each of its attached processes, but at least one."""
    *cells, pins = _cells(found)
    yield [*cells, pins[0] if pins else ""]
    yield from ([*[""] * len(cells), pin] for pin in pins[1:])


def _cells(found: Sample) -> tuple[Any, ...]:
    """The cells of a store's row; the last is the list of attached processes."""
    name, user = printable(_name(found)), found["user"] or ""
    if "error" in found:
        return (
            name,
            user,
            *[""] * (len(_HEADERS) - 3),
            [printable(reason(found))],
        )
    rates = found["rates"]
    if "ring" in found:
        frames = "" if rates is None else f"{rates['frames']:.0f}"
        shown = {"store": name, "user": user, "size": size_text(found["bytes"]), "puts/s": frames}
        return *[shown.get(header, "") for header in _HEADERS[:-1]], rings.readers_text(found)
    return (
        name,
        user,
        str(found["objects"]),
        *[size_text(found[field]) if found[field] else "" for field in ("bytes", "removed")],
        size_text(found["capacity"]) if found["capacity"] else "",
        size_text(found["room"]),
        *["" if rates is None else f"{rates[field]:.0f}" for field in _SHOWN],
        pins_text(found["pins"]),
    )
