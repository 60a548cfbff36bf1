# SPDX-License-Identifier: Apache-2.0
"""Tabular data of any kind as batches and tables: mappings, sequences of arrays, data frames, batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow import capsules
from shmarrow.columns.chunked import ChunkedArray
from shmarrow.columns.names import checked_schema
from shmarrow.errors import InvalidArgument, InvalidType, ShmarrowError, full_name, not_expected
from shmarrow.layout import Array
from shmarrow.layout.arguments import as_array
from shmarrow.types import PANDAS_KEY, DataType, MetadataLike, Schema, as_schema

if TYPE_CHECKING:
    from shmarrow.build.frames import Frame


def as_column(values: Any, type: DataType | None) -> Array | ChunkedArray:
    """Convert values to an array or a chunked array; these keep their type, other values get the given one."""
    return values if isinstance(values, ChunkedArray) else as_array(values, "a column", type)


def from_any(
    kind: Any,
    data: Any,
    names: Sequence[str] | Schema | None,
    schema: Schema | None,
    metadata: MetadataLike | None,
) -> Any:
    """Make a batch or a table of any tabular data; see :func:`shmarrow.table`."""
    own = as_schema(names)
    if own is not None:
        if schema is not None:
            raise InvalidArgument("expected one schema, found two")
        names, schema = None, own
    schema = None if schema is None else checked_schema(schema)
    assert not isinstance(names, Schema)
    if isinstance(data, GeneratorType):
        data = list(data)
    named = names is not None or schema is not None
    if named and data.__class__ in (list, tuple) and not (data and _has_columns(data[0])):
        return kind.from_arrays(data, names, schema, metadata)
    if isinstance(data, (Array, ChunkedArray)) and data.type.layout == "struct":
        data = kind.from_struct_array(data)
    frame, mapping = capsules.is_frame(data), isinstance(data, Mapping)
    rows = None if frame or mapping else kind._of_rows(data)
    if rows is None and not frame and not mapping:
        _check_columns(data, not named)
        return kind.from_arrays(data, names, schema, metadata)
    if names is not None:
        raise InvalidArgument("the data already have names; pass no others")
    if frame:
        return from_frame(kind, data, schema, metadata)
    if rows is None:
        return kind.from_pydict(data, schema, metadata)
    if schema is not None and metadata is not None:
        raise InvalidArgument("a schema already has metadata; pass one or the other")
    if schema is not None:
        return rows if rows.schema.equals(schema, check_metadata=True) else rows.cast(schema)
    return rows if metadata is None else rows.replace_schema_metadata(metadata)


def _check_columns(data: Any, unnamed: bool) -> None:
    """Raise unless the data may be a sequence of columns."""
    if _is_column(data):
        raise capsules.single_column(data)
    hint = _instead(data) or capsules.next_step(data)
    if hint or hasattr(type(data), "schema") or not isinstance(data, Iterable):
        raise InvalidType(f"expected a mapping, arrays, or a data frame, found {full_name(data)}", hint=hint)
    rows = next(filter(_has_columns, data), None) if unnamed and isinstance(data, (list, tuple)) else None
    if rows is not None:
        hint = "shmarrow.concat_tables([shmarrow.table(item) for item in items]) makes one table"
        raise InvalidType(f"expected arrays, found {full_name(rows)} in a {full_name(data)}", hint=hint)


def _instead(data: Any) -> str | None:
    """Return the hint for an object without columns; None if there is none."""
    if isinstance(data, (str, PathLike)):
        return "shmarrow.ipc.open_file(path).read_all() reads an Arrow file"
    if hasattr(type(data), "read"):
        return "shmarrow.ipc.open_file(file).read_all() reads an Arrow file"
    return None


def _is_column(data: Any) -> bool:
    """Whether ``data`` is a single column: an array, a tensor or a series."""
    if isinstance(data, (Array, ChunkedArray)) or full_name(data) in ("pandas.Series", "pandas.Index"):
        return True
    return hasattr(type(data), "__dlpack__") and not isinstance(data, np.ndarray)


def _has_columns(item: Any) -> bool:
    """Whether an item is a data frame, a table or a batch of any library."""
    return hasattr(type(item), "columns") and not isinstance(item, type)


def from_pandas(
    kind: Any,
    df: Any,
    schema: Schema | None,
    preserve_index: bool | None,
    columns: Sequence[Any] | None,
    metadata: MetadataLike | None,
) -> Any:
    """Implement :meth:`Columns.from_pandas`."""
    if not hasattr(df, "iloc") or not hasattr(df, "columns"):
        raise not_expected("a pandas.DataFrame", df)
    return from_frame(kind, df, schema, metadata, preserve_index=preserve_index, columns=columns)


def from_frame(
    kind: Any,
    frame: Any,
    schema: Schema | None = None,
    metadata: MetadataLike | None = None,
    *,
    preserve_index: bool | None = None,
    columns: Sequence[Any] | None = None,
) -> Any:
    """Make a batch or a table from a pandas DataFrame, with the metadata from which pandas restores it."""
    from shmarrow.build import frames

    read = frames.read_frame(frame, schema, preserve_index, columns)
    made = _of_parts(kind, read, schema, metadata)
    types = (
        [made.schema.field(part.name).type for part in [*read.columns, *read.levels]] if schema else made.schema.types
    )
    described = {PANDAS_KEY: read.metadata(types, schema is None)}
    return made._with_schema(made.schema.with_metadata({**(made.schema.metadata or {}), **described}))


def frame_in_schema(kind: Any, frame: Any, schema: Schema) -> Any:
    """Make a batch or a table of a data frame with exactly the fields of a schema, for a writer of it.

    Raises
    ------
    InvalidArgument
        If a column or a level of the index has no field; a ``RangeIndex`` needs none.
    FieldNotFound, InvalidData, InvalidType
        If a field has no column, or a value does not fit it; times are not given a zone, nor lose theirs.
    """
    from shmarrow.build import frames

    if frame.index.__class__.__name__ != "RangeIndex":
        levels = frames.read_frame(frame, None, None, None).levels
        extra = next((level.name for level in levels if level.name not in schema), None)
        if extra is not None:
            step = "frame.reset_index() makes it a column, reset_index(drop=True) drops it"
            raise InvalidArgument(f"the schema has no field for {extra!r}, of the frame's index", hint=step)
    read = frames.read_frame(frame, schema, None, None)
    for part in [*read.columns, *read.levels]:
        zoned = getattr(schema.field(part.name).type, "tz", None) if part.name in schema else None
        dtype = part.values.dtype
        zone = getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)
        if dtype.kind == "M" and (zoned is None) != (zone is None) and part.values.notna().any():
            text = f"{dtype} has no exact cast to {schema.field(part.name).type}"
            raise InvalidType(text, where=[("column", part.name)], hint="column.dt.tz_localize(zone) sets or drops it")
    return _of_parts(kind, read, schema, None)


def _of_parts(kind: Any, read: Frame, schema: Schema | None, metadata: MetadataLike | None) -> Any:
    """Make a batch or a table of the columns and levels of a frame, with their own types or those of a schema."""
    from shmarrow.build import array, frames
    from shmarrow.build.pandas import with_extension

    parts = [*read.columns, *read.levels]
    stored = [with_extension(part.values, array) for part in parts]
    if not parts and not schema:
        return kind._over(Schema((), metadata) if schema is None else schema, [], len(read.index))
    try:
        if schema is None:
            made = kind.from_arrays([values for values, _ in stored], [part.name for part in parts], None, metadata)
            fields = [
                field if extension is None else field.with_metadata(extension)
                for field, (_, extension) in zip(made.schema, stored, strict=True)
            ]
            return made._with_schema(Schema(fields, metadata))
        frames.check_no_duplicates(read)
        values = {part.name: values for part, (values, _) in zip(parts, stored, strict=True)}
        return kind.from_pydict(values, schema, metadata)
    except ShmarrowError as error:
        _name_levels(error, [level.name for level in read.levels])
        raise


def _name_levels(error: ShmarrowError, levels: Sequence[str]) -> None:
    """Let an error of a column that is a level of an index say so, as the level may have no name."""
    for i, name in enumerate(levels):
        if error.where[:1] == (("column", name),):
            level = "the index" if len(levels) == 1 else f"level {i} of the index"
            error.where = ((level,), *error.where[1:])
