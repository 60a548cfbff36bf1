"""The inputs of record batches and tables: mappings, sequences of arrays, data frames and batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import GeneratorType
from typing import Any, TypeVar

import numpy as np

from shmarrow import foreign
from shmarrow.chunked import ChunkedArray, one_array
from shmarrow.columns import Columns
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, full_name, shown
from shmarrow.layout import Array
from shmarrow.layout.arguments import as_array
from shmarrow.naming import checked_schema
from shmarrow.types import DataType, MetadataLike, Schema
from shmarrow.types.schema import as_schema

C = TypeVar("C", bound=Columns[Any])


def as_column(values: Any, type: DataType | None) -> Any:
    """Convert values to an array or a chunked array; these keep their type, other values get the given one."""
    return values if isinstance(values, ChunkedArray) else as_array(values, "a column", type)


def made_from(
    kind: type[C],
    data: Any,
    names: Sequence[str] | Schema | None,
    schema: Schema | None,
    metadata: MetadataLike | None,
) -> C:
    """Make a batch or a table from any input of :func:`shmarrow.table` except batches."""
    own = as_schema(names)
    if own is not None:
        if schema is not None:
            raise InvalidArgument("expected one schema, found two")
        names, schema = None, own
    schema = None if schema is None else checked_schema(schema)
    assert not isinstance(names, Schema)
    if isinstance(data, Mapping):
        if names is not None:
            raise InvalidArgument("a mapping already has names; pass no others")
        return kind.from_pydict(data, schema, metadata)
    if hasattr(data, "read_all") and isinstance(getattr(data, "schema", None), Schema):
        data = data.read_all()
    if isinstance(data, (Array, ChunkedArray)) and data.type.layout == "struct":
        data = kind.from_struct_array(data if kind.__name__ == "Table" else one_array(data))
    if isinstance(data, GeneratorType):
        data = list(data)
    frame = full_name(data) == "pandas.DataFrame"
    if not frame and not foreign.has_data(data) and not isinstance(data, Columns):
        if _is_column(data):
            raise InvalidType(f"a {full_name(data)} is a single column: give its name, as in {{'name': values}}")
        hint = _instead(data) or foreign.next_step(data)
        if hint or hasattr(type(data), "schema") or not isinstance(data, Iterable):
            raise InvalidType(f"expected a mapping, arrays, or a data frame, found {full_name(data)}{hint}")
        rows = next(filter(_has_columns, data), None) if isinstance(data, (list, tuple)) else None
        if rows is not None and names is None and schema is None:
            step = "shmarrow.concat_tables([shmarrow.table(item) for item in items]) makes one table"
            raise InvalidType(f"expected arrays, found {full_name(rows)} in a {full_name(data)}; {step}")
        return kind.from_arrays(data, names, schema, metadata)
    if names is not None:
        raise InvalidArgument("a data frame already has names; pass no others")
    if frame:
        return from_frame(kind, data, schema, metadata)
    if schema is not None and metadata is not None:
        raise InvalidArgument("a schema already has metadata; pass one or the other")
    if isinstance(data, kind):
        found = data
    elif isinstance(data, Columns):
        found = kind._over(data.schema, [one_array(column) for column in data.columns], data.num_rows)
    else:
        found = foreign.read(kind._kind, data)
    if schema is not None:
        return found if found.schema.equals(schema, check_metadata=True) else found.cast(schema)
    return found if metadata is None else found.replace_schema_metadata(metadata)


def _instead(data: Any) -> str:
    """Return the hint for an object without columns, to end a message; empty if there is none."""
    if isinstance(data, (str, PathLike)):
        return "; shmarrow.ipc.open_file(path).read_all() reads an Arrow file"
    if hasattr(type(data), "read"):
        return "; shmarrow.ipc.open_file(file).read_all() reads an Arrow file"
    return ""


def _is_column(data: Any) -> bool:
    """Whether ``data`` is a single column: an array, a tensor or a series."""
    if isinstance(data, (Array, ChunkedArray)) or full_name(data) in ("pandas.Series", "pandas.Index"):
        return True
    return hasattr(type(data), "__dlpack__") and not isinstance(data, np.ndarray)


def _has_columns(item: Any) -> bool:
    """Whether an item is a data frame, a table or a batch of any library."""
    return isinstance(item, Columns) or (hasattr(type(item), "columns") and not isinstance(item, type))


def from_frame(
    kind: type[C],
    frame: Any,
    schema: Schema | None = None,
    metadata: MetadataLike | None = None,
    *,
    preserve_index: bool | None = None,
    columns: Sequence[Any] | None = None,
) -> C:
    """Make a batch or a table from a pandas DataFrame, with the metadata from which pandas restores it."""
    from shmarrow.build import array
    from shmarrow.build.frames import KEY, check_no_duplicates, read_frame
    from shmarrow.build.pandas import with_extension

    read = read_frame(frame, schema, preserve_index, columns)
    parts = [*read.columns, *read.levels]
    stored = [with_extension(part.values, array) for part in parts]
    try:
        if schema is not None:
            check_no_duplicates(read)
            values = {part.name: found for part, (found, _) in zip(parts, stored, strict=True)}
            made = kind.from_pydict(values, schema, metadata)
            types = [made.schema.field(part.name).type for part in parts]
        elif parts:
            made = kind.from_arrays([found for found, _ in stored], [part.name for part in parts], None, metadata)
            types = made.schema.types
        else:
            made, types = kind._over(Schema((), metadata), [], len(frame)), []
    except (InvalidArgument, InvalidData, InvalidType) as error:
        raise _of_index(error, [level.name for level in read.levels]) from None
    found = made.schema.with_metadata({**(made.schema.metadata or {}), KEY: read.metadata(types)})
    for i, (_, extension) in enumerate(stored if schema is None else ()):
        if extension is not None:
            found = found.set(i, found.field(i).with_metadata(extension))
    return made._with_schema(found)


def _of_index(error: Exception, levels: Sequence[str]) -> Exception:
    """An error for a column that is a level of an index, which may have no name, in words that say so."""
    for i, name in enumerate(levels):
        _, found, text = str(error).partition(f"column {shown(name)}: ")
        if found:
            return type(error)(f"{'the index' if len(levels) == 1 else f'level {i} of the index'}: {text}")
    return error
