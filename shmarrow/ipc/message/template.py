"""Templates: FlatBuffers that are constant except for a few numbers.

The messages of a writer's batches, the tensors of a model and the footers of a store's objects mostly differ in
lengths, offsets and sizes only. A :class:`Template` is filled in for writing, which saves building the FlatBuffer.
:class:`Known` recognises one for reading, which saves parsing it: if all constant bytes are those of a FlatBuffer that
was checked before, only the numbers have to be checked again.

What was read of a FlatBuffer follows from its constants only if no number is part of anything else: hostile bytes may
use a vector of numbers as a table, too. So the first reading is traced, and nothing is kept where reads overlap.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

_MOST, _MOST_LAYOUTS = 256, 8
LARGEST = 1 << 13
"""The largest FlatBuffers that are recognised; comparing larger ones costs more than reading what is asked for."""


Holes = Sequence[tuple[int, str]]
"""Positions in a FlatBuffer, and what is there as a format of :mod:`struct`: ``"q"``, or ``"24s"`` for 24 bytes."""


class Template:
    """A FlatBuffer with holes, in any order.

    Attributes
    ----------
    layout : struct.Struct
        Splits the bytes into constants and holes, in turn.
    constants : tuple of bytes
        The bytes between the holes.
    order : list of int
        The holes by position.

    Notes
    -----
    Thread safety: immutable.
    """

    __slots__ = ("_values", "constants", "layout", "order")

    def __init__(self, data: bytes, holes: Holes) -> None:
        self.order = sorted(range(len(holes)), key=lambda i: holes[i][0])
        formats, end = ["<"], 0
        for place, each in [holes[i] for i in self.order]:
            formats += [f"{place - end}s", each]
            end = place + struct.calcsize("<" + each)
        self.layout = struct.Struct("".join([*formats, f"{len(data) - end}s"]))
        self._values = list(self.layout.unpack(data))
        self.constants = tuple(self._values[::2])

    def filled(self, values: Sequence[Any]) -> bytes:
        """The FlatBuffer with these values in its holes."""
        parts = self._values.copy()
        parts[1::2] = map(values.__getitem__, self.order)
        return self.layout.pack(*parts)


class Known:
    """A cache of what was decoded from small FlatBuffers, by their constant bytes; bounded, and cleared when full.

    Notes
    -----
    Thread safety: may be shared. What is kept must be immutable and follow from the constants alone, so races are
    harmless.
    """

    def __init__(self) -> None:
        self._layouts: dict[int, tuple[struct.Struct, ...]] = {}
        self._entries: dict[Any, tuple[Any, Any]] = {}

    def add(
        self, data: bytes, holes: Holes, reads: Iterable[tuple[int, int]], value: Any, key: Hashable = None
    ) -> None:
        """Keep what was found of a FlatBuffer, under its constants and a key.

        Not if it is large, or if what was read of it overlaps.

        Parameters
        ----------
        data : bytes
            The FlatBuffer.
        holes : sequence of (int, str)
            Numbers, or vectors of them, which were read as such.
        reads : iterable of (int, int)
            Start and end of all that was read, recorded by :class:`~shmarrow.ipc.flatbuffers.reader.Tracer`.
        """
        spans = sorted(span for span in reads if span[0] < span[1])
        overlap = any(one[1] > other[0] for one, other in pairwise(spans))
        if overlap or len(data) > LARGEST or len({place for place, _ in holes}) < len(holes):
            return
        template = Template(data, holes)
        if len(self._entries) >= _MOST:
            self._entries.clear()
            self._layouts.clear()
        places = [2 * template.order.index(hole) + 1 for hole in range(len(holes))]
        take = itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))
        self._entries[key, template.constants] = take, value
        layouts = self._layouts.get(len(data), ())
        if all(template.layout.format != each.format for each in layouts):
            self._layouts[len(data)] = (*layouts[1 - _MOST_LAYOUTS :], template.layout)

    def find(self, data: bytes, key: Hashable = None) -> tuple[Any, tuple[Any, ...]] | None:
        """Return what was decoded from a FlatBuffer with these constants, and the values in the holes of this one."""
        for layout in self._layouts.get(len(data), ()):
            parts = layout.unpack(data)
            entry = self._entries.get((key, parts[::2]))
            if entry is not None:
                take, value = entry
                return value, take(parts)
        return None
