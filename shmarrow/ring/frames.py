"""Frames in slots: record batches and tensors that are written in place, and read in place.

A slot holds one message, whose buffers have a fixed place: the next multiple of 64 after as many bytes as the buffer of
``like`` takes. Invariants:

* what does not fit, or is of another type, is an error before anything is written;
* a reader copies a message's metadata before it looks at them, and recognises those that a writer of this package made,
  which differ in numbers only: these are checked, not parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow import bitmap
from shmarrow.batch import RecordBatch
from shmarrow.buffer import U1, Bytes, padded
from shmarrow.errors import (
    DEFAULT_LIMITS,
    Closed,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    Limits,
    Unsupported,
    full_name,
)
from shmarrow.ipc.batch.decode import ArrayLoader, BatchHeader, header_of
from shmarrow.ipc.batch.encode import in_schema
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.decode import message_at, parse_metadata
from shmarrow.ipc.message.encode import MOST_ROWS, batch_message, batch_template
from shmarrow.ipc.message.framing import CONTINUATION
from shmarrow.ipc.options import DEFAULT_OPTIONS
from shmarrow.ipc.schema.cache import read_schema
from shmarrow.ipc.schema.encode import encode_schema, schema_message
from shmarrow.ipc.tensor.decode import DenseHeader, read_header
from shmarrow.ipc.tensor.encode import encode_tensor
from shmarrow.layout.listing import LISTING, BufferSpec, bytes_needed, walk
from shmarrow.layout.parts import take_apart
from shmarrow.ring.protocol import BATCH, TENSOR
from shmarrow.tensor import Tensor
from shmarrow.tensor.convert import as_tensor
from shmarrow.tensor.element import element_values
from shmarrow.types import Field, Schema
from shmarrow.types.extension import storage_of

_REFUSED = ("dictionary", "binary_view")
_IN_PLACE = ("primitive", "fixed_size_list", "struct")
_NODE, _BUFFER = STRUCTS["FieldNode"], STRUCTS["Buffer"]
_MOST = 1 << 46


class _Parts(NamedTuple):
    """A column as the message describes it: its nodes, and its buffers' places."""

    nodes: Sequence[int]
    buffers: Sequence[int]


class _Planned(NamedTuple):
    """A column to be copied: its parts, and the offsets and bytes of its buffers."""

    parts: _Parts
    copies: list[tuple[int, Bytes]]


def _fields(field: Field) -> Sequence[Field]:
    return storage_of(field.type).fields  # type: ignore[no-any-return]


