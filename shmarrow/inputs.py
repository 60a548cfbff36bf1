"""What record batches and tables are made of: mappings, sequences of arrays, data frames, and batches themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shmarrow.chunked import ChunkedArray
from shmarrow.columns import Columns
from shmarrow.errors import InvalidArgument, InvalidType, full_name, not_expected
from shmarrow.layout.arguments import as_array
from shmarrow.types import DataType, MetadataLike, Schema

C = TypeVar("C", bound=Columns[Any])


def as_column(values: Any, type: DataType | None) -> Any:
    """Values as an array or a chunked array; those that are one keep their type, others get the one given."""
    return values if isinstance(values, ChunkedArray) else as_array(values, "a column", type)


def made_from(
    kind: type[C],
    data: Any,
    names: Sequence[str] | Schema | None,
    schema: Schema | None,
    metadata: MetadataLike | None,
) -> C:
    """A batch or a table from what :func:`shmarrow.table` takes, but for batches."""
    if isinstance(names, Schema):
        if schema is not None:
            raise InvalidArgument("expected one schema, found two")
        names, schema = None, names
    if isinstance(data, Mapping):
        if names is not None:
            raise InvalidArgument("a mapping has its own names; expected no others")
        return kind.from_pydict(data, schema, metadata)
    frame = full_name(data) == "pandas.DataFrame"
    if not frame and not any(hasattr(data, name) for name in _INTERFACES):
        if hasattr(type(data), "schema") or not isinstance(data, Iterable):
            raise not_expected("a mapping, arrays, or a data frame", data)
        return kind.from_arrays(data, names, schema, metadata)
    if names is not None:
        raise InvalidArgument("a data frame has its own names; expected no others")
    if frame:
        return _from_pandas(kind, data, schema, metadata)
    if schema is not None and metadata is not None:
        raise InvalidArgument("a schema has its own metadata; expected one or the other")
    known = full_name(data) == f"pyarrow.{kind.__name__}"  # whose chunks and metadata stay
    found = kind.from_pyarrow(data) if known else kind.from_struct_array(_structs(data))
    if schema is not None:
        return found.cast(schema)
    return found if metadata is None else found.replace_schema_metadata(metadata)


def _structs(data: Any) -> Any:
    found = as_array(data, "structs")
    if found.type.layout != "struct":
        raise InvalidType(f"a {full_name(data)} is a single column: give its name, as in {{'name': values}}")
    return found


_INTERFACES = ("__arrow_c_stream__", "__arrow_c_array__")
"""What data frames of other libraries have: methods that give rows as structs."""


def _from_pandas(kind: type[C], frame: Any, schema: Schema | None, metadata: MetadataLike | None) -> C:
    columns = [(str(name), frame.iloc[:, i]) for i, name in enumerate(frame.columns)]
    index = frame.index
    if index.__class__.__name__ != "RangeIndex":
        for level, name in enumerate(index.names):
            name = f"__index_level_{level}__" if name is None else str(name)
            if schema is None or name in schema:
                columns.append((name, index.get_level_values(level)))
    if schema is None:
        return kind.from_arrays([column for _, column in columns], [name for name, _ in columns], None, metadata)
    mapping = dict(columns)
    if len(mapping) != len(columns):
        raise InvalidArgument("a schema is matched by name, and the data frame has names that occur more than once")
    return kind.from_pydict(mapping, schema, metadata)
