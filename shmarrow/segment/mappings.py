"""Mappings of files: which object is behind an array, and private, writable pages over the same object.

Rules kept here:

* a mapping knows its object: the name it had, and device and inode. An array leads to its mapping by its chain of
  bases, so there is no registry to keep in step and nothing lives longer than it did;
* private pages are made of the same inode, whatever has happened to its name: through a descriptor of it that is open
  in this process, which each mapping has as long as it lives, and else by its name. If neither leads there (a child
  closed all descriptors), :func:`writable` copies;
* private pages use no descriptor of their own and reserve no memory. They keep the shared mapping, and so the lock that
  pins the object;
* they take at most :data:`_SHARE` of the mappings that the system allows a process: where those run out, nothing in the
  process can allocate large memory any more;
* before they are made, the file must still be as long as they reach: reading behind the end of a file is a SIGBUS.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sys
import weakref
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import LimitExceeded, StorageError
from shmarrow.segment.location import became_smaller, refused

NDArray = np.ndarray[Any, np.dtype[Any]]

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED = 0x10
# Python names it since 3.13; the number is that of most Linux architectures, and left out on the others.
_MAP_NORESERVE: int = getattr(
    mmap, "MAP_NORESERVE", 0x4000 if os.uname().machine in ("x86_64", "aarch64", "riscv64", "s390x") else 0
)
_O_PATH: int = getattr(os, "O_PATH", 0)
_DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"

SMALL = 1 << 16
"""Bytes below which a copy costs less than a mapping of its own: system calls, page faults, and one more mapping."""


class Mapped(mmap.mmap):
    """A mapping that knows its object.

    Attributes
    ----------
    location : str or None
        ``shm:NAME`` or the absolute path that it was opened by; None where only a descriptor was given.
    status : os.stat_result or None
        What the file was when it was mapped or published; None while it is being written.
    pin : object
        What keeps the object where it is while it is mapped, as a store's pin; absent where nothing does.
    """

    __slots__ = ("_descriptor", "location", "pin", "status")

    pin: Any
    _descriptor: int
    location: str | None
    status: os.stat_result | None


def map_file(
    fd: int,
    size: int,
    location: str | None,
    status: os.stat_result | None,
    prot: int = mmap.PROT_READ,
    pin: Any = None,
) -> Bytes:
    """The first ``size`` bytes of an open file, mapped and shared: a ``uint8`` ndarray of shape (size,).

    Raises ``OSError`` if the system refuses, ``ValueError`` if the file is smaller than that or ``size`` is 0.
    """
    made = Mapped(fd, size, prot=prot)  # with a duplicate of the descriptor, which shares its lock
    made.location = location
    made.status = status
    made.pin = pin
    made._descriptor = -1
    return np.frombuffer(made, U1)


def published(maps: list[Bytes], fd: int, location: str | None = None) -> None:
    """Note that what was mapped with :func:`map_file` while it was written is an object now, and where it lies."""
    if maps:
        status = os.fstat(fd)
        for data in maps:
            owner = _owner(data)
            owner.status = status
            owner.location = location or owner.location


class Mapping:
    """The mapping behind an array; made by :func:`mapping_of`. It keeps the mapping alive as an array of it does.

    Attributes
    ----------
    address : int
        Where the mapping starts.
    size : int
        Its size in bytes.

    Notes
    -----
    Thread safety: it never changes. Forked children may use theirs.
    """

    __slots__ = ("_mapped", "_status", "address", "size")

    def __init__(self, mapped: Mapped, status: os.stat_result) -> None:
        self._mapped = mapped
        self._status = status
        self.size = len(mapped)
        self.address: int = np.frombuffer(mapped, U1).__array_interface__["data"][0]

    @property
    def name(self) -> str | None:
        """``shm:NAME`` or an absolute path; None if a file object without a name was given.

        It may lead to another object by now: compare :attr:`identity`.
        """
        return self._mapped.location

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size and time of change (ns) of the file when it was mapped or published."""
        found = self._status
        return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns

    def private(self, start: int = 0, stop: int | None = None) -> Bytes | None:
        """Private pages of the object (``MAP_PRIVATE``): nothing is copied but what is written, one page at a time.

        What is written there is seen by no other array and no other process, and never reaches the file.

        Parameters
        ----------
        start, stop : int
            The bytes that are wanted; by default all.

        Returns
        -------
        ndarray or None
            A writable ``uint8`` array of shape (stop - start,). None if the object can no longer be reached: this
            process has no descriptor of it, and its name leads elsewhere.

        Raises
        ------
        StorageError
            If the file was truncated, if the process has too many private mappings, or if the system refuses.
        """
        stop = self.size if stop is None else stop
        name = self._mapped.location or "a mapped file"
        try:
            fd = self._open()
            if fd is None:
                return None
            try:
                if os.fstat(fd).st_size < stop:
                    raise became_smaller("map", name, self.size)
                first = start & -mmap.ALLOCATIONGRANULARITY
                pages = _map_private(fd, first, stop - first, self._mapped)
            finally:
                os.close(fd)
        except StorageError:
            raise
        except OSError as error:
            hint = _too_many() if error.errno == errno.ENOMEM else ""
            raise refused(error, "map private pages of", name, name, hint) from None
        return np.frombuffer(pages, U1)[start - first :]

    def _open(self) -> int | None:
        """A readable descriptor of the object, for the caller to close: of one that this process has, or by name."""
        known = self._mapped._descriptor
        if known >= 0 and (fd := self._duplicate(known)) is not None:
            return fd
        with suppress(FileNotFoundError):  # a system without such a directory
            for entry in os.listdir(_DESCRIPTORS):
                if entry.isdecimal() and (fd := self._duplicate(int(entry))) is not None:
                    self._mapped._descriptor = int(entry)
                    return fd
        path = self._mapped.location
        if path is None or not path.startswith("/"):
            return None
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            if os.path.samestat(os.fstat(fd), self._status):
                return fd
            os.close(fd)
        return None

    def _duplicate(self, number: int) -> int | None:
        """A duplicate of a descriptor, if that is one of the object; another thread may close and reuse the number."""
        try:
            if not os.path.samestat(os.fstat(number), self._status):
                return None
            fd = os.dup(number)
        except OSError as error:
            if error.errno == errno.EBADF:
                return None
            raise
        if os.path.samestat(os.fstat(fd), self._status) and _is_readable(fd):
            return fd
        os.close(fd)
        return None


