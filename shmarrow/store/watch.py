"""What happens in a store, as it happens: a ring of events in the catalog, and inotify to wait for the next one.

Whoever commits writes to the file ``pins`` afterwards, which wakes all who listen to it. Rules kept here:

* the ring has the last 256 events in their order, so a listener that wakes late misses none; one that is further behind
  compares what is there with what it told;
* whoever waits begins to listen first and looks second, and looks again every now and then, so no event is lost;
* closing an inotify descriptor takes the kernel milliseconds, so listeners are used again. A forked child has its own;
* inotify is called through ctypes: a package would replace these few calls alone, and start a process when it is first
  used.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from shmarrow.errors import Closed
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog

RECHECK = 0.1
"""Seconds after which a listener looks for itself."""
POLL = 0.005
"""Seconds between two looks where the system does not say what happens."""
_MODIFY = 0x2
_BUFFER = 1 << 12


class Listener:
    """One inotify descriptor, which listens to the commits of one store.

    Raises
    ------
    OSError
        If the system has no inotify, or no more of it for this user.
    """

    def __init__(self, fd: int) -> None:
        self.pid = os.getpid()
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self.fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0 or libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % fd, _MODIFY) < 0:
            code = ctypes.get_errno()
            self.close()
            raise OSError(code, os.strerror(code))
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait for a commit, at most so long; forget those that were heard."""
        if not self._poll.poll(max(seconds, 0) * 1000):
            return False
        self.drain()
        return True

    def drain(self) -> None:
        """Forget what was heard."""
        with suppress(BlockingIOError):
            while len(os.read(self.fd, _BUFFER)) > _BUFFER // 2:
                pass

    def close(self) -> None:
        """Give the descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.close()


class Listeners:
    """The listeners of a store that are not in use."""

    def __init__(self, catalog: Catalog) -> None:
        self._fd = catalog.pins_fd
        self._idle: list[Listener] = []

    def take(self) -> Listener | None:
        """A listener; None where the system has none to give."""
        with suppress(IndexError):
            while True:
                found = self._idle.pop()
                if found.pid == os.getpid():
                    found.drain()
                    return found
                found.close()
        try:
            return Listener(self._fd)
        except OSError:
            return None

    def give_back(self, listener: Listener | None) -> None:
        """It is not needed any more now."""
        if listener is not None:
            self._idle.append(listener)

    def close(self) -> None:
        """Close all that are not in use."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class Waiting:
    """Waits for commits, for one ``with`` block; listens from its start on."""

    def __init__(self, listeners: Listeners, timeout: float | None) -> None:
        self._listeners = listeners
        self._end = None if timeout is None else time.monotonic() + timeout
        self._listener: Listener | None = None

    def __enter__(self) -> Self:
        self._listener = self._listeners.take()
        return self

    def wait(self, longest: float = RECHECK) -> bool:
        """Wait until something happened, or it is time to look; False if the time is over."""
        left = longest if self._end is None else min(longest, self._end - time.monotonic())
        if left <= 0:
            return False
        if self._listener is None:
            time.sleep(min(left, POLL))
        else:
            self._listener.wait(left)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listeners.give_back(self._listener)


class Event(NamedTuple):
    """Something that happened to an object.

    Attributes
    ----------
    kind : str
        ``"published"`` or ``"deleted"``. An object that is replaced is published again; one that is renamed is deleted
        under its old name and published under its new one. One that expires is deleted when it is collected.
    name : str
        The name of the object.
    generation : int
        The generation of the object; 0 where that is not known.
    """

    kind: str
    name: str
    generation: int = 0


_KINDS = {p.PUBLISHED: "published", p.DELETED: "deleted"}


