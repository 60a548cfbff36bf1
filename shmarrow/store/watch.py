"""Change notification: a ring of events in the catalog, and inotify to wait for the next one.

After each commit the writer writes to the file ``pins``, which wakes all listeners. Invariants:

* the ring contains the last 256 events in order, so a listener that wakes late misses none; one that is further behind
  compares the existing objects with those it has reported;
* a waiting thread starts to listen before its first check and checks again periodically, so no event is lost;
* closing an inotify descriptor takes milliseconds, so listeners are reused; none is closed while a thread waits on it.
  A forked child has its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self

from shmarrow.errors import Closed
from shmarrow.segment.inotify import Listener, listen
from shmarrow.store import protocol as p
from shmarrow.store.arguments import as_timeout
from shmarrow.store.catalog import Catalog

RECHECK = 0.1
"""Seconds after which a listener checks without having been woken."""
POLL = 0.005
"""Seconds between two checks if inotify is not available."""
_EVENTS = p.HEADER["events"][0] >> 3


class Listeners:
    """A pool of idle listeners of a store."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._closed = False
        self._idle: list[Listener] = []

    def take(self) -> Listener | None:
        """Return a listener; None if the system has no inotify instance left."""
        with suppress(IndexError):
            while True:
                found = self._idle.pop()
                if found.pid == os.getpid():
                    found.drain()
                    return found
                found.close()
        return listen(self.catalog.pins_fd)

    def give_back(self, listener: Listener | None) -> None:
        """Return a listener to the pool."""
        if listener is not None:
            self._idle.append(listener)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Close the idle listeners now, and the others when they are given back."""
        self._closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class Waiting:
    """A context manager that waits for commits; listens from the start of the ``with`` block."""

    def __init__(self, listeners: Listeners, timeout: float | None) -> None:
        self._listeners = listeners
        self._end = None if timeout is None else time.monotonic() + timeout
        self._listener: Listener | None = None

    def __enter__(self) -> Self:
        self._listener = self._listeners.take()
        return self

    def wait(self, longest: float = RECHECK) -> bool:
        """Wait for a commit, at most ``longest`` seconds; False if the timeout has expired."""
        self._listeners.catalog.check_exists()
        return _wait(self._listener, self._end, longest)

    def __exit__(self, *_: object) -> None:
        self._listeners.give_back(self._listener)


def _wait(listener: Listener | None, end: float | None, longest: float = RECHECK) -> bool:
    """Wait for a commit, at most ``longest`` seconds; False if ``end`` has passed."""
    left = longest if end is None else min(longest, end - time.monotonic())
    if left <= 0:
        return False
    time.sleep(min(left, POLL)) if listener is None else listener.wait(left)
    return True


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

    ``async for`` works, too. It keeps working when the Store is closed. Thread safety: threads may share it; each event
    is delivered to one of them. A forked child continues independently from the position of its parent.

    Attributes
    ----------
    names : list of str
        The objects that existed when it started. Every later change is delivered once, so applying the events to
        ``names`` gives the current names.
    """

    _closed = True

    def __init__(self, catalog: Catalog, prefix: str) -> None:
        self._catalog = catalog
        self._prefix = prefix
        self._pending: deque[Event] = deque()
        self._begin()
        self._last = catalog.memory.words[_EVENTS]
        self._known = self._now()
        self.names = sorted(self._known)
        catalog.share()
        self._closed = False

    def _begin(self) -> None:
        """Start to listen in this process."""
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._using = 0
        self._listener = listen(self._catalog.pins_fd)

    @contextmanager
    def _used(self) -> Iterator[Listener | None]:
        """Return the listener, and keep it open during the block."""
        if self._pid != os.getpid():
            self._begin()
        with self._mutex:
            self._check_open()
            self._using += 1
        try:
            yield self._listener
        finally:
            with self._mutex:
                self._using -= 1
                self._end()

    def _end(self) -> None:
        """Release everything when it is closed and the last thread has left."""
        if self._closed and not self._using:
            if self._listener is not None:
                self._listener.close()
            self._catalog.release()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the watch of {self._catalog.directory.name!r} is closed; make a new one")

    def _now(self) -> dict[str, int]:
        """Return the generations of all objects by name."""
        found: dict[str, int] = {}
        for part in self._catalog.snapshot("name", expired=False):
            found.update(zip(part["name"], part["generation"].tolist(), strict=True))
        if self._prefix:
            found = {name: generation for name, generation in found.items() if name.startswith(self._prefix)}
        return found

    def fileno(self) -> int:
        """Return a file descriptor for select and event loops; when it is readable, call ``get(0)``.

        Raises
        ------
        Closed
            After :meth:`close`, or if the system has no inotify instance left.
        """
        with self._used() as listener:
            if listener is None:
                raise Closed("this watch has no descriptor to wait for: the system has no inotify left")
            return listener.fd

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
        seconds = as_timeout(timeout)
        end = None if seconds is None else time.monotonic() + seconds
        with self._used() as listener:
            while True:
                found = self._next(listener)
                if found is not None or not _wait(listener, end):
                    return found

    def _next(self, listener: Listener | None) -> Event | None:
        """Return the next event, if any."""
        with self._mutex:
            self._check_open()
            if not self._pending:
                if listener is not None:
                    listener.drain()
                self._look()
            return self._pending.popleft() if self._pending else None

    def _look(self) -> None:
        """Append the events since the last call."""
        memory = self._catalog.memory
        latest = memory.words[_EVENTS]
        if self._last == latest:
            self._catalog.check_exists()
        while self._last < latest:
            number = self._last + 1
            at = p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE
            raw = bytes(memory.bytes[at : at + p.EVENT_SIZE])
            found, generation, kind, length = p.EVENT_STRUCT.unpack_from(raw)
            if found != number or memory.words[at >> 3] != number:  # overwritten: this watch is too far behind
                self._last = memory.words[_EVENTS]
                self._compare()
                return
            self._last = number
            name = raw[24 : 24 + min(length, p.NAME_MAX)].decode(errors="replace")
            if kind in _KINDS and name.startswith(self._prefix):
                self._tell(kind, name, generation)

    def _tell(self, kind: int, name: str, generation: int) -> None:
        known = self._known.get(name, 0)
        if generation < known or (kind == p.PUBLISHED and generation == known):
            return  # it precedes the listing of the names
        if kind == p.PUBLISHED:
            self._known[name] = generation
        elif self._known.pop(name, None) is None:
            return
        self._pending.append(Event(_KINDS[kind], name, generation))

    def _compare(self) -> None:
        """Append the differences between the existing objects and those reported."""
        now = self._now()
        for name in self._known.keys() - now.keys():
            self._pending.append(Event("deleted", name, self._known.pop(name)))
        for name, generation in now.items():
            if self._known.get(name) != generation:
                self._pending.append(Event("published", name, generation))
        self._known = now

    def close(self) -> None:
        """Stop listening; threads waiting for an event get :class:`Closed`."""
        if self._pid != os.getpid():
            self._begin()
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._end()

    def __del__(self) -> None:
        with suppress(Exception):  # modules may be gone at the end of the interpreter
            self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        found = self.get()
        assert found is not None
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        import asyncio

        loop = asyncio.get_running_loop()
        with self._used() as listener:
            while (found := self._next(listener)) is None:
                woken = asyncio.Event()
                if listener is not None:
                    loop.add_reader(listener.fd, woken.set)
                try:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(woken.wait(), POLL if listener is None else RECHECK)
                finally:
                    if listener is not None:
                        loop.remove_reader(listener.fd)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<Watch of {self._catalog.directory.name!r}, names that begin with {self._prefix!r}{closed}>"