def mapping_of(memory: Any) -> Mapping | None:
    """The mapping that an ndarray, a memoryview or a ``Buffer`` lies in, if this package has mapped it.

    Returns
    -------
    Mapping or None
        None for memory that is not mapped, for private pages, and for objects that are still being written.
    """
    owner = _owner(memory)
    return None if owner is None or owner.status is None else Mapping(owner, owner.status)


def _owner(memory: Any) -> Any:
    """The `Mapped` at the end of a chain of bases, or None."""
    while not isinstance(memory, Mapped):
        if isinstance(memory, np.ndarray):
            memory = memory.base
        elif isinstance(memory, memoryview):
            memory = memory.obj
        else:
            return None
    return memory


# --- writable memory --------------------------------------------------------------------------------------------


def own(array: NDArray) -> NDArray:
    """The array itself if it may be written to, as one that was made for the caller, else as :func:`writable`."""
    return array if array.flags.writeable else writable(array)


def writable(array: NDArray) -> NDArray:
    """The elements of an array in memory that may be written to, and that nobody else sees.

    Over private pages where the array lies in a mapping and takes :data:`SMALL` bytes or more, else a copy. Shape,
    dtype and values are the same. Strides stay as they are over private pages; elsewhere as far as gaps are dropped.

    Raises
    ------
    StorageError
        If the file behind the mapping was truncated.
    LimitExceeded
        If there is no memory for a copy.
    """
    low, high = _extent(array)
    if high - low >= SMALL and (placed := private_view(array)) is not None:
        return placed
    return copied(array)


def copied(array: NDArray) -> NDArray:
    """A copy: as large as the elements, or as the memory that they lie in where they overlap.

    Raises
    ------
    LimitExceeded
        If there is no memory for it.
    """
    low, high = _extent(array)
    try:
        if high - low < array.nbytes:  # elements overlap; a copy has them overlap, too
            owned = np.empty(high - low, U1)
            owned[:] = _bytes_at(array, low, high)
            return _placed(array, owned, low)
        return array.copy(order="K")
    except MemoryError:
        raise LimitExceeded(
            f"no memory for a copy of {array.nbytes} bytes; writable=False gives the shared memory itself"
        ) from None


