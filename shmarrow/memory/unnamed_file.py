# SPDX-License-Identifier: Apache-2.0
"""A file being written, which nobody sees until it is whole, and its destination, which gives it a name then.

Data are written with ``pwritev``, or through a mapping after reserving space, as a mapped write to a full file system
raises SIGBUS. For the same reason published files have no holes: on tmpfs even reading a hole allocates a page.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import StorageError
from shmarrow.memory.files import allocate, populate, pwrite_all
from shmarrow.memory.life_cycle import Sink
from shmarrow.memory.location import became_smaller, is_shm, refused, resolve, taken
from shmarrow.memory.mappings import map_file, mapping_of, published
from shmarrow.memory.state_machine import PROCESS

_SMALL, _GROUP, _FEW = 1 << 16, 1 << 20, 64
_MOST_PIECES = 256
"""Pieces that are written as they are: more are joined first."""


def joined(pieces: Sequence[Any]) -> list[Any]:
    """Join runs of small pieces by copying; large pieces are kept."""
    count = len(pieces)
    if 0 < count <= _FEW and sum(map(len, pieces)) < _SMALL:
        return [pieces[0] if count == 1 else b"".join(pieces)]
    sizes = np.fromiter(map(len, pieces), np.int64, count)
    # A run ends before and after a large piece, and at the size of a group.
    large = sizes >= _SMALL
    groups = np.cumsum(sizes) // _GROUP
    ends = np.flatnonzero(large[1:] | large[:-1] | (groups[1:] != groups[:-1])) + 1
    bounds = [0, *ends.tolist(), count] if count else []
    return [pieces[start] if end - start == 1 else b"".join(pieces[start:end]) for start, end in pairwise(bounds)]


class Destination:
    """Where a file goes once it is whole.

    Attributes
    ----------
    name : str
        Name for error messages.
    path : str
        Path of the file, once published.
    """

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path

    @property
    def location(self) -> str:
        """The ``shm:`` name or absolute path to open it by, once published."""
        return self.name if is_shm(self.name) else self.path

    def create(self) -> tuple[int, str | None]:
        """Open the new file; returns its descriptor, and its temporary name if it could not do without."""
        raise NotImplementedError

    def make_room(self, file: UnnamedFile, size: int, reserved: bool = False) -> None:
        """Make space for a file that is about to have ``size`` bytes, or to reserve them; others may be evicted."""

    def recover(self, file: UnnamedFile, error: OSError, action: str, size: int) -> None:
        """Handle a refused write up to ``size``: raise, or return to try again."""
        raise refused(error, action, self.name, self.path) from None

    def publish(self, file: UnnamedFile) -> None:
        """Give the complete file its owner, its mode and its name."""
        raise NotImplementedError


class UnnamedFile(Sink):
    """A file being written.

    Attributes
    ----------
    size : int
        Bytes written or mapped so far; the final size.
    fd : int
        Its descriptor; -1 once it was dropped.
    temp : str or None
        Its temporary name, if it has one.
    given : bool
        Whether others have the descriptor, so that no other file can take its place.
    maps : list of ndarray
        What was mapped of it.
    destination : Destination
        Where it goes.
    """

    fd = -1  # unless the constructor came far enough

    def __init__(self, destination: Destination) -> None:
        self.name = destination.name
        self.size = 0
        self.temp: str | None = None
        self.given = False
        self.destination = destination
        self._reserved = 0
        self._torn = False
        self.maps: list[Bytes] = []
        self._process = PROCESS[0]
        self.fd, self.temp = destination.create()
        self._status = os.fstat(self.fd)

    # --- writing ---

    def write(self, pieces: Sequence[Any], offset: int | None = None) -> int:
        """Write pieces in order, by default at the end; skipped bytes are zero, and an error leaves ``size`` as it was.

        Raises
        ------
        StorageError
            As the destination's ``recover`` says.
        """
        if offset is None:
            offset = self.size
        if self._torn:
            self._mend()
        if offset > self.size:
            self.reserve(offset)
        nbytes = sum(map(len, pieces))
        if len(pieces) > _MOST_PIECES:
            pieces = joined(pieces)
        end = offset + nbytes
        self.destination.make_room(self, end)
        self._torn = True
        while True:
            try:
                pwrite_all(self.fd, pieces, offset, nbytes)
                break
            except OSError as error:
                if error.errno == errno.EFAULT:
                    raise _lost_source(self.name, pieces) from None
                self.destination.recover(self, error, "write to", end)
        if nbytes and end > self.size:
            self.size = end
        self._torn = False
        return nbytes

    def reserve(self, size: int) -> None:
        """Reserve space for ``size`` bytes, so that later writes within it cannot fail for lack of space."""
        if self._torn:
            self._mend()
        start = max(self.size, self._reserved)
        if size <= start:
            return
        self.destination.make_room(self, size, reserved=True)
        while True:
            self._torn = True
            try:
                allocate(self.fd, start, size - start)
                break
            except OSError as error:
                os.ftruncate(self.fd, start)  # ext4 keeps partially allocated blocks
                self._torn = False
                self.destination.recover(self, error, f"reserve {size} bytes for", size)
        self._reserved = size
        self._torn = False

    def map(self, size: int) -> Bytes:
        """Map the first ``size`` bytes to be filled in place; reserves them and counts them as written."""
        self.reserve(size)
        place = self.destination
        try:
            mapped = map_file(self.fd, size, place.location, None, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise refused(error, f"map {size} bytes of", self.name, place.path) from None
        populate(mapped)
        self.maps.append(mapped)
        self.size = max(self.size, size)
        return mapped

    def _mend(self) -> None:
        """Remove what an interrupted or refused write left beyond the end, as bytes skipped later must be zero."""
        os.ftruncate(self.fd, self.size)
        self._reserved = 0
        self._torn = False

    # --- the end ---

    def publish(self) -> None:
        """Cut what is reserved beyond the end, make what was mapped read-only, and publish it."""
        if self.fd < 0:
            return
        place = self.destination
        try:
            if self._torn or self._reserved > self.size:
                os.ftruncate(self.fd, self.size)
            for mapped in self.maps:
                mapped.flags.writeable = False
            place.publish(self)
            for mapped in self.maps:
                published(mapped, os.fstat(self.fd), place.location)
        except StorageError:
            raise
        except FileExistsError:
            raise taken(self.name) from None
        except OSError as error:
            raise refused(error, "publish", self.name, place.path) from None

    def replace(self, fd: int, temp: str) -> int:
        """Go on with another file of the same contents, which has a temporary name; returns the descriptor before."""
        self.temp, before, self.fd, self._status = temp, self.fd, fd, os.fstat(fd)
        self.maps.clear()  # they are views of the file that goes
        return before

    def drop(self) -> None:
        """Close the file, and remove its temporary name; a forked child closes what it still has of its parent's."""
        self.maps.clear()
        known = True
        try:
            if self._process != PROCESS[0]:  # it may have closed this, and have another file of the number
                known = os.path.samestat(os.fstat(self.fd), self._status)
            elif self.temp is not None and os.path.samestat(os.lstat(self.temp), self._status):
                os.unlink(self.temp)
        except OSError:
            pass
        fd, self.fd = self.fd, -1
        if fd >= 0 and known:
            os.close(fd)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.fd >= 0:
            try:
                self.drop()
            except Exception:
                if not is_finalizing():  # at the end of the interpreter, modules may be gone
                    raise


def _lost_source(name: str, pieces: Iterable[Any]) -> StorageError:
    """Return the error for pieces that are mapped from a file that was truncated: its pages are gone."""
    for mapping in filter(None, map(mapping_of, pieces)):
        with suppress(OSError):
            if mapping.location is not None and os.stat(resolve(mapping.location)[1]).st_size < mapping.size:
                return became_smaller(f"write {name!r} from", mapping.location, mapping.size)
    return StorageError(errno.EFAULT, f"cannot write to {name!r}: the memory of what is written is not there any more")