class Watch:
    """The events of a store from now on: an iterator that waits for the next one; made by :meth:`Store.watch`.

    ``async for`` works, too. A forked child has its own copy from where its parent was.

    Attributes
    ----------
    names : list of str
        The objects that were there when it began. Every change after that is told once, so both together say what is
        there.
    """

    def __init__(self, catalog: Catalog, prefix: str) -> None:
        self._catalog = catalog
        self._prefix = prefix
        self._closed = False
        self._pending: deque[Event] = deque()
        self._listener: Listener | None = None
        self._listen()
        self._last = catalog.state()[p.EVENTS]
        self._known = self._now()
        self.names = sorted(self._known)

    def _now(self) -> dict[str, int]:
        """The generations of all objects, by name."""
        found: dict[str, int] = {}
        for part in self._catalog.snapshot("name", expired=False):
            found.update(zip(part["name"], part["generation"].tolist(), strict=True))
        if self._prefix:
            found = {name: generation for name, generation in found.items() if name.startswith(self._prefix)}
        return found

    def _listen(self) -> None:
        if self._listener is None or self._listener.pid != os.getpid():
            self._listener = None
            with suppress(OSError):
                self._listener = Listener(self._catalog.pins_fd)

    def fileno(self) -> int:
        """A descriptor that is readable when there may be an event, for select and event loops; then call ``get(0)``.

        Raises
        ------
        Closed
            After :meth:`close`, or where the system has no inotify to give.
        """
        self._listen()
        if self._closed or self._listener is None:
            raise Closed("this watch has no descriptor to wait for: it is closed, or the system has no inotify left")
        return self._listener.fd

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there was none in ``timeout`` seconds. Without a timeout it waits forever.

        Raises
        ------
        Closed
            After :meth:`close`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._closed:
                raise Closed(f"the watch of {self._catalog.directory.name!r} is closed; make a new one")
            if not self._pending:
                self._listen()
                if self._listener is not None:
                    self._listener.drain()
                self._look()
            with suppress(IndexError):
                return self._pending.popleft()
            left = RECHECK if end is None else min(RECHECK, end - time.monotonic())
            if left <= 0:
                return None
            if self._listener is None:
                time.sleep(min(left, POLL))
            else:
                self._listener.wait(left)

    def _look(self) -> None:
        """Tell what has happened since the last time."""
        data = self._catalog.memory.bytes
        latest = self._catalog.state()[p.EVENTS]
        while self._last < latest:
            number = self._last + 1
            at = p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE
            raw = bytes(data[at : at + p.EVENT_SIZE])
            found, generation, kind, length = p.EVENT_STRUCT.unpack_from(raw)
            after = int.from_bytes(data[at : at + 8], "little")
            if found != number or after != number:  # overwritten: this one is too far behind
                self._last = self._catalog.state()[p.EVENTS]
                self._compare()
                return
            self._last = number
            name = raw[24 : 24 + min(length, p.NAME_MAX)].decode(errors="replace")
            if kind in _KINDS and name.startswith(self._prefix):
                self._tell(kind, name, generation)

    def _tell(self, kind: int, name: str, generation: int) -> None:
        known = self._known.get(name, 0)
        if generation < known or (kind == p.PUBLISHED and generation == known):
            return  # this happened before the names were listed
        if kind == p.PUBLISHED:
            self._known[name] = generation
        elif self._known.pop(name, None) is None:
            return
        self._pending.append(Event(_KINDS[kind], name, generation))

    def _compare(self) -> None:
        """Tell what is different from what was told."""
        now = self._now()
        for name in [name for name in self._known if name not in now]:
            self._pending.append(Event("deleted", name, self._known.pop(name)))
        for name, generation in now.items():
            if self._known.get(name) != generation:
                self._pending.append(Event("published", name, generation))
                self._known[name] = generation

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        if self._listener is not None and self._listener.pid == os.getpid():
            self._listener.close()

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
        while (found := self.get(0)) is None:
            woken = asyncio.Event()
            fd = self._listener.fd if self._listener is not None else -1
            if fd >= 0:
                loop.add_reader(fd, woken.set)
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), RECHECK if fd >= 0 else POLL)
            finally:
                if fd >= 0:
                    loop.remove_reader(fd)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
