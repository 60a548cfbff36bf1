# SPDX-License-Identifier: Apache-2.0
"""Validating FlatBuffers reader, driven by the declarations in :mod:`shmarrow.ipc.flatbuffers.tables`.

Invariants:

* everything is bounds-checked before use: vtables, slots, offsets, strings and vectors;
* a :class:`FlatBuffer` is immutable and may be shared and cached. A :class:`Reader` is one operation on it, such as
  reading a message or a field, with a budget: the tables and string bytes read are proportional to the size of the
  bytes, even if many offsets refer to the same table;
* vectors of structs and scalars are zero-copy ndarrays;
* slots are read on access only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from shmarrow.buffer import Bytes, DType, NDArray
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits
from shmarrow.ipc.flatbuffers.tables import SCALARS, SLOTS, STRUCTS, TABLES, UNIONS, TableSlot

_U1 = struct.Struct("<B").unpack_from
_U2 = struct.Struct("<H").unpack_from
I4 = struct.Struct("<i").unpack_from
U4 = struct.Struct("<I").unpack_from
_MOST_SLOTS = 16
_OFFSETS = [struct.Struct(f"<{count}H").unpack_from for count in range(_MOST_SLOTS + 1)]

Offsets = tuple[int, ...]
"""Offset of each slot in its table; 0 if absent."""


class FlatBuffer:
    """The bytes of one FlatBuffer, with checked access.

    Parameters
    ----------
    data : uint8 ndarray
        The FlatBuffer.
    where : str
        Describes the bytes in error messages.
    limits : Limits
        Bounds on what is accepted.

    Notes
    -----
    Thread safety: immutable.
    """

    __slots__ = ("data", "limits", "size", "view", "where")

    def __init__(self, data: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.data = data
        self.view = data.data
        self.size = len(data)
        self.where = where
        self.limits = limits

    def operation(self) -> Reader:
        """Start a new operation on the bytes, with its own budget."""
        return Reader(self.data, self.where, self.limits)

    def fail(self, what: str, position: int, needs: int) -> NoReturn:
        """Raise :class:`InvalidData` for an item out of bounds."""
        raise InvalidData(
            f"{self.where}: {what} needs [{position}, {position + needs}) but the metadata has {self.size} bytes"
        )

    def table_at(self, name: str, position: int) -> tuple[int, Offsets]:
        """The position of the vtable of the table at ``position``, and the offsets of the table's slots.

        The table size in the vtable is ignored: the Python builder up to version 25.9 shares vtables between tables of
        different sizes. Instead, :meth:`slot` checks each slot against the end of the bytes.
        """
        view, size = self.view, self.size
        if position < 0 or position + 4 > size:
            self.fail(f"table {name}", position, 4)
        vtable: int = position - I4(view, position)[0]
        if vtable < 0 or vtable + 4 > size:
            self.fail(f"vtable of {name}", vtable, 4)
        length = _U2(view, vtable)[0]
        if length < 4 or length & 1 or vtable + length > size:
            self.fail(f"vtable of {name}", vtable, max(length, 4))
        # Further entries belong to later versions of the format.
        count = (length - 4) >> 1
        return vtable, _OFFSETS[count if count < _MOST_SLOTS else _MOST_SLOTS](view, vtable + 4)

    def slot(self, name: str, position: int, offsets: Offsets, number: int, needs: int) -> int:
        """The position of the value, of ``needs`` bytes, in a table's slot ``number``; 0 if absent."""
        offset = offsets[number] if number < len(offsets) else 0
        if not offset:
            return 0
        if offset < 4 or position + offset + needs > self.size:
            raise InvalidData(
                f"{self.where}: slot {number} of {name} needs [{position + offset}, {position + offset + needs}), "
                f"{offset} bytes into its table, but the metadata has {self.size} bytes"
            )
        return position + offset

    def follow(self, position: int, what: str, slot: str = "") -> int:
        """The target of the unsigned offset at ``position``, with at least 4 bytes in bounds there."""
        target: int = position + U4(self.view, position)[0]
        if target == position or target + 4 > self.size:
            self.fail(f"{what}.{slot}", target, 4)
        return target

    def vector_at(self, position: int, itemsize: int, what: str, slot: str = "") -> tuple[int, int]:
        """The vector referred to by the offset at ``position``: its first item's position, and its length."""
        start = self.follow(position, what, slot)
        length: int = U4(self.view, start)[0]
        if start + 4 + length * itemsize > self.size:
            self.fail(f"{what}.{slot}", start + 4, length * itemsize)
        return start + 4, length

    def vector(self, position: int, dtype: DType, what: str, slot: str = "") -> NDArray:
        """The vector of scalars or structs referred to by the offset at ``position``; a view."""
        start, length = self.vector_at(position, dtype.itemsize, what, slot)
        return np.ndarray(length, dtype, self.data, start)


