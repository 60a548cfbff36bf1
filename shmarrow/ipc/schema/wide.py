# SPDX-License-Identifier: Apache-2.0
"""Vectorized reading of the Field tables of wide schemas.

Invariants:

* every position is checked, exactly as read, before use, as other processes may write to the mapping;
* an absent slot has position 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shmarrow.buffer import U1, Bytes, Indices
from shmarrow.errors import InvalidData, LimitExceeded
from shmarrow.ipc.flatbuffers.reader import I4, U4, WORD, FlatBuffer, Offsets, extent
from shmarrow.ipc.flatbuffers.tables import UNIONS
from shmarrow.ipc.schema.types import SELF_CONTAINED
from shmarrow.layout.construct import ranges

NAME, NULLABLE, TYPE_TAG, TYPE, DICTIONARY, CHILDREN, METADATA = range(7)
"""Numbers of the slots of a Field table."""

_NO_SLOTS = (0,) * (METADATA + 1)

FEW = 48
"""Up to so many columns are read one by one: array operations would take most of the time to open a small file."""
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
    """

    __slots__ = ("buffer", "count", "first")

    def __init__(self, buffer: FlatBuffer, first: int, count: int) -> None:
        self.buffer = buffer
        self.first = first
        self.count = count

    def position_of(self, index: int) -> int:
        """Position of a column's Field table."""
        slot = self.first + 4 * index
        return slot + U4(self.buffer.view, slot)[0]

    def positions(self, start: int = 0, end: int | None = None) -> Indices:
        """Positions of the Field tables of columns ``start`` to ``end``, or of all."""
        end = self.count if end is None else end
        slots = np.arange(self.first + 4 * start, self.first + 4 * end, 4)
        return slots + np.ndarray(end - start, WORD, self.buffer.data, self.first + 4 * start)

    def slots(self, positions: Indices, numbers: tuple[int, ...]) -> list[Indices]:
        """For each slot, the positions of its values in some Field tables, at least one; 0 if absent."""
        buffer = self.buffer
        high = int(positions.max())
        if high + 4 > buffer.size:
            buffer.fail("a Field table", high, 4)
        # A vtable may be before or after its table, so its offset is signed.
        vtables = positions - self.u4(positions).view("<i4")
        if (vtables == vtables[0]).all():
            return self._slots_alike(positions, numbers)
        kinds, inverse = np.unique(vtables, return_inverse=True)
        if len(kinds) > _MOST_VTABLES:
            raise LimitExceeded(f"{buffer.where}: {len(kinds)} kinds of Field tables")
        results = [np.zeros(len(positions), np.int64) for _ in numbers]
        for kind in range(len(kinds)):
            chosen = np.flatnonzero(inverse == kind)
            for result, places in zip(results, self._slots_alike(positions[chosen], numbers), strict=True):
                result[chosen] = places
        return results

    def _slots_alike(self, positions: Indices, numbers: tuple[int, ...]) -> list[Indices]:
        """As :meth:`slots`, of tables that share a vtable; checks that all of them are in bounds."""
        offsets = self.buffer.table_at("Field", int(positions[0]))[1]
        high = int(positions.max())
        if high + extent("Field", offsets) > self.buffer.size:
            self.buffer.fail("a Field table", high, extent("Field", offsets))
        absent = np.zeros(len(positions), np.int64)
        return [positions + at if (at := _offset(offsets, number)) else absent for number in numbers]

    def u4(self, positions: Indices) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The 32-bit numbers at positions, which must be in bounds."""
        data = self.buffer.data
        if not int(np.bitwise_or.reduce(positions)) & 3:
            return data[: len(data) & ~3].view(WORD).take(positions >> 2)
        return np.ascontiguousarray(data[positions[:, None] + np.arange(4)]).view("<u4")[:, 0]

    def follow(self, slots: Indices, what: str) -> tuple[Indices, Indices]:
        """The targets of offsets and the 32-bit numbers there; both 0 if the slot is absent."""
        buffer, present = self.buffer, slots != 0
        targets = (slots + self.u4(slots)) * present
        high = int(targets.max(initial=0))
        if high + 4 > buffer.size:
            buffer.fail(what, high, 4)
        return targets, self.u4(targets).astype(np.int64) * present

    def _vectors(self, slots: Indices, itemsize: int, what: str) -> tuple[Indices, Indices]:
        """Where the vectors or strings in some slots begin, and their lengths, in bounds; of length 0 if absent."""
        starts, lengths = self.follow(slots, what)
        starts += 4
        high = int((starts + itemsize * lengths).max(initial=0))
        if high > self.buffer.size:
            self.buffer.fail(what, high, 0)
        return starts, lengths

    def below(self, slots: Indices) -> tuple[Indices, Indices]:
        """The positions of the fields' children, and their counts."""
        buffer = self.buffer
        starts, counts = self._vectors(slots, 4, "the children of a field")
        if int(counts.sum()) > buffer.size:
            raise LimitExceeded(f"{buffer.where}: more fields than its {buffer.size} bytes can hold")
        places: Any = np.repeat(starts, counts) + 4 * ranges(np.zeros(len(counts), np.int64), counts)
        return places + self.u4(places), counts

    def names(self) -> list[bytes]:
        """The name of each column; empty if absent."""
        starts, sizes = self._name_places()
        data = self.buffer.data.tobytes()
        return [data[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]

    def search(self, name: bytes) -> list[int]:
        """The columns whose name is where the bytes have this one, after its length."""
        starts, sizes = self._name_places()
        if not name:  # perhaps absent
            return np.flatnonzero(sizes == 0).tolist()
        data, text = self.buffer.data.tobytes(), len(name).to_bytes(4, "little") + name
        columns: list[int] = []
        at = data.find(text)
        while at >= 0:
            columns += np.flatnonzero((starts == at + 4) & (sizes == len(name))).tolist()
            at = data.find(text, at + 1)
        return sorted(columns)

    def _name_places(self) -> tuple[Indices, Indices]:
        """Start and size of each column's name, in bounds."""
        buffer, positions = self.buffer, self.positions()
        if not self.count:
            return positions, positions
        (slots,) = self.slots(positions, (NAME,))
        starts, sizes = self._vectors(slots, 1, "a field's name")
        if int(sizes.sum()) > 16 * buffer.size + 65536:
            raise LimitExceeded(f"{buffer.where}: its names add up to over 16 times its {buffer.size} bytes")
        return starts, sizes

    def nullable(self) -> list[bool]:
        """Whether each column is nullable."""
        (slots,) = self.slots(self.positions(), (NULLABLE,))
        return (self.buffer.data[slots] * (slots != 0) != 0).tolist()

    # --- types that are equal ---

    def types_within(self) -> bool:
        """Whether a quick check proves that the fields only refer to types, names and children in bounds."""
        if self.count > FEW:
            tables = self._type_tables()
            return tables is not None and int(tables[2].min()) >= 0
        view, size = self.buffer.view, self.buffer.size
        for position in map(self.position_of, range(self.count)):
            offsets = self.buffer.table_at("Field", position)[1]
            tag, kind, dictionary, children, metadata = (*offsets, *_NO_SLOTS)[TYPE_TAG : METADATA + 1]
            if dictionary or metadata or min(tag, kind) < 4 or position + max(tag, kind, children) + 4 > size:
                return False
            kind, children = position + kind, position + children if children else 0
            table, vector = kind + U4(view, kind)[0], children + U4(view, children)[0]
            if table + 4 > size or table < I4(view, table)[0]:
                return False
            if children and (vector + 4 > size or U4(view, vector)[0]):
                return False
        return True

    def alike(self) -> Iterator[list[int]]:
        """Groups of columns whose types are obviously equal; every other column is a group of its own."""
        tables = self._type_tables() if self.count else None
        if tables is None:
            yield from ([i] for i in range(self.count))
            return
        tags, starts, vtables = tables
        for tag in np.flatnonzero(np.bincount(tags)).tolist():  # np.unique imports numpy.ma, for 50 ms
            group = np.flatnonzero(tags == tag)
            same_vtable = 0 < tag <= len(UNIONS["Type"]) and bool((vtables[group] == vtables[group[0]]).all())
            if same_vtable and self._same_tables(starts[group], UNIONS["Type"][tag - 1]):
                yield group.tolist()
            else:
                yield from ([i] for i in group.tolist())

    def _type_tables(self) -> tuple[Bytes, Indices, Indices] | None:
        """Tag, position and vtable of each field's type; None if any field has none, or has more than a type."""
        slots = self.slots(self.positions(), (TYPE_TAG, TYPE, DICTIONARY, METADATA, CHILDREN))
        tags_at, types, dictionaries, metadata, children = slots
        if dictionaries.any() or metadata.any() or not (tags_at.all() and types.all()):
            return None
        if self.follow(children, "a field's children")[1].any():
            return None
        tables, starts = self.follow(types, "a field's type")
        return self.buffer.data.take(tags_at), tables, tables - starts.astype("<u4").view("<i4")

    def _same_tables(self, tables: Indices, name: str) -> bool:
        """Whether tables of one kind and vtable have equal inline contents."""
        buffer = self.buffer
        size = extent(name, buffer.table_at(name, int(tables[0]))[1])
        if name not in SELF_CONTAINED or size > _MOST_TYPE or int(tables.max()) + size > buffer.size:
            return False
        windows = np.ndarray((buffer.size - size + 1, size - 4), U1, buffer.data, 4, (1, 1))
        content = windows[tables]
        return bool((content == content[0]).all())


def _offset(offsets: Offsets, number: int) -> int:
    """The offset of a slot in its table; 0 if absent."""
    offset = offsets[number] if number < len(offsets) else 0
    if 0 < offset < 4:
        raise InvalidData(f"slot {number} of a Field table is at {offset}, expected at least 4")
    return offset
