"""Column projection: a schema of selected fields, and batches that build only their columns."""

from __future__ import annotations

from collections.abc import Iterable

from shmarrow.batch import ColumnView, RecordBatch
from shmarrow.column_names import fields_at, several
from shmarrow.types import Schema


class Projection:
    """A selection of a schema's fields.

    Parameters
    ----------
    full : Schema
        The full schema. included : iterable of int and str The fields by position or name. As in pyarrow, duplicates
        are dropped and the schema's order is kept.

    Attributes
    ----------
    schema : Schema
        The selected fields.

    Raises
    ------
    FieldNotFound, IndexOutOfRange
        If a field does not exist.
    """

    __slots__ = ("_indices", "schema")

    def __init__(self, full: Schema, included: Iterable[int | str]) -> None:
        self._indices = sorted({full.index_of(key) for key in several(included, "positions and names")})
        self.schema = fields_at(full, self._indices)

    def of(self, batch: RecordBatch) -> RecordBatch:
        """Select the fields of a batch; builds no column."""
        source = ColumnView(batch, self._indices, 0, batch.num_rows, {})
        return RecordBatch(self.schema, batch.num_rows, source=source, metadata=batch.metadata)
