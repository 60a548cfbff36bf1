# SPDX-License-Identifier: Apache-2.0
"""Frames in slots: record batches and tensors that are written in place, and read in place.

A slot holds one message: metadata whose size never changes, and a body in which each buffer has a fixed place. The
writer lays frames out as :class:`BatchFrames` or :class:`TensorFrames`, which differ in what a frame may be; a
:class:`FrameReader` opens both. Invariants:

* what does not fit, or is of another type, is an error before anything is written;
* a reader copies a message's metadata before it looks at them, and opens a slot again only if they have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow import bitmap, capsules
from shmarrow.buffer import EMPTY, U1, Bytes, NDArray
from shmarrow.columns import RecordBatch, frame_in_schema, from_any
from shmarrow.errors import (
    DEFAULT_LIMITS,
    Closed,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    Unsupported,
    full_name,
)
from shmarrow.ipc.batch.decode import open_batch, read_message
from shmarrow.ipc.body import BodyPlan
from shmarrow.ipc.message.decode import message_at
from shmarrow.ipc.options import DEFAULT_OPTIONS
from shmarrow.ipc.schema.encode import encode_schema, schema_message
from shmarrow.ipc.schema.lazy import schema_in
from shmarrow.ipc.tensor.decode import DenseHeader, read_header
from shmarrow.ipc.tensor.writer import encode_tensor
from shmarrow.layout.listing import LISTING, walk
from shmarrow.layout.parts import take_apart
from shmarrow.ring.protocol import BATCH, NDARRAY, TENSOR
from shmarrow.tensor import Tensor
from shmarrow.tensor.convert import as_tensor
from shmarrow.tensor.element import element_of, element_values
from shmarrow.types import DateType, Field, Schema, storage_of
from shmarrow.types.schema import difference

_REFUSED = ("dictionary", "binary_view")
_IN_PLACE = ("primitive", "fixed_size_list", "struct")
_MOST = 1 << 46
_DAYS = np.dtype("M8[D]")
"""Days have 64 bits in numpy, 32 in a tensor."""

Copies = list[tuple[int, Bytes]]
"""Bytes, and where they go in a slot."""


class _Column(NamedTuple):
    """A column as the message describes it: lengths and null counts, and offsets and sizes of the buffers."""

    nodes: list[tuple[int, int]]
    buffers: list[tuple[int, int]]


def _below(field: Field) -> list[Field]:
    return list(walk([field], lambda each: storage_of(each.type).fields))


def _is_in_place(field: Field) -> bool:
    """Whether a column can be filled in place: all of it is numbers, whose places are known."""
    return all(storage_of(each.type).layout in _IN_PLACE for each in _below(field))


def copy_into(memory: Bytes, copies: Copies) -> None:
    """Copy bytes to their places in a slot."""
    for start, data in copies:
        memory[start : start + len(data)] = data


def frames_like(like: Any) -> BatchFrames | TensorFrames:
    """Return the layout of frames like a batch, a tensor or an ndarray."""
    batch = _as_batch(like, None)
    if batch is not None:
        return BatchFrames(batch)
    return TensorFrames(as_tensor(like), NDARRAY if isinstance(like, np.ndarray) else TENSOR)


def _as_batch(value: Any, schema: Schema | None) -> RecordBatch | None:
    """A batch, data frame or mapping as a batch, built by a schema where it has none; None for anything else."""
    if isinstance(value, (RecordBatch, np.ndarray, Tensor)):
        return value if isinstance(value, RecordBatch) else None
    if schema is not None and capsules.is_frame(value):
        return frame_in_schema(RecordBatch, value, schema)
    if capsules.is_frame(value) or isinstance(value, Mapping):
        return from_any(RecordBatch, value, None, schema, None)
    return RecordBatch._of_rows(value)


# --- writing ----------------------------------------------------------------------------------------------------


class BatchFrames:
    """Layout of a ring's record batches, for the writer.

    Parameters
    ----------
    like : RecordBatch
        A frame of the most rows, and of the most bytes in each buffer.

    Attributes
    ----------
    head : bytes
        The message that describes all frames: that of the schema.
    size : int
        Size of the largest frame in bytes.
    schema, rows : Schema and int
        What a frame has, and has at most.
    in_place : list of bool
        Whether each column can be filled in place.
    filled : list of _Column
        Columns of the most rows, without nulls.
    """

    kind = BATCH

    def __init__(self, like: RecordBatch) -> None:
        self.schema = like.schema
        self.rows = like.num_rows
        self.head = schema_message(encode_schema(like.schema, DEFAULT_OPTIONS), DEFAULT_OPTIONS)
        self.in_place = list(map(_is_in_place, like.schema))
        self.filled: list[_Column] = []
        self._rooms: list[list[tuple[int, int]]] = []
        self._plan = BodyPlan()
        for field, column in zip(like.schema, like.columns, strict=True):
            self._make_room(field, column)
        self._last: tuple[int, list[_Column], Bytes] = -1, [], EMPTY
        self._start = len(self.metadata(self.rows, self.filled))
        self.size = self._start + self._plan.size
        if self.size > _MOST:
            raise LimitExceeded(f"expected frames of at most {_MOST} bytes, found {self.size}")
        self._reader = FrameReader(BATCH, np.frombuffer(self.head, U1), "the ring")
        self._views: dict[int, RecordBatch] = {}

    def _make_room(self, field: Field, column: Any) -> None:
        """Lay out a column: each buffer has as many bytes as in ``like``."""
        filled, rooms = _Column([], []), []
        for each, part in zip(_below(field), take_apart([column], trim=True), strict=True):
            layout = storage_of(each.type).layout
            if layout in _REFUSED:
                raise Unsupported(
                    f"column {field.name!r}: a ring cannot hold {each.type}, whose size has no limit",
                    hint="cast the column: to string or binary, or to the type of the dictionary's values",
                )
            filled.nodes.append((part._length, 0))
            for spec, data in zip(LISTING[layout].buffers, part._buffers, strict=True):
                is_validity = spec.role == "validity"
                size = bitmap.bytes_for(part._length) if is_validity and each.nullable else 0
                room = self._plan.place(size if is_validity or data is None else len(data))
                filled.buffers.append((room[0], 0) if is_validity else room)
                rooms.append(room)
        self.filled.append(filled)
        self._rooms.append(rooms)

    def prepare(self, value: Any) -> Copies:
        """Check a batch, and return what goes into a slot.

        Raises
        ------
        InvalidType, InvalidData
            If its columns differ, or have values that those of the ring cannot have.
        LimitExceeded
            If it does not fit.
        """
        schema = self.schema
        batch = value if isinstance(value, RecordBatch) else _as_batch(value, schema)
        if batch is None:
            raise InvalidType(f"the ring holds record batches, found {full_name(value)}")
        if batch._schema is not schema and not batch.schema.equals(schema):
            if batch.schema.names != schema.names:
                raise InvalidType(f"the frame does not fit the ring's schema: {difference(batch.schema, schema)}")
            batch = batch.cast(schema)
        if batch.num_rows > self.rows:
            raise self._too_many(batch.num_rows)
        copies: Copies = []
        columns = [self.column(i, column, copies) for i, column in enumerate(batch.columns)]
        return [*copies, (0, self.metadata(batch.num_rows, columns))]

    def put(self, slot: int, memory: Bytes, copies: Copies) -> None:
        """Copy what :meth:`prepare` returned into a slot."""
        copy_into(memory, copies)

    def column(self, index: int, column: Any, copies: Copies) -> _Column:
        """Describe a column, and add what is to be copied.

        Raises
        ------
        LimitExceeded
            If it does not fit.
        """
        if self.in_place[index] and (whole := self._whole(index, column)) is not None:
            copies += whole
            return self.filled[index]
        nodes: list[tuple[int, int]] = []
        buffers: list[tuple[int, int]] = []
        rooms = iter(self._rooms[index])
        for part in take_apart([column], trim=True):
            null_count = part.null_count
            nodes.append((part._length, null_count))
            for spec, data in zip(LISTING[part._type.layout].buffers, part._buffers, strict=True):
                start, room = next(rooms)
                size = 0 if data is None or (spec.role == "validity" and not null_count) else len(data)
                if size > room:
                    raise LimitExceeded(
                        f"column {self.schema.names[index]!r}: a slot has {room} bytes for its {spec.role}, as many "
                        f"as in `like`, found {size}"
                    )
                buffers.append((start, size))
                if size:
                    copies.append((self._start + start, data))
        return _Column(nodes, buffers)

    def _whole(self, index: int, column: Any) -> Copies | None:
        """What is to be copied of numbers that fill their room, as most do; None if there are fewer, or nulls."""
        copies: Copies = []
        filled = self.filled[index]
        places = iter(filled.buffers)
        for part, node in zip(walk([column], _children), filled.nodes, strict=True):
            if part._offset or (part._length, part._null_count) != node:
                return None
            for data, (start, size) in zip(part._buffers, places, strict=False):  # in this order, as places go on
                if not size:
                    continue  # of validity
                if len(data) != size:
                    return None
                copies.append((self._start + start, data))
        return copies

    def metadata(self, rows: int, columns: list[_Column]) -> Bytes:
        """The metadata of a frame's message."""
        if self._last[:2] != (rows, columns):
            nodes, buffers = ([pair for column in columns for pair in column[i]] for i in range(2))
            metadata = self._plan.metadata(rows, nodes, buffers, self._plan.size)
            self._last = rows, columns, np.frombuffer(metadata, U1)
        return self._last[2]

    def fill(self, slot: int, memory: Bytes, rows: int | None) -> Slot:
        """A frame over a slot, to be filled in place."""
        if rows is None:
            rows = self.rows
        elif not 0 <= rows <= self.rows:
            raise self._too_many(rows)
        views = self._views.get(slot)
        if views is None:
            memory[: self._start] = self.metadata(self.rows, self.filled)
            views = self._views[slot] = self._reader(memory, slot)
        return Slot(self, memory, views, rows)

    def _too_many(self, rows: int) -> LimitExceeded:
        return LimitExceeded(f"a frame of the ring has at most {self.rows} rows, found {rows}")


