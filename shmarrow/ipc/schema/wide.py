"""The Field tables of a schema, read by array operations: all of them, or all of a level, at once.

Rules kept here:

* writers put tables of one kind and size one after another, so from the second on, with the vtable of the first one out
  of the way, they mostly go on evenly: such a run is read through a view with that stride, others by gathering;
* every position is checked, as it was read, before anything is read there: the bytes may lie in a mapping that others
  write to;
* a slot that tables may leave out has the position 0 where they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.errors import InvalidData, LimitExceeded
from shmarrow.ipc.flatbuffers.reader import I4, U4, WORD, FlatBuffer, Offsets, extent
from shmarrow.ipc.schema.decode import Positions
from shmarrow.layout.memory import ranges

if TYPE_CHECKING:
    import numpy.typing as npt

NAME, TYPE_TAG, TYPE, DICTIONARY, CHILDREN, METADATA = 0, 2, 3, 4, 5, 6
"""Numbers of the slots of a Field table."""

_MOST_VTABLES = 4096
_MOST_TYPE = 64


Run = tuple[int, int, int]
"""Positions that go on evenly: the first one, how far each is from the one before, and how many they are."""


class FieldTables:
    """The Field tables that a vector of references leads to.

    Parameters
    ----------
    buffer : FlatBuffer
        The bytes.
    first : int
        Where the first reference is; they were found to lie within the bytes.
    count : int
        How many there are.

    Attributes
    ----------
    shared_offsets : tuple of int or None
        The offsets of the slots of every table, if it is known that all have one vtable and lie within the bytes.
    found_positions : int64 ndarray or None
        Where all tables are, once that was asked for.
    """

    __slots__ = ("_name_run", "_names", "_run", "buffer", "count", "first", "found_positions", "shared_offsets")

    def __init__(self, buffer: FlatBuffer, first: int, count: int) -> None:
        self.buffer = buffer
        self.first = first
        self.count = count
        self.found_positions: Positions | None = None
        self.shared_offsets: Offsets | None = None
        self._names: Positions | None = None
        self._run: tuple[Run, Offsets] | None = None
        self._name_run: tuple[tuple[int, Run] | None] | None = None

    def over(self, buffer: FlatBuffer) -> FieldTables:
        """The same tables in a copy of the bytes."""
        made = FieldTables(buffer, self.first, self.count)
        made.found_positions, made._names = self.found_positions, self._names
        return made

    @property
    def positions(self) -> Positions:
        """Where the Field tables are."""
        if self.found_positions is None:
            self.found_positions = self.positions_of(0, self.count)
        return self.found_positions

    @property
    def words(self) -> npt.NDArray[np.uint32]:
        """The bytes as 32-bit numbers."""
        buffer = self.buffer
        return buffer.data[: buffer.size & ~3].view(WORD)

    def position_of(self, index: int) -> int:
        """Where the Field table of a column is."""
        slot = self.first + 4 * index
        position: int = slot + U4(self.buffer.view, slot)[0]
        return position

    def positions_of(self, start: int, end: int) -> Positions:
        """Where the Field tables of some columns are."""
        at = self.first + 4 * start
        found = np.arange(at, self.first + 4 * end, 4)
        found += np.ndarray(end - start, WORD, self.buffer.data, at)
        return found

    def run_of(self, start: int, end: int) -> tuple[Run, Offsets] | None:
        """The Field tables of some columns, if they go on evenly and share a vtable, and the offsets of their slots."""
        if self._run is not None:
            (first, step, _), offsets = self._run
            return (first + step * (start - 1), step, end - start), offsets
        tables = self._run_behind(self.first + 4 * start, 4, end - start)
        if tables is None or not self._even(*tables, tables[1]):
            return None
        offsets = self.buffer.table_at("Field", tables[0])[1]
        if highest(tables) + extent("Field", offsets) > self.buffer.size:
            return None
        if start == 1 and end == self.count:
            self._run = tables, offsets
        return tables, offsets

    def name_run(self) -> tuple[int, Run] | None:
        """Where the length of the first column's name is, and of those of the others, if these go on evenly."""
        if self._name_run is None:
            self._name_run = (self._find_name_run(),)
        return self._name_run[0]

    def _find_name_run(self) -> tuple[int, Run] | None:
        found = self.run_of(1, self.count)
        at = 0 if found is None else _offset(found[1], NAME)
        names = self._run_behind(found[0][0] + at, *found[0][1:]) if found is not None and at else None
        first = self.slot_of(0, NAME) if names is not None else 0
        if names is None or not first:
            return None
        place: int = first + U4(self.buffer.view, first)[0]
        return (place, names) if place + 4 <= self.buffer.size else None

    def _run_behind(self, first: int, step: int, count: int) -> Run | None:
        """Where the offsets lead that go on evenly, if that goes on evenly too, within the bytes."""
        if count < 2:
            return None
        start, second = (U4(self.buffer.view, at)[0] for at in (first, first + step))
        if start + (second - start) * (count - 1) < 0 or not self._even(first, step, count, second - start):
            return None  # offsets lead forward
        found = first + start, step + second - start, count
        lowest = min(found[0], found[0] + found[1] * (count - 1))
        return found if lowest >= 0 and highest(found) + 4 <= self.buffer.size else None

    def _even(self, first: int, step: int, count: int, difference: int) -> bool:
        """Whether 32-bit numbers that stand at one distance from each other differ by so much each."""
        view = self.buffer.view
        if I4(view, first + step * (count - 1))[0] - I4(view, first)[0] != difference * (count - 1):
            return False
        # As the ends are right, what is right but for a multiple of 2**32 is right.
        numbers = self.column(WORD, first, step, count)
        return every(numbers[1:] - numbers[:-1] == np.uint32(difference & 0xFFFFFFFF))

    def column(self, dtype: np.dtype[Any], first: int, step: int, count: int) -> npt.NDArray[Any]:
        """Numbers that stand at one distance from each other within the bytes, as a view."""
        return np.ndarray(count, dtype, self.buffer.data, first, (step,))

    def slots(self, positions: Positions, numbers: tuple[int, ...]) -> list[Positions | None]:
        """For each slot asked for, the position of its value in each Field table, 0 where absent; None if in all."""
        buffer = self.buffer
        shared = self.shared_offsets
        if shared is not None and positions is self.found_positions:
            return [_shifted(positions, shared, number) for number in numbers]
        high = int(positions.max())
        if high + 4 > buffer.size:
            buffer.fail("a Field table", high, 4)
        # Vtables may lie on either side, so the offset to them has a sign.
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

    def _offsets_of(self, positions: Positions, high: int) -> Offsets:
        """The offsets of the slots of several Field tables with one vtable, which all of them fit."""
        offsets = self.buffer.table_at("Field", int(positions[0]))[1]
        if high + extent("Field", offsets) > self.buffer.size:
            self.buffer.fail("a Field table", high, extent("Field", offsets))
        return offsets

    def slot_of(self, index: int, number: int) -> int:
        """The position of a slot that holds an offset, in the Field table of a column; 0 where it is absent."""
        position = self.position_of(index)
        return self.buffer.slot("Field", position, self.buffer.table_at("Field", position)[1], number, 4)

    def u4(self, positions: Positions) -> npt.NDArray[np.uint32]:
        """The 32-bit numbers at positions, which lie within the data."""
        if not int(np.bitwise_or.reduce(positions)) & 3:
            return self.words.take(positions >> 2)
        data = self.buffer.data
        return np.ascontiguousarray(data[positions[:, None] + np.arange(4)]).view("<u4")[:, 0]

    def follow(self, slots: Positions, what: str) -> tuple[Positions, Positions]:
        """Where offsets lead, and the 32-bit length that stands there; both 0 where the slot is absent."""
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

    def below(self, slots: Positions) -> tuple[Positions, Positions]:
        """The positions of the children of fields, and how many each has."""
        buffer = self.buffer
        targets, sizes = self.follow(slots, "the children of a field")
        high = int((targets + 4 + 4 * sizes).max())
        if high > buffer.size:
            buffer.fail("the children of a field", high, 0)
        if int(sizes.sum()) > buffer.size:
            raise LimitExceeded(f"{buffer.where}: more fields than its {buffer.size} bytes can hold")
        places: Any = np.repeat(targets + 4, sizes) + 4 * ranges(np.zeros(len(sizes), np.int64), sizes)
        return (places + self.u4(places) if len(places) else places), sizes

    def name_starts(self) -> Positions | None:
        """Where the length of each column's name is, and behind it the name; None where one is left out."""
        if self._names is None:
            buffer = self.buffer
            (slots,) = self.slots(self.positions, (NAME,))
            if slots is None or not int(slots.min()):
                return None
            slots += self.u4(slots)
            high = int(slots.max())
            if high + 4 > buffer.size:
                buffer.fail("a field's name", high, 4)
            self._names = slots
        return self._names

    def name_places(self) -> tuple[Positions, Positions]:
        """Where the name of each column starts, and its bytes, all within the data; one that is left out has none."""
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

    def types_within(self) -> bool:
        """Whether the fields are seen at once to refer to nothing but types, names and children within the bytes."""
        if not self.count:
            return True
        found = self.type_tables()
        return found is not None and int(found[1].min()) >= 0

    def type_tables(self) -> tuple[Positions, Positions] | None:
        """Where the table of each field's type and its vtable are; None where a field has more, or has no type."""
        types, dictionaries, metadata = self.slots(self.positions, (TYPE, DICTIONARY, METADATA))
        if types is None or dictionaries is not None or metadata is not None or not int(types.min()):
            return None
        tables, starts = self.follow(types, "a field's type")
        return tables, tables - starts.astype("<u4").view("<i4")

    def same_tables(self, tables: Positions, name: str) -> bool:
        """Whether tables of one kind and vtable say the same, as far as that is in their own bytes alone."""
        buffer = self.buffer
        size = extent(name, buffer.table_at(name, int(tables[0]))[1])
        if name == "Timestamp" or size > _MOST_TYPE or int(tables.max()) + size > buffer.size:
            return False  # a time zone lies elsewhere
        words = all(_all_same(self.u4(tables + at)) for at in range(4, size & ~3, 4))
        return words and all(_all_same(buffer.data.take(tables + at)) for at in range(max(size & ~3, 4), size))


def _offset(offsets: Offsets, number: int) -> int:
    """Where in its table a slot is, 0 where it is absent."""
    found = offsets[number] if number < len(offsets) else 0
    if 0 < found < 4:
        raise InvalidData(f"slot {number} of a Field table is at {found}, expected at least 4")
    return found


def _shifted(positions: Positions, offsets: Offsets, number: int) -> Positions | None:
    """The positions of a slot in tables that share a vtable; None where it is absent."""
    at = _offset(offsets, number)
    return positions + at if at else None


def _all_same(values: npt.NDArray[Any]) -> bool:
    return bool((values == values[0]).all())


def highest(run: Run) -> int:
    """The last position of a run, or the first of one that goes backwards."""
    first, step, count = run
    return max(first, first + step * (count - 1))


def every(flags: npt.NDArray[np.bool_]) -> bool:
    """Whether all of some truth values are true; ``all()`` is a Python function, and takes longer."""
    return bool(flags[flags.argmin()])
