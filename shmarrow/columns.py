"""What record batches and tables share: named columns of one length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from shmarrow.errors import FieldNotFound, InvalidArgument, InvalidType
from shmarrow.types import DataType, Field, Schema

Key = int | str
T = TypeVar("T")


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
        """The rows from ``offset`` on, ``length`` of them or as many as there are; builds and copies nothing.

        Raises
        ------
        IndexOutOfRange
            If ``offset`` is negative or beyond the end.
        InvalidArgument
            If ``length`` is negative.
        """
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
        head = self.slice(0, 10)
        for i in range(min(self.num_columns, 20)):
            lines.append(f"{self.schema.field(i)}: {head.column(i)}")
        if self.num_columns > 20:
            lines.append(f"... {self.num_columns - 20} more columns")
        return "\n".join(lines)

    __str__ = __repr__


class _RenamedFields:
    """The fields of a schema under other names, which are checked when they are asked for.

    See :class:`~shmarrow.types.schema.FieldSource`.
    """

    __slots__ = ("_names", "_schema")

    def __init__(self, schema: Schema, names: tuple[str, ...]) -> None:
        self._schema = schema
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def field(self, index: int) -> Field:
        return self._schema.field(index).with_name(self._names[index])

    def fields(self) -> list[Field]:
        return [field.with_name(name) for field, name in zip(self._schema.fields, self._names, strict=True)]

    def names(self) -> list[str]:
        for name in self._names:
            if not isinstance(name, str):
                raise InvalidType(f"the name of a field is a string, found {name!r}")
        return list(self._names)

    def find(self, name: str) -> list[int]:
        return [i for i, other in enumerate(self._names) if other == name]

    def detach(self) -> None:
        self._schema.detach()


def several(values: Iterable[T], what: str) -> tuple[T, ...]:
    """An argument that is to be a list; InvalidType for a string, which would be taken letter by letter."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InvalidType(f"expected a list of {what}, found {values!r:.80}; write [{values!r:.80}] for one")
    return tuple(values)


def renamed(schema: Schema, names: Sequence[str]) -> Schema:
    """The same fields under other names; parses no field.

    Raises
    ------
    InvalidArgument
        If there are more or fewer names than fields.
    """
    names = several(names, "names")
    if len(names) != len(schema):
        raise InvalidArgument(f"{len(names)} names for {len(schema)} columns")
    return Schema(metadata=schema.metadata, source=_RenamedFields(schema, names))


def fields_at(schema: Schema, indices: Sequence[int]) -> Schema:
    """The fields of a schema at some positions, with its metadata."""
    return Schema([schema.field(i) for i in indices], schema.metadata)


def wanted_types(count: int, names: Sequence[str] | None, schema: Schema | None) -> Sequence[DataType | None]:
    """The types that ``count`` columns must have, None where the columns say it; checks the arguments.

    Raises
    ------
    InvalidArgument
        If neither or both of names and schema are given, or there are more or fewer of them than columns.
    """
    if (names is None) == (schema is None):
        raise InvalidArgument("expected either names or a schema")
    found: Sequence[DataType | None] = [None] * len(names) if schema is None else schema.types  # type: ignore[arg-type]
    if len(found) != count:
        raise InvalidArgument(f"{count} arrays for {len(found)} fields")
    return found


def by_name(mapping: Mapping[str, Any], schema: Schema | None) -> tuple[list[str], list[Any]]:
    """The names and the columns of a mapping, in the order of the schema where there is one.

    Raises
    ------
    FieldNotFound
        If the schema has a name that the mapping does not have.
    InvalidArgument
        If the mapping has a name that the schema does not have, or the schema one twice.
    """
    if schema is None:
        return list(mapping), list(mapping.values())
    names = schema.names
    missing = [name for name in names if name not in mapping]
    if missing:
        raise FieldNotFound(f"the mapping has no column for the fields {missing[:20]}, it has {list(mapping)[:20]}")
    if len(mapping) != len(names):
        known = set(names)
        extra = [name for name in mapping if name not in known]
        found = f"no field for the columns {extra[:20]}" if extra else "names that occur more than once"
        raise InvalidArgument(f"the schema has {found}: {names[:20]}")
    return names, [mapping[name] for name in names]


def common_length(columns: Sequence[Any], schema: Schema) -> int:
    """The one length of columns; InvalidArgument where they differ."""
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        found = ", ".join(f"{schema.field(i).name!r}: {len(column)}" for i, column in enumerate(columns[:20]))
        raise InvalidArgument(f"the columns of a batch have one length, found {found}")
    return lengths.pop() if lengths else 0
