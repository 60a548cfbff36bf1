# SPDX-License-Identifier: Apache-2.0
"""File mappings: the object behind an array, and private copy-on-write mappings of it.

Invariants:

* a mapping is unmapped with the last array over it, and only then: an array holds it, and there is no other way to end
  it. It takes no descriptor and no lock, so a process maps as many files as the system allows mappings;
* it stores its object's name, device and inode. An array's mapping is found through its chain of bases, so there is no
  registry, and no lifetime is extended;
* private mappings use the same inode, by name. If the name is gone or refers to another file, :func:`writable` copies;
* private mappings reserve no memory. They keep the shared mapping alive, and so the pin of the object;
* they use at most :data:`_SHARE` of the mappings allowed per process, as large allocations fail once these are
  exhausted;
* they are only created if the file is still long enough: access beyond the end of a file raises SIGBUS.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from shmarrow.buffer import EMPTY, U1, Bytes
from shmarrow.errors import LimitExceeded, StorageError
from shmarrow.memory.location import became_smaller, refused, resolve
from shmarrow.memory.locks import open_unlocked

NDArray = np.ndarray[Any, np.dtype[Any]]

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
# In Python since 3.13; the number is valid on most Linux architectures, and unused on others.
_MAP_NORESERVE: int = getattr(
    mmap, "MAP_NORESERVE", 0x4000 if os.uname().machine in ("x86_64", "aarch64", "riscv64", "s390x") else 0
)

# Python's mmap keeps a descriptor of its file (before 3.13, always), and processes are often allowed 1,024. The C
# library's needs none.
_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap = _libc.mmap, _libc.munmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value

living: dict[int, None] = {}
"""The addresses of all mappings: changes of a dictionary are atomic, in threads and in finalizers, too."""
_FEW = 1 << 10
_SHARE = 7 / 8
"""The share of the mappings that the system allows which may be ours: the rest is for threads and libraries."""
_MAX_MAP_COUNT = "/proc/sys/vm/max_map_count"

SMALL = 1 << 16
"""Size below which a copy is cheaper than a mapping with its system calls and page faults."""


class Mapping:
    """A mapping of a file, with the identity of its object; made by :func:`map_file`, found by :func:`mapping_of`.

    Attributes
    ----------
    address : int
        Start address.
    location : str or None
        ``shm:NAME`` or the absolute path it was opened by; None for a descriptor. It may refer to another object by
        now: compare :attr:`identity`.
    status : os.stat_result or None
        Status of the file when mapped or published; None while being written, and for private mappings.
    pin : object
        Keeps the object from being evicted while mapped, such as a store's pin; None if nothing does. For a private
        mapping, the shared one.
    shared : object
        The other files that buffers of the object may be in; see :mod:`shmarrow.reuse`. None if there are none.

    Notes
    -----
    Thread safety: constant once published. A forked child may use its copy.
    """

    __slots__ = (
        "__array_interface__",
        "__weakref__",
        "address",
        "location",
        "pin",
        "shared",
        "size",
        "status",
    )

    survives = False
    """Whether views keep their values when the file is truncated."""

    def __init__(self, fd: int, size: int, prot: int, flags: int, offset: int = 0) -> None:
        self.size = 0
        if len(living) >= _FEW and len(living) >= _SHARE * _most_mappings():
            _check_count()
        address = _mmap(None, size, prot, flags, fd, offset)
        if address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise (_too_many() if code == errno.ENOMEM else None) or OSError(code, os.strerror(code))
        living[address] = None
        self.address: int = address
        self.size = size
        self.location: str | None = None
        self.status: os.stat_result | None = None
        self.pin: Any = None
        self.shared: Any = None
        read_only = not prot & mmap.PROT_WRITE
        self.__array_interface__ = {"data": (address, read_only), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self, munmap: Any = _munmap, living: dict[int, None] = living) -> None:
        # Arrays are no containers to the garbage collector, so whatever it may find, none of them is left.
        if self.size:
            living.pop(self.address, None)  # first, as another thread may get the address next
            munmap(self.address, self.size)

    def __len__(self) -> int:
        return self.size

    @property
    def data(self) -> Bytes:
        """All bytes, a ``uint8`` ndarray, which keeps the mapping alive."""
        return np.asarray(self)

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size and ctime (ns) of the file when mapped or published."""
        status = self.status
        assert status is not None
        return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns

    def private(self, start: int = 0, stop: int | None = None) -> Bytes | None:
        """Map the object privately (``MAP_PRIVATE``): copy-on-write, page by page.

        Writes are not visible to other arrays or processes, and never reach the file.

        Parameters
        ----------
        start, stop : int
            The byte range; by default all.

        Returns
        -------
        ndarray or None
            A writable ``uint8`` array of shape (stop - start,). None if the name no longer leads to the object.

        Raises
        ------
        StorageError
            If the file was truncated, if the process has too many private mappings, or if the system refuses.
        """
        stop = self.size if stop is None else stop
        name = self.location or "a mapped file"
        try:
            fd = self.descriptor()
            if fd is None:
                return None
            try:
                if os.fstat(fd).st_size < stop:
                    raise became_smaller("map", name, self.size)
                first = start & -mmap.ALLOCATIONGRANULARITY
                pages = _map_private(fd, first, stop - first, self)
            finally:
                os.close(fd)
        except StorageError:
            raise
        except OSError as error:
            raise refused(error, "map private pages of", name, name) from None
        return pages[start - first :]

    def descriptor(self, path: str | None = None) -> int | None:
        """Open a readable descriptor of the object by its name, or by another one, to be closed by the caller.

        None if the name is gone, or refers to another file.

        Raises
        ------
        OSError
            If the process has too many descriptors.
        """
        if path is None and self.location is not None:
            path = resolve(self.location)[1]
        if path is None or not path.startswith("/"):
            return None
        try:
            fd = open_unlocked(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return None
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == self.identity[:2]:
            return fd
        os.close(fd)
        return None


def map_file(
    fd: int,
    size: int,
    location: str | None,
    status: os.stat_result | None,
    prot: int = mmap.PROT_READ,
    pin: Any = None,
    shared: Any = None,
    kind: type[Mapping] = Mapping,
) -> Bytes:
    """Map the first ``size`` bytes of an open file, shared: a ``uint8`` ndarray of shape (size,).

    Raises
    ------
    OSError
        If the system refuses.
    StorageError
        If the file is smaller.
    """
    if not size:
        return EMPTY
    if (os.fstat(fd) if status is None else status).st_size < size:
        raise became_smaller("map", location or "a mapped file", size)
    mapping = kind(fd, size, prot, mmap.MAP_SHARED)
    mapping.location = location
    mapping.status = status
    mapping.pin = pin
    mapping.shared = shared
    return np.asarray(mapping)


def published(data: Bytes, status: os.stat_result, location: str) -> None:
    """Record where a file is published that was mapped while it was written; ``data`` is the array of the mapping."""
    mapping = _owner(data)
    if mapping is not None:
        mapping.status = status
        mapping.location = location


def mapping_of(memory: Any) -> Mapping | None:
    """Return the mapping behind an ndarray, a memoryview or a ``Buffer``, if mapped by this package.

    Returns
    -------
    Mapping or None
        None for other memory, private mappings, and objects still being written.
    """
    owner = _owner(memory)
    return None if owner is None or owner.status is None else owner


def shared_of(data: Bytes | None) -> Any:
    """Return the other files that buffers of a mapped object may be in; None for almost all memory."""
    mapping = None if data is None else mapping_of(data)
    return None if mapping is None else mapping.shared


def _owner(memory: Any) -> Mapping | None:
    """Return the mapping at the end of a chain of bases, or None."""
    while not isinstance(memory, Mapping):
        if isinstance(memory, np.ndarray):
            memory = memory.base
        elif isinstance(memory, memoryview):
            memory = memory.obj
        else:
            return None
    return memory


# --- writable memory --------------------------------------------------------------------------------------------


def as_writable(array: NDArray) -> NDArray:
    """Return the array itself if writable, else as :func:`writable`."""
    return array if array.flags.writeable else writable(array)


def writable(array: NDArray) -> NDArray:
    """Return an array's elements in private writable memory.

    A copy-on-write mapping if the array is mapped and has at least :data:`SMALL` bytes, else a copy. Shape, dtype and
    values are preserved, and strides in a mapping; a copy drops gaps.

    Raises
    ------
    StorageError
        If the file behind the mapping was truncated.
    LimitExceeded
        If there is not enough memory for a copy.
    """
    low, high = _extent(array)
    if high - low >= SMALL and (placed := private_view(array)) is not None:
        return placed
    return copied(array)


def copied(array: NDArray) -> NDArray:
    """Copy an array; overlapping elements stay overlapping.

    Raises
    ------
    LimitExceeded
        If there is not enough memory.
    """
    low, high = _extent(array)
    try:
        if high - low < array.nbytes:  # elements overlap, and so do those of the copy
            owned = np.empty(high - low, U1)
            owned[:] = _bytes_at(array, low, high)
            return _placed(array, owned, low)
        return array.copy(order="K")
    except MemoryError:
        raise LimitExceeded(
            f"not enough memory for a copy of {array.nbytes} bytes; writable=False returns a view"
        ) from None


def private_view(array: NDArray) -> NDArray | None:
    """Map an array's elements privately, of any size; None if the array is not mapped."""
    mapping = mapping_of(array)
    if mapping is None:
        return None
    low, high = _extent(array)
    pages = mapping.private(low - mapping.address, high - mapping.address) if high > low else None
    return None if pages is None else _placed(array, pages, low)


def _extent(array: NDArray) -> tuple[int, int]:
    """Return the (start, end) addresses of an array's memory."""
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
    """Return a view of ``memory``, a copy of the bytes at ``address``, with shape, dtype and strides of ``array``."""
    if not array.size:
        return np.empty(array.shape, array.dtype)
    offset = array.__array_interface__["data"][0] - address
    return np.ndarray(array.shape, array.dtype, memory, offset, array.strides)


def _bytes_at(array: NDArray, low: int, high: int) -> Bytes:
    """Return the bytes spanned by an array's elements."""
    first = array[tuple([slice(-1, None) if stride < 0 else slice(0, 1) for stride in array.strides])]
    return np.lib.stride_tricks.as_strided(first.reshape(1).view(U1), (high - low,), (1,))


@cache
def _most_mappings() -> float:
    """The maximum number of mappings per process."""
    with suppress(OSError, ValueError), open(_MAX_MAP_COUNT, encoding="ascii") as limit:
        return int(limit.read())
    return float("inf")


def _check_count() -> None:
    """Reject another mapping if too few would be left."""
    _most_mappings.cache_clear()  # the limit may have been raised
    if len(living) >= _SHARE * _most_mappings() and (error := _too_many()) is not None:
        raise error


def _too_many() -> StorageError | None:
    """The error for too many mappings; None if there are few."""
    count = len(living)
    with suppress(OSError), open("/proc/self/maps", "rb") as maps:
        count = max(count, sum(1 for _ in maps))
    if count < _SHARE * _most_mappings():
        return None
    return StorageError(
        errno.ENOMEM,
        f"the process has {count:,} of the {_most_mappings():,} mappings that the system allows (vm.max_map_count), "
        "one for each open file or object, and for each writable tensor or array of 64 KiB or more",
        hint="drop those that are no longer needed, copy them, read files with memory_map=False, or raise the limit",
    )


def _map_private(fd: int, offset: int, size: int, origin: Mapping) -> Bytes:
    """Map a part of a file privately and writable; the array keeps the shared mapping, and its pin, alive."""
    mapping = Mapping(fd, size, _READ_WRITE, mmap.MAP_PRIVATE | _MAP_NORESERVE, offset)
    mapping.pin = origin
    return mapping.data
