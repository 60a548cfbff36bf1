# SPDX-License-Identifier: Apache-2.0
r"""Commands that read rows: ``head``, ``cat`` and ``count``, and the form of values.

Invariants:

* only the batches, columns and rows that are shown are read; a pipe is read as far as needed;
* on a terminal rows are a table that fits it; elsewhere they are lines of tab-separated cells under a line of names;
  with ``--json`` each row is a JSON object on a line of its own;
* JSON has numbers, text, booleans and null as they are. Structs are objects, lists arrays, maps arrays of pairs. All
  else is text: times in ISO 8601, decimals with all digits, bytes in hexadecimal, and ``"NaN"``, ``"Infinity"`` and
  ``"-Infinity"``;
* between tabs, a null is ``\N``. Backslashes, tabs and line breaks within a value are escaped, so that each row is one
  line and no value looks like a null.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import shmarrow as sa
from shmarrow.cli.command import COLUMNS, MEMORY, TARGETS, argument, clipped, command, render, whole
from shmarrow.cli.many import many_sources, report, survey
from shmarrow.cli.targets import open_rows
from shmarrow.errors import Part, counted, part_text, printable, renumbered

NULL = "\\N"


class Place(NamedTuple):
    """Where the rows of a batch are from, for errors: the target, the batch, and the row there of each row here."""

    target: str
    batch: int
    rows: Sequence[int]

    def row(self, number: int) -> int:
        """The row there of a row here; an error may name one behind the last."""
        return int(self.rows[number]) if number < len(self.rows) else number


@contextmanager
def within(*parts: Part) -> Iterator[None]:
    """Put the parts of a location that are missing in front of that of errors that leave the block."""
    try:
        yield
    except sa.ShmarrowError as error:
        missing = [part for part in parts if part not in error.where and not error.problem.startswith(part_text(part))]
        error.where = (*missing, *error.where)
        raise


def _columns(batch: Any, place: Place) -> Iterator[list[Any]]:
    """The values of each column; errors tell where they are."""
    for number, name in enumerate(batch.schema.names):
        with (
            within((place.target,), ("batch", place.batch), ("column", number, name)),
            renumbered(place.row),
        ):
            yield values_of(batch.column(number))


def json_rows(batch: Any, place: Place, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a batch as JSON objects, under these names."""
    columns = [list(map(as_json, values)) for values in _columns(batch, place)]
    for i in range(batch.num_rows):
        yield {name: column[i] for name, column in zip(names, columns, strict=True)}


def text_rows(batch: Any, place: Place, most: int | None = None) -> Iterator[str]:
    """The rows of a batch as lines, with tabs between the cells, each of at most so many characters."""
    columns = [[as_text(value, most) for value in values] for values in _columns(batch, place)]
    if not columns:
        return iter([""] * batch.num_rows)
    return map("\t".join, zip(*columns, strict=True))


def unique(names: Sequence[str]) -> list[str]:
    """Names as keys of an object: of equal ones, all but the first get a number."""
    taken: dict[str, int] = {}
    found = []
    for name in names:
        number = taken[name] = taken.get(name, 0) + 1
        found.append(name if number == 1 else f"{name} ({number})")
    return found


def values_of(column: Any) -> list[Any]:
    """The values of a column as Python values; as text where Python has no value, such as a time in nanoseconds.

    Raises
    ------
    InvalidData
        If they break the rules of their type.
    """
    try:
        return list(column.to_pylist())
    except (sa.ShmarrowError, ValueError, OverflowError):
        if column.type.layout != "primitive":
            column.validate(full=True)  # which says what is wrong, if anything is
        nulls = column.is_null().to_pylist()
        return [None if null else column._slot_text(i, 1 << 16) for i, null in enumerate(nulls)]


