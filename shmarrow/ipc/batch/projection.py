"""Reading some of the columns: a schema of the fields asked for, and batches that build no others."""

from __future__ import annotations

from collections.abc import Iterable

from shmarrow.batch import ColumnView, RecordBatch
from shmarrow.naming import fields_at, several
from shmarrow.types import Schema


class Projection:
    """Some fields of a schema.

    Parameters
    ----------
    full : Schema
        The schema.
    included : iterable of int and str
        The fields by position or by name. As in pyarrow, each is there once, in the order of the schema.

    Attributes
    ----------
    schema : Schema
        The fields that are left.

    Raises
    ------
    FieldNotFound, IndexOutOfRange
        If a field is not there.
    """

    __slots__ = ("_indices", "schema")

    def __init__(self, full: Schema, included: Iterable[int | str]) -> None:
        self._indices = sorted({full.index_of(key) for key in several(included, "positions and names")})
        self.schema = fields_at(full, self._indices)

    def of(self, batch: RecordBatch) -> RecordBatch:
        """The same rows with the fields that are left; no column is built."""
        source = ColumnView(batch, self._indices, 0, batch.num_rows, {})
        return RecordBatch(self.schema, batch.num_rows, source=source, metadata=batch.metadata)
