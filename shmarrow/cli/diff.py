# SPDX-License-Identifier: Apache-2.0
"""``shmarrow diff``: what differs between two targets: schemas, numbers of rows, values.

Invariants:

* rows are compared by position and columns by name; batches, compression and dictionaries do not matter, types do;
* nulls equal nulls, NaN equals NaN, and 0.0 equals -0.0; there is no tolerance;
* equal pieces are compared in place. Where pieces differ, the codes of all slots are compared at once (see
  ``layout/codes.py``); only rows that are shown become Python values, and rows with nested floats whose bits differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

import shmarrow as sa
from shmarrow.cli.command import (
    ACCEPT_USERS,
    COLUMNS,
    JSON,
    MEMORY,
    Grid,
    WrongUsage,
    argument,
    command,
    render,
    target,
    whole,
)
from shmarrow.cli.rows import as_json, as_text, unique, values_of, within
from shmarrow.cli.schemas import text_pairs
from shmarrow.cli.targets import open_rows
from shmarrow.errors import counted, printable, renumbered
from shmarrow.layout import concat_arrays
from shmarrow.layout.codes import slot_codes
from shmarrow.types import has_floats

_PIECE = 1 << 13
"""Rows whose slots are compared at a time where they are not equal as a whole."""
_NUMBER = "number of columns of this name"


@command(
    target("left", "A"),
    target("right", "B"),
    JSON,
    ACCEPT_USERS,
    COLUMNS,
    MEMORY,
    argument("--schema-only", action="store_true", help="compare only schemas and row counts"),
    argument("-n", "--rows", type=whole(0), default=10, metavar="N", help="show at most N differing rows; default: 10"),
)
def diff(arguments: argparse.Namespace) -> int:
    """Compare two targets; the exit status is 1 if they differ."""
    if arguments.left == arguments.right == "-":
        raise WrongUsage("only one of the two can be standard input")
    with (
        open_rows(arguments, arguments.left, foreign=True) as (left_name, left),
        open_rows(arguments, arguments.right, foreign=True) as (right_name, right),
    ):
        left, right = [side if hasattr(side, "count_rows") else sa.scan(side.read_all()) for side in (left, right)]
        schema = list(schema_differences(left.schema, right.schema))
        rows = [left.count_rows(), right.count_rows()]
        common = [] if arguments.schema_only else comparable(left.schema, right.schema)
        counts, first = _compare((left_name, left), (right_name, right), common, arguments.rows)
    cells = sorted([(row, name, *pair) for name in first for row, *pair in first[name]], key=lambda each: each[0])
    shown = sorted({row for row, *_ in cells})[: arguments.rows]
    values = [dict(zip(("row", "column", "left", "right"), cell, strict=True)) for cell in cells if cell[0] in shown]
    found = {
        "equal": not schema and rows[0] == rows[1] and not counts,
        "schema": schema,
        "rows": rows,
        "columns": counts,
        "differences": values,
    }
    render(arguments.json, found, *_texts(found))
    return 0 if found["equal"] else 1


def _texts(found: dict[str, Any]) -> Iterator[str | Grid]:
    for each in found["schema"]:
        if each["what"] == _NUMBER:
            yield _number_text(each["field"], each["left"], each["right"])
            continue
        where = "the schema" if each["field"] is None else f"column {printable(each['field'])}"
        yield f"{where}: {each['what']}: {_text(each['left'])} in A, {_text(each['right'])} in B"
    if found["rows"][0] != found["rows"][1]:
        yield f"rows: {found['rows'][0]} in A, {found['rows'][1]} in B"
    rows = min(found["rows"])
    for name, number in found["columns"].items():
        yield f"column {printable(name)}: {number} of {counted(rows, 'row')} {'differs' if number == 1 else 'differ'}"
    if found["differences"]:
        cells = [
            (str(each["row"]), each["column"], _text(each["left"]), _text(each["right"]))
            for each in found["differences"]
        ]
        yield Grid(("row", "column", "A", "B"), cells, (1, 2, 3))


def _number_text(name: str, left: int, right: int) -> str:
    """Say that the sides differ in their number of columns of a name."""
    if {left, right} == {0, 1}:
        return f"column {printable(name)}: only in {'A' if left else 'B'}"
    return f"{counted(left, 'column')} named {printable(name)} in A, {right} in B"


def _text(value: Any) -> str:
    return "none" if value is None else as_text(value)


# --- schemas ------------------------------------------------------------------------------------------------------


def schema_differences(left: Any, right: Any) -> Iterator[dict[str, Any]]:
    """Yield the differences of two schemas: columns of only one, order, types, nullability, metadata."""
    names, others = left.names, right.names
    if names != others:
        for name in sorted({*names, *others}, key=[*names, *others].index):
            number, their = names.count(name), others.count(name)
            if number != their:
                yield _difference(name, _NUMBER, number, their)
        if sorted(names) == sorted(others):
            yield _difference(None, "order of the columns", ", ".join(names), ", ".join(others))
    for i, k in _pairs(left, right):
        mine, theirs = left.field(i), right.field(k)
        if mine.type != theirs.type:
            yield _difference(mine.name, "type", str(mine.type), str(theirs.type))
        if mine.nullable != theirs.nullable:
            yield _difference(mine.name, "nullable", mine.nullable, theirs.nullable)
        if (mine.metadata or {}) != (theirs.metadata or {}):
            yield _difference(mine.name, "metadata", text_pairs(mine.metadata), text_pairs(theirs.metadata))
    if (left.metadata or {}) != (right.metadata or {}):
        yield _difference(None, "metadata", text_pairs(left.metadata), text_pairs(right.metadata))


def _difference(field: str | None, what: str, left: Any, right: Any) -> dict[str, Any]:
    return {"field": field, "what": what, "left": left, "right": right}


def _pairs(left: Any, right: Any) -> Iterator[tuple[int, int]]:
    """The columns of the same name: the first of A with the first of B, the second with the second."""
    places: dict[str, list[int]] = {}
    for k, name in enumerate(right.names):
        places.setdefault(name, []).append(k)
    for i, name in enumerate(left.names):
        if places.get(name):
            yield i, places[name].pop(0)


Column = tuple[str, int, int]


def comparable(left: Any, right: Any) -> list[Column]:
    """The columns whose values are compared: those of one name and type, with their positions in A and B."""
    names = unique(left.names)
    return [(names[i], i, k) for i, k in _pairs(left, right) if left.field(i).type == right.field(k).type]


# --- values -------------------------------------------------------------------------------------------------------

Found = dict[str, list[tuple[int, Any, Any]]]
"""For each column the first rows that differ, with both values."""


def _compare(
    left: tuple[str, Any], right: tuple[str, Any], columns: list[Column], most: int
) -> tuple[dict[str, int], Found]:
    """For each column that differs how many rows do, and the first ``most`` of them."""
    counts: dict[str, int] = {}
    first: Found = {}
    for start, *batches in _aligned(left[1], right[1]) if columns else ():
        for name, *numbers in columns:
            sides = [batch.column(number) for batch, number in zip(batches, numbers, strict=True)]
            try:
                for at, a, b, rows in unequal(*sides):
                    counts[name] = counts.get(name, 0) + len(rows)
                    known = first.setdefault(name, [])
                    shown = rows[: most - len(known)]
                    known += zip((shown + (start + at)).tolist(), _at(a, shown), _at(b, shown), strict=True)
            except sa.ShmarrowError:
                for (target, _), number, column in zip((left, right), numbers, sides, strict=True):
                    with within((target,), ("column", number, name)), renumbered(lambda row, start=start: start + row):
                        column.validate(full=True)  # which tells where it is wrong
                raise
    return {name: counts[name] for name, _, _ in columns if name in counts}, first


def _at(array: Any, rows: Any) -> list[Any]:
    return list(map(as_json, values_of(array.take(rows)))) if len(rows) else []


def _aligned(left: Any, right: Any) -> Iterator[tuple[int, Any, Any]]:
    """Pieces of both with the same rows: the number of the first row, and a batch of each."""
    start = at = their = 0
    sides = iter(left), iter(right)
    mine, theirs = next(sides[0], None), next(sides[1], None)
    while mine is not None and theirs is not None:
        size = min(mine.num_rows - at, theirs.num_rows - their)
        if size:
            yield start, mine.slice(at, size), theirs.slice(their, size)
        start, at, their = start + size, at + size, their + size
        if at == mine.num_rows:
            mine, at = next(sides[0], None), 0
        if their == theirs.num_rows:
            theirs, their = next(sides[1], None), 0


def unequal(mine: Any, theirs: Any) -> Iterator[tuple[int, Any, Any, Any]]:
    """Pieces of two arrays of one type and length that differ: where they start, both, and the slots that differ."""
    if mine.equals(theirs):
        return
    for start in range(0, len(mine), _PIECE):
        a, b = mine.slice(start, _PIECE), theirs.slice(start, _PIECE)
        if not a.equals(b):
            rows = np.flatnonzero(differing(a, b))
            if len(rows):
                yield start, a, b, rows


def differing(mine: Any, theirs: Any) -> Any:
    """Compare two arrays of one type and length: a bool ndarray, True where slots differ; NaN equals NaN."""
    if mine.type.descriptor.values == "float":
        return _differing_floats(mine, theirs)
    try:
        codes = slot_codes(concat_arrays([mine, theirs]))
        found = codes[: len(mine)] != codes[len(mine) :]
    except sa.ShmarrowError:  # their dictionaries, or offsets, do not fit one array of the type
        found = np.ones(len(mine), bool)
    else:
        if not has_floats(mine.type):
            return found
    rows = np.flatnonzero(found)
    pairs = zip(values_of(mine.take(rows)), values_of(theirs.take(rows)), strict=True)
    found[rows] = [not same_value(x, y) for x, y in pairs]
    return found


def _differing_floats(mine: Any, theirs: Any) -> Any:
    x, y = mine.values, theirs.values
    same = (x == y) | ((x != x) & (y != y))
    valid, their = np.asarray(mine.is_valid()), np.asarray(theirs.is_valid())
    return (valid != their) | (valid & ~same)


def same_value(mine: Any, theirs: Any) -> bool:
    """Whether two Python values are equal, NaN equal to NaN at any depth."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return list(mine) == list(theirs) and all(same_value(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(mine) == len(theirs) and all(map(same_value, mine, theirs))
    return bool(mine == theirs or (mine != mine and theirs != theirs))
