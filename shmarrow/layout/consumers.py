# SPDX-License-Identifier: Apache-2.0
"""Casting columns to types that another tool accepts; :mod:`shmarrow.types.for_consumer` says which these are.

A column that the tool accepts stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shmarrow.errors import InvalidData, LimitExceeded, at
from shmarrow.types import DataType
from shmarrow.types.for_consumer import Casting, Stages, casting_for


def cast_column(casting: Casting, column: Any, stages: Stages) -> Any:
    """Cast an array or chunked array; returns the same object if it has the type."""
    try:
        with at(f"for {casting.consumer.title}"):
            column = _cast(column, stages.checked, True)
    except InvalidData as error:
        if not isinstance(error, LimitExceeded):
            error.hint = casting.hint(column.type)  # the caller has an argument lossy, and none named safe
        raise
    for target, safe in ((stages.loosened, False), (stages.final, True)):
        column = _cast(column, target, safe)
    if casting.consumer.distinct and column.type.layout == "dictionary":
        return _distinct_chunks(column) if hasattr(column, "chunks") else _distinct(column)
    return column


def _cast(column: Any, target: DataType, safe: bool) -> Any:
    return column if column.type == target else column.cast(target, safe)


def _distinct(array: Any) -> Any:
    """Re-encode a dictionary array so that its dictionary contains no nulls and no duplicates."""
    encoded = array.dictionary.dictionary_encode(index_type="int64")
    if len(encoded.dictionary) == len(array.dictionary):
        return array
    indices = encoded.indices.take(array.indices).cast(array.type.index_type)
    return type(array).from_arrays(indices, encoded.dictionary, ordered=array.type.ordered)


def _distinct_chunks(column: Any) -> Any:
    chunks = [_distinct(chunk) for chunk in column.chunks]
    same = all(new is old for new, old in zip(chunks, column.chunks, strict=True))
    return column if same else type(column)(chunks, column.type)


def column_for(column: Any, name: str, lossy: str | Iterable[str]) -> Any:
    """Implement :meth:`Array.for_consumer` and :meth:`ChunkedArray.for_consumer`."""
    casting = casting_for(name, lossy)
    return cast_column(casting, column, casting.stages(column.type))


def rows_for(rows: Any, name: str, lossy: str | Iterable[str]) -> Any:
    """Implement :meth:`RecordBatch.for_consumer` and :meth:`Table.for_consumer`."""
    casting = casting_for(name, lossy)
    schema = rows.schema
    stages = casting.schema(schema)
    new = {}
    for i, (field, each) in enumerate(zip(schema, stages, strict=True)):
        looked_at = casting.consumer.distinct and each.final.layout == "dictionary"
        if looked_at or any(field.type != type for type in each):
            column = rows.column(i)
            with at("column", field.name):
                cast = cast_column(casting, column, each)
            if cast is not column:
                new[i] = cast
    if not new:
        return rows
    places = [-1 if i in new else i for i in range(len(schema))]
    return rows._arranged(schema._with_types([each.final for each in stages]), places, new)
