"""Dictionaries that messages bring, by their id ("Dictionary Messages").

A dictionary batch sets a dictionary, or with its delta flag adds to the end of it. Rules kept here:

* a set of dictionaries that a batch was given is never changed: the next message makes a new set, so a batch whose
  columns are made later still points into the dictionaries that it was written for;
* the values are made when the first column needs them, once for all that grew out of each other; what a dictionary
  holds is bounded by the limits.
"""

from __future__ import annotations

import _thread
from typing import Any

from shmarrow.errors import InvalidData, InvalidType, LimitExceeded, Limits
from shmarrow.ipc.batch.decode import ArrayLoader
from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.layout.array import concat_arrays

_making = _thread._local()  # as threading has it, which takes half a millisecond to import


class _Parts:
    """What messages brought for one dictionary, the first and its deltas, and the values made of them so far."""

    __slots__ = ("_bodies", "_ends", "_id", "_limits", "_made")

    def __init__(self, id: int, limits: Limits) -> None:
        self._id = id
        self._limits = limits
        self._bodies: list[ArrayLoader | None] = []
        self._ends = [0]
        self._made: dict[Any, tuple[int, Any]] = {}

    def __len__(self) -> int:
        return len(self._bodies)

    def add(self, body: ArrayLoader) -> None:
        """Take in one more part."""
        self._bodies.append(body)
        self._ends.append(self._ends[-1] + body.length)

    def let_go(self) -> None:
        """Forget the last message: the values that anybody may ask for are made."""
        self._bodies[-1] = None

    def values(self, count: int, wire: FieldLayout) -> Any:
        """The values of the first ``count`` parts."""
        have, made = self._made.get(wire.field.type, (0, None))
        if have > count:
            return made.slice(0, self._ends[count])
        if have < count:
            made = self._longer(made, have, count, wire)
            self._made[wire.field.type] = count, made
        return made

    def _longer(self, made: Any, have: int, count: int, wire: FieldLayout) -> Any:
        """The values with those of more parts behind them."""
        busy: set[int] = _making.__dict__.setdefault("busy", set())
        if id(self) in busy:
            raise InvalidData(f"dictionary {self._id} refers to itself")
        busy.add(id(self))
        try:
            pieces = [made] if have else []
            pieces += [body.values(wire) for body in self._bodies[have:count] if body is not None]
            longer = concat_arrays(pieces)
        except InvalidType as error:
            raise InvalidData(f"dictionary {self._id}: {error}") from None
        finally:
            busy.discard(id(self))
        if longer.nbytes > self._limits.dictionary_bytes:
            raise LimitExceeded(
                f"dictionary {self._id} has {longer.nbytes} bytes, "
                f"more than Limits.dictionary_bytes = {self._limits.dictionary_bytes}"
            )
        return longer


class Dictionary:
    """A dictionary as it was after one of its messages; deltas that come later are no part of it."""

    __slots__ = ("_count", "_parts")

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._count = len(parts)

    def array(self, wire: FieldLayout) -> Any:
        """The values, made once for each type that asks for them."""
        return self._parts.values(self._count, wire)

    def make(self, wire: FieldLayout | None) -> None:
        """Make the values now, before something that they are made of is replaced; None says that no field has them."""
        if wire is not None:
            self.array(wire)
        self._parts.let_go()


def add_dictionary(
    known: dict[int, Dictionary], id: int, body: ArrayLoader, delta: bool, where: str, limits: Limits
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
    parts = _Parts(id, limits) if before is None else before._parts
    parts.add(body)
    known[id] = Dictionary(parts)