def as_json(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    return str(value)


def as_text(value: Any, most: int | None = None) -> str:
    """A value between tabs; a longer one than ``most`` characters ends with its length."""
    if value is None:
        return NULL
    size = len(value) if isinstance(value, (str, bytes)) else 0
    if most is not None and size > most:  # do not make the whole of it text
        length = size if isinstance(value, str) else 2 * size
        piece = value[:most] if isinstance(value, str) else value[: most // 2]
        return f"{as_text(piece)}… ({counted(length, 'character')})"
    found = as_json(value)
    if isinstance(found, bool):
        return "true" if found else "false"
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if most is not None:
        text = clipped(text, most)
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    return printable(text)


_PIECE = 1 << 13
"""Rows that are made text at a time."""
_CELL = 200
"""Characters of a value that ``head`` prints as text."""
_ROWS = argument(
    "-n", "--rows", type=whole(0, "a number of rows"), default=10, metavar="N", help="number of rows; default: 10"
)
_SHOWN = (
    *TARGETS,
    COLUMNS,
    MEMORY,
    argument(
        "--no-header", action="store_true", help="omit the line of column names when the output is not a terminal"
    ),
)


# --- head, cat ----------------------------------------------------------------------------------------------------


@command(*_SHOWN, _ROWS)
def head(arguments: argparse.Namespace) -> int:
    """Print the first rows."""
    with open_rows(arguments, arguments.target, in_order=True) as (name, reader):
        _show(arguments, reader.schema, _first(name, reader, arguments.rows))
    return 0


@command(*_SHOWN)
def cat(arguments: argparse.Namespace) -> int:
    """Print all rows; never as a table, as that would have to know them all first."""
    with open_rows(arguments, arguments.target, in_order=True) as (name, reader):
        _print(arguments, reader.schema, _first(name, reader))
    return 0


def _first(name: str, reader: Any, rows: int = sys.maxsize) -> Iterator[tuple[Place, Any]]:
    left = rows
    for number, batch in enumerate(reader) if left else ():
        yield Place(name, number, range(batch.num_rows)), batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _show(arguments: argparse.Namespace, schema: Any, batches: Iterator[tuple[Place, Any]]) -> None:
    if arguments.json or not sys.stdout.isatty():
        _print(arguments, schema, batches, _CELL)
        return
    from shmarrow.columns import Table
    from shmarrow.display import table_lines

    found = [batch.take(np.arange(batch.num_rows)) for _, batch in batches if batch.num_rows]
    print(*table_lines(Table(schema, found), sys.maxsize), sep="\n")


def _print(
    arguments: argparse.Namespace, schema: Any, batches: Iterator[tuple[Place, Any]], most: int | None = None
) -> None:
    """Print batches as lines; of values as text at most so many characters."""
    names = unique(schema.names)
    if not arguments.json and not arguments.no_header:
        print(*[printable(name.replace("\\", "\\\\")) for name in schema.names], sep="\t")
    for place, batch in batches:
        for start in range(0, batch.num_rows, _PIECE):
            piece, here = batch.slice(start, _PIECE), place._replace(rows=place.rows[start:])
            lines = map(json.dumps, json_rows(piece, here, names)) if arguments.json else text_rows(piece, here, most)
            print(*lines, sep="\n")


# --- count --------------------------------------------------------------------------------------------------------


@command(*TARGETS)
def count(arguments: argparse.Namespace) -> int:
    """Count the rows, from the metadata alone."""
    fragments = many_sources(arguments, arguments.target)
    if fragments is not None:
        surveyed = survey(arguments, fragments)
        rows = sum([each.rows for each in surveyed])
        problems, status = report(arguments, surveyed)
        document = {"target": arguments.target, "rows": rows, "sources": len(surveyed), "problems": problems}
        render(arguments.json, document, str(rows))
        return status
    with open_rows(arguments, arguments.target, in_order=True) as (_, reader):
        if hasattr(reader, "num_record_batches"):
            batches, rows = reader.num_record_batches, reader.num_rows
        else:
            batches = rows = 0
            for batch in reader:
                batches, rows = batches + 1, rows + batch.num_rows
    render(arguments.json, {"target": arguments.target, "rows": rows, "batches": batches}, str(rows))
    return 0
