"""A sink that continues in another store when the first is full.

The bytes written so far are moved there; nothing of them remains in the first store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmarrow.errors import StoreFull
from shmarrow.writer import Sink, operation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmarrow.segment import SegmentWriter
    from shmarrow.store import Store


class SpillingSink(Sink):
    """A new object in a store, or in another one if the first is full.

    Parameters
    ----------
    name : str
        Name of the object.
    store : Store
        The preferred store.
    other : callable, optional
        Returns the store to use if the first is full.
    beside : str, optional
        Name of an object in ``store`` that must exist for anything to be published there.

    Attributes
    ----------
    store : Store
        The store in use.
    """

    def __init__(self, name: str, store: Store, other: Callable[[], Store] | None, beside: str | None = None) -> None:
        self.name = name
        self._other = other
        self.store = store
        try:
            self._writer = _new(store, name, beside)
        except StoreFull:  # no slot is left for another object
            if other is None:
                raise
            self.store, self._other = other(), None
            self._writer = _new(self.store, name)
        super().__init__(f"the writer of {name!r}")

    @property
    def size(self) -> int:  # type: ignore[override]
        """Bytes written so far."""
        return self._writer.size

    @operation
    def write(self, pieces: Sequence[Any]) -> int:
        """Write pieces in order; moves what was written to the other store if this one is full."""
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
            before.copy_to(after)
        except BaseException:
            after.abort()
            raise
        self._writer, self.store, self._other = after, store, None
        before.abort()

    def _finish(self) -> None:
        self._writer.close()

    def _drop(self) -> None:
        self._writer.abort()


def _new(store: Store, name: str, beside: str | None = None) -> SegmentWriter:
    # Protected, as a frame must stay complete until it is destroyed.
    return store._publication(name, False, None, protect=True, beside=beside)
