"""Dictionaries that messages bring, by their id ("Dictionary Messages").

A dictionary batch sets a dictionary, or with its delta flag adds to the end of it. Rules kept here:

* a set of dictionaries that a batch was given is never changed: the next message makes a new set, so a batch whose
  columns are made later still points into the dictionaries that it was written for;
* the values are made when the first column needs them; what a dictionary holds is bounded by the limits.
"""

from __future__ import annotations

from typing import Any

from shmarrow.errors import InvalidData, InvalidType, LimitExceeded, Limits
from shmarrow.ipc.batch import BatchBody
from shmarrow.ipc.schema import WireField
from shmarrow.layout.array import concat_arrays


class Dictionary:
    """One dictionary: the batch that brought it, and for a delta the dictionary that it adds to."""

    __slots__ = ("_before", "_body", "_busy", "_cache", "id", "limits")

    def __init__(self, id: int, body: BatchBody, before: Dictionary | None, limits: Limits) -> None:
        self.id = id
        self.limits = limits
        self._body = body
        self._before = before
        self._busy = False
        self._cache: dict[Any, Any] = {}

    def array(self, wire: WireField) -> Any:
        """The values, made once for each type that asks for them."""
        found = self._cache.get(wire.field.type)
        if found is not None:
            return found
        if self._busy:
            raise InvalidData(f"dictionary {self.id} refers to itself")
        self._busy = True
        try:
            pieces = []
            step: Dictionary | None = self
            while step is not None:
                known = step._cache.get(wire.field.type)
                if known is not None:
                    pieces.append(known)
                    break
                pieces.append(step._body.values(wire))
                step = step._before
            try:
                made = concat_arrays(pieces[::-1])
            except InvalidType as error:
                raise InvalidData(f"dictionary {self.id}: {error}") from None
        finally:
            self._busy = False
        if made.nbytes > self.limits.dictionary_bytes:
            raise LimitExceeded(
                f"dictionary {self.id} has {made.nbytes} bytes, "
                f"more than Limits.dictionary_bytes = {self.limits.dictionary_bytes}"
            )
        self._cache[wire.field.type] = made
        return made


def add_dictionary(
    known: dict[int, Dictionary], id: int, body: BatchBody, delta: bool, where: str, limits: Limits
) -> None:
    """Add a dictionary to a set, or put a longer or another one in the place of the one of this id.

    Raises
    ------
    InvalidData
        If a delta has nothing to add to.
    """
    before = known.get(id) if delta else None
    if delta and before is None:
        raise InvalidData(f"{where}: a delta for dictionary {id}, which has not come before it")
    known[id] = Dictionary(id, body, before, limits)
