# SPDX-License-Identifier: Apache-2.0
"""Mappings that survive truncation, by read leases (``fcntl(2)``, F_SETLEASE): an option, as they hold up writers.

A lease lives as long as its open file, which a mapping keeps open. Who opens the file for writing, or truncates it,
waits (45 s at most) until it is gone. Meanwhile the kernel signals our thread, which finds the file in ``/proc/locks``,
copies its pages and moves the copy over the mapping: that ends the lease, and views keep their values.

Invariants:

* :data:`_held` has every mapping with a lease. It is used under the lock; a mapping that is dropped meanwhile waits in
  :data:`_dropped`, and its address is not free before it is out of the table;
* the thread lives while there are such mappings. A forked child, which has no threads, takes leases of its own.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import struct
import threading
from functools import partial
from typing import Any, NamedTuple

from shmarrow.buffer import Bytes
from shmarrow.errors import StorageError
from shmarrow.memory.attached import open_object
from shmarrow.memory.location import Location, refused, resolve
from shmarrow.memory.mappings import Mapping, living, map_file

_SIGNAL = signal.SIGRTMAX - 4
_F_SETOWN_EX, _F_OWNER_TID = 15, 0
_MOVE_OVER, _MAP_FIXED = 3, 0x10
_TRIED = {0xEF53: "ext4", 0x01021994: "tmpfs", 0x58465342: "XFS"}
"""File systems whose leases have an effect, by their number in statfs."""

_libc = ctypes.CDLL(None, use_errno=True)
_word, _size = ctypes.c_void_p, ctypes.c_size_t
_libc.mmap.restype = _libc.mremap.restype = _word
_libc.mmap.argtypes = [_word, _size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mremap.argtypes = [_word, _size, _size, ctypes.c_int, _word]
_libc.mprotect.argtypes = [_word, _size, ctypes.c_int]
_libc.munmap.argtypes = [_word, _size]
_FAILED = _word(-1).value


class _Held(NamedTuple):
    size: int
    file: tuple[int, int]
    path: str


_lock = _thread.allocate_lock()
_held: dict[int, _Held] = {}
_dropped: list[tuple[int, int]] = []
_helper: tuple[int, int] | None = None
"""The number of the helper in the kernel and in Python."""


class Leased(Mapping):
    """A mapping whose file has a read lease while it is mapped."""

    __slots__ = ()
    survives = True

    def private(self, start: int = 0, stop: int | None = None) -> Bytes | None:
        return None  # a second mapping would have no lease: copy

    def __del__(self, _: Any = None, living: dict[int, None] = living) -> None:
        if self.size:
            living.pop(self.address, None)
            _dropped.append((self.address, self.size))
            _sweep()


def map_surviving(where: Location) -> tuple[str, Bytes]:
    """Map a file so that views survive its truncation; returns its name and bytes.

    Raises
    ------
    StorageError
        If the file cannot be opened, or no lease protects it: it is open for writing, belongs to another user, or lies
        on a file system where leases have no effect.
    """
    name, path = resolve(where)
    path = os.path.abspath(path)
    try:
        fd, _ = open_object(name, path)
        try:
            with _lock:
                _take(fd, name)
                status = os.fstat(fd)
                data = map_file(fd, status.st_size, path, status, kind=Leased)
                if isinstance(data.base, Leased):
                    _held[data.base.address] = _Held(len(data), (status.st_dev, status.st_ino), path)
        finally:
            os.close(fd)
            _sweep(True)
    except StorageError:
        raise
    except OSError as error:
        raise refused(error, "open", name, path) from None
    return name, data


def _take(fd: int, name: str) -> None:
    """Take a read lease, and start the helper that is told when it breaks."""
    system = ctypes.create_string_buffer(256)
    kind = -1 if _libc.fstatfs(fd, system) else ctypes.c_long.from_buffer(system).value
    lack = "" if os.access("/proc/locks", os.R_OK) else "there is no /proc/locks"
    if kind not in _TRIED:
        lack = f"leases are known to work on {', '.join(_TRIED.values())}, and this is file system {kind:#x}"
    if not lack:
        try:
            thread = _started()
            fcntl.fcntl(fd, fcntl.F_SETSIG, _SIGNAL)
            fcntl.fcntl(fd, _F_SETOWN_EX, struct.pack("ii", _F_OWNER_TID, thread))
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            return
        except OSError as error:
            reasons = {errno.EAGAIN: "the file is open for writing", errno.EACCES: "the file is another user's"}
            lack = reasons.get(error.errno or 0, f"no lease: {error.strerror}")
    text = f"cannot protect {name!r} against truncation: {lack}"
    raise StorageError(errno.EOPNOTSUPP, text, hint="pass memory_map=False, which reads it, or not survive=True")


def _started() -> int:
    """Start the helper if there is none; returns its number in the kernel."""
    if _helper is None:
        ready = threading.Event()
        thread = threading.Thread(target=_help, args=(ready,), name="shmarrow-lease", daemon=True)
        thread.start()
        ready.wait()
        atexit.register(_stop, thread)
    assert _helper is not None
    return _helper[0]


def _stop(thread: threading.Thread) -> None:
    """End the helper before the interpreter does, whose modules it uses."""
    global _helper
    atexit.unregister(_stop)
    with _lock:
        helper, _helper = _helper, None
        if helper is not None:
            signal.pthread_kill(helper[1], _SIGNAL)
    if helper is not None:
        thread.join()


def _help(ready: threading.Event) -> None:
    """Replace mappings whose leases break, until there are none left."""
    global _helper
    signals = {_SIGNAL, signal.SIGIO}  # the latter if the queue of signals is full
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    _helper = threading.get_native_id(), threading.get_ident()
    ready.set()
    while _helper:
        signal.sigwaitinfo(signals)
        with _lock:
            if _helper is None or not _held:
                _helper = None
                return
            with open("/proc/locks", encoding="ascii") as locks:
                breaking = {_file(line) for line in locks if " LEASE " in line and " BREAKING " in line}
            for address in [address for address, held in _held.items() if held.file in breaking]:
                _replace(address, _held.pop(address).size)
        _sweep()


def _file(line: str) -> tuple[int, int]:
    """The device and inode of a line of ``/proc/locks``."""
    major, minor, inode = line.split()[5].split(":")
    return os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _replace(address: int, size: int) -> None:
    """Move a copy of what is mapped at an address over it, in one step."""
    pages = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if pages != _FAILED:  # else there is no memory, and reading what is cut off ends the process, as without a lease
        ctypes.memmove(pages, address, size)
        _libc.mprotect(pages, size, mmap.PROT_READ)
        _libc.mremap(pages, size, size, _MOVE_OVER, address)


def _sweep(failed: bool = False) -> None:
    """Unmap what was dropped, unless another thread does; the helper ends with the last mapping."""
    while (_dropped or failed) and _lock.acquire(blocking=False):
        failed = False
        try:
            _unmap()
        finally:
            _lock.release()


def _unmap() -> None:
    """Unmap what was dropped; called with the lock."""
    while _dropped:
        address, size = _dropped.pop()
        _held.pop(address, None)
        _libc.munmap(address, size)
    if _helper is not None and not _held:
        signal.pthread_kill(_helper[1], _SIGNAL)


def _after_fork(child: bool = False) -> None:
    """Give the mappings of a forked child leases of its own, as those it shares with its parent last as long as it."""
    global _helper
    if child:
        _helper = None
        for address, held in list(_held.items()):
            try:
                fd = os.open(held.path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    status = os.fstat(fd)
                    if (status.st_dev, status.st_ino) != held.file:
                        raise OSError
                    _take(fd, held.path)
                    _libc.mmap(address, held.size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
                finally:
                    os.close(fd)
            except (OSError, RuntimeError):
                _replace(address, _held.pop(address).size)
    _lock.release()
    _sweep()


os.register_at_fork(before=_lock.acquire, after_in_parent=_after_fork, after_in_child=partial(_after_fork, True))
