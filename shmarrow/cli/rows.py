"""Commands that read rows: ``head``, ``cat`` and ``count``.

Invariants:

* only the batches, columns and rows that are shown are read; a pipe is read as far as needed;
* on a terminal rows are a table that fits it; elsewhere they are lines of tab-separated cells under a line of names;
  with ``--json`` each row is a JSON object on a line of its own. ``cli/cells.py`` has the form of values.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from shmarrow.cli.arguments import COLUMNS, MEMORY, TARGETS, argument, command, whole
from shmarrow.cli.cells import Place, json_rows, text_rows, unique
from shmarrow.cli.report import progress_line, render
from shmarrow.cli.targets import open_rows
from shmarrow.errors import printable

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
    from shmarrow.display import table_lines
    from shmarrow.tables import Table

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
    with open_rows(arguments, arguments.target, in_order=True) as (name, reader):
        if hasattr(reader, "count_rows") and not hasattr(reader, "num_record_batches"):
            with progress_line(f"counting {printable(name)}", None):
                rows = reader.count_rows()
            document = {"target": arguments.target, "rows": rows, "sources": len(reader.sources)}
            render(arguments.json, document, str(rows))
            return 0
        if hasattr(reader, "num_record_batches"):
            batches, rows = reader.num_record_batches, reader.num_rows
        else:
            batches = rows = 0
            for batch in reader:
                batches, rows = batches + 1, rows + batch.num_rows
    render(arguments.json, {"target": arguments.target, "rows": rows, "batches": batches}, str(rows))
    return 0