class BatchFrames:
    """How a writer lays out record batches.

    Parameters
    ----------
    like : RecordBatch
        A frame of the most rows, and of the most bytes in each buffer.

    Attributes
    ----------
    head : bytes
        The Schema message.
    size : int
        Size of the largest message in bytes.
    """

    kind = BATCH

    def __init__(self, like: RecordBatch) -> None:
        self.schema = like.schema
        self.rows = like.num_rows
        self.head = schema_message(encode_schema(like.schema, DEFAULT_OPTIONS), DEFAULT_OPTIONS)
        self._read = BatchReader(np.frombuffer(self.head, U1), "the schema of the ring")
        self._places: list[list[tuple[int, int]]] = []
        self._in_place: list[bool] = []
        end = 0
        for field, column in zip(like.schema, like.columns, strict=True):
            below = list(walk([field], _fields))
            refused = next((each for each in below if storage_of(each.type).layout in _REFUSED), None)
            if refused is not None:
                raise Unsupported(
                    f"column {field.name!r}: a ring cannot hold {refused.type}, whose size has no limit",
                    hint="cast the column: to string or binary, or to the type of the dictionary's values",
                )
            self._in_place.append(may_be_filled(field))
            places: list[tuple[int, int]] = []
            for each, part in zip(below, take_apart([column], trim=True), strict=True):
                for spec, data in zip(_buffers(each), part._buffers, strict=True):
                    size = len(data) if data is not None else 0
                    if spec.role == "validity":
                        size = bitmap.bytes_for(part._length) if each.nullable else 0
                    places.append((end, size))
                    end += padded(size)
            self._places.append(places)
        self._body = end
        self._start = 0
        self._full = [self.empty(i, self.rows) for i in range(len(like.schema))]
        self._start = len(self._message(self.rows, self._full))
        self.size = self._start + end
        if self.size > _MOST:
            raise LimitExceeded(f"expected frames of at most {_MOST} bytes, found {self.size}")
        self._slots: dict[int, Slot] = {}
        self._last: tuple[Any, bytes] = ((-1, []), b"")

    def prepare(self, value: Any) -> Callable[[int, Bytes], None]:
        """Check a batch, and return the function that copies it into a slot.

        Raises
        ------
        InvalidType
            If its columns differ.
        LimitExceeded
            If it does not fit.
        """
        given = value if isinstance(value, RecordBatch) else RecordBatch._of_rows(value)
        if given is None:
            raise InvalidType(f"the ring holds record batches, found {full_name(value)}")
        batch = in_schema(given, self.schema, adapt=True)
        if batch.num_rows > self.rows:
            raise LimitExceeded(f"a frame of the ring has at most {self.rows} rows, found {batch.num_rows}")
        planned = [self.plan(i, column) for i, column in enumerate(batch.columns)]

        def copy(number: int, memory: Bytes) -> None:
            for each in planned:
                self.copy(memory, each)
            self.finish(memory, batch.num_rows, [each.parts for each in planned])

        return copy

    def plan(self, index: int, column: Any) -> _Planned:
        """Find where a column goes.

        Raises
        ------
        LimitExceeded
            If it does not fit.
        """
        nodes: list[int] = []
        buffers: list[int] = []
        copies: list[tuple[int, Bytes]] = []
        places = iter(self._places[index])
        for part in take_apart([column], trim=True):
            null_count = part.null_count
            nodes += (part._length, null_count)
            for spec, data in zip(LISTING[part._type.layout].buffers, part._buffers, strict=True):
                start, room = next(places)
                size = 0 if data is None or (spec.role == "validity" and not null_count) else len(data)
                if size > room:
                    raise LimitExceeded(
                        f"column {self.schema.names[index]!r}: a slot has {room} bytes for its {spec.role}, as many "
                        f"as in `like`, found {size}"
                    )
                buffers += (start, size)
                if size:
                    copies.append((start, data))
        return _Planned(_Parts(nodes, buffers), copies)

    def copy(self, memory: Bytes, planned: _Planned) -> None:
        """Copy the buffers of a column to a slot."""
        for start, data in planned.copies:
            start += self._start
            memory[start : start + len(data)] = data

    def empty(self, index: int, rows: int) -> _Parts:
        """The parts of a column that is filled in place: full, and without nulls."""
        nodes: list[int] = []
        buffers: list[int] = []
        places = iter(self._places[index])

        def add(field: Field, length: int) -> None:
            type = storage_of(field.type)
            nodes.extend((length, 0))
            for spec in _buffers(field):
                needed = 0 if spec.role == "validity" else bytes_needed(spec, type, length)
                buffers.extend((next(places)[0], needed))
            for child in type.fields:
                add(child, length * getattr(type, "list_size", 1))

        add(self.schema.field(index), rows if self._in_place[index] else 0)
        return _Parts(nodes, buffers)

    def fill(self, number: int, memory: Bytes, rows: int | None) -> Slot:
        """A slot to be filled in place."""
        if rows is None:
            known = self._slots.get(number)
            if known is None:
                known = self._slots[number] = Slot(self, number, memory, self.rows)
            known.clear()
            return known
        if not 0 <= rows <= self.rows:
            raise LimitExceeded(f"a frame of the ring has at most {self.rows} rows, found {rows}")
        return Slot(self, number, memory, rows)

    def parts_in_place(self, rows: int) -> list[_Parts]:
        """The parts of all columns that are filled in place."""
        return self._full if rows == self.rows else [self.empty(i, rows) for i in range(len(self.schema))]

    def views(self, number: int, memory: Bytes, rows: int, parts: list[_Parts]) -> RecordBatch:
        """The columns that can be filled in place, over a slot."""
        self.finish(memory, rows, parts)
        return self._read(memory, "a slot", number)

    def may_fill(self, index: int) -> bool:
        """Whether a column can be filled in place."""
        return self._in_place[index]

    def finish(self, memory: Bytes, rows: int, parts: list[_Parts]) -> None:
        """Write the metadata of a slot's message."""
        if self._last[0] != (rows, parts):
            self._last = (rows, parts), self._message(rows, parts)
        memory[: self._start] = np.frombuffer(self._last[1], U1)

    def _message(self, rows: int, parts: list[_Parts]) -> bytes:
        values = {
            "length": rows,
            "nodes": np.array([number for each in parts for number in each.nodes], "<i8").view(_NODE),
            "buffers": np.array([number for each in parts for number in each.buffers], "<i8").view(_BUFFER),
        }
        made = batch_message(values, self._body, None, DEFAULT_OPTIONS)
        gap = self._start - len(made)  # numbers that are 0 may be omitted from the metadata
        return made if gap <= 0 else made[:4] + (self._start - 8).to_bytes(4, "little") + made[8:] + bytes(gap)


