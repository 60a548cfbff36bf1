"""Output of commands: results as JSON or as text (tables, fields, lines); errors as one line and an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import shmarrow as sa
from shmarrow.errors import MORE_MEMORY, printable

OTHER, USAGE, NOT_FOUND, EXISTS, FULL = 1, 2, 3, 4, 5
INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended: 128 + SIGINT

_IN_A_SHELL: dict[str | None, str | None] = {
    "delete that object first, or pass overwrite=True": "remove that object with shmarrow delete, or pass --overwrite",
    "delete it first, or pass overwrite=True": "remove it first, or pass --overwrite",
    MORE_MEMORY: "if you trust the data and have the memory, --max-decompressed SIZE raises the limit",
    "open it and pass the file object": "- stands for standard input or output",
    "pass one of the files in it; shmarrow.Store opens a store": None,
    "that user could plant or replace objects: choose another directory, or pass trust=USER, or trust=True to trust "
    "anyone": "that user could plant or replace objects: choose another directory, or pass --trust to accept it",
}
"""Hints for programs, and those for a shell in place of them."""

Run = Callable[[argparse.Namespace], int]


class WrongUsage(sa.InvalidArgument):
    """Unknown or contradictory arguments of a command."""


class Interrupted(sa.ShmarrowError):
    """Ctrl-C."""


def exit_status(error: sa.ShmarrowError) -> int:
    """The exit status for an error."""
    kinds = (
        (WrongUsage, USAGE), (sa.ObjectNotFound, NOT_FOUND), (sa.ObjectExists, EXISTS), (sa.StoreFull, FULL),
        (Interrupted, INTERRUPTED),
    )  # fmt: skip
    return next((status for kind, status in kinds if isinstance(error, kind)), OTHER)


def print_error(error: sa.ShmarrowError, as_json: bool) -> None:
    """Print an error to standard error: one line, or an object with ``error``, ``message``, ``hint`` and ``status``."""
    import json

    hint = shell_hint(error)
    if as_json:
        found = {
            "error": type(error).__name__, "message": error.problem, "hint": hint, "status": exit_status(error)
        }  # fmt: skip
        print(json.dumps(found), file=sys.stderr)
    else:
        print(f"shmarrow: {printable(error.problem if hint is None else f'{error.problem}; {hint}')}", file=sys.stderr)


def shell_hint(error: sa.ShmarrowError) -> str | None:
    """The hint of an error in the words of a shell; None if it has none."""
    if error.hint and error.hint.endswith(".open(path)"):
        return "decompress it first"
    return _IN_A_SHELL.get(error.hint, error.hint)


def reporting(run: Run) -> Run:
    """Make a command print its errors and return their exit status."""

    def call(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except sa.ShmarrowError as error:
            print_error(error, arguments.json)
            return exit_status(error)

    return call


def clipped(text: str, most: int = 200) -> str:
    """The first characters of a longer text, and its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def byte_size(text: str) -> int:
    """Parse a number of bytes with an optional unit."""
    import re

    found = re.fullmatch(r"([0-9]{1,18})\s*([KMGT]?)(i?B)?", text, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected bytes, such as 4096, 64K, 100M or 2GiB, found {text!r}")
    return int(found[1]) << 10 * " KMGT".index(found[2].upper() or " ")


def size_text(size: int) -> str:
    """Format a number of bytes for people, such as ``1.5 MiB``."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def time_text(seconds: float) -> str:
    """Format a span of seconds for people, in its largest unit."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    import json

    print(json.dumps(value), flush=True)


class Table(NamedTuple):
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
    """Names and values of a result, one pair per line; further lines of a value are indented."""

    values: Mapping[str, str]

    def lines(self) -> list[str]:
        """The lines, without the empty values."""
        shown = {name: list(map(printable, value.splitlines())) for name, value in self.values.items() if value}
        width = max(map(len, shown))
        return [f"{'' if i else name:{width}}  {line}" for name, lines in shown.items() for i, line in enumerate(lines)]


def render(as_json: bool, document: Any, *text: Table | Fields | str) -> None:
    """Print a result: the document as JSON, or its text.

    Parameters
    ----------
    as_json : bool
        Whether the command line has ``--json``.
    document : object
        The result as a JSON value.
    *text : Table, Fields or str
        The same for people and for pipelines. A string is a line; an empty one separates tables.
    """
    if as_json:
        print_json(document)
    else:
        show(*text)


def show(*text: Table | Fields | str) -> None:
    """Print text; see :func:`render`."""
    for each in text:
        for line in (each,) if isinstance(each, str) else each.lines():
            print(line)


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Align the columns of a table, with a rule under the headers."""
    widths = [max(map(len, cells)) for cells in zip(headers, *rows, strict=True)]
    formats = [f"{{:{'<' if i in left else '>'}{width}}}" for i, width in enumerate(widths)]
    rule = ["─" * width for width in widths]
    return ["   ".join(formats).format(*row).rstrip() for row in (headers, rule, *rows)]
