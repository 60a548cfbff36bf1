"""Dictionaries read from messages, by id ("Dictionary Messages").

A dictionary batch sets a dictionary, or with the delta flag appends to it. Invariants:

* a :class:`Dictionary` is one immutable version: a delta creates a longer one, so columns built later still use the
  version their batch was written for;
* values are decoded on first use; racing threads decode equal values;
* a reader's current versions take at most ``Limits.dictionary_bytes``.
"""

from __future__ import annotations

import _thread
from typing import Any

from shmarrow.errors import InvalidData, InvalidType, LimitExceeded, Limits
from shmarrow.ipc.batch.decode import ArrayLoader
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.layout.array import Array
from shmarrow.layout.making import concat_arrays
from shmarrow.states import fork_safe_lock

_decoding = _thread._local()  # threading.local without importing threading, which takes half a millisecond
_lock = fork_safe_lock()  # held for a few additions at a time


class DictionaryBudget:
    """The dictionary memory of one reader, bounded by :class:`Limits`.

    Counts the current versions once decoded. Thread safety: may be shared.
    """

    __slots__ = ("_limit", "_sizes", "_total")

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.dictionary_bytes
        self._sizes: dict[int, dict[Any, int]] = {}
        self._total = 0

    def begin(self, id: int) -> dict[Any, int]:
        """Count a new dictionary instead of any older one of this id; returns its sizes by type."""
        sizes: dict[Any, int] = {}
        with _lock:
            self._total -= sum(self._sizes.get(id, sizes).values())
            self._sizes[id] = sizes
        return sizes

    def left(self, sizes: dict[Any, int], type: Any) -> int:
        """Bytes left for the values of one type."""
        with _lock:
            return self._limit - self._total + sizes.get(type, 0)

    def count(self, id: int, sizes: dict[Any, int], type: Any, size: int, only_check: bool = False) -> None:
        """Count the values of one type, replacing those of a shorter version; or only check the limit.

        Raises
        ------
        LimitExceeded
            If the limit is exceeded.
        """
        with _lock:
            more = max(size - sizes.get(type, 0), 0)
            total = self._total + more
            if total <= self._limit and not only_check and self._sizes.get(id) is sizes:
                sizes[type], self._total = sizes.get(type, 0) + more, total
        if total > self._limit:
            raise LimitExceeded(
                f"dictionary {id} has {size} bytes, {total} including the others, "
                f"more than Limits.dictionary_bytes = {self._limit}"
            )


class Dictionary:
    """One version of a dictionary; later deltas are not part of it.

    Thread safety: may be shared.
    """

    __slots__ = ("_body", "_budget", "_decoded", "_earlier", "_id", "_sizes", "length")

    def __init__(self, id: int, body: ArrayLoader, earlier: Dictionary | None, budget: DictionaryBudget) -> None:
        self._id = id
        self._body: ArrayLoader | None = body
        self._earlier = earlier
        self._budget = budget
        self._sizes: dict[Any, int] = budget.begin(id) if earlier is None else earlier._sizes
        self._decoded: dict[Any, Any] = {}
        self.length: int = body.length + (earlier.length if earlier is not None else 0)

    def array(self, wire: FieldLayout) -> Any:
        """The values, decoded once per type."""
        found = self._decoded.get(wire.field.type)
        return self._decode(wire) if found is None else found

    def decode(self, wire: FieldLayout | None) -> None:
        """Decode the values now and release the message, before a dictionary they refer to is replaced.

        Parameters
        ----------
        wire : FieldLayout or None
            Layout of the values; None if no field uses them.
        """
        if wire is not None:
            self.array(wire)
        self._body = self._earlier = None

    def _decode(self, wire: FieldLayout) -> Any:
        busy: set[int] = _decoding.__dict__.setdefault("ids", set())
        if id(self._sizes) in busy:
            raise InvalidData(f"dictionary {self._id} refers to itself")
        busy.add(id(self._sizes))
        try:
            return self._join(wire)
        except InvalidType as error:
            raise InvalidData(f"dictionary {self._id}: {error}") from None
        finally:
            busy.discard(id(self._sizes))

    def _join(self, wire: FieldLayout) -> Any:
        """Concatenate the latest decoded version with the later deltas."""
        type = wire.field.type
        later: list[Dictionary] = []
        version: Dictionary | None = self
        while version is not None and type not in version._decoded:
            later.append(version)
            version = version._earlier
        pieces = [] if version is None else [version._decoded[type]]
        seen: set[int] = set()
        size = sum([_bytes_of(piece, seen) for piece in pieces])
        for each in reversed(later):
            body = each._body
            if body is None:
                raise InvalidData(f"dictionary {self._id} was decoded as another type than {type}")
            pieces.append(body.values(wire, self._budget.left(self._sizes, type) - size))
            size += _bytes_of(pieces[-1], seen)
            self._budget.count(self._id, self._sizes, type, size, only_check=True)
        joined = concat_arrays(pieces)
        if len(pieces) > 1 and all(piece._safe for piece in pieces):
            joined._safe = True
        self._budget.count(self._id, self._sizes, type, joined.get_total_buffer_size())
        # Shorter versions are slices of the longest one, so decoding all versions, in any order, copies once.
        for each in later:
            each._decoded[type] = joined.slice(0, each.length)
        return self._decoded[type]


def _bytes_of(array: Array, seen: set[int]) -> int:
    """The bytes of an array and its children, and of nested dictionaries not in ``seen``.

    Less what each buffer may
    lose in concatenation: an offset, or padding bits.
    """
    size = sum([max(len(data) - 8, 0) for data in array._buffers if data is not None])
    size += sum([_bytes_of(child, seen) for child in array._children])
    inner = array._dictionary
    if inner is None or id(inner) in seen:
        return size
    seen.add(id(inner))
    return size + _bytes_of(inner, seen)


def add_dictionary(
    known: dict[int, Dictionary], id: int, body: ArrayLoader, delta: bool, where: str, budget: DictionaryBudget
) -> None:
    """Add a dictionary to a set, or extend or replace the one of this id.

    Raises
    ------
    InvalidData
        If a delta has no dictionary to extend.
    """
    before = known.get(id) if delta else None
    if delta and before is None:
        raise InvalidData(f"{where}: a delta for dictionary {id}, which does not precede it")
    known[id] = Dictionary(id, body, before, budget)