def may_be_filled(field: Field) -> bool:
    """Whether a column can be filled in place: all of it is numbers, whose places are known."""
    return all(storage_of(each.type).layout in _IN_PLACE for each in walk([field], _fields))


def _buffers(field: Field) -> tuple[BufferSpec, ...]:
    return LISTING[storage_of(field.type).layout].buffers


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

    def __init__(self, frames: BatchFrames, number: int, memory: Bytes, rows: int) -> None:
        self.num_rows = rows
        self._frames = frames
        self._memory = memory
        self._in_place = frames.parts_in_place(rows)
        self._views = frames.views(number, memory, rows, self._in_place)
        self._parts: dict[int, _Parts] = {}
        self._assigned = False

    def clear(self) -> None:
        """Begin the next frame."""
        self._parts.clear()
        if self._assigned:
            self._assigned = False
            self._frames.finish(self._memory, self.num_rows, self._in_place)

    def __getitem__(self, name: str | int) -> Any:
        """Return a column to fill.

        Raises
        ------
        InvalidType
            If numpy cannot fill it in place.
        """
        index = self._frames.schema.index_of(name)
        if not self._frames.may_fill(index):
            field = self._frames.schema.field(index)
            raise InvalidType(
                f"column {field.name!r}: {field.type} cannot be filled in place",
                hint=f"assign values: slot[{field.name!r}] = values",
            )
        self._parts[index] = self._in_place[index]
        return self._views.column(index)

    def __setitem__(self, name: str | int, values: Any) -> None:
        """Copy values into a column.

        Raises
        ------
        LimitExceeded
            If they do not fit; nothing is written.
        InvalidType, InvalidData
            If they have another type or number of rows, or nulls where the field has none.
        """
        index = self._frames.schema.index_of(name)
        one = Schema([self._frames.schema.field(index)])
        column = RecordBatch.from_arrays([values], schema=one).column(0)
        if len(column) != self.num_rows:
            raise InvalidArgument(f"column {name!r}: expected {self.num_rows} values, found {len(column)}")
        planned = self._frames.plan(index, column)
        self._frames.copy(self._memory, planned)
        self._parts[index] = planned.parts
        self._assigned = True

    def close(self) -> None:
        """Write the metadata, at the end of the block.

        Raises
        ------
        InvalidArgument
            If a column was neither taken nor assigned.
        """
        parts = self._parts
        if len(parts) < len(self._in_place):
            missing = [name for i, name in enumerate(self._frames.schema.names) if i not in parts]
            raise InvalidArgument(f"the columns {missing} were not filled, so nothing is published")
        if self._assigned:
            self._frames.finish(self._memory, self.num_rows, [parts[i] for i in range(len(parts))])

    def __repr__(self) -> str:
        return f"<Slot of {self.num_rows} rows: {', '.join(self._frames.schema.names)}>"


