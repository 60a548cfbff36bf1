"""What values are taken, and what is made of those of other libraries; why others are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np

from shmarrow import foreign
from shmarrow.batch import RecordBatch
from shmarrow.build import array
from shmarrow.codecs.kinds import COLUMN
from shmarrow.errors import DEFAULT_LIMITS, InvalidType, full_name
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.message.decode import read_message
from shmarrow.ipc.options import DEFAULT_OPTIONS
from shmarrow.ipc.schema.cache import read_schema
from shmarrow.ipc.schema.encode import encode_schema, schema_message
from shmarrow.layout.listing import walk
from shmarrow.tables import RecordBatchReader, table
from shmarrow.tensor.convert import as_tensor, may_be_tensor
from shmarrow.tensor.element import is_column
from shmarrow.types import DataType, DictionaryType, ExtensionType, Field, Schema


def accepted(value: Any) -> Any:
    """The value of this package that a value of another library, or of a less common class, is encoded as.

    Raises
    ------
    InvalidType
        If there is none.
    """
    name = full_name(value)
    if isinstance(value, (RecordBatchReader, RecordBatchFileReader)) or name == "pandas.DataFrame":
        return table(value)
    if type(value).__name__ == "RecordBatch" and foreign.has_data(value):
        return foreign.read("record_batch", value)
    step = "" if foreign.has_data(value) else foreign.next_step(value)
    if step:
        raise InvalidType(f"a store takes data, found {name}{step}")
    if is_column(value) and (name.endswith(("Array", "Series")) or not foreign.has_stream(value)):
        _check_index(value)
        return foreign.read("chunked_array", value) if name.endswith(".ChunkedArray") else array(value)
    if foreign.has_data(value):
        try:
            return table(value)
        except InvalidType:  # it is a stream of a single column
            return foreign.read("chunked_array", value)
    try:
        return as_tensor(value)
    except InvalidType as error:
        reason = f": {error}" if may_be_tensor(value) else ""
        raise InvalidType(
            "a store takes a RecordBatch, a Table, an Array, a ChunkedArray, a tensor, an ndarray, a mapping of names "
            f"to tensors, bytes, a str, a number or a bool, found {name}{reason}{_instead(value)}"
        ) from None


def _instead(value: Any) -> str:
    """What to do with a value that a store does not take, as the end of a message."""
    plain = next((kind.__name__ for kind in _PLAIN if isinstance(value, kind)), "")
    if plain:
        return f"; {plain}(value) is kept as such"
    if isinstance(value, PathLike):
        return "; put_file(name, path) stores an Arrow file"
    if isinstance(value, (list, tuple)):
        rows = bool(value) and (isinstance(value[0], RecordBatch) or hasattr(value[0], "columns"))
        return "; put shmarrow.table(batches)" if rows else "; put shmarrow.array(values)"
    if hasattr(value, "read"):
        return "; put_file(name, path) stores an Arrow file"
    if isinstance(value, Iterator):
        return "; put shmarrow.table(batches), or shmarrow.array(values)"
    return "; put(name, value) takes the name first" if value is None else ""


_PLAIN = (str, bytes, bytearray, int, float)
"""Kinds whose subclasses would come back as another class."""


def check_mapping(value: Mapping[Any, Any]) -> None:
    """Refuse a mapping of columns, which is no bundle of tensors."""
    if type(value) is dict and any(isinstance(each, (list, tuple, str)) for each in value.values()):
        raise InvalidType(
            "a store keeps a mapping as a bundle of tensors, found one with lists: put shmarrow.table(mapping) to keep "
            "columns, or ndarrays as values"
        )


def check_ndarray(value: Any) -> None:
    """Refuse an ndarray with nulls, or of elements that no tensor has."""
    if _has_no_tensor(value.dtype) or isinstance(value, np.ma.MaskedArray):
        raise InvalidType(
            f"a store keeps an ndarray as a tensor, which has numbers and no nulls, found {full_name(value)} of "
            f"{value.dtype}: put shmarrow.array(values) instead"
        )


def _has_no_tensor(dtype: np.dtype[Any]) -> bool:
    """Whether elements of a dtype are none of a tensor's: objects, text, structs, and units of time such as hours."""
    kind = dtype.kind
    if kind in "Mm":
        return np.datetime_data(dtype) not in _UNITS[kind]
    return kind in "OSTU" or dtype.names is not None


_UNITS = {"m": [(unit, 1) for unit in ("s", "ms", "us", "ns")]}
_UNITS["M"] = [("D", 1), *_UNITS["m"]]


def check_type(type: DataType) -> None:
    """Refuse types that a reader would take for others, as it knows extension types by no more than their names."""
    if not any(isinstance(each, ExtensionType) for each in walk([type], _parts_of)):
        return
    found = _as_read(Field(COLUMN, type)).type
    if found != type:
        raise InvalidType(
            f"an array of {type} would come back as one of {found}; "
            "register the type with shmarrow.register_extension_type, or put a batch, which keeps its name"
        )


def _parts_of(type: Any) -> list[DataType]:
    parts = [field.type for field in type.fields]
    if isinstance(type, DictionaryType):
        parts.append(type.value_type)
    return parts


def _as_read(field: Field) -> Field:
    """The field that a reader makes of the message of a field."""
    data = schema_message(encode_schema(Schema([field]), DEFAULT_OPTIONS), DEFAULT_OPTIONS)
    found = read_message(np.frombuffer(data, np.uint8), 0, "schema", DEFAULT_LIMITS)
    assert found is not None
    header = found[0].header
    return read_schema(header.reader.data, header.position, "schema", DEFAULT_LIMITS).field(0)


def _check_index(value: Any) -> None:
    """Refuse a pandas Series with an index that is more than positions."""
    index = getattr(value, "index", None)
    if hasattr(index, "equals") and not np.array_equal(np.asarray(index), np.arange(len(value))):
        raise InvalidType(
            "a store does not keep the index of a Series: put shmarrow.array(series), or a pyarrow.Table of both"
        )
