"""A sink that goes on in another store when its own has no room left.

What was written so far is copied there once; nothing of it stays in the first store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmarrow.errors import StoreFull
from shmarrow.sources.sinks import Sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmarrow.segment import SegmentWriter
    from shmarrow.store import Store


class SpillingSink(Sink):
    """A new object in a store; or, when that is full, in another one.

    Parameters
    ----------
    name : str
        The name that the object gets.
    store : Store
        Where it is put if there is room.
    other : callable, optional
        Gives the store where it is put otherwise.
    beside : str, optional
        The name of an object of ``store``: nothing is published there when that one is gone.

    Attributes
    ----------
    store : Store
        Where it is put as things stand.
    """

    __slots__ = ("_other", "_writer", "store")

    def __init__(self, name: str, store: Store, other: Callable[[], Store] | None, beside: str | None = None) -> None:
        super().__init__(name)
        self._other = other
        self.store = store
        try:
            self._writer = _new(store, name, beside)
        except StoreFull:  # it has as many objects as it can have
            if other is None:
                raise
            self.store, self._other = other(), None
            self._writer = _new(self.store, name)

    def _write(self, pieces: list[Any]) -> int:
        try:
            return self._writer.write(pieces)
        except StoreFull:
            if self._other is None:
                raise
        self._move(self._other())
        return self._writer.write(pieces)

    def _move(self, store: Store) -> None:
        before, after = self._writer, _new(store, self.name)
        try:
            before._copy_to(after)
        except BaseException:
            after.discard()
            raise
        self._writer, self.store, self._other = after, store, None
        before.discard()

    def _finish(self) -> None:
        self._writer.publish()

    def abort(self) -> None:
        """Give up: nothing is published."""
        self._writer.discard()


def _new(store: Store, name: str, beside: str | None = None) -> SegmentWriter:
    # Protected, as a frame is whole until it is released.
    return store._publication(name, False, None, protect=True, beside=beside).writer()