class Slot:
    """A frame that is filled in place; returned by :meth:`Ring.write`.

    ``slot[name]`` is the column as an :class:`~shmarrow.Array` over the shared memory, of as many rows as the frame has
    and without nulls, whose ``to_numpy()`` is writable. It may hold anything at first. ``slot[name] = values`` copies
    values instead: the way for text, booleans, lists, and columns with nulls.

    Attributes
    ----------
    num_rows : int
        The number of rows of the frame.

    Notes
    -----
    Thread safety: threads may fill columns at the same time.
    """

    def __init__(self, frames: BatchFrames, memory: Bytes, views: RecordBatch, rows: int) -> None:
        self.num_rows = rows
        self._frames = frames
        self._memory = memory
        self._views = views
        self._columns: dict[int, _Column] = {}

    def __getitem__(self, name: str | int) -> Any:
        """Return a column to fill.

        Raises
        ------
        InvalidType
            If numpy cannot fill it in place.
        """
        frames = self._frames
        index = frames.schema.index_of(name)
        if not frames.in_place[index]:
            field = frames.schema.field(index)
            raise InvalidType(
                f"column {field.name!r}: {field.type} cannot be filled in place",
                hint=f"assign values: slot[{field.name!r}] = values",
            )
        column, described = self._views.column(index), frames.filled[index]
        if self.num_rows < frames.rows:
            column = column.slice(0, self.num_rows)
            described = frames.column(index, column, [])
        self._columns[index] = described
        return column

    def __setitem__(self, name: str | int, values: Any) -> None:
        """Copy values into a column.

        Raises
        ------
        LimitExceeded
            If they do not fit; nothing is written.
        InvalidType, InvalidData
            If they have another type or number of rows, or nulls where the field has none.
        """
        frames = self._frames
        index = frames.schema.index_of(name)
        one = Schema([frames.schema.field(index)])
        column = RecordBatch.from_arrays([values], schema=one).column(0)
        if len(column) != self.num_rows:
            raise InvalidArgument(f"column {name!r}: expected {self.num_rows} values, found {len(column)}")
        copies: Copies = []
        self._columns[index] = frames.column(index, column, copies)
        copy_into(self._memory, copies)

    def close(self) -> None:
        """Write the metadata, at the end of the block.

        Raises
        ------
        InvalidArgument
            If a column was neither taken nor assigned.
        """
        columns, frames = self._columns, self._frames
        if len(columns) < len(frames.filled):
            missing = [name for i, name in enumerate(frames.schema.names) if i not in columns]
            raise InvalidArgument(f"the columns {missing} were not filled, so nothing is published")
        metadata = frames.metadata(self.num_rows, [columns[i] for i in range(len(columns))])
        self._memory[: len(metadata)] = metadata

    def __repr__(self) -> str:
        return f"<Slot of {self.num_rows} rows: {', '.join(self._frames.schema.names)}>"


