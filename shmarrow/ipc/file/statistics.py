# SPDX-License-Identifier: Apache-2.0
"""Statistics of the record batches of a file, in the footer's metadata: what lets readers skip batches.

The value of the key ``shmarrow:statistics`` is a stream of one record batch in base64, as many readers treat metadata
as text. The batch has one row for each record batch of the file, in the order of the footer, and for each column that
has statistics a column of its name: a struct of, in this order,

* ``nulls``, int64: the number of nulls;
* ``least`` and ``greatest``, of the column's type, or that of its dictionary's or runs' values: no value is less or
  greater. Text and binary values may be cut to :data:`BOUND` bytes, so the bounds need not occur. Null where there are
  no values but nulls and NaN, or where a bound is unknown;
* ``nan``, bool, for floats: whether NaN occurs, which is neither less nor greater.

Statistics are believed, as the values are: a file whose statistics are wrong is wrong, and ``validate(full=True)`` says
so.
"""

from __future__ import annotations

import base64
import binascii
import io
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.columns import RecordBatch, several
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, Limits, at, counted
from shmarrow.ipc.stream.reader import MappedStreamReader
from shmarrow.ipc.stream.writer import RecordBatchStreamWriter
from shmarrow.layout import Array
from shmarrow.layout.array import nulls
from shmarrow.layout.construct import array_class, booleans, frozen, join_arrays, make_array
from shmarrow.layout.order import compare, extremes, ordered_type, plain_type
from shmarrow.memory import open_sink, open_source
from shmarrow.types import FloatType, Schema, bool_, int64

BOUND = 64
"""Bytes of text and binary values that bounds have at most."""


class ColumnBounds(NamedTuple):
    """The statistics of one column of one batch.

    Attributes
    ----------
    nulls : int
        The number of nulls, also those in a dictionary.
    least, greatest : Array
        Bounds, of one slot.
    nan : bool
        Whether NaN occurs.
    """

    nulls: int
    least: Array
    greatest: Array
    nan: bool


def has_statistics(type: Any) -> bool:
    """Whether there are statistics for columns of a type: for those that have an order, and bounds of few bytes."""
    try:
        ordered_type(type)
    except InvalidType:
        return False
    plain = plain_type(type)
    return plain.descriptor.values != "bytes" or plain.byte_width <= BOUND


class Collector:
    """Statistics of the batches of a file that is being written.

    Parameters
    ----------
    schema : Schema
        The schema of the file.
    columns : bool or iterable of str
        The columns to measure; True for all that can be, and whose name is unique.

    Attributes
    ----------
    columns : list of int
        The positions of these columns; a file is written without statistics where there are none.

    Raises
    ------
    FieldNotFound
        If a column does not exist, or several have its name.
    InvalidType
        If a column has a type without an order.
    """

    def __init__(self, schema: Schema, columns: bool | Iterable[str]) -> None:
        if columns is True:
            names = schema.names
            unique = [i for i, name in enumerate(names) if names.count(name) == 1]
            self.columns = [i for i in unique if has_statistics(schema.field(i).type)]
        else:
            self.columns = [schema.index_of(name) for name in several(columns or (), "names of columns")]
            for i in self.columns:
                with at("statistics of column", schema.field(i).name):
                    ordered_type(schema.field(i).type)
                    if not has_statistics(schema.field(i).type):
                        raise InvalidArgument(f"values of {schema.field(i).type} have more than {BOUND} bytes")
        self._schema = schema
        self._measured: list[list[ColumnBounds]] = []

    def measure(self, batch: RecordBatch) -> list[ColumnBounds]:
        """Measure a batch; :meth:`add` takes what this returns once the batch is written."""
        return [measured(batch.column(i)) for i in self.columns]

    def add(self, columns: list[ColumnBounds]) -> None:
        """Add the statistics of the next batch."""
        self._measured.append(columns)

    def encoded(self) -> bytes:
        """Encode the statistics for the footer's metadata."""
        columns = [_column([row[to] for row in self._measured]) for to in range(len(self.columns))]
        batch = RecordBatch.from_arrays(columns, [self._schema.field(i).name for i in self.columns])
        buffer = io.BytesIO()
        with RecordBatchStreamWriter(open_sink(buffer), batch.schema, None) as writer:
            writer.write_batch(batch)
        return base64.b64encode(buffer.getvalue())


def measured(column: Any) -> ColumnBounds:
    """Measure a column, whose type has an order."""
    missing = column._logical_nulls()
    least, greatest, nan = extremes(column, BOUND)
    return ColumnBounds(0 if missing is None else int(missing.sum()), _cut(least, False), _cut(greatest, True), nan)


