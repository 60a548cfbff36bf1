"""Output of commands: results as tables, fields or JSON; errors as one line and an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

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


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> None:
    """Print a table on a terminal, with rich where it is installed; tab-separated cells elsewhere.

    Whatever a terminal would act on is escaped: names come from other programs.

    Parameters
    ----------
    headers : sequence of str
        Names of the columns, which only a terminal shows.
    rows : sequence of sequence of str
        The cells.
    left : collection of int
        The columns that are aligned to the left; the others hold numbers.
    """
    if sys.stdout.isatty():
        show_table(headers, rows, left)
    for row in () if sys.stdout.isatty() else rows:
        print(*map(printable, row), sep="\t")


def show_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> None:
    """Print a table for people, which has headers and aligned columns wherever it goes; see :func:`print_table`."""
    rows = [list(map(printable, row)) for row in rows]
    if not (sys.stdout.isatty() and _print_rich(headers, rows, left)):
        print(*plain_table(headers, rows, left), sep="\n")


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """A table as lines of text: aligned columns, and a rule under the headers."""
    widths = [max(map(len, cells)) for cells in zip(headers, *rows, strict=True)]
    lines = [
        "   ".join(
            [
                cell.ljust(width) if i in left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
        ).rstrip()
        for row in (headers, *rows)
    ]
    return [lines[0], "   ".join(["─" * width for width in widths]), *lines[1:]]


def _print_rich(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]) -> bool:
    try:
        from rich import box, table
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return False
    made = table.Table(box=box.SIMPLE_HEAD)
    for number, header in enumerate(headers):
        made.add_column(header, justify="left" if number in left else "right", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    Console().print(made)
    return True


def print_names(arguments: argparse.Namespace, what: str, names: list[str]) -> int:
    """Print names, one per line, or as a JSON object under the key ``what``; return the exit status 0."""
    if arguments.json:
        print_json({what: names})
    else:
        print_table(("name",), [(name,) for name in names])
    return 0


def print_fields(fields: dict[str, str]) -> None:
    """Print names and values, one pair per line; further lines of a value are indented."""
    width = max(map(len, fields))
    for name, value in fields.items():
        first, *others = map(printable, value.splitlines() or [""])
        print(f"{name.ljust(width)}  {first}")
        for line in others:
            print(f"{' ' * width}  {line}")