class Reader(FlatBuffer):
    """One operation on a FlatBuffer: reads tables and strings within a budget.

    Notes
    -----
    Thread safety: none; used by one thread and dropped after the operation.
    """

    __slots__ = ("_strings_left", "_tables_left")

    def __init__(self, data: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(data, where, limits)
        size = self.size
        most = size // 2 + 64
        self._tables_left = limits.tables if limits.tables < most else most
        self._strings_left = 16 * size + 65536

    @property
    def tables_left(self) -> int:
        """The number of tables that may still be read."""
        return self._tables_left

    def root(self, name: str) -> TableView:
        """Return the root table, of the named kind."""
        if self.size < 8:
            self.fail("root table", 0, 8)
        return self.table(name, U4(self.view, 0)[0])

    def table(self, name: str, position: int) -> TableView:
        """Return the table of kind ``name`` at a byte position."""
        self._tables_left -= 1
        if self._tables_left < 0:
            self.spend(0, 0)
        vtable, offsets = self.table_at(name, position)
        return TableView(self, name, position, vtable, offsets)

    def spend(self, tables: int, length: int) -> None:
        """Count tables and bytes of strings against the budget."""
        self._tables_left -= tables
        if self._tables_left < 0:
            raise LimitExceeded(
                f"{self.where}: more tables than {self.size} bytes can hold, or than Limits.tables allows"
            )
        self._strings_left -= length
        if self._strings_left < 0:
            raise LimitExceeded(f"{self.where}: its strings add up to over 16 times its own {self.size} bytes")

    def string(self, position: int, what: str, slot: str = "") -> bytes:
        """The bytes of the string referred to by the offset at ``position``."""
        start, length = self.vector_at(position, 1, what, slot)
        self.spend(0, length)
        return bytes(self.view[start : start + length])


class TracingReader(Reader):
    """A reader that records which bytes it reads, for :class:`~shmarrow.ipc.message.decode.TemplateCache`.

    Attributes
    ----------
    reads : set of (start, end)
        The slots, vtables, vectors and strings that were read.
    """

    __slots__ = ("reads",)

    def __init__(self, data: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(data, where, limits)
        self.reads: set[tuple[int, int]] = set()

    def operation(self) -> Reader:
        tracer = TracingReader(self.data, self.where, self.limits)
        tracer.reads = self.reads
        return tracer

    def table_at(self, name: str, position: int) -> tuple[int, Offsets]:
        vtable, offsets = super().table_at(name, position)
        self.reads |= {(position, position + 4), (vtable, vtable + _U2(self.view, vtable)[0])}
        return vtable, offsets

    def slot(self, name: str, position: int, offsets: Offsets, number: int, needs: int) -> int:
        place = super().slot(name, position, offsets, number, needs)
        if place:
            self.reads.add((place, place + needs))
        return place

    def vector_at(self, position: int, itemsize: int, what: str, slot: str = "") -> tuple[int, int]:
        start, length = super().vector_at(position, itemsize, what, slot)
        self.reads |= {(start - 4, start), (start, start + length * itemsize)}
        return start, length


class TableView:
    """One table: ``view[name]`` reads a slot, or returns its default.

    Strings are returned as bytes (None if absent), scalars as int or bool, tables as :class:`TableView` or None,
    vectors of structs and scalars as ndarrays or None, vectors of tables as :class:`TableVector` (empty if absent),
    unions as a pair of member name and table (both None if absent).
    """

    __slots__ = ("_slots", "name", "offsets", "position", "reader", "vtable")

    def __init__(self, reader: Reader, name: str, position: int, vtable: int, offsets: Offsets) -> None:
        self.reader = reader
        self.name = name
        self.position = position
        self.vtable = vtable
        self.offsets = offsets
        self._slots = _SLOTS[name]

    @property
    def lowest(self) -> int:
        """Start of the table or its vtable, whichever is lower."""
        return min(self.position, self.vtable)

    def content(self) -> bytes:
        """The bytes of the table from its first slot to its last."""
        end = self.position + extent(self.name, self.offsets)
        return bytes(self.reader.view[self.position + 4 : end])

    def offset_of(self, slot: str) -> int:
        """The position of a slot's value, by name; 0 if absent."""
        number, needs, *_ = self._slots[slot]
        return self.reader.slot(self.name, self.position, self.offsets, number, needs)

    def vector_of(self, slot: str, itemsize: int) -> tuple[int, int]:
        """Where the vector in a slot starts, and its length; (0, 0) if absent."""
        place = self.offset_of(slot)
        return self.reader.vector_at(place, itemsize, self.name, slot) if place else (0, 0)

    def __getitem__(self, slot: str) -> Any:
        number, needs, read, argument = self._slots[slot]
        offsets, position = self.offsets, 0
        if number < len(offsets) and offsets[number]:
            position = self.reader.slot(self.name, self.position, offsets, number, needs)
        return read(self, slot, position, argument)


def extent(name: str, offsets: Offsets) -> int:
    """Number of bytes that the known slots of a table span."""
    ends = [offset + needs for offset, needs in zip(offsets, _NEEDS[name], strict=False) if offset]
    return max(ends, default=4)


class TableVector(Sequence[TableView]):
    """A vector of tables, read on access."""

    __slots__ = ("_first", "_length", "_name", "reader")

    def __init__(self, reader: Reader, name: str, first: int, length: int) -> None:
        self.reader = reader
        self._name = name
        self._first = first
        self._length = length

    def within(self, reader: Reader) -> TableVector:
        """The same tables, as part of another operation."""
        return TableVector(reader, self._name, self._first, self._length)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._table(self._first + 4 * range(self._length)[index])

    def __iter__(self) -> Iterator[TableView]:
        return map(self._table, range(self._first, self._first + 4 * self._length, 4))

    def _table(self, slot: int) -> TableView:
        return self.reader.table(self._name, slot + U4(self.reader.view, slot)[0])


_Read = Callable[[TableView, str, int, Any], Any]


def _read_scalar(table: TableView, slot: str, position: int, argument: Any) -> Any:
    unpack, default = argument
    return unpack(table.reader.view, position)[0] if position else default


def _read_string(table: TableView, slot: str, position: int, argument: Any) -> bytes | None:
    return table.reader.string(position, table.name, slot) if position else None


def _read_table(table: TableView, slot: str, position: int, argument: Any) -> TableView | None:
    if not position:
        return None
    return table.reader.table(argument, table.reader.follow(position, table.name, slot))


def _read_struct(table: TableView, slot: str, position: int, argument: Any) -> NDArray | None:
    return np.ndarray((), argument, table.reader.data, position) if position else None


def _read_vector(table: TableView, slot: str, position: int, argument: Any) -> NDArray | None:
    return table.reader.vector(position, argument, table.name, slot) if position else None


def _read_tables(table: TableView, slot: str, position: int, argument: Any) -> TableVector:
    reader = table.reader
    first, count = reader.vector_at(position, 4, table.name, slot) if position else (0, 0)
    return TableVector(reader, argument, first, count)


def _read_union(table: TableView, slot: str, position: int, argument: Any) -> tuple[str | int | None, TableView | None]:
    members, number = argument
    tag_at = table.reader.slot(table.name, table.position, table.offsets, number - 1, 1)
    tag: int = _U1(table.reader.view, tag_at)[0] if tag_at else 0
    if tag == 0:
        return None, None
    if tag > len(members):
        return tag, None
    if not position:
        raise InvalidData(f"{table.reader.where}: {table.name}.{slot} is missing, but its tag is {members[tag - 1]}")
    name = members[tag - 1]
    return name, table.reader.table(name, table.reader.follow(position, table.name, slot))


WORD = np.dtype("<u4")
_UNPACK: dict[str, Callable[..., Any]] = {
    name: struct.Struct("<?" if name == "bool" else "<" + dtype.char).unpack_from
    for name, dtype in SCALARS.items()
    if name != "i8"
}
_UNPACK["i8"] = struct.Struct("<q").unpack_from
_UNPACK["i4"] = I4


_Slot = tuple[int, int, _Read, Any]
"""A slot's number, its size in the table, its reader function, and that function's argument."""


def _compile(slots: tuple[TableSlot, ...]) -> dict[str, _Slot]:
    return {slot.name: (slot.number, slot.size, *_how(slot)) for slot in slots}


def _how(slot: TableSlot) -> tuple[_Read, Any]:
    kind = slot.kind
    inner = kind[1:-1] if kind[0] == "[" else None
    if kind in SCALARS:
        return _read_scalar, (_UNPACK[kind], slot.default)
    if kind == "string":
        return _read_string, None
    if kind.startswith("union "):
        return _read_union, (UNIONS[kind[6:]], slot.number)
    if kind in STRUCTS:
        return _read_struct, STRUCTS[kind]
    if inner in SCALARS or inner in STRUCTS:
        return _read_vector, SCALARS.get(inner) or STRUCTS[inner]
    return (_read_tables, inner) if inner in TABLES else (_read_table, kind)


_SLOTS = {name: _compile(slots) for name, slots in SLOTS.items()}
_NEEDS = {name: [slot.size for slot in slots] for name, slots in SLOTS.items()}
