# SPDX-License-Identifier: Apache-2.0
"""Dictionaries read from messages, by id ("Dictionary Messages").

A dictionary batch sets a dictionary, or with the delta flag appends to it. Invariants:

* a :class:`Dictionary` is one version: a delta gives a longer one, so a column built later still has the version that
  its batch was written for;
* sets of dictionaries are immutable, and a message gives another set. Whoever reads a stream replaces its set as a
  whole, so an exception at any time leaves the old one or the new one;
* values are decoded on first use, and kept only for the longest version, of which the shorter ones are slices;
* a reader's current versions take at most ``Limits.dictionary_bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from shmarrow.errors import MORE_MEMORY, InvalidData, InvalidType, LimitExceeded, Limits, at, recast
from shmarrow.ipc.batch.decode import ArrayLoader
from shmarrow.ipc.schema.lazy import FieldLayout
from shmarrow.layout import Array
from shmarrow.layout.construct import join_arrays
from shmarrow.memory import fork_safe_lock

T = TypeVar("T")
_lock = fork_safe_lock()  # held for a few assignments at a time
_FEW = 64
"""Up to so many dictionaries are copied to add one, and none of an older version is kept."""


class LayeredMap(Generic[T]):
    """An immutable mapping of dictionary ids that shares most entries with the one it was derived from.

    The entries are in layers; newer ones hide those of equal id in older ones. Each layer is at least twice as large as
    the next one, so adding an entry copies a few of them on average, however many there are.
    """

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[dict[int, T], ...] = ()) -> None:
        self._layers = layers

    def with_entry(self, id: int, value: T) -> LayeredMap[T]:
        """Return a mapping in which the id has this value."""
        new, layers = {id: value}, list(self._layers)
        while layers and len(layers[-1]) < max(2 * len(new), _FEW):
            new = {**layers.pop(), **new}
        return LayeredMap((*layers, new))

    def get(self, id: int) -> T | None:
        """The value of an id."""
        for layer in reversed(self._layers):
            if id in layer:
                return layer[id]
        return None

    def items(self) -> Iterator[tuple[int, T]]:
        """All pairs of id and value."""
        merged: dict[int, T] = {}
        for layer in self._layers:
            merged.update(layer)
        return iter(merged.items())


class DictionaryBudget:
    """The dictionary memory of one reader, bounded by :class:`Limits`.

    Counts the current dictionary of each id once it is decoded. Thread safety: may be shared.
    """

    __slots__ = ("_counted", "limit")

    def __init__(self, limits: Limits) -> None:
        self.limit = limits.dictionary_bytes
        # The total, and for each id where its dictionary begins and its bytes; replaced as a whole.
        self._counted: tuple[int, LayeredMap[tuple[int, int]]] = 0, LayeredMap()

    def left(self, id: int, start: int) -> int:
        """Bytes left for the dictionary of an id that begins at message ``start``, with all of its deltas."""
        total, counted = self._counted
        current, size = counted.get(id) or (start, 0)
        return self.limit - total + (size if start >= current else 0)

    def check(self, id: int, start: int, size: int) -> None:
        """Check the size of a decoded dictionary.

        Raises
        ------
        LimitExceeded
            If the limit is exceeded.
        """
        left = self.left(id, start)
        if size > left:
            raise LimitExceeded(
                f"dictionary {id} has {size} bytes, {self.limit - left + size} including the others, "
                f"more than Limits.dictionary_bytes = {self.limit}",
                hint=MORE_MEMORY,
            )

    def count(self, id: int, start: int, size: int) -> None:
        """Check a decoded dictionary, and count it instead of any older one of this id."""
        with _lock:
            self.check(id, start, size)
            total, counted = self._counted
            current, earlier = counted.get(id) or (start, 0)
            if start >= current:
                size = max(size, earlier) if start == current else size
                self._counted = total + size - earlier, counted.with_entry(id, (start, size))


class _Decoded:
    """The values of the longest version of a dictionary that has been decoded; replaced as a whole."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: Any = None


class Dictionary:
    """One version of a dictionary; later deltas are not part of it.

    Parameters
    ----------
    id : int
        The dictionary's id.
    body : ArrayLoader
        The values in its message.
    earlier : Dictionary or None
        For a delta, the version that it extends.
    number : int
        The position of its message among those of the reader.
    budget : DictionaryBudget
        What is left for the reader's dictionaries.

    Notes
    -----
    Thread safety: may be shared; racing threads decode equal values.
    """

    __slots__ = ("_budget", "_decoded", "_id", "_parts", "_start", "length")

    def __init__(
        self, id: int, body: ArrayLoader, earlier: Dictionary | None, number: int, budget: DictionaryBudget
    ) -> None:
        self._id = id
        # The message and the earlier version, until this one or a longer one is decoded.
        self._parts: tuple[ArrayLoader, Dictionary | None] | None = body, earlier
        self._budget = budget
        self._start: int = number if earlier is None else earlier._start
        self._decoded: _Decoded = _Decoded() if earlier is None else earlier._decoded
        self.length: int = body.length + (0 if earlier is None else earlier.length)

    def array(self, layout: FieldLayout) -> Any:
        """The values, decoded once.

        Raises
        ------
        InvalidData
            If they are invalid, or another field uses them as another type.
        """
        values = self._decoded.values
        if values is None or len(values) < self.length:
            values = self._decode(layout)
        type = layout.field.type
        if values.type != type:
            raise InvalidData(
                f"dictionary {self._id} has values of type {values.type} in one field and {type} in another"
            )
        return values if len(values) == self.length else values.slice(0, self.length)

    def _decode(self, layout: FieldLayout) -> Any:
        """Concatenate the longest decoded version with the later deltas; at least this version."""
        decoded = self._decoded.values
        reached = -1 if decoded is None else len(decoded)
        later: list[ArrayLoader] = []
        version: Dictionary | None = self
        while version is not None and version.length > reached:
            parts = version._parts
            if parts is None:  # another thread has just decoded it
                return self._decode(layout)
            body, version = parts
            later.append(body)
        pieces = [] if decoded is None else [decoded]
        seen: set[int] = set()
        size = sum([_bytes_of(piece, seen) for piece in pieces])
        left = self._budget.left(self._id, self._start)
        for body in reversed(later):
            pieces.append(body.values(layout, left - size))
            size += _bytes_of(pieces[-1], seen)
            self._budget.check(self._id, self._start, size)
        try:
            with at("dictionary", self._id):
                joined = join_arrays(pieces)
        except InvalidType as error:
            raise recast(InvalidData, error) from None
        joined._safe = pieces[-1]._safe  # trusted, or not known to be safe: it has just been made
        self._budget.count(self._id, self._start, joined.get_total_buffer_size())
        with _lock:
            if self._decoded.values is None or len(self._decoded.values) < len(joined):
                self._decoded.values = joined
        self._parts = None
        return joined


def _bytes_of(array: Array, seen: set[int]) -> int:
    """The bytes of an array and its children, and of nested dictionaries not in ``seen``.

    Less what each buffer may lose in concatenation: an offset, or padding bits.
    """
    size = sum([max(len(data) - 8, 0) for data in array._buffers if data is not None])
    size += sum([_bytes_of(child, seen) for child in array._children])
    inner = array._dictionary
    if inner is None or id(inner) in seen:
        return size
    seen.add(id(inner))
    return size + _bytes_of(inner, seen)
