# SPDX-License-Identifier: Apache-2.0
"""What all commands share: how they are declared with their arguments, and what they print.

Results are printed as JSON or as text (tables, fields, lines); errors as one line and an exit status.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import shmarrow as sa
from shmarrow import display
from shmarrow.display import parse_size
from shmarrow.display import size as size_text
from shmarrow.errors import MORE_MEMORY, Limits, printable
from shmarrow.store.directory import NOT_ACCEPTED

Run = Callable[[argparse.Namespace], int]
Argument = tuple[tuple[str, ...], dict[str, Any]]
"""What ``ArgumentParser.add_argument`` takes."""

_MOST_SECONDS = 1e9
_DECOMPRESSED = 1 << 30


class Declared(NamedTuple):
    """A command: the function that runs it and returns its exit status, its arguments, and the end of its help."""

    run: Run
    arguments: tuple[Argument, ...]
    epilog: str


def argument(*names: str, **options: Any) -> Argument:
    """One argument of a command."""
    return names, options


def command(*arguments: Argument, epilog: str = "") -> Callable[[Run], Declared]:
    """Declare a command with its arguments."""
    return lambda run: Declared(run, arguments, epilog)


# --- values -------------------------------------------------------------------------------------------------------


def whole(least: int, what: str = "a number") -> Callable[[str], int]:
    """A parser of whole numbers from ``least`` on."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected {what} from {least} on, found {text!r}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to {_MOST_SECONDS:.0f}, found {text!r}")
    return value