def private_view(array: NDArray) -> NDArray | None:
    """The same elements over private pages, whatever their size; None where no mapping is behind the array."""
    mapping = mapping_of(array)
    if mapping is None:
        return None
    low, high = _extent(array)
    pages = mapping.private(low - mapping.address, high - mapping.address) if high > low else None
    return None if pages is None else _placed(array, pages, low)


def _extent(array: NDArray) -> tuple[int, int]:
    """The addresses of the first byte of an array and of the one behind its last."""
    low = high = array.__array_interface__["data"][0]
    if not array.size:
        return low, low
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high + array.itemsize


def _placed(array: NDArray, memory: Bytes, address: int) -> NDArray:
    """A view of ``memory``, a copy of what is at ``address``, with the shape, dtype and strides of ``array``."""
    if not array.size:
        return np.empty(array.shape, array.dtype)
    offset = array.__array_interface__["data"][0] - address
    return np.ndarray(array.shape, array.dtype, memory, offset, array.strides)


def _bytes_at(array: NDArray, low: int, high: int) -> Bytes:
    """The bytes that the elements of an array lie among."""
    first = array[tuple([slice(-1, None) if stride < 0 else slice(0, 1) for stride in array.strides])]
    return np.lib.stride_tricks.as_strided(first.reshape(1).view(U1), (high - low,), (1,))


def _is_readable(fd: int) -> bool:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    return not flags & _O_PATH and flags & os.O_ACCMODE != os.O_WRONLY


class _Private(mmap.mmap):
    """Private pages, which keep the shared mapping and its lock."""

    __slots__ = ("origin",)

    origin: Mapped


_lost: list[mmap.mmap] = []
_alive: weakref.WeakSet[_Private] = weakref.WeakSet()
_SHARE = 7 / 8
_MAX_MAP_COUNT = "/proc/sys/vm/max_map_count"


@cache
def _most_mappings() -> float:
    """How many mappings a process may have."""
    with suppress(OSError, ValueError), open(_MAX_MAP_COUNT, encoding="ascii") as limit:
        return int(limit.read())
    return float("inf")


def _check_count() -> None:
    """Refuse one more private mapping where there would be no room for those of others."""
    if len(_alive) >= _SHARE * _most_mappings():
        _most_mappings.cache_clear()  # it may have been raised
        if len(_alive) >= _SHARE * _most_mappings():
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def _too_many() -> str:
    """What to do where there can be no more mappings."""
    with suppress(OSError), open("/proc/self/maps", "rb") as maps:
        count = sum(1 for _ in maps)
        if count >= _SHARE * _most_mappings():
            return (
                f"the process has {count:,} of the {_most_mappings():,} mappings that the system allows "
                "(vm.max_map_count), one for each writable tensor or array of 64 KiB or more; drop those that are no "
                "longer needed, copy them, or raise the limit"
            )
    return ""


def _map_private(fd: int, offset: int, size: int, origin: Mapped) -> mmap.mmap:
    """Map a part of a file as private, writable pages, without a descriptor of their own.

    Python's mmap keeps a descriptor, of which a process may have 1,024, and always reserves memory, which the system
    refuses for files larger than it has. So it maps nothing, and what it mapped is replaced in place.
    """
    _check_count()
    made = _Private(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, prot=_READ_WRITE)
    made.origin = origin
    address = np.frombuffer(made, U1).__array_interface__["data"][0]
    flags = mmap.MAP_PRIVATE | _MAP_NORESERVE | _MAP_FIXED
    libc_mmap, get_errno = _libc_mmap()
    if libc_mmap(address, size, _READ_WRITE, flags, fd, offset) != address:
        code = get_errno()
        _lost.append(made)  # what is at its addresses is not certain, so they are never given back
        raise OSError(code, os.strerror(code))
    _alive.add(made)
    return made


@cache
def _libc_mmap() -> tuple[Any, Any]:
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return call, ctypes.get_errno
