"""Commands that read rows: ``schema``, ``head``, ``sample``, ``cat`` and ``count``.

Invariants:

* only the batches, columns and rows that are shown are read; a pipe is read as far as needed;
* on a terminal rows are a table that fits it; elsewhere they are lines of tab-separated cells under a line of names;
  with ``--json`` each row is a JSON object on a line of its own. ``cli/cells.py`` has the form of values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from shmarrow.cli.report import render, reporting
from shmarrow.cli.targets import ROWS, add_columns, add_memory, add_target, open_rows, open_target, rows_of
from shmarrow.errors import printable

_PIECE = 1 << 13
"""Rows that are made text at a time."""
_ROWS = 10
_CELL = 200
"""Characters of a value that ``head`` and ``sample`` print as text."""


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of rows, found {text!r}")
    return int(text)


# --- head, cat, sample --------------------------------------------------------------------------------------------


def head_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``head``."""
    add_target(parser)
    parser.add_argument(
        "-n", "--rows", type=_number, default=_ROWS, metavar="N", help=f"number of rows; default: {_ROWS}"
    )
    _add_row_options(parser)


def cat_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``cat``."""
    add_target(parser)
    _add_row_options(parser)


def sample_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sample``."""
    head_arguments(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the random generator")


def _add_row_options(parser: argparse.ArgumentParser) -> None:
    add_columns(parser)
    add_memory(parser)
    parser.add_argument(
        "--no-header",
        action="store_true",
        help="omit the line of column names when the output is not a terminal",
    )


@reporting
def head(arguments: argparse.Namespace) -> int:
    """Print the first rows."""
    with open_rows(arguments, arguments.target, in_order=True) as reader:
        _show(arguments, reader.schema, _first(reader, arguments.rows))
    return 0


@reporting
def cat(arguments: argparse.Namespace) -> int:
    """Print all rows; never as a table, as that would have to know them all first."""
    with open_rows(arguments, arguments.target, in_order=True) as reader:
        _print(arguments, reader.schema, reader)
    return 0


@reporting
def sample(arguments: argparse.Namespace) -> int:
    """Print rows picked at random, in their order."""
    with open_rows(arguments, arguments.target) as reader:
        _show(arguments, reader.schema, _picked(reader, arguments.rows, arguments.seed))
    return 0


def _first(reader: Any, rows: int) -> Iterator[Any]:
    left = rows
    for batch in reader if left else ():
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _picked(reader: Any, rows: int, seed: int | None) -> Iterator[Any]:
    """So many rows of all, each with the same probability and at most once."""
    from random import Random

    whole = getattr(reader, "_reader", reader)
    sizes = np.array([whole.get_batch(i).num_rows for i in range(whole.num_record_batches)], np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    found = np.array(sorted(Random(seed).sample(range(total), min(rows, total))), np.int64)
    numbers = np.searchsorted(ends, found, side="right")
    for number in np.unique(numbers).tolist():
        batch = reader.get_batch(number)
        yield batch.take(found[numbers == number] - (ends[number] - sizes[number]))


def _show(arguments: argparse.Namespace, schema: Any, batches: Iterator[Any]) -> None:
    if arguments.json or not sys.stdout.isatty():
        _print(arguments, schema, batches, _CELL)
        return
    from shmarrow.display import table_lines
    from shmarrow.tables import Table

    found = [
        batch if batch._at_hand(0) else batch.take(np.arange(batch.num_rows)) for batch in batches if batch.num_rows
    ]
    print(*table_lines(Table(schema, found), sys.maxsize), sep="\n")


def _print(arguments: argparse.Namespace, schema: Any, batches: Any, most: int | None = None) -> None:
    """Print batches as lines; of values as text at most so many characters."""
    import json

    from shmarrow.cli.cells import json_rows, text_rows, unique

    names = unique(schema.names)
    if not arguments.json and not arguments.no_header:
        print(*[printable(name.replace("\\", "\\\\")) for name in schema.names], sep="\t")
    for batch in batches:
        for start in range(0, batch.num_rows, _PIECE):
            piece = batch.slice(start, _PIECE)
            lines = map(json.dumps, json_rows(piece, names)) if arguments.json else text_rows(piece, most)
            print(*lines, sep="\n")


# --- count --------------------------------------------------------------------------------------------------------


def count_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``count``."""
    add_target(parser)


@reporting
def count(arguments: argparse.Namespace) -> int:
    """Count the rows, from the metadata alone."""
    with open_rows(arguments, arguments.target, in_order=True) as reader:
        if hasattr(reader, "num_record_batches"):
            batches, rows = reader.num_record_batches, reader.num_rows
        else:
            batches = rows = 0
            for batch in reader:
                batches, rows = batches + 1, rows + batch.num_rows
    render(arguments.json, {"target": arguments.target, "rows": rows, "batches": batches}, str(rows))
    return 0


# --- schema -------------------------------------------------------------------------------------------------------


def schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``schema``."""
    add_target(parser)
    add_columns(parser)
    parser.add_argument("--metadata", action="store_true", help="also print the metadata of the schema and its fields")


@reporting
def schema(arguments: argparse.Namespace) -> int:
    """Print the fields, with their children below them; of tensors the type and shape."""
    from shmarrow.cli import schemas

    with open_target(arguments.target, arguments.trust, in_order=True) as target:
        if target.kind not in ROWS:
            return schemas.show_tensors(arguments, target)
        with rows_of(arguments, arguments.target, target) as reader:
            return schemas.show(arguments, reader.schema)