class TensorFrames:
    """Layout of a ring's tensors or ndarrays of one shape and element type, in row-major order, for the writer.

    Attributes are those of :class:`BatchFrames`; the message that describes all frames is the metadata of each.
    """

    def __init__(self, like: Any, kind: int) -> None:
        if not isinstance(like, Tensor):
            raise Unsupported(f"a ring holds record batches and dense tensors, found {type(like).__name__}")
        zeros = np.zeros(like.shape, like.storage.dtype)
        self.kind = kind
        self._like = Tensor(zeros, like._element, like.dim_names, like.metadata)
        self._kind_of_array = (zeros.dtype, like.shape) if element_of(zeros.dtype) == like._element else None
        payload = encode_tensor(self._like)
        self.head = payload.metadata
        self.size = payload.size
        self._arrays: dict[int, NDArray] = {}

    def prepare(self, value: Any) -> NDArray:
        """Check a tensor, and return what goes into a slot.

        Raises
        ------
        InvalidType
            If its shape or element type is not that of the ring.
        """
        like = self._like
        if value.__class__ is np.ndarray and (value.dtype, value.shape) == self._kind_of_array:
            return value
        tensor = as_tensor(value)
        if not isinstance(tensor, Tensor) or (tensor.shape, tensor._element) != (like.shape, like._element):
            raise InvalidType(f"the ring holds tensors like {like!r}, found {tensor!r}")
        return tensor.storage

    def _array(self, slot: int, memory: Bytes) -> NDArray:
        """The elements in a slot, as stored."""
        array = self._arrays.get(slot)
        if array is None:
            start = len(self.head)
            memory[:start] = np.frombuffer(self.head, U1)
            array = np.ndarray(self._like.shape, self._like.storage.dtype, memory, start)
            self._arrays[slot] = array
        return array

    def put(self, slot: int, memory: Bytes, values: NDArray) -> None:
        """Copy what :meth:`prepare` returned into a slot."""
        self._array(slot, memory)[...] = values

    def fill(self, slot: int, memory: Bytes, rows: int | None) -> Any:
        """An ndarray over a slot, to be filled in place."""
        if rows is not None:
            text = f"the frames of the ring are tensors, all of shape {self._like.shape}; found rows"
            raise InvalidArgument(text)
        return element_values(self._array(slot, memory), self._like._element)


