"""Accepted values: conversion from other libraries, and errors for the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from io import IOBase
from os import PathLike
from typing import Any

import numpy as np

from shmarrow import capsules
from shmarrow.batch import RecordBatch, read_record_batch
from shmarrow.build import array
from shmarrow.chunked import read_chunked_array
from shmarrow.errors import DEFAULT_LIMITS, InvalidType, LimitExceeded, ShmarrowError, full_name, shown
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.message.decode import message_at
from shmarrow.ipc.options import DEFAULT_OPTIONS
from shmarrow.ipc.schema.cache import read_schema
from shmarrow.ipc.schema.encode import EncodedSchema, encode_schema, schema_message
from shmarrow.objects.kinds import COLUMN
from shmarrow.tables import RecordBatchReader, table
from shmarrow.tensor.convert import as_tensor, may_be_tensor
from shmarrow.types import DataType, ExtensionType, Field, Schema, types_in


def accepted(value: Any) -> Any:
    """Convert another library's value, or one of a less common class, to a shmarrow value.

    Raises
    ------
    InvalidType
        If it is not supported.
    """
    try:
        read = _reader(value, full_name(value))
    except ShmarrowError:
        raise
    except Exception as error:  # attribute access on arbitrary objects may raise anything
        text = f"a store accepts data, found {full_name(value)}, which raises {type(error).__name__}: {error}"
        raise InvalidType(text, hint=_instead(value)) from error
    return read()


def _reader(value: Any, name: str) -> Callable[[], Any]:
    """The function that reads a value."""
    if isinstance(value, (RecordBatchReader, RecordBatchFileReader)) or capsules.is_frame(value):
        return partial(table, value)
    if type(value).__name__ == "RecordBatch" and capsules.has_data(value):
        return partial(read_record_batch, value)
    step = None if capsules.has_data(value) else capsules.next_step(value)
    if step:
        raise InvalidType(f"a store accepts data, found {name}", hint=step)
    if (
        capsules.is_column(value)
        and (name.endswith(("Array", "Series")) or not capsules.has_stream(value))
        and _is_long(value)
    ):
        _check_index(value)
        return partial(read_chunked_array, value) if name.endswith(".ChunkedArray") else partial(array, value)
    if capsules.has_data(value):
        return partial(_rows, value)
    try:
        tensor = as_tensor(value)
    except InvalidType as error:
        reason = f": {error.message}" if may_be_tensor(value) else ""
        raise InvalidType(
            "a store accepts a RecordBatch, a Table, a data frame, an Array, a Series, a ChunkedArray, a tensor, an "
            f"ndarray, a mapping of names to tensors, bytes, a str, a number or a bool, found {name}{reason}",
            hint=_instead(value) or error.hint,
        ) from None
    return lambda: tensor


def _rows(value: Any) -> Any:
    try:
        return table(value)
    except InvalidType:  # it is a stream of a single column
        return read_chunked_array(value)


def _is_long(value: Any) -> bool:
    return hasattr(type(value), "__len__")


def _instead(value: Any) -> str | None:
    """The hint that says what to put instead of an unsupported value."""
    for kinds, step in _INSTEAD:
        if isinstance(value, kinds):
            return step
    if (
        isinstance(value, (list, tuple))
        and value
        and (isinstance(value[0], RecordBatch) or hasattr(value[0], "columns"))
    ):
        return "put shmarrow.table(batches)"
    for made in (str, bytes, bytearray, int, float):  # subclasses would come back as another class
        if isinstance(value, made):
            return f"{made.__name__}(value) is kept as such"
    method = next((name for name in ("state_dict", "as_py") if hasattr(type(value), name)), "")
    if method:
        return f"put value.{method}()"
    with suppress(Exception):
        memoryview(value)
        return "put memoryview(value)"
    if isinstance(value, Collection):
        return "put shmarrow.array(values)"
    with suppress(Exception):
        array([value])
        return "put shmarrow.array([value])"
    return None


_INSTEAD: tuple[tuple[Any, str], ...] = (
    ((PathLike, IOBase), "put_file(name, path) stores an Arrow file"),
    (Iterator, "put shmarrow.table(batches), or shmarrow.array(values)"),
)


def check_mapping(value: Mapping[Any, Any]) -> None:
    """Reject a mapping of columns or scalars, which is not a bundle of tensors."""
    for key, each in value.items() if type(value) is dict else ():
        rows = isinstance(each, (list, tuple))
        if rows or (
            isinstance(each, (str, bytes, int, float, Mapping, type(None))) and not isinstance(each, np.generic)
        ):
            step = "put shmarrow.table(mapping) to keep columns" if rows else "put json.dumps(mapping), which is a str"
            text = f"a store keeps a mapping as a bundle of tensors, found {full_name(each)} for {shown(key)}"
            raise InvalidType(text, hint=f"{step}, or ndarrays as values")


def check_ndarray(value: Any) -> None:
    """Reject an ndarray with nulls or unsupported elements."""
    if isinstance(value, (str, bytes)):
        raise InvalidType(f"a store accepts data, found {full_name(value)}", hint=_instead(value))
    if _has_no_tensor(value.dtype) or isinstance(value, np.ma.MaskedArray):
        raise InvalidType(
            f"a store keeps an ndarray as a tensor, which has numbers and no nulls, found {full_name(value)} of "
            f"{value.dtype}",
            hint="put shmarrow.array(values) instead",
        )


@lru_cache(256)
def _has_no_tensor(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype cannot be a tensor's: objects, strings, structs, time units such as hours."""
    kind = dtype.kind
    if kind in "Mm":
        return np.datetime_data(dtype) not in _UNITS[kind]
    return kind in "OSTU" or dtype.names is not None


_UNITS = {"m": [(unit, 1) for unit in ("s", "ms", "us", "ns")]}
_UNITS["M"] = [("D", 1), *_UNITS["m"]]


def check_type(type: DataType) -> None:
    """Reject types that would be read back as another type, as extension types are only identified by name."""
    if not any(isinstance(each, ExtensionType) for each in types_in(type)):
        return
    found = _as_read(Field(COLUMN, type)).type
    if found != type:
        raise InvalidType(
            f"an array of {type} would come back as one of {found}; "
            "register the type with shmarrow.register_extension_type, or put a batch, which keeps its name"
        )


def _as_read(field: Field) -> Field:
    """The field as read back from its message."""
    return _read(encode_schema(Schema([field]), DEFAULT_OPTIONS)).field(0)


def _read(encoded: EncodedSchema) -> Schema:
    """A schema as read back from its message."""
    found = message_at(np.frombuffer(schema_message(encoded, DEFAULT_OPTIONS), np.uint8), 0, "schema", DEFAULT_LIMITS)
    assert found is not None
    header = found.message.header
    return read_schema(header.reader.data, header.position, "schema", DEFAULT_LIMITS)


@lru_cache(256)
def check_readable(encoded: EncodedSchema) -> None:
    """Reject nested types that readers refuse by default, as those that nest too deep."""
    try:
        _ = _read(encoded).fields
    except LimitExceeded as error:
        raise InvalidType(
            f"a store keeps what it can give back: {error.message}", hint="write a file, and read it with other Limits"
        ) from None


def _check_index(value: Any) -> None:
    """Reject a pandas Series with a non-positional index."""
    index = getattr(value, "index", None)
    if hasattr(index, "equals") and not np.array_equal(np.asarray(index), np.arange(len(value))):
        raise InvalidType(
            "a store does not keep the index of a Series: put shmarrow.array(series), or a pyarrow.Table of both"
        )
