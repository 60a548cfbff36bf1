"""What record batches and tables share: named columns of one length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from shmarrow.errors import InvalidArgument
from shmarrow.types import Field, Schema

Key = int | str


class Columns:
    """Columns of one length under a schema; the base of :class:`RecordBatch` and :class:`Table`."""

    __slots__ = ()
    _schema: Schema
    num_rows: int

    @property
    def schema(self) -> Schema:
        """Names and types of the columns."""
        return self._schema.detach()

    def column(self, key: Key) -> Any:
        """A column by position or by name."""
        raise NotImplementedError

    def equals(self, other: Any, check_metadata: bool = False) -> bool:
        """Same schema and same values."""
        raise NotImplementedError

    @property
    def num_columns(self) -> int:
        return len(self._schema)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_columns

    @property
    def column_names(self) -> list[str]:
        return self.schema.names

    def itercolumns(self) -> Iterator[Any]:
        """The columns one after another."""
        for i in range(self.num_columns):
            yield self.column(i)

    def field(self, key: Key) -> Field:
        """The field of a column."""
        return self.schema.field(key)

    def __getitem__(self, key: Key | slice) -> Any:
        """A column by position or name, or rows by slice."""
        if isinstance(key, slice):
            start, stop, step = key.indices(self.num_rows)
            if step != 1:
                raise InvalidArgument(f"rows are sliced by step 1, found {step}")
            return self.slice(start, max(stop - start, 0))
        return self.column(key)

    def slice(self, offset: int = 0, length: int | None = None) -> Self:
        """The rows from ``offset`` on, ``length`` of them or as many as there are; copies nothing."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.num_rows

    def to_pydict(self) -> dict[str, list[Any]]:
        """A list of Python values for each column, by name; of columns with the same name the last."""
        return {name: self.column(i).to_pylist() for i, name in enumerate(self.schema.names)}

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = [f"<shmarrow.{type(self).__name__} of {self.num_rows} rows, {self.num_columns} columns>"]
        head = self.slice(0, 10) if self.num_rows > 10 and self.num_columns <= 20 else self
        for i in range(min(self.num_columns, 20)):
            lines.append(f"{self.schema.field(i)}: {head.column(i)}")
        if self.num_columns > 20:
            lines.append(f"... {self.num_columns - 20} more columns")
        return "\n".join(lines)

    __str__ = __repr__


def common_length(columns: Sequence[Any], schema: Schema) -> int:
    """The one length of columns; InvalidArgument where they differ."""
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        found = ", ".join(f"{schema.field(i).name!r}: {len(column)}" for i, column in enumerate(columns[:20]))
        raise InvalidArgument(f"the columns of a batch have one length, found {found}")
    return lengths.pop() if lengths else 0