def byte_size(text: str) -> int:
    """Parse a number of bytes with an optional unit."""
    found = parse_size(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected bytes, such as 4096, 64K, 100M or 2GiB, found {text!r}")
    return found


# --- what several commands take -----------------------------------------------------------------------------------

JSON = argument("--json", action="store_true", help="print results and errors as JSON")
ACCEPT_USERS = argument("--accept-users", action="store_true", help="accept a store that others own or may write to")
COLUMNS = argument("--columns", metavar="A,B", help="only these columns, in this order")
MEMORY = argument(
    "--max-decompressed",
    type=byte_size,
    default=_DECOMPRESSED,
    metavar="SIZE",
    help="refuse a column of a batch, or dictionaries, of more decompressed bytes; default: 1G",
)
OVERWRITE = argument(
    "--overwrite", action="store_true", help="replace an object or a shm: name; a file is replaced anyway"
)
PREFIX = argument("--prefix", default="", help="only objects whose names start with PREFIX")


def target(name: str = "target", metavar: str = "TARGET") -> Argument:
    """A TARGET."""
    what = (
        "an Arrow file, stream or tensor: a path, shm:NAME, STORE/NAME (an object of a store), or - for standard input"
    )
    return argument(name, metavar=metavar, help=what)


TARGET = target(), JSON, ACCEPT_USERS
"""The arguments of a command that reads one target."""
TARGETS = (
    target(),
    argument(
        "others",
        nargs="*",
        default=(),
        metavar="TARGET",
        help="more of them: all are read as one table, as are directories and patterns",
    ),
    JSON,
    ACCEPT_USERS,
)
"""The arguments of a command that reads one target, or several as one table."""


def store(number: str | None = None, what: str = "the store: shm:NAME or a directory") -> tuple[Argument, ...]:
    """The arguments of a command on a store."""
    return argument("store", metavar="STORE", nargs=number, help=what), JSON, ACCEPT_USERS


def limits_of(arguments: argparse.Namespace) -> Limits:
    """The limits of readers: those of ``--max-decompressed``."""
    size = max(getattr(arguments, "max_decompressed", _DECOMPRESSED), 1)
    return Limits(decompressed_bytes=size, dictionary_bytes=size)


OTHER, USAGE, NOT_FOUND, EXISTS, FULL = 1, 2, 3, 4, 5
INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended: 128 + SIGINT

_IN_A_SHELL: dict[str | None, str | None] = {
    "delete that object first, or pass overwrite=True": "remove that object with shmarrow delete, or pass --overwrite",
    "delete it first, or pass overwrite=True": "remove it first, or pass --overwrite",
    MORE_MEMORY: "if you trust the data and have the memory, --max-decompressed SIZE raises the limit",
    "shmarrow.scan reads them as one table": "`shmarrow head`, `count`, `schema` and `inspect` read them as one table",
    "shmarrow.Ring opens it": "`shmarrow info` describes it",
    "shmarrow.open opens it": "`shmarrow inspect` shows it",
    "open it and pass the file object": "- stands for standard input or output",
    "pass one of the files in it; shmarrow.Store opens a store": None,
    NOT_ACCEPTED: "that user could plant or replace objects: choose another directory, or pass --accept-users",
}
"""Hints for programs, and those for a shell in place of them."""

_TICK = 0.1
_WIPE = "\r\033[K"


# --- errors -------------------------------------------------------------------------------------------------------


class WrongUsage(sa.InvalidArgument):
    """Unknown or contradictory arguments of a command."""


class Interrupted(sa.ShmarrowError):
    """Ctrl-C."""


_STATUS = (
    (WrongUsage, USAGE),
    (sa.ObjectNotFound, NOT_FOUND),
    (sa.ObjectExists, EXISTS),
    (sa.StoreFull, FULL),
    (Interrupted, INTERRUPTED),
)


def exit_status(error: sa.ShmarrowError) -> int:
    """The exit status for an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), OTHER)


def print_error(error: sa.ShmarrowError, as_json: bool) -> int:
    """Print an error to standard error: one line, or an object with ``error``, ``message``, ``hint`` and ``status``.

    Returns
    -------
    int
        The exit status for it.
    """
    hint, status = shell_hint(error), exit_status(error)
    if as_json:
        found = {"error": type(error).__name__, "message": error.problem, "hint": hint, "status": status}
        print(json.dumps(found), file=sys.stderr)
    else:
        print(f"shmarrow: {printable(error.problem if hint is None else f'{error.problem}; {hint}')}", file=sys.stderr)
    return status


def shell_hint(error: sa.ShmarrowError) -> str | None:
    """The hint of an error in the words of a shell; None if it has none."""
    if error.hint and error.hint.endswith(".open(path)"):
        return "decompress it first"
    return _IN_A_SHELL.get(error.hint, error.hint)


# --- values -------------------------------------------------------------------------------------------------------


def clipped(text: str, most: int = 200) -> str:
    """The first characters of a longer text, and its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def time_text(seconds: float) -> str:
    """Format a span of seconds for people, in its largest unit."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def exact_size(size: int) -> str:
    """Format a number of bytes, with all its digits."""
    return size_text(size) if size < 1024 else f"{size_text(size)} ({size} bytes)"


def batches_text(number: int) -> str:
    """Format a number of batches."""
    return "1 batch" if number == 1 else f"{number} batches"


# --- results ------------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """A table of a result. On a terminal it is aligned under its headers; elsewhere cells are separated by tabs.

    Attributes
    ----------
    headers : sequence of str
        Names of the columns.
    rows : sequence of sequence of str
        The cells.
    left : collection of int
        The columns that are aligned to the left; the others hold numbers.
    for_people : bool
        Print it aligned, with its headers, wherever it goes.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Collection[int] = (0,)
    for_people: bool = False

    def lines(self) -> list[str]:
        """The lines of the table, in which everything that a terminal would act on is escaped."""
        rows = [list(map(printable, row)) for row in self.rows]
        if not (self.for_people or sys.stdout.isatty()):
            return ["\t".join(row) for row in rows]
        return aligned(self.headers, rows, self.left)


class Fields(NamedTuple):
    """Names and values of a result, one pair per line; a value may have several lines."""

    values: Mapping[str, str | Sequence[str]]

    def lines(self) -> list[str]:
        """The lines, without the empty values."""
        shown = {name: [value] if isinstance(value, str) else value for name, value in self.values.items() if value}
        width = max(map(len, shown))
        return [
            f"{'' if i else name:{width}}  {printable(line)}"
            for name, lines in shown.items()
            for i, line in enumerate(lines)
        ]


def render(as_json: bool, document: Any, *text: Grid | Fields | str) -> None:
    """Print a result: the document as JSON on one line, or its text.

    Parameters
    ----------
    as_json : bool
        Whether the command line has ``--json``.
    document : object
        The result as a JSON value.
    *text : Grid, Fields or str
        The same for people and for pipelines. A string is a line; an empty one separates tables.
    """
    if as_json:
        text = (json.dumps(document),)
    for each in text:
        for line in (each,) if isinstance(each, str) else each.lines():
            print(line)
    sys.stdout.flush()


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Align the columns of a table, with a rule under the headers."""
    return display.aligned([headers], rows, [i not in left for i in range(len(headers))], "   ", "─")


@contextmanager
def progress_line(
    text: str, total: int | None, format: Callable[[int], str] = str, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """A line of progress on standard error, if that is a terminal; it is removed at the end.

    Parameters
    ----------
    text : str
        What is done.
    total : int, optional
        The final value; None if unknown.
    format : callable
        Formats the values.
    unit : str
        What is counted.

    Yields
    ------
    callable
        Takes the current value, and optionally the final one.
    """
    if not sys.stderr.isatty():
        yield lambda done, total=None: None
        return
    shown, started = 0.0, time.monotonic()

    def show(done: int, total: int | None = total) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _TICK or done == total:
            shown = now
            said = f"{text}: {format(done)}{f' of {format(total)}' if total else ''}{unit and f' {unit}'}"
            if total and done:
                left = (now - started) * (total - done) / done
                said += f", {100 * done // total} %{f', {time_text(left)} left' if left >= 1 else ''}"
            sys.stderr.write(_WIPE + said)
            sys.stderr.flush()

    try:
        show(0)
        yield show
    finally:
        sys.stderr.write(_WIPE)
        sys.stderr.flush()
