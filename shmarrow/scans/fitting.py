# SPDX-License-Identifier: Apache-2.0
"""Batches of a source as those of a scan: its columns in their order, cast, constant, or null where it lacks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shmarrow.columns import RecordBatch
from shmarrow.errors import InvalidData, InvalidType, at, counted
from shmarrow.layout import Array, nulls
from shmarrow.types import Field, Schema
from shmarrow.types.base import OTHER_VALUES, names_other_values

Fit = Callable[[RecordBatch], RecordBatch]
_NULLABLE = "schema= can make it nullable"


def fitting(name: str, found: Schema, places: Sequence[int], schema: Schema, keys: Mapping[int, Array]) -> Fit:
    """Return what brings the batches of a source to a schema.

    Parameters
    ----------
    name : str
        The name of the source, for errors.
    found : Schema
        Its schema.
    places : sequence of int
        For each column of the result the position in the source; -1 if it has none there.
    schema : Schema
        The columns of the result.
    keys : mapping of int to Array
        The columns of the result that have one value, by position.

    Raises
    ------
    InvalidType
        If a column has other values than in the first source.
    """
    views = list(places)
    special: dict[int, Callable[[RecordBatch], Array]] = {}
    for to, (place, wanted) in enumerate(zip(places, schema, strict=True)):
        if to in keys:
            special[to] = _constant(keys[to], wanted)
        elif place < 0:
            special[to] = _missing(wanted)
        else:
            field = found.field(place)
            if names_other_values(field, wanted):
                where = [(name,), ("column", wanted.name)]
                raise InvalidType(f"the column is {OTHER_VALUES} than in the first source", where=where, hint=_AS_TEXT)
            if field.type != wanted.type or (wanted.required and field.nullable):
                special[to] = _cast(place, wanted)
                views[to] = -1

    def fit(batch: RecordBatch) -> RecordBatch:
        new = {}
        for to, column in special.items():
            with at(name), at("column", schema.field(to).name):
                new[to] = column(batch)
        return batch._arranged(schema, views, new)

    return fit


def _constant(value: Array, field: Field) -> Callable[[RecordBatch], Array]:
    def column(batch: RecordBatch) -> Array:
        if field.required and batch.num_rows and value.null_count:
            raise InvalidData("the directory has no value for it, and it must not be null", hint=_NULLABLE)
        return value._take(np.zeros(batch.num_rows, np.int64))

    return column


def _missing(field: Field) -> Callable[[RecordBatch], Array]:
    def column(batch: RecordBatch) -> Array:
        if field.required and batch.num_rows:
            raise InvalidData("the source lacks it, and it must not be null", hint=_NULLABLE)
        return nulls(batch.num_rows, field.type)

    return column


_AS_TEXT = "scan(schema=) with this column as string, or as a dictionary without metadata, reads all of them"


def _cast(place: int, field: Field) -> Callable[[RecordBatch], Array]:
    def column(batch: RecordBatch) -> Array:
        made = batch.column(place).cast(field.type)
        if field.required and made.null_count:
            raise InvalidData(f"expected no null, found {counted(made.null_count, 'null')}")
        return made

    return column
