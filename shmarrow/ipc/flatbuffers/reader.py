"""The checking reader of FlatBuffers, by the declarations of :mod:`shmarrow.ipc.flatbuffers.tables`.

Rules kept here:

* nothing is followed before it is checked: every offset, vtable, string and vector lies inside the bytes given, and
  the numbers of tables and of string bytes read stay in proportion to them, however much the input shares;
* vectors of structs and of numbers come as numpy arrays over the same bytes, nothing is copied;
* what is not asked for is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits
from shmarrow.ipc.flatbuffers.tables import SCALARS, STRUCTS, TABLES, UNIONS

if TYPE_CHECKING:
    import numpy.typing as npt

_U1 = struct.Struct("<B").unpack_from
U2 = struct.Struct("<H").unpack_from
_VTABLE = struct.Struct("<HH").unpack_from
I4 = struct.Struct("<i").unpack_from
U4 = struct.Struct("<I").unpack_from


class Reader:
    """Reads tables out of one FlatBuffer and checks all that it follows.

    Parameters
    ----------
    data : uint8 ndarray
        The FlatBuffer.
    where : str
        What the bytes are, for error messages.
    limits : Limits
        Bounds on what is accepted.
    """

    __slots__ = ("_strings_left", "_tables_left", "data", "limits", "size", "view", "where")

    def __init__(self, data: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.data = data
        self.view = data.data
        self.size = len(data)
        self.where = where
        self.limits = limits
        self._tables_left = min(limits.tables, self.size // 2 + 64)
        self._strings_left = 16 * self.size + 65536

    def fail(self, what: str, position: int, needs: int) -> NoReturn:
        """Raise :class:`InvalidData` for something that does not lie inside the bytes."""
        raise InvalidData(
            f"{self.where}: {what} needs [{position}, {position + needs}) but the metadata has {self.size} bytes"
        )

    def root(self, name: str) -> TableView:
        """The root table, of the kind named."""
        if self.size < 8:
            self.fail("root table", 0, 8)
        return self.table(name, U4(self.view, 0)[0])

    def table(self, name: str, position: int) -> TableView:
        """The table of kind ``name`` at a byte position."""
        size = self.size
        view = self.view
        self.spend(1, 0)
        if position < 0 or position + 4 > size:
            self.fail(f"table {name}", position, 4)
        vtable = position - I4(view, position)[0]
        if vtable < 0 or vtable + 4 > size:
            self.fail(f"vtable of {name}", vtable, 4)
        vtable_size, table_size = _VTABLE(view, vtable)
        if vtable_size < 4 or vtable_size & 1 or vtable + vtable_size > size:
            self.fail(f"vtable of {name}", vtable, max(vtable_size, 4))
        if table_size < 4 or position + table_size > size:
            self.fail(f"table {name}", position, max(table_size, 4))
        # Entries beyond the slots known here belong to a later version of the format.
        offsets = OFFSETS[min((vtable_size - 4) >> 1, _MOST_SLOTS)](view, vtable + 4)
        return TableView(self, name, position, vtable, offsets, table_size)

    def follow(self, position: int, what: str, slot: str = "") -> int:
        """The position that an unsigned offset at ``position`` leads to, with 4 bytes to read there."""
        target: int = position + U4(self.view, position)[0]
        if target == position or target + 4 > self.size:
            self.fail(f"{what}.{slot}", target, 4)
        return target

    def string(self, position: int, what: str, slot: str = "") -> bytes:
        """The bytes of the string that the offset at ``position`` leads to."""
        start = self.follow(position, what, slot)
        length: int = U4(self.view, start)[0]
        if start + 4 + length > self.size:
            self.fail(f"{what}.{slot}", start + 4, length)
        self.spend(0, length)
        return bytes(self.view[start + 4 : start + 4 + length])

    def spend(self, tables: int, length: int) -> None:
        """Count tables and bytes of strings against what the bytes may lead to, however often they refer to them."""
        self._tables_left -= tables
        if self._tables_left < 0:
            raise LimitExceeded(
                f"{self.where}: more tables than {self.size} bytes can hold, or than Limits.tables allows"
            )
        self._strings_left -= length
        if self._strings_left < 0:
            raise LimitExceeded(f"{self.where}: its strings add up to over 16 times its own {self.size} bytes")

    def offsets(self, position: int, what: str, slot: str = "") -> tuple[int, int]:
        """The vector of offsets that the offset at ``position`` leads to: where the first is, and how many."""
        start = self.follow(position, what, slot)
        length: int = U4(self.view, start)[0]
        if start + 4 + 4 * length > self.size:
            self.fail(f"{what}.{slot}", start + 4, 4 * length)
        return start + 4, length

    def vector(self, position: int, dtype: np.dtype[Any], what: str, slot: str = "") -> npt.NDArray[Any]:
        """The vector of scalars or structs that the offset at ``position`` leads to; a view."""
        start = self.follow(position, what, slot)
        length: int = U4(self.view, start)[0]
        if start + 4 + length * dtype.itemsize > self.size:
            self.fail(f"{what}.{slot}", start + 4, length * dtype.itemsize)
        return np.ndarray(length, dtype, self.data, start + 4)


class TableView:
    """One table: ``view[name]`` reads a slot, or gives its default.

    Strings come as bytes (None where absent), scalars as int or bool, tables as :class:`TableView` or None, vectors of
    structs and scalars as ndarrays or None, vectors of tables as :class:`TableVector` (empty where absent), unions as a
    pair of the member's name and its table, None and None where absent.
    """

    __slots__ = ("_offsets", "_slots", "_vtable", "name", "position", "reader", "size")

    def __init__(
        self, reader: Reader, name: str, position: int, vtable: int, offsets: tuple[int, ...], size: int
    ) -> None:
        self.reader = reader
        self.name = name
        self.position = position
        self.size = size
        self._slots = _SLOTS[name]
        self._vtable = vtable
        self._offsets = offsets

    @property
    def lowest(self) -> int:
        """The lowest byte that the table and its vtable take."""
        return min(self.position, self._vtable)

    def raw(self) -> tuple[tuple[int, ...], bytes]:
        """What the table holds, wherever it lies: the offsets of its slots, and its bytes after the vtable's offset."""
        return self._offsets, bytes(self.reader.view[self.position + 4 : self.position + self.size])

    def at(self, number: int, needs: int) -> int:
        """The position of a slot's value, by the slot's number; 0 where the slot is absent."""
        offsets = self._offsets
        if number >= len(offsets):
            return 0
        offset = offsets[number]
        if not offset:
            return 0
        if offset < 4 or offset + needs > self.size:
            raise InvalidData(
                f"{self.reader.where}: slot {number} of {self.name} needs [{offset}, {offset + needs}) of its table, "
                f"which has {self.size} bytes"
            )
        return self.position + offset

    def place(self, slot: str) -> int:
        """The position of a slot's value, by the slot's name; 0 where the slot is absent."""
        number, needs, *_ = self._slots[slot]
        return self.at(number, needs)

    def __getitem__(self, slot: str) -> Any:
        number, needs, read, argument = self._slots[slot]
        return read(self, slot, self.at(number, needs), argument)