# --- reading ----------------------------------------------------------------------------------------------------


class _Known:
    """A slot that was opened: the place of its metadata, what they were, the next frame that has these, and columns."""

    __slots__ = ("columns", "frame", "head", "metadata")

    def __init__(self, head: memoryview, metadata: bytes, frame: Any) -> None:
        self.head = head
        self.metadata = metadata
        self.frame = frame
        self.columns: dict[int, Any] = {}


class FrameReader:
    """Opens the frames in slots.

    Parameters
    ----------
    kind : int
        The kind of frames.
    head : uint8 ndarray
        The message that describes all of them; copied.
    where : str
        Describes the ring in errors.
    """

    def __init__(self, kind: int, head: Bytes, where: str) -> None:
        self._schema = schema_in(head.copy(), where) if kind == BATCH else None
        self._in_place = [] if self._schema is None else list(map(_is_in_place, self._schema))
        self._is_ndarray = kind == NDARRAY
        self._are_days = False
        self._what = where
        self._known: dict[int, _Known] = {}

    def __call__(self, memory: Bytes, slot: int) -> Any:
        """Open the frame in a slot: a tensor, an ndarray, or a batch whose columns are built and checked on access."""
        known = self._known.get(slot)
        if known is None or known.head.tobytes() != known.metadata:
            known = self._known[slot] = self._opened(memory, f"slot {slot} of {self._what}")
        frame = known.frame
        return frame.astype(_DAYS) if self._are_days else frame

    def _opened(self, memory: Bytes, where: str) -> _Known:
        size = 8 + int.from_bytes(memory[4:8].tobytes(), "little")
        data = memory[:size].copy()
        parse: Callable[..., Any] = read_header if self._schema is None else read_message
        located = message_at(data, 0, where, parse=parse, cut=True)
        if located is None or located.end > len(memory):
            raise InvalidData(f"{where}: expected a message of at most {len(memory)} bytes")
        message, body = located.message, memory[located.body : located.end]
        if self._schema is not None:
            frame: Any = open_batch(message, body, self._schema, {}, where, DEFAULT_LIMITS)
        elif isinstance(message, DenseHeader):
            frame = message.over(body)
        else:
            raise InvalidData(f"{where}: expected a Tensor message")
        if self._is_ndarray:
            self._are_days = isinstance(frame._element.type, DateType)
            frame = frame.to_numpy()
        return _Known(memory[:size].data, data.tobytes(), frame)

    def release(self, frame: Any, slot: int) -> None:
        """Make a batch refuse to build columns, as its slot is about to be overwritten; a tensor is its memory.

        The batch of the next frame in the slot is made now, while nobody waits for it. It has the columns of numbers
        without nulls, as they are the same memory.
        """
        if not isinstance(frame, RecordBatch):
            return
        known = self._known.get(slot)
        if known is not None and known.frame is frame:
            kept = known.columns
            for i, column in frame._columns.items():
                if i not in kept and self._in_place[i] and not _has_nulls(column):
                    kept[i] = column
            known.frame = RecordBatch(frame._schema, frame.num_rows, source=frame._source)
            known.frame._columns.update(kept)
        frame._source, frame._columns = _RELEASED, {}


def _has_nulls(array: Any) -> bool:
    return any(part._null_count for part in walk([array], _children))


def _children(array: Any) -> Sequence[Any]:
    children: Sequence[Any] = array._children
    return children


class _Released:
    """Takes the place of a batch's source once its slot has been released."""

    def _raise(self, *_: Any) -> Any:
        raise Closed(
            "this batch of a ring was valid until the next step of its reader",
            hint="use it before the next step, or keep a copy of what is needed",
        )

    column = columns = check = _raise

    def is_cheap(self, index: int) -> bool:
        return False


_RELEASED: Any = _Released()