def _cut(bound: Any, up: bool) -> Array:
    """A bound of few bytes: the value, or text that is less or, with ``up``, greater; null where there is none."""
    type = bound.type
    if not len(bound):
        return nulls(1, type)
    if not hasattr(type, "text") or int(np.diff(bound.cast("large_binary").offsets)[0]) <= BOUND:
        return bound
    head = bound.cast("large_binary")._contiguous()[1][:BOUND].tobytes()
    if type.text:
        head = head.decode("utf-8", "ignore").encode()
    if up:
        above = _text_above(head.decode()) if type.text else _bytes_above(head)
        return nulls(1, type) if above is None else array_class(type).from_pylist(type, [above], None)
    return array_class(type).from_pylist(type, [head.decode() if type.text else head], None)


def _text_above(text: str) -> str | None:
    """The least text of no more characters that is greater than all that begin with this one; None if there is none."""
    for end in range(len(text), 0, -1):
        code = ord(text[end - 1]) + 1
        code = 0xE000 if code == 0xD800 else code  # surrogates are no characters
        if code <= 0x10FFFF:
            return text[: end - 1] + chr(code)
    return None


def _bytes_above(data: bytes) -> bytes | None:
    prefix = data.rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None


# --- as a record batch --------------------------------------------------------------------------------------------


def _column(rows: Sequence[ColumnBounds]) -> Array:
    counts = np.array([row.nulls for row in rows], np.int64)
    parts = {
        "nulls": make_array(int64(), len(rows), [None, frozen(counts)], 0),
        "least": join_arrays([row.least for row in rows]),
        "greatest": join_arrays([row.greatest for row in rows]),
    }
    if isinstance(parts["least"].type, FloatType):
        parts["nan"] = booleans(np.array([row.nan for row in rows], np.bool_))
    return RecordBatch.from_arrays(list(parts.values()), list(parts)).to_struct_array()


def _parts(statistics: RecordBatch, name: str) -> dict[str, Any]:
    column: Any = statistics.column(name)
    return {field.name: child for field, child in zip(column.type.fields, column.flatten(), strict=True)}


def _row(parts: dict[str, Any], row: int) -> ColumnBounds:
    nan = "nan" in parts and bool(parts["nan"].values[row])
    return ColumnBounds(
        int(parts["nulls"].values[row]), parts["least"].slice(row, 1), parts["greatest"].slice(row, 1), nan
    )


def decode(value: bytes, schema: Schema, batches: int, limits: Limits) -> RecordBatch:
    """Decode statistics.

    Parameters
    ----------
    value : bytes
        The value of the key.
    schema : Schema
        The schema of the file.
    batches : int
        The number of its record batches.
    limits : Limits
        Bounds on what is accepted.

    Raises
    ------
    InvalidData
        If they do not have the form that is described above.
    """
    with at("statistics"):
        try:
            source = open_source(base64.b64decode(value, validate=True))
        except binascii.Error as error:
            raise InvalidData(f"expected base64, found {len(value)} bytes: {error}") from None
        batch = MappedStreamReader(source, limits).get_batch(0)
        if batch.num_rows != batches:
            raise InvalidData(f"expected a row for each of {batches} batches, found {batch.num_rows}")
        for field in batch.schema:
            with at("column", field.name):
                plain = plain_type(schema.field(field.name).type)
                expected = [("nulls", int64()), ("least", plain), ("greatest", plain)]
                if isinstance(plain, FloatType):
                    expected.append(("nan", bool_()))
                if [(child.name, child.type) for child in getattr(field.type, "fields", ())] != expected:
                    names = ", ".join(name for name, _ in expected)
                    raise InvalidData(f"expected a struct of {names} of {plain}, in this order, found {field.type}")
        batch.validate(full=True)
        return batch


def check(statistics: RecordBatch, number: int, name: str, column: Any) -> None:
    """Check what statistics say about a column of a batch.

    Raises
    ------
    InvalidData
        If it has values that they rule out, or other counts.
    """
    if name not in statistics.schema:
        return
    said = _row(_parts(statistics, name), number)
    missing = column._logical_nulls()
    count = 0 if missing is None else int(missing.sum())
    least, greatest, nan = extremes(column, sys.maxsize)
    if said.nulls != count:
        raise InvalidData(f"the statistics say {counted(said.nulls, 'null')}, found {count}")
    if said.nan != nan:
        raise InvalidData(
            f"the statistics say that there is {'NaN' if said.nan else 'no NaN'}, found {'one' if nan else 'none'}"
        )
    for bound, op, word, value in ((said.least, "<", "less", least), (said.greatest, ">", "greater", greatest)):
        if not bound.null_count and compare(value, op, bound.cast(ordered_type(bound.type))).any():
            raise InvalidData(f"the statistics say that no value is {word} than {bound[0]!r}, found {value[0]!r}")