class TableVector(Sequence[TableView]):
    """A vector of tables; each is read when it is asked for."""

    __slots__ = ("_name", "positions", "reader")

    def __init__(self, reader: Reader, name: str, positions: npt.NDArray[np.int64]) -> None:
        self.reader = reader
        self.positions = positions
        self._name = name

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Any) -> Any:
        return self.reader.table(self._name, int(self.positions[index]))

    def __iter__(self) -> Iterator[TableView]:
        for position in self.positions.tolist():
            yield self.reader.table(self._name, position)


_Read = Callable[[TableView, str, int, Any], Any]
_NO_TABLES = np.empty(0, np.int64)


def _read_scalar(table: TableView, slot: str, position: int, argument: Any) -> Any:
    unpack, default = argument
    return unpack(table.reader.view, position)[0] if position else default


def _read_string(table: TableView, slot: str, position: int, argument: Any) -> bytes | None:
    return table.reader.string(position, table.name, slot) if position else None


def _read_table(table: TableView, slot: str, position: int, argument: Any) -> TableView | None:
    if not position:
        return None
    return table.reader.table(argument, table.reader.follow(position, table.name, slot))


def _read_struct(table: TableView, slot: str, position: int, argument: Any) -> npt.NDArray[Any] | None:
    return np.ndarray((), argument, table.reader.data, position) if position else None


def _read_vector(table: TableView, slot: str, position: int, argument: Any) -> npt.NDArray[Any] | None:
    return table.reader.vector(position, argument, table.name, slot) if position else None


def _read_tables(table: TableView, slot: str, position: int, argument: Any) -> TableVector:
    reader = table.reader
    if not position:
        return TableVector(reader, argument, _NO_TABLES)
    start, count = reader.offsets(position, table.name, slot)
    positions = np.arange(start, start + 4 * count, 4)
    positions += np.ndarray(count, WORD, reader.data, start)
    return TableVector(reader, argument, positions)


def _read_union(table: TableView, slot: str, position: int, argument: Any) -> tuple[str | int | None, TableView | None]:
    members, number = argument
    tag_at = table.at(number - 1, 1)
    tag: int = _U1(table.reader.view, tag_at)[0] if tag_at else 0
    if tag == 0:
        return None, None
    if tag > len(members):
        return tag, None
    if not position:
        raise InvalidData(f"{table.reader.where}: {table.name}.{slot} says {members[tag - 1]} but is missing")
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
"""A slot's number, the bytes that it takes in its table, what reads it, and what that has to know."""


def _compile(slots: tuple[tuple[Any, ...], ...]) -> dict[str, _Slot]:
    compiled: dict[str, _Slot] = {}
    number = 0
    for name, kind, *default in slots:
        inner = kind[1:-1] if kind[0] == "[" else None
        if kind in SCALARS:
            compiled[name] = number, SCALARS[kind].itemsize, _read_scalar, (_UNPACK[kind], default[0])
        elif kind == "string":
            compiled[name] = number, 4, _read_string, None
        elif kind.startswith("union "):
            number += 1
            compiled[name] = number, 4, _read_union, (UNIONS[kind[6:]], number)
        elif kind in STRUCTS:
            compiled[name] = number, STRUCTS[kind].itemsize, _read_struct, STRUCTS[kind]
        elif inner in SCALARS or inner in STRUCTS:
            compiled[name] = number, 4, _read_vector, SCALARS.get(inner) or STRUCTS[inner]
        elif inner in TABLES:
            compiled[name] = number, 4, _read_tables, inner
        else:
            compiled[name] = number, 4, _read_table, kind
        number += 1
    return compiled


_SLOTS = {name: _compile(slots) for name, slots in TABLES.items()}
_MOST_SLOTS = 16
OFFSETS = [struct.Struct(f"<{count}H").unpack_from for count in range(_MOST_SLOTS + 1)]
"""Reads the offsets of slots from a vtable, by their number."""
