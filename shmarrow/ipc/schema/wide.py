"""Vectorized reading of the Field tables of wide schemas.

Invariants:

* every position is checked, exactly as read, before use, as other processes may write to the mapping;
* an absent slot has position 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.buffer import Indices, NDArray
from shmarrow.errors import InvalidData, LimitExceeded
from shmarrow.ipc.flatbuffers.reader import U4, WORD, FlatBuffer, Offsets, extent
from shmarrow.ipc.schema.types import SELF_CONTAINED
from shmarrow.layout.memory import ranges

NAME, NULLABLE, TYPE_TAG, TYPE, DICTIONARY, CHILDREN, METADATA = range(7)
"""Numbers of the slots of a Field table."""

_MOST_VTABLES = 4096
_MOST_TYPE = 64


class FieldTables:
    """The Field tables of a vector.

    Parameters
    ----------
    buffer : FlatBuffer
        The bytes.
    first : int
        Position of the first offset; all offsets are within the bytes.
    count : int
        Number of tables.

    Attributes
    ----------
    shared_offsets : tuple of int or None
        The slot offsets of every table, if all are known to share a vtable and be in bounds.
    found_positions : int64 ndarray or None
        Indices of all tables, once computed.
    """

    __slots__ = ("buffer", "count", "first", "found_positions", "shared_offsets")

    def __init__(self, buffer: FlatBuffer, first: int, count: int) -> None:
        self.buffer = buffer
        self.first = first
        self.count = count
        self.found_positions: Indices | None = None
        self.shared_offsets: Offsets | None = None

    def over(self, buffer: FlatBuffer) -> FieldTables:
        """The same tables in a copy of the bytes."""
        made = FieldTables(buffer, self.first, self.count)
        made.found_positions = self.found_positions
        return made

    @property
    def positions(self) -> Indices:
        """Indices of the Field tables."""
        if self.found_positions is None:
            self.found_positions = self.positions_of(0, self.count)
        return self.found_positions

    @property
    def words(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The bytes as 32-bit numbers."""
        buffer = self.buffer
        return buffer.data[: buffer.size & ~3].view(WORD)

    def position_of(self, index: int) -> int:
        """Position of a column's Field table."""
        slot = self.first + 4 * index
        return slot + U4(self.buffer.view, slot)[0]

    def positions_of(self, start: int, end: int) -> Indices:
        """Indices of the Field tables of columns ``start`` to ``end``."""
        at = self.first + 4 * start
        found = np.arange(at, self.first + 4 * end, 4)
        found += np.ndarray(end - start, WORD, self.buffer.data, at)
        return found

    def slots(self, positions: Indices, numbers: tuple[int, ...]) -> list[Indices | None]:
        """For each slot, the positions of its values in the Field tables (0 if absent); None if absent in all."""
        buffer = self.buffer
        shared = self.shared_offsets
        if shared is not None and positions is self.found_positions:
            return [_shifted(positions, shared, number) for number in numbers]
        high = int(positions.max())
        if high + 4 > buffer.size:
            buffer.fail("a Field table", high, 4)
        # A vtable may be before or after its table, so its offset is signed.
        vtables = positions - self.u4(positions).view("<i4")
        first = int(vtables[0])
        if (vtables == first).all():
            offsets = self._offsets_of(positions, high)
            if positions is self.found_positions:
                self.shared_offsets = offsets
            return [_shifted(positions, offsets, number) for number in numbers]
        kinds, inverse = np.unique(vtables, return_inverse=True)
        if len(kinds) > _MOST_VTABLES:
            raise LimitExceeded(f"{buffer.where}: {len(kinds)} kinds of Field tables")
        results = [np.zeros(len(positions), np.int64) for _ in numbers]
        for kind in range(len(kinds)):
            chosen = np.flatnonzero(inverse == kind)
            mine = positions[chosen]
            offsets = self._offsets_of(mine, int(mine.max()))
            for result, number in zip(results, numbers, strict=True):
                places = _shifted(mine, offsets, number)
                if places is not None:
                    result[chosen] = places
        return list(results)

    def _offsets_of(self, positions: Indices, high: int) -> Offsets:
        """The slot offsets of several Field tables that share a vtable; checks that all are in bounds."""
        offsets = self.buffer.table_at("Field", int(positions[0]))[1]
        if high + extent("Field", offsets) > self.buffer.size:
            self.buffer.fail("a Field table", high, extent("Field", offsets))
        return offsets

    def u4(self, positions: Indices) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The 32-bit numbers at positions, which must be in bounds."""
        if not int(np.bitwise_or.reduce(positions)) & 3:
            return self.words.take(positions >> 2)
        data = self.buffer.data
        return np.ascontiguousarray(data[positions[:, None] + np.arange(4)]).view("<u4")[:, 0]

    def follow(self, slots: Indices, what: str) -> tuple[Indices, Indices]:
        """The targets of offsets and the 32-bit lengths there; both 0 if the slot is absent."""
        buffer = self.buffer
        targets = slots + self.u4(slots)
        absent = None if int(slots.min()) else slots == 0
        if absent is not None:
            targets[absent] = 0
        high = int(targets.max())
        if high + 4 > buffer.size:
            buffer.fail(what, high, 4)
        sizes = self.u4(targets).astype(np.int64)
        if absent is not None:
            sizes[absent] = 0
        return targets, sizes

    def below(self, slots: Indices) -> tuple[Indices, Indices]:
        """The positions of the fields' children, and their counts."""
        buffer = self.buffer
        targets, sizes = self.follow(slots, "the children of a field")
        high = int((targets + 4 + 4 * sizes).max())
        if high > buffer.size:
            buffer.fail("the children of a field", high, 0)
        if int(sizes.sum()) > buffer.size:
            raise LimitExceeded(f"{buffer.where}: more fields than its {buffer.size} bytes can hold")
        places: Any = np.repeat(targets + 4, sizes) + 4 * ranges(np.zeros(len(sizes), np.int64), sizes)
        return (places + self.u4(places) if len(places) else places), sizes

    def name_places(self) -> tuple[Indices, Indices]:
        """Start and size of each column's name, in bounds; absent names have size 0."""
        buffer = self.buffer
        positions = self.positions
        if not len(positions):
            return positions, positions
        (slots,) = self.slots(positions, (NAME,))
        if slots is None:
            slots = np.zeros(len(positions), np.int64)
        targets, sizes = self.follow(slots, "a field's name")
        targets += 4
        high = int((targets + sizes).max())
        if high > buffer.size:
            buffer.fail("a field's name", high, 0)
        if int(sizes.sum()) > 16 * buffer.size + 65536:
            raise LimitExceeded(f"{buffer.where}: its names add up to over 16 times its {buffer.size} bytes")
        return targets, sizes

    def names(self) -> list[bytes]:
        """The name of each column."""
        starts, sizes = self.name_places()
        data = self.buffer.data.tobytes()
        return [data[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]

    def search(self, name: bytes) -> list[int]:
        """The columns whose name is where the bytes have this one, after its length."""
        starts, sizes = self.name_places()
        of_this_size = sizes == len(name)
        if not name:  # perhaps absent
            return np.flatnonzero(of_this_size).tolist()
        data, text = self.buffer.data.tobytes(), len(name).to_bytes(4, "little") + name
        found: list[int] = []
        at = data.find(text)
        while at >= 0:
            found += np.flatnonzero((starts == at + 4) & of_this_size).tolist()
            at = data.find(text, at + 1)
        return sorted(found)

    def types_within(self) -> bool:
        """Whether a quick check proves that the fields only refer to types, names and children in bounds."""
        if not self.count:
            return True
        found = self.type_tables()
        return found is not None and int(found[1].min()) >= 0

    def type_tables(self) -> tuple[Indices, Indices] | None:
        """Indices of each field's type table and vtable; None if a field has more, or no type."""
        types, dictionaries, metadata = self.slots(self.positions, (TYPE, DICTIONARY, METADATA))
        if types is None or dictionaries is not None or metadata is not None or not int(types.min()):
            return None
        tables, starts = self.follow(types, "a field's type")
        return tables, tables - starts.astype("<u4").view("<i4")

    def same_tables(self, tables: Indices, name: str) -> bool:
        """Whether tables of one kind and vtable have equal inline contents."""
        buffer = self.buffer
        size = extent(name, buffer.table_at(name, int(tables[0]))[1])
        if name not in SELF_CONTAINED or size > _MOST_TYPE or int(tables.max()) + size > buffer.size:
            return False
        words = all(_all_same(self.u4(tables + at)) for at in range(4, size & ~3, 4))
        return words and all(_all_same(buffer.data.take(tables + at)) for at in range(max(size & ~3, 4), size))


def _offset(offsets: Offsets, number: int) -> int:
    """The offset of a slot in its table; 0 if absent."""
    found = offsets[number] if number < len(offsets) else 0
    if 0 < found < 4:
        raise InvalidData(f"slot {number} of a Field table is at {found}, expected at least 4")
    return found


def _shifted(positions: Indices, offsets: Offsets, number: int) -> Indices | None:
    """The positions of a slot in tables that share a vtable; None if absent."""
    at = _offset(offsets, number)
    return positions + at if at else None


def _all_same(values: NDArray) -> bool:
    return bool((values == values[0]).all())