class _Header(NamedTuple):
    """Checked metadata of a message, the size of its body, and the bytes that say so."""

    found: Any
    body_length: int
    data: bytes

    @property
    def framed(self) -> bytes:
        """The bytes with the prefix that this package writes."""
        return CONTINUATION + len(self.data).to_bytes(4, "little") + self.data


class _Known(NamedTuple):
    """What is known of a slot: the bytes of its message's metadata, and what was made of them."""

    data: bytes
    loader: ArrayLoader
    columns: dict[int, Any]


def _has_nulls(array: Any) -> bool:
    return any(part._null_count for part in walk([array], lambda each: each._children))


class BatchReader:
    """Reads record batches from slots.

    Parameters
    ----------
    head : uint8 ndarray
        The Schema message; copied.
    where : str
        Describes it in errors.
    limits : Limits
        Bounds on what is accepted.
    """

    def __init__(self, head: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> None:
        found = message_at(head.copy(), 0, where, limits)
        if found is None or found.message.kind != "Schema":
            raise InvalidData(f"{where}: expected a Schema message")
        header = found.message.header
        self.schema = read_schema(header.reader.data, header.position, where, limits)
        self._source: Any = self.schema._source
        self._limits = limits
        self._known: dict[int, _Known] = {}
        self._in_place = [may_be_filled(field) for field in self.schema]
        fields = list(walk(self.schema, _fields))
        sizes = len(fields), sum([len(_buffers(each)) for each in fields]), -1
        self._template = batch_template("RecordBatch", sizes, None, "V5") if max(sizes) <= MOST_ROWS else None
        if self._template is not None:
            zeros = [0, 0, bytes(16 * sizes[0]), bytes(16 * sizes[1])]
            self._table = parse_metadata(np.frombuffer(self._template.filled(zeros), U1), where).header

    def __call__(self, memory: Bytes, where: str, slot: int) -> RecordBatch:
        """Open the batch in a slot; columns are built and checked on access."""
        known = self._known.get(slot)
        if known is None or memory[: len(known.data)].tobytes() != known.data:
            known = self._known[slot] = self._open(memory, where)
        made = RecordBatch(self.schema, known.loader.length, source=known.loader)
        made._columns.update(known.columns)
        return made

    def _open(self, memory: Bytes, where: str) -> _Known:
        found = message_at(memory, 0, where, self._limits, parse=self._parse)
        if found is None:
            raise InvalidData(f"{where}: expected a RecordBatch message")
        header = found.message
        loader = ArrayLoader(header.found, memory[found.body : found.end], self._source, {}, where, self._limits)
        return _Known(header.framed, loader, {})

    def release(self, batch: RecordBatch, slot: int) -> None:
        """Make a batch refuse to build columns, as its slot is about to be overwritten.

        Columns of numbers without nulls are kept for the next batch in the slot: they are the same memory.
        """
        known = self._known.get(slot)
        columns = batch._columns
        if known is not None and batch._source is known.loader and len(columns) > len(known.columns):
            known.columns.update({i: each for i, each in columns.items() if self._in_place[i] and not _has_nulls(each)})
        batch._source = _RELEASED
        batch._columns = {}

    def _parse(self, metadata: Bytes, where: str, limits: Limits) -> _Header:
        data = metadata.tobytes()
        values = None if self._template is None else self._template.values(data)
        if values is not None and values[0] >= 0 <= values[1]:
            body_length, length, nodes, buffers = values
            return _Header(BatchHeader(self._table, 4, length, _pairs(nodes), _pairs(buffers)), body_length, data)
        message = parse_metadata(np.frombuffer(data, U1), where, limits)
        if message.kind != "RecordBatch":
            raise InvalidData(f"{where}: expected a RecordBatch message, found {message.kind}")
        header = header_of(message.header, message.version, where)
        return _Header(header, message.body_length, data)


def _pairs(data: bytes) -> Any:
    return np.frombuffer(data, "<i8").reshape(-1, 2)


class TensorFrames:
    """How a writer lays out tensors of one shape and element type; attributes are those of :class:`BatchFrames`."""

    kind = TENSOR

    def __init__(self, like: Any) -> None:
        if not isinstance(like, Tensor):
            raise Unsupported(f"a ring holds record batches and dense tensors, found {type(like).__name__}")
        payload = encode_tensor(like)
        self.head = payload.metadata
        self.size = payload.size
        self._like = like
        self._slots: dict[int, Any] = {}

    def prepare(self, value: Any) -> Callable[[int, Bytes], None]:
        """Check a tensor, and return the function that copies it into a slot.

        Raises
        ------
        InvalidType
            If its shape or element type is not that of the ring.
        """
        found = as_tensor(value)
        like = self._like
        if not isinstance(found, Tensor) or (found.shape, found._element) != (like.shape, like._element):
            raise InvalidType(f"the ring holds tensors like {like!r}, found {found!r}")
        storage = found.storage
        return lambda number, memory: np.copyto(self._over(number, memory), storage)

    def fill(self, number: int, memory: Bytes, rows: int | None) -> Any:
        """An ndarray over a slot, to be filled in place."""
        if rows is not None:
            raise InvalidArgument(f"the frames of the ring are tensors, all of shape {self._like.shape}; found rows")
        return element_values(self._over(number, memory), self._like._element)

    def _over(self, number: int, memory: Bytes) -> Any:
        """The elements in a slot, whose metadata are written when it is first used."""
        known = self._slots.get(number)
        if known is None:
            start = len(self.head)
            memory[:start] = np.frombuffer(self.head, U1)
            header = read_header(memory[8:start], "a slot", DEFAULT_LIMITS)
            assert isinstance(header, DenseHeader)
            known = np.ndarray(header.shape, header.dtype, memory[start:], 0, header.strides)
            self._slots[number] = known
        return known


class TensorReader:
    """Reads tensors from slots."""

    def __init__(self, head: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._known: dict[int, tuple[bytes, Tensor]] = {}

    def __call__(self, memory: Bytes, where: str, slot: int) -> Tensor:
        """Open the tensor in a slot."""
        known = self._known.get(slot)
        if known is None or memory[: len(known[0])].tobytes() != known[0]:
            found = message_at(memory, 0, where, self._limits, parse=_tensor_header)
            if found is None:
                raise InvalidData(f"{where}: expected a Tensor message")
            header = found.message
            known = self._known[slot] = header.framed, header.found.over(memory[found.body : found.end])
        return known[1]

    def release(self, tensor: Tensor, slot: int) -> None:
        """Do nothing: a tensor is its memory."""


def _tensor_header(metadata: Bytes, where: str, limits: Limits) -> _Header:
    data = metadata.tobytes()
    header = read_header(np.frombuffer(data, U1), where, limits)
    if not isinstance(header, DenseHeader):
        raise InvalidData(f"{where}: expected a Tensor message")
    return _Header(header, header.body_length, data)


class _Released:
    """Takes the place of a batch's source once its slot has been released."""

    def _raise(self, *_: Any) -> Any:
        raise Closed(
            "this batch of a ring was valid until the next step of its reader",
            hint="use it before the next step, or keep a copy of what is needed",
        )

    column = columns = at_hand = check = _raise


_RELEASED: Any = _Released()


def frames_like(like: Any) -> BatchFrames | TensorFrames:
    """How a writer lays out frames like a batch, or a tensor."""
    if isinstance(like, RecordBatch):
        return BatchFrames(like)
    batch = None if isinstance(like, (np.ndarray, Tensor)) else RecordBatch._of_rows(like)
    return TensorFrames(as_tensor(like)) if batch is None else BatchFrames(batch)


READERS: dict[int, Any] = {BATCH: BatchReader, TENSOR: TensorReader}
"""By kind of frames, what reads them."""
