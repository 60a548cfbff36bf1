"""Columns and index of a pandas DataFrame, and the metadata to restore it.

The metadata follow pandas' developer guide, "Storing pandas DataFrame objects in Apache Parquet format": JSON under the
key ``pandas`` of a schema, as pyarrow and pandas use in Parquet and Feather files. pandas is not imported here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shmarrow.errors import FieldNotFound, InvalidArgument, InvalidData, not_expected, shown
from shmarrow.types import DataType, Schema
from shmarrow.types.zones import zone_name

KEY = b"pandas"


class FrameColumn(NamedTuple):
    """A column of a frame, or a level of its index.

    Attributes
    ----------
    name : str
        Name of the field.
    label : str or None
        Label in pandas, as a string; None if it has no name.
    values : Series or Index
        The values.
    """

    name: str
    label: str | None
    values: Any


class Frame(NamedTuple):
    """The parts of a frame to store.

    Attributes
    ----------
    columns, levels : sequence of FrameColumn
        Columns, and the index levels that become columns.
    described : list
        Index description for the metadata: field names, or a range.
    labels : Index
        Labels of the columns.
    attributes : dict
        ``frame.attrs``.
    """

    columns: Sequence[FrameColumn]
    levels: Sequence[FrameColumn]
    described: list[Any]
    labels: Any
    attributes: Any

    def metadata(self, types: Iterable[DataType]) -> bytes:
        """Return the metadata, given the types of the columns and then the levels."""
        described = zip([*self.columns, *self.levels], types, strict=True)
        levels = getattr(self.labels, "levels", [self.labels])
        return json.dumps(
            {
                "index_columns": self.described,
                "column_indexes": [_labels(*each) for each in zip(levels, self.labels.names, strict=True)],
                "columns": [_column(column, type) for column, type in described],
                "attributes": _attributes(self.attributes),
                "creator": {"library": "shmarrow", "version": sys.modules["shmarrow"].__version__},
                "pandas_version": getattr(sys.modules.get("pandas"), "__version__", None),
            }
        ).encode()


def read_frame(frame: Any, schema: Schema | None, preserve_index: bool | None, columns: Sequence[Any] | None) -> Frame:
    """Split a frame into columns and index levels; copies nothing.

    Parameters
    ----------
    frame : pandas.DataFrame
        The frame.
    schema : Schema, optional
        If given, index levels become columns only if it names them.
    preserve_index : bool, optional
        Whether index levels become columns; None means all but a ``RangeIndex``, which is stored as metadata only.
    columns : sequence of labels, optional
        Columns to include, by default all.

    Raises
    ------
    FieldNotFound
        If one of ``columns`` is missing.
    InvalidType
        If ``columns`` is a single label.
    """
    if columns is not None:
        if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
            raise not_expected("a sequence of labels", columns)
        try:
            frame = frame[list(columns)]
        except (KeyError, TypeError) as error:
            raise FieldNotFound(f"the frame lacks some of the columns: {error}") from None
    made = [FrameColumn(str(_text(label)), _text(label), values) for label, values in frame.items()]
    names = {column.name for column in made}
    levels: list[FrameColumn] = []
    described: list[Any] = []
    index = frame.index
    if preserve_index is None and index.__class__.__name__ == "RangeIndex":
        name = _text(index.name)
        described.append({"kind": "range", "name": name, "start": index.start, "stop": index.stop, "step": index.step})
    elif preserve_index is not False:
        for i, label in enumerate(index.names):
            name = _text(label)
            if name is None or name in names:
                name = _free_name(i, names)
            if schema is None or name in schema:
                levels.append(FrameColumn(name, _text(label), index.get_level_values(i)))
                described.append(name)
                names.add(name)
    return Frame(made, levels, described, frame.columns, getattr(frame, "attrs", {}))


def _free_name(level: int, names: set[str]) -> str:
    while f"__index_level_{level}__" in names:
        level += 1
    return f"__index_level_{level}__"


def _text(label: Any) -> str | None:
    """A label as a string; a tuple becomes the string of a tuple of strings, which readers parse."""
    if label is None or isinstance(label, str):
        return label
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace")
    return str(tuple(map(_text, label))) if isinstance(label, tuple) else str(label)


def _labels(level: Any, name: Any) -> dict[str, Any]:
    """The metadata of the column labels, or of one level of them."""
    dtype, metadata = _dtype(level)
    kind = level.inferred_type
    if kind == "string":
        kind, metadata = "unicode", {"encoding": "UTF-8"}
    elif kind in ("boolean", "categorical", "empty"):  # readers convert "False" to True, and reject categories
        kind, dtype, metadata = "mixed", "object", None
    elif metadata is not None:
        kind = "datetimetz"
    elif dtype != "object":
        kind = dtype
    text = _text(name)
    return {"name": text, "field_name": text, "pandas_type": kind, "numpy_type": dtype, "metadata": metadata}


def _column(column: FrameColumn, type: DataType) -> dict[str, Any]:
    """The metadata of a column."""
    dtype, metadata = _dtype(column.values)
    kind = _logical(type)
    if kind == "decimal":
        some: Any = type
        metadata = {"precision": some.precision, "scale": some.scale}
        dtype = dtype if dtype.endswith("[pyarrow]") else "object"
    return {
        "name": column.label, "field_name": column.name, "pandas_type": kind, "numpy_type": dtype,
        "metadata": metadata,
    }  # fmt: skip


def _dtype(values: Any) -> tuple[str, dict[str, Any] | None]:
    """The metadata name of a dtype, and additional metadata."""
    dtype = values.dtype
    if dtype.__class__.__name__ == "CategoricalDtype":
        codes = getattr(values, "cat", values).codes
        return str(codes.dtype), {"num_categories": len(dtype.categories), "ordered": bool(dtype.ordered)}
    if dtype.__class__.__name__ == "DatetimeTZDtype":
        return f"datetime64[{dtype.unit}]", {"timezone": zone_name(dtype.tz)}
    try:
        return str(dtype), None
    except NotImplementedError:  # an ArrowDtype of a type unknown to pandas has no name
        return f"{dtype.pyarrow_dtype}[pyarrow]", None


_LOGICAL = {
    "null": "empty", "bool_": "bool", "date32": "date", "date64": "date", "time32": "time", "time64": "time",
    "binary": "bytes", "string": "unicode", "dictionary": "categorical",
    **{f"{kind}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"float{bits}" for bits in (16, 32, 64)},
}  # fmt: skip


def _logical(type: Any) -> str:
    """The metadata name of a type."""
    if type.array_class is not None:
        return "object"
    name = type.descriptor.factory.format(t=type)
    if name == "timestamp":
        return "datetime" if type.tz is None else "datetimetz"
    if name == "list_" and type.layout == "list":
        return f"list[{_logical(type.value_type)}]"
    return "decimal" if name.startswith("decimal") else _LOGICAL.get(name, "object")


def _attributes(attributes: Any) -> Any:
    """A frame's attributes, if representable in JSON."""
    try:
        return json.loads(json.dumps(attributes))
    except (TypeError, ValueError, RecursionError):
        return {}


def check_no_duplicates(frame: Frame) -> None:
    """Raise for duplicate column names, which cannot be matched by name."""
    names = [column.name for column in [*frame.columns, *frame.levels]]
    if len(set(names)) < len(names):
        name = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidArgument(
            f"columns are matched to the schema by name, but the data frame has several named {shown(name)}"
        )


def pandas_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    """Implement :attr:`Schema.pandas_metadata`, for the metadata of a schema."""
    text = (metadata or {}).get(KEY)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"the metadata {shown(KEY)} are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidData(f"the metadata {shown(KEY)} must be a JSON object, found {shown(found)}")
    return found
