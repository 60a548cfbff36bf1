# SPDX-License-Identifier: Apache-2.0
"""Record batches filled in place: columns are writable ndarrays in the mapped file.

Invariants:

* the file is laid out and its space reserved before any column is returned, so a full file system raises in
  :func:`new_draft` or :meth:`Draft.valid`, and never causes SIGBUS later;
* numpy has no bit arrays: booleans and validity are filled in separate memory and packed on publishing. Booleans have a
  place in the body; validity follows the body, and takes no space in columns without nulls;
* space for the batch's metadata is reserved at the start; they are written last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import PADDING, U1, Bytes, Mask, NDArray, padded
from shmarrow.columns import checked_schema
from shmarrow.errors import (
    FieldNotFound,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    Unsupported,
    full_name,
)
from shmarrow.ipc.body import BodyPlan
from shmarrow.ipc.file.writer import end_of, head_of
from shmarrow.ipc.options import DEFAULT_OPTIONS
from shmarrow.ipc.schema.encode import encode_schema
from shmarrow.layout.construct import LONGEST, checked_size
from shmarrow.layout.listing import DATA, LISTING, BufferSpec
from shmarrow.memory import Location, UnnamedFile, Writer, is_location, open_sink
from shmarrow.memory.life_cycle import operation
from shmarrow.types import Field, MetadataLike, Schema, as_metadata, storage_of

_FILLED = ("primitive", "bool", "null", "struct", "fixed_size_list", "binary", "large_binary")

# A file is smaller than 2**63 bytes; the difference is for everything but the body.
_MOST_BYTES = LONGEST - (1 << 32)


class VariableSize(NamedTuple):
    """A string or binary column being filled.

    Attributes
    ----------
    offsets : ndarray
        int32 (int64 for the large types), shape (slots + 1,), initially zero: slot ``i`` is ``data[offsets[i]:offsets[i
        + 1]]``.
    data : uint8 ndarray
        The bytes of all slots.
    """

    offsets: NDArray
    data: Bytes


class _DraftColumn:
    """A field of the schema, or a child field.

    ``places`` holds (offset, size) of its buffers in the body by role, and ``arrays`` the arrays to fill by role; a
    fixed-size list has its items' values.
    """

    __slots__ = ("arrays", "field", "length", "path", "places", "type")

    def __init__(self, path: str, field: Field, length: int) -> None:
        self.path = path
        self.field = field
        self.type: Any = storage_of(field.type)
        self.length = length
        self.places: dict[str, tuple[int, int]] = {}
        self.arrays: dict[str, NDArray] = {}

    @property
    def null_count(self) -> int:
        if not _buffers(self):
            return self.length
        valid = self.arrays.get("validity")
        return 0 if valid is None else self.length - int(np.count_nonzero(valid))


class Draft(Writer):
    """A record batch being filled in place; made by :func:`shmarrow.ipc.new_draft` or :meth:`Store.new_draft`.

    A context manager: publishes the batch at the end of the block, and drops it on an exception. ``draft[path]`` is a
    column: a writable ndarray for fixed-width types, a :class:`VariableSize` for strings and binary. Children of
    structs have the path ``"struct.child"``; a fixed-size list is an ndarray with one more dimension.

    Attributes
    ----------
    name : str
        The target: a path, ``shm:NAME``, or the name in a store.
    schema : Schema
        The schema.
    num_rows : int
        The number of rows.

    Raises
    ------
    InvalidData
        On closing, if the offsets of a column decrease or exceed its data. Nothing is published.
    ObjectExists
        On closing, if the name was taken in the meantime.

    Notes
    -----
    The arrays become read-only on closing; existing slices must not be written to any more.

    Thread safety: threads may fill columns concurrently; one of them closes the draft when all are done. A forked child
    may fill columns that its parent accessed, except booleans and validity, which are private to each process; its copy
    of the draft can only be closed, which publishes nothing.

    Examples
    --------
    >>> import shmarrow as sa
    >>> schema = sa.schema([("x", sa.float64()), ("s", sa.string())])
    >>> with sa.ipc.new_draft("squares.arrow", schema, 3, bytes={"s": 6}) as draft:
    ...     draft["x"][:] = [0, 1, 4]
    ...     draft["s"].offsets[:] = [0, 2, 4, 6]
    ...     draft["s"].data[:] = np.frombuffer(b"abcdef", np.uint8)
    ...     draft.valid("x")[1] = False
    >>> sa.ipc.open_file("squares.arrow").read_all().to_pydict()
    {'x': [0.0, None, 4.0], 's': ['ab', 'cd', 'ef']}
    """

    def __init__(
        self,
        file: UnnamedFile,
        schema: Schema,
        num_rows: int,
        bytes: Mapping[str, int] | None = None,
        metadata: MetadataLike | None = None,
    ) -> None:
        self.name = file.name
        self._file = file
        self._custom = as_metadata(metadata)
        super().__init__(f"the draft {self.name!r}")
        try:
            self.schema = checked_schema(schema)
            self.num_rows = checked_size(num_rows, "the number of rows")
            columns = [column for field in self.schema for column in _columns(field.name, field, self.num_rows)]
            self._columns = {column.path: column for column in columns}
            if len(self._columns) < len(columns):
                raise InvalidArgument("columns are filled by path, but two have the same; put a batch instead")
            sizes = _sizes(bytes, columns)
            self._encoded = encode_schema(self.schema, DEFAULT_OPTIONS)
            head = head_of(self._encoded, DEFAULT_OPTIONS)
            self._start = len(head)
            self._plan = BodyPlan(self._start)
            _place(self._plan, columns, sizes)
            message = self._metadata([(0, 0)] * sum([len(_buffers(each)) for each in columns]), 1)
            start = self._start + len(message)
            self._reserved = start + self._plan.size + len(self._end(message, 0))
            file.reserve(self._reserved)
            mapped = file.map(start + self._plan.size)
            mapped[: self._start] = np.frombuffer(head, U1)
            self._body = mapped[start:]
            for column in reversed(columns):
                self._map(column)
        except BaseException:
            self.abort()
            raise

    def _map(self, column: _DraftColumn) -> None:
        """Create a column's arrays; its children's exist already."""
        type = column.type
        parts = {role: self._body[start : start + size] for role, (start, size) in column.places.items()}
        if "data" in parts:
            column.arrays = {"offsets": parts["offsets"].view(type.offset_dtype), "data": parts["data"]}
        elif "values" in parts and type.storage is None:
            column.arrays = {"values": np.zeros(column.length, np.bool_)}
        elif "values" in parts:
            flat = parts["values"].view(type.storage.base).reshape(column.length, *type.storage.shape)
            dtype = type.numpy_dtype
            fits = dtype is not None and dtype.itemsize == type.storage.itemsize
            column.arrays = {"values": flat.view(dtype) if fits else flat}
        elif hasattr(type, "list_size"):
            inner = self._columns[f"{column.path}.{type.fields[0].name}"].arrays.get("values")
            if inner is not None:
                column.arrays = {"values": inner.reshape(column.length, type.list_size, *inner.shape[1:])}

    def _metadata(self, buffers: list[tuple[int, int]], body: int) -> bytes:
        nodes = [(column.length, column.null_count) for column in self._columns.values()]
        return self._plan.metadata(self.num_rows, nodes, buffers, body)

    def _end(self, message: bytes, body: int) -> bytes:
        """The bytes after the only message."""
        block = self._start, len(message), body
        return end_of(self._encoded, [], [block], self._custom, DEFAULT_OPTIONS)

    # --- filling ---

    @property
    def columns(self) -> list[str]:
        """The paths of all columns to fill."""
        return [path for path, column in self._columns.items() if column.arrays.keys() - {"validity"}]

    @operation
    def __getitem__(self, path: str) -> Any:
        column = self._column(path)
        if "data" in column.arrays:
            return VariableSize(column.arrays["offsets"], column.arrays["data"])
        if "values" not in column.arrays:
            raise FieldNotFound(f"{path!r} is {column.field.type}, which has no values itself; see Draft.columns")
        return column.arrays["values"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    @operation
    def valid(self, path: str) -> Mask:
        """Return the validity of a column: a writable bool ndarray of shape (slots,), initially all True.

        Raises
        ------
        InvalidArgument
            If the field is not nullable.
        StoreFull
            If there is no space for the validity, which is reserved here.
        """
        column = self._column(path)
        if not column.field.nullable or not LISTING[column.type.layout].has_validity:
            raise InvalidArgument(f"column {path!r} ({column.field}) cannot hold nulls")
        if "validity" not in column.arrays:
            size = self._reserved + padded(bitmap.bytes_for(column.length))
            self._file.reserve(size)
            self._reserved = size
            column.arrays["validity"] = np.ones(column.length, np.bool_)
        return column.arrays["validity"]

    def _column(self, path: str) -> _DraftColumn:
        column = self._columns.get(path) if isinstance(path, str) else None
        if column is None:
            raise FieldNotFound(f"no column {path!r} in the draft {self.name!r}; it has {', '.join(self.columns)}")
        return column

    # --- the end ---

    def _finish(self) -> None:
        buffers, tail = self._parts()
        body = self._plan.size + sum(map(len, tail))
        message = self._metadata(buffers, body)
        self._file.write([*tail, self._end(message, body)])
        self._file.write([message], self._start)
        self._file.publish()

    def _parts(self) -> tuple[list[tuple[int, int]], list[Any]]:
        """The (offset, size) of all buffers, and the data that follows the buffers filled in place."""
        buffers: list[tuple[int, int]] = []
        tail: list[Any] = []
        end = self._plan.size
        for column in self._columns.values():
            _check_offsets(column)
            for spec in _buffers(column):
                if spec.role != "validity":
                    start, size = column.places[spec.role]
                    if spec.bits == 1:
                        self._body[start : start + size] = bitmap.pack(column.arrays["values"])
                    buffers.append((start, size))
                elif column.null_count:
                    bits = bitmap.pack(column.arrays["validity"])
                    tail += [bits, PADDING[: -len(bits) % len(PADDING)]]
                    buffers.append((end, len(bits)))
                    end += padded(len(bits))
                else:
                    buffers.append((0, 0))
            for array in column.arrays.values():
                array.flags.writeable = False
        return buffers, tail

    def _drop(self) -> None:
        self._file.drop()

    def __repr__(self) -> str:
        return f"<Draft {self.name!r}, {self.num_rows} rows, {self._states.state}>"


def new_draft(
    where: Location,
    schema: Schema,
    num_rows: int,
    bytes: Mapping[str, int] | None = None,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> Draft:
    """Allocate a file of one record batch whose columns are filled in place, without copying.

    Parameters
    ----------
    where : path or ``shm:NAME``
        The target, which is published atomically.
    schema : Schema
        Fields of fixed-width types, strings, binary, and structs and fixed-size lists of these.
    num_rows : int
        The number of rows.
    bytes : mapping of str to int, optional
        Total size of the values of each string or binary column, by path.
    overwrite, mode, durable
        As for :func:`shmarrow.ipc.new_file`.

    Raises
    ------
    StoreFull
        If there is no space; it is reserved up front.
    Unsupported
        If the size of a column depends on its values.
    InvalidArgument
        If ``bytes`` does not name exactly the columns of variable size, or two columns have the same path.
    ObjectExists
        If the name exists and must not be replaced.
    """
    if not is_location(where):
        raise InvalidType(f"the target of a draft must be a path or shm:NAME, found {full_name(where)}")
    file: Any = open_sink(where, overwrite=overwrite, mode=mode, durable=durable)
    return Draft(file, schema, num_rows, bytes)


def _buffers(column: _DraftColumn) -> tuple[BufferSpec, ...]:
    return LISTING[column.type.layout].buffers


def _columns(path: str, field: Field, length: int) -> Iterator[_DraftColumn]:
    """A field and its children in pre-order."""
    column = _DraftColumn(path, field, length)
    if column.type.layout not in _FILLED:
        raise Unsupported(
            f"column {path!r}: {field.type} cannot be filled in place, as its size depends on its values; "
            "write a record batch instead"
        )
    if length > LONGEST:
        raise LimitExceeded(f"column {path!r}: expected at most 2**63 - 1 slots, found {length}")
    yield column
    step = getattr(column.type, "list_size", 1)
    for child in column.type.fields:
        yield from _columns(f"{path}.{child.name}", child, length * step)


def _sizes(given: Any, columns: list[_DraftColumn]) -> dict[str, int]:
    """Check the sizes of the columns of variable size."""
    if not isinstance(given, Mapping | None):
        raise InvalidType(f"bytes must be a mapping of columns to sizes, found {full_name(given)}")
    sizes = given or {}
    variable = {column.path: column.type for column in columns if DATA in _buffers(column)}
    if variable.keys() != sizes.keys():
        raise InvalidArgument(f"expected bytes for the columns of variable size, {list(variable)}, found {list(sizes)}")
    checked = {path: checked_size(size, f"the bytes of column {path!r}") for path, size in sizes.items()}
    for path, type in variable.items():
        most = np.iinfo(type.offset_dtype).max
        if checked[path] > most:
            raise InvalidArgument(
                f"column {path!r}: {type} holds at most {most} bytes, found {checked[path]}; use large_{type}"
            )
    return checked


def _place(plan: BodyPlan, columns: list[_DraftColumn], sizes: Mapping[str, int]) -> None:
    """Assign all buffers but validity their places in the body."""
    for column in columns:
        for spec in _buffers(column):
            if spec.role == "validity":
                continue
            if spec.role == "data":
                size = sizes[column.path]
            elif spec.bits == 1:
                size = bitmap.bytes_for(column.length)
            else:
                size = (column.length + spec.extra) * (spec.bits >> 3 or column.type.byte_width)
            column.places[spec.role] = plan.place(size)
    if plan.size > _MOST_BYTES:
        raise LimitExceeded(f"expected a batch of at most {_MOST_BYTES} bytes, found one of {plan.size}")


def _check_offsets(column: _DraftColumn) -> None:
    if "data" not in column.arrays:
        return
    offsets, size = column.arrays["offsets"], len(column.arrays["data"])
    if offsets[0] < 0 or offsets[-1] > size or bool((offsets[1:] < offsets[:-1]).any()):
        raise InvalidData(
            f"column {column.path!r}: offsets must increase from 0 to at most {size}, the size reserved for its data; "
            f"found {offsets[0]} to {offsets[-1]}, lowest {offsets.min()}, highest {offsets.max()}"
        )
