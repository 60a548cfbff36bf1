"""Reading some of the columns: a schema of the fields asked for, and batches that make no others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shmarrow.batch import RecordBatch
from shmarrow.types import Schema


class Projection:
    """Some fields of a schema, by position or by name, in the order given.

    Attributes
    ----------
    schema : Schema
        The fields that are left.
    """

    __slots__ = ("_indices", "schema")

    def __init__(self, full: Schema, included: Iterable[int | str]) -> None:
        self._indices = [full.index_of(key) for key in included]
        self.schema = Schema([full.field(i) for i in self._indices], full.metadata)

    def of(self, batch: RecordBatch) -> RecordBatch:
        """The same rows with the fields that are left; no column is made."""
        source = _Columns(batch, self._indices)
        return RecordBatch(self.schema, batch.num_rows, source=source, metadata=batch.metadata)


class _Columns:
    """The columns of a batch under other positions."""

    __slots__ = ("_batch", "_indices")

    def __init__(self, batch: RecordBatch, indices: list[int]) -> None:
        self._batch = batch
        self._indices = indices

    def column(self, index: int) -> Any:
        return self._batch.column(self._indices[index])

    def columns(self) -> list[Any]:
        """One by one: columns that were left out are not to be decompressed."""
        return [self._batch.column(index) for index in self._indices]
