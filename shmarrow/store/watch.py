# SPDX-License-Identifier: Apache-2.0
"""Watching a store: the events since the last look, or the differences if that was too long ago.

Invariants:

* the catalog has the last 256 events in order, so a watch that looks late misses none; one that is further behind
  compares the existing objects with those it has reported;
* a watch has no state in the store but while it waits.
"""

from __future__ import annotations

import _thread
from collections import deque
from contextlib import suppress
from typing import NamedTuple, Self

from shmarrow.errors import Closed
from shmarrow.memory import lock_of_process
from shmarrow.store import protocol as p
from shmarrow.store.arguments import as_timeout
from shmarrow.store.catalog import Catalog
from shmarrow.store.index import events_since, last_event
from shmarrow.store.snapshot import snapshot
from shmarrow.store.waiters import Waiting


class Event(NamedTuple):
    """A change to an object.

    Attributes
    ----------
    kind : str
        ``"published"`` or ``"deleted"``. Replacing an object publishes it again; renaming deletes the old name and
        publishes the new one. An expired object is deleted when it is collected.
    name : str
        Name of the object.
    generation : int
        Generation of the object; 0 if unknown.
    """

    kind: str
    name: str
    generation: int = 0


_KINDS = {p.PUBLISHED: "published", p.DELETED: "deleted"}


class Watch:
    """A blocking iterator over the changes to a store; returned by :meth:`Store.watch`.

    A watch keeps working when the Store is closed. In a coroutine, ``asyncio.to_thread(watch.get, 1)`` waits.
    Thread safety: threads may share it; each event is delivered to one of them. A forked child continues independently
    from the position of its parent.

    Attributes
    ----------
    names : list of str
        The objects that existed when it started. Every later change is delivered once, so applying the events to
        ``names`` gives the current names.
    """

    _opened: Catalog | None = None

    def __init__(self, catalog: Catalog, prefix: str) -> None:
        self._name = catalog.directory.name
        self._prefix = prefix
        self._coded = prefix.encode()
        self._pending: deque[Event] = deque()
        self._locks: dict[int, _thread.RLock] = {}
        """Reentrant, as a signal handler may close the watch in the middle of a look."""
        self._opened = catalog
        self._last = last_event(catalog.memory)
        self._known = self._now(catalog)
        self.names = sorted(self._known)

    @property
    def _catalog(self) -> Catalog:
        """The catalog, which stays open as long as a call refers to it; Closed after :meth:`close`."""
        catalog = self._opened
        if catalog is None:
            raise Closed(f"the watch of {self._name!r} is closed; make a new one")
        return catalog

    def _now(self, catalog: Catalog) -> dict[str, int]:
        """Return the generations of all objects by name."""
        generations: dict[str, int] = {}
        for part in snapshot(catalog, "name", expired=False):
            generations.update(zip(part["name"], part["generation"].tolist(), strict=True))
        if self._prefix:
            generations = {
                name: generation for name, generation in generations.items() if name.startswith(self._prefix)
            }
        return generations

    def get(self, timeout: float | None = None) -> Event | None:
        """Return the next event, or None after ``timeout`` seconds; None waits forever.

        Raises
        ------
        Closed
            After :meth:`close`, also if another thread calls it during the wait.
        StorageError
            If the store was destroyed, after the last event.
        InvalidArgument
            If the timeout is not a valid number of seconds.
        """
        with Waiting(self._catalog, as_timeout(timeout)) as waiting:
            while (event := self._next()) is None and waiting.wait(self._coded):
                pass
            return event

    def _next(self) -> Event | None:
        """Return the next event, if any."""
        with lock_of_process(self._locks):
            return self._pending.popleft() if self._look() else None

    def _look(self) -> bool:
        """Whether there are events, perhaps new ones; called with the mutex."""
        catalog = self._catalog
        if self._pending:
            return True
        before = self._last
        self._last, events = events_since(catalog.memory, before)
        if self._last == before:
            catalog.check_exists()
        if events is None:
            self._compare(self._now(catalog))
        for kind, name, generation in events or ():
            if kind in _KINDS and name.startswith(self._coded):
                self._tell(kind, name.decode(errors="replace"), generation)
        return bool(self._pending)

    def _tell(self, kind: int, name: str, generation: int) -> None:
        known = self._known.get(name, 0)
        if generation < known or (kind == p.PUBLISHED and generation == known):
            return  # it precedes the listing of the names
        if kind == p.PUBLISHED:
            self._known[name] = generation
        elif self._known.pop(name, None) is None:
            return
        self._pending.append(Event(_KINDS[kind], name, generation))

    def _compare(self, now: dict[str, int]) -> None:
        """Append the differences between the existing objects and those reported."""
        for name in self._known.keys() - now.keys():
            self._pending.append(Event("deleted", name, self._known.pop(name)))
        for name, generation in now.items():
            if self._known.get(name) != generation:
                self._pending.append(Event("published", name, generation))
        self._known = now

    def close(self) -> None:
        """Stop watching; threads waiting for an event get :class:`Closed`."""
        catalog, self._opened = self._opened, None
        if catalog is not None:
            catalog.waiters.wake_own()

    def __del__(self) -> None:
        with suppress(Exception):  # modules may be gone at the end of the interpreter
            self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self.get()
        assert event is not None
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._opened is None else ""
        return f"<Watch of {self._name!r}, names that begin with {self._prefix!r}{closed}>"
