# SPDX-License-Identifier: Apache-2.0
"""Scans as lazy frames of Polars: a query reads the columns, and the batches, that it needs.

Invariants:

* Polars applies its predicate itself, to every row that it gets. Comparisons in it with literals only tell which
  sources and batches are not worth reading; what is not understood tells nothing;
* a limit that Polars passes beside a predicate comes before it in the query: rows are cut, then filtered;
* in Polars, NaN is greater than all numbers, so a part with NaN may have rows that are greater than a number.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.build import array
from shmarrow.capsules import PyCapsule
from shmarrow.columns import RecordBatch
from shmarrow.errors import ShmarrowError, optional
from shmarrow.layout.c_stream import export_all
from shmarrow.scans.filters import Condition, Filter, both, comparable, either, together
from shmarrow.types import DictionaryType, FloatType, Schema, float64

if TYPE_CHECKING:
    import polars as pl

    from shmarrow.scans.one_table import Scan

_OPERATORS = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ROWS = 1 << 20
"""Rows of a frame that is handed to Polars, as far as batches allow it: each costs some milliseconds."""


def lazy_frame(scan: Scan) -> pl.LazyFrame:
    """Make a lazy frame over a scan; see :meth:`Scan.to_polars`."""
    polars = optional("polars")
    from polars.io.plugins import register_io_source

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        part = scan if with_columns is None else scan.select(with_columns)
        if predicate is not None and n_rows is None:  # rows that a limit counts are not skipped
            tree = json.loads(predicate.meta.serialize(format="json"))
            part = part._skipping(_filter(tree, scan._full) or ())
        left = n_rows
        for batches in together(part, _ROWS if n_rows is None else min(n_rows, _ROWS)):
            frame = polars.DataFrame(_Frame(part.schema, batches))
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    return register_io_source(read, schema=polars.DataFrame(_Frame(scan.schema, [])).schema, is_pure=True)


@dataclass(frozen=True)
class _Frame:
    """Batches that Polars reads as one frame: all at once, as streams one by one would import pyarrow."""

    schema: Schema
    batches: list[RecordBatch]

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None) -> PyCapsule:
        return export_all(self.schema, self.batches)


# --- predicates ---------------------------------------------------------------------------------------------------


def _filter(tree: Any, schema: Schema) -> Filter | None:
    """Return what a predicate demands, as far as it is understood; None for nothing.

    Parameters
    ----------
    tree : dict
        The predicate as Polars writes it in JSON.
    schema : Schema
        The columns of the scan.
    """
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return both(_filter(left, schema), _filter(right, schema))
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            return either(_filter(left, schema), _filter(right, schema))
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": literal}} if op in _OPERATORS:
            return _comparison(name, _OPERATORS[op], literal, schema)
        case {"BinaryExpr": {"left": literal, "op": op, "right": {"Column": name}}} if op in _OPERATORS:
            op = _OPERATORS[op]
            return _comparison(name, _MIRRORED.get(op, op), literal, schema)
        case {
            "Function": {
                "input": [{"Column": name}, literal],
                "function": {"Boolean": {"IsIn": {"nulls_equal": False}}},
            }
        }:
            return _comparison(name, "in", literal, schema)
    return None


def _comparison(name: str, op: str, literal: Any, schema: Schema) -> Filter | None:
    """Return a comparison with a literal as a filter; None if the type has another order, or cannot hold it."""
    import polars as pl

    if '"Column"' in json.dumps(literal) or name not in schema:
        return None
    column = schema.index_of(name)
    type = schema.field(column).type
    if isinstance(type, DictionaryType) and op not in ("=", "in"):  # categories have an order of their own
        return None
    try:
        values = pl.select(pl.Expr.deserialize(io.StringIO(json.dumps(literal)), format="json")).to_series()
        values = values.explode() if values.dtype == pl.List else values
        made: Any = comparable(array(values.drop_nulls()), type)
    except (ShmarrowError, pl.exceptions.PolarsError):
        return None
    if made is None:
        return None
    is_float = isinstance(made.type, FloatType)
    if (not len(made) and op != "in") or (is_float and np.isnan(made.values).any()):
        return None  # compared with null or NaN, which equals itself in Polars
    found: tuple[tuple[Condition, ...], ...] = ((Condition(column, op, made),),)
    if is_float and op in (">", ">=", "!="):
        found += ((Condition(column, "in", array([float("nan")], float64())),),)
    return found
