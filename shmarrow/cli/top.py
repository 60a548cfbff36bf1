# SPDX-License-Identifier: Apache-2.0
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

from shmarrow.cli.command import ACCEPT_USERS, JSON, Grid, aligned, argument, command, render, seconds, whole
from shmarrow.cli.host import (
    COUNTERS,
    is_object,
    is_ring,
    is_store,
    look,
    object_state,
    opened,
    pins_text,
    readers_text,
    reason,
    shared,
)
from shmarrow.display import one_line, text_width
from shmarrow.display import size as size_text
from shmarrow.errors import counted, printable

_SHORTEST = 0.05
_LEFT = ("store", "user", "attached")
_HEADERS = (
    "store", "user", "objects", "size", "removed", "capacity", "room", "puts/s", "evicted/s", "attached",
)  # fmt: skip
_DROPPED = ("evicted/s", "capacity", "user", "removed", "puts/s")
"""The columns that are dropped on a narrow terminal, in this order."""
_SIZES = ("size", "bytes"), ("removed", "removed"), ("capacity", "capacity")
_SHOWN = ("puts/s", "puts"), ("evicted/s", "evictions")
"""The rates in tables, and the counters that they come from; JSON has all."""

_KINDS = ("store", "ring", "object")

Sample = dict[str, Any]


@command(
    argument(
        "stores",
        metavar="STORE",
        nargs="*",
        help="shm:NAME, a directory, or a ring; default: all stores and rings in shared memory",
    ),
    argument("--interval", type=seconds, default=1.0, metavar="SECONDS", help="refresh interval; default: 1"),
    argument("--count", type=whole(1), metavar="N", help="stop after N refreshes"),
    JSON,
    ACCEPT_USERS,
)
def top(arguments: argparse.Namespace) -> int:
    """Show the stores until Ctrl-C."""
    for where in arguments.stores:
        if not is_ring(where):
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
        places = arguments.stores or [*shared(is_store), *shared(is_ring)]
        found = [each for where in places if (each := look(where, arguments.accept_users)) is not None]
        if not arguments.stores:
            found += [each for where in shared(is_object) if (each := object_state(where)) is not None]
        for each in found:
            if "error" not in each:
                each["rates"] = _rates(before.get(_name(each)), each, now - last)
        yield at, found
        number += 1
        if number == arguments.count:
            return
        before, last = {_name(each): each for each in found if "error" not in each}, now
        due = max(due + max(arguments.interval, _SHORTEST), time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def _name(found: Sample) -> str:
    name: str = next(found[kind] for kind in _KINDS if kind in found)
    return name


def _rates(before: Sample | None, now: Sample, elapsed: float) -> dict[str, float] | None:
    """Operations per second; None for a new or recreated store or ring."""
    counters = ("frames",) if "ring" in now else COUNTERS if "store" in now else ()
    if before is None or any(now[name] < before.get(name, 0) for name in counters):
        return None
    return {name: round((now[name] - before.get(name, 0)) / elapsed, 3) for name in counters}


# --- showing ----------------------------------------------------------------------------------------------------


def _as_json(looks: Iterator[tuple[float, list[Sample]]]) -> None:
    for at, found in looks:
        render(True, {"time": at, **{f"{kind}s": [each for each in found if kind in each] for kind in _KINDS}})


def _as_lines(looks: Iterator[tuple[float, list[Sample]]]) -> None:
    """Print one tab-separated line per store and refresh."""
    print("time", *_HEADERS, sep="\t", flush=True)
    for at, found in looks:
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        render(False, None, Grid((), [(clock, *cells, ", ".join(attached)) for cells, attached in map(_cells, found)]))


def _as_table(looks: Iterator[tuple[float, list[Sample]]]) -> None:
    """Print a table that replaces the previous one."""
    drawn = 0
    for at, found in looks:
        counts = {kind: sum([kind in each for each in found]) for kind in _KINDS}
        title = f"{time.strftime('%H:%M:%S', time.localtime(at))}  {counted(counts['store'], 'store')}"
        title += "".join([f", {counted(counts[kind], kind)}" for kind in _KINDS[1:] if counts[kind]])
        rows = []
        for cells, attached in map(_cells, found):  # a line for each attached process, but at least one
            rows.append([*cells, (attached or [""])[0]])
            rows += [[*[""] * len(cells), each] for each in attached[1:]]
        lines = [title, *_fitting(rows)]
        sys.stdout.write((f"\033[{drawn}F\033[J" if drawn else "") + "\n".join(lines) + "\n")
        sys.stdout.flush()
        drawn = len(lines)


def _fitting(rows: list[list[str]]) -> list[str]:
    """Return the lines of a table that fits the terminal, without empty columns."""
    size = shutil.get_terminal_size()
    kept = [number for number in range(len(_HEADERS)) if any(row[number] for row in rows)]
    for name in (None, *_DROPPED):
        kept = [number for number in kept if _HEADERS[number] != name]
        left = [i for i, number in enumerate(kept) if _HEADERS[number] in _LEFT]
        lines = aligned([_HEADERS[i] for i in kept], [[row[i] for i in kept] for row in rows], left) if rows else []
        if max(map(text_width, lines), default=0) <= size.columns:
            break
    return [one_line(line, size.columns) for line in lines[: size.lines - 2]]


def _cells(found: Sample) -> tuple[list[str], list[str]]:
    """The cells of a row, and the lines of the last one: the attached processes."""
    rates = found.get("rates") or {}
    shown = {"store": printable(_name(found)), "user": found["user"] or ""}
    if "error" in found:
        attached = [printable(reason(found))]
    elif "object" in found:
        shown["size"], attached = size_text(found["bytes"]), ["in no store"]
    elif "ring" in found:
        shown |= {"size": size_text(found["bytes"]), "puts/s": _rate(rates, "frames")}
        attached = readers_text(found)
    else:
        shown |= {
            "objects": str(found["objects"]),
            **{header: size_text(found[field]) for header, field in _SIZES if found[field]},
            "room": size_text(found["room"]),
            **{header: _rate(rates, counter) for header, counter in _SHOWN},
        }
        attached = pins_text(found["pins"])
    return [shown.get(header, "") for header in _HEADERS[:-1]], attached


def _rate(rates: dict[str, float], name: str) -> str:
    return f"{rates[name]:.0f}" if name in rates else ""
