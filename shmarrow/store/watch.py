"""What happens in a directory, as it happens: inotify where the system has it, looking again and again elsewhere.

Rules kept here:

* whoever waits for a name begins to listen first and looks second, so nothing that happens between the two is lost; and
  looks again every now and then, so that no event is needed to see what is there;
* closing an inotify descriptor takes the kernel milliseconds, so listeners are used again. A forked child has its own;
* inotify is called through ctypes: the package ``inotify_simple`` would replace these few calls alone, and starts a
  process (``ldconfig``) when it is first used, which takes 12 ms and more instead of 0.1;
* :class:`Watch` tells of every object that is published or removed after it was made. What it starts from and what it
  tells go together: whoever applies the events to the names has the names that are there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from shmarrow.errors import Closed
from shmarrow.store.place import Found, Place, found_as

RECHECK = 0.1
"""Seconds after which a listener looks for itself."""
POLL = 0.02
"""Seconds between two looks where the system does not say what happens."""

MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, OVERFLOW, IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
APPEARS = CREATE | MOVED_TO
GOES = DELETE | MOVED_FROM
LOST = DELETE_SELF | MOVE_SELF | UNMOUNT | OVERFLOW | IGNORED
"""Events after which what is known has to be looked up anew."""

IS_DIRECTORY = 0x40000000

Key = tuple[int, int]

_HEAD = struct.Struct("iIII")
_BUFFER = 1 << 12


class Listener:
    """One inotify descriptor, and the one directory that it listens to.

    Raises
    ------
    OSError
        If the system has no inotify, or no more of it for this user.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._watch = -1

    def _checked(self, result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def start(self, directory: str, events: int) -> None:
        """Listen to events of a directory from here on, and forget what was heard before."""
        with suppress(BlockingIOError):
            while os.read(self._fd, _BUFFER):
                pass
        self._watch = self._checked(self._libc.inotify_add_watch(self._fd, os.fsencode(directory), events))

    def wait(self, seconds: float) -> bool:
        """Wait until something is there to be read; whether it is."""
        return bool(self._poll.poll(max(seconds, 0) * 1000))

    def read(self) -> Iterator[tuple[int, str]]:
        """The events that are there now, and the names of the files they are about."""
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return
            position = 0
            while position < len(data):
                watch, mask, _, length = _HEAD.unpack_from(data, position)
                position += _HEAD.size + length
                if watch == self._watch or mask & OVERFLOW:
                    yield mask, os.fsdecode(data[position - length : position].rstrip(b"\0"))
            if len(data) < _BUFFER // 2:
                return

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.close()


class Listeners:
    """The listeners of a store that are not in use."""

    def __init__(self) -> None:
        self._idle: list[Listener] = []

    def take(self) -> Listener | None:
        """A listener; None where the system has none to give."""
        with suppress(IndexError):
            while True:
                found = self._idle.pop()
                if found.pid == os.getpid():
                    return found
                found.close()
        try:
            return Listener()
        except OSError:
            return None

    def give_back(self, listener: Listener) -> None:
        """It is not needed any more now; it goes on listening, as to stop takes longer than to have waited."""
        self._idle.append(listener)

    def close(self) -> None:
        """Close all that are not in use."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class Waiting:
    """Waits for one file to appear, for one ``with`` block; listens from its start on."""

    def __init__(self, listeners: Listeners, directory: str, file: str) -> None:
        self._listeners = listeners
        self._directory = directory
        self._file = file
        self._listener: Listener | None = None
        self._listening = False
        self._unread = False

    def __enter__(self) -> Self:
        self._listener = self._listeners.take()
        self._start()
        return self

    def _start(self) -> None:
        """Begin to listen; a directory that is not there now may be there later."""
        if self._listener is not None and not self._listening:
            with suppress(OSError):
                self._listener.start(self._directory, APPEARS | DELETE_SELF | MOVE_SELF)
                self._listening = True

    def wait(self, seconds: float) -> None:
        """Wait until something happened, at most so long; whether it was this file that appeared is to be looked at."""
        end = time.monotonic() + min(seconds, RECHECK)
        self._start()
        if self._listener is None or not self._listening:
            time.sleep(min(seconds, POLL))
            return
        # To look whether the file is there takes less than to read what happened, so that comes when it was not.
        if self._unread:
            self._unread = False
            for mask, file in self._listener.read():
                if mask & LOST:
                    self._listening = False
                    return
                if file == self._file:
                    return
        self._unread = self._listener.wait(end - time.monotonic())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listeners.give_back(self._listener)


class Event(NamedTuple):
    """Something that happened to an object.

    Attributes
    ----------
    kind : str
        ``"published"`` or ``"deleted"``. An object that is replaced is published again; one that is renamed is deleted
        under its old name and published under its new one.
    name : str
        The name of the object.
    """

    kind: str
    name: str


class Watch:
    """The events of a store from now on: an iterator that waits for the next one; made by :meth:`Store.watch`.

    Attributes
    ----------
    names : list of str
        The objects that were there when it began. Every change after that is told, so both together say what is there.
        An object that was published and deleted while it began may be told without being in the list.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._closed = False
        self._pending: list[Event] = []
        self._listener: Listener | None = None
        self._listening = False
        with suppress(OSError):
            self._listener = Listener()
        self._listen()
        self._first = {found.name: found.key for found in place.scan()}
        self._known: dict[str, Key | None] = dict(self._first)
        self.names = sorted(self._first)

    def _listen(self) -> None:
        if self._listener is not None and not self._listening:
            with suppress(OSError):
                self._listener.start(self._place.directory, APPEARS | GOES | DELETE_SELF | MOVE_SELF)
                self._listening = True

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None if there was none in ``timeout`` seconds.

        Raises
        ------
        Closed
            After :meth:`close`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._pending:
            if self._closed:
                raise Closed(f"the watch of {self._place.name!r} is closed; make a new one")
            left = RECHECK if end is None else min(RECHECK, end - time.monotonic())
            self._look(max(left, 0))
            if not self._pending and end is not None and time.monotonic() >= end:
                return None
        return self._pending.pop(0)

    def _look(self, seconds: float) -> None:
        """Wait for something to happen, at most so long, and say what it was."""
        if self._listener is None or not self._listening:
            time.sleep(min(seconds, POLL))
            self._listen()
            self._compare()
            return
        if self._listener.wait(seconds):
            for mask, file in self._listener.read():
                if mask & LOST:
                    self._listening = bool(mask & OVERFLOW)
                    self._compare()
                    return
                name = self._place.name_of(file)
                if name is not None and not mask & IS_DIRECTORY:
                    self._tell(mask, name)

    def _tell(self, mask: int, name: str) -> None:
        if mask & GOES:
            self._first.pop(name, None)
            if name in self._known:
                del self._known[name]
                self._pending.append(Event("deleted", name))
            return
        key = self._key(name)
        # What happened while the names were first listed may be among them already.
        if name in self._first and self._first.pop(name) == key:
            return
        self._known[name] = key
        self._pending.append(Event("published", name))

    def _key(self, name: str) -> Key | None:
        """What tells the object from others of its name; None where it is gone already."""
        try:
            return found_as(name, os.lstat(self._place.path(name))).key
        except OSError:
            return None

    def _compare(self) -> None:
        """Tell what is different from what was told."""
        try:
            now: dict[str, Found] = {found.name: found for found in self._place.scan()}
        except OSError:
            now = {}  # the directory is gone, and so are its objects
        for name in [name for name in self._known if name not in now]:
            del self._known[name]
            self._pending.append(Event("deleted", name))
        for name, found in now.items():
            if self._known.get(name) != found.key:
                self._pending.append(Event("published", name))
            self._known[name] = found.key
        self._first = {name: found.key for name, found in now.items()}

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        found = None
        while found is None:
            found = self.get()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
