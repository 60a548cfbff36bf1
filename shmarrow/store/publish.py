"""Publishing: writing the bytes of an object and adding it to the store atomically.

An object is written to an unnamed file. In a store with a capacity, an object larger than :data:`DRAFT_SIZE` starts as
a draft: a slot of the catalog that reserves its bytes. The file is linked and the object added to the catalog in one
hold of the commit lock. A publication interrupted by an error or a signal leaves at most the file that it was linking,
whose number is recorded, and which the next holder of the lock removes.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import U1
from shmarrow.codecs.encode import Encoded
from shmarrow.errors import GenerationChanged, ObjectExists, ObjectNotFound, StorageError, StoreFull, storage_error
from shmarrow.segment import SegmentWriter
from shmarrow.segment.files import pwrite_all
from shmarrow.segment.host import allows_memory
from shmarrow.store import protocol as p
from shmarrow.store.catalog import Catalog
from shmarrow.store.protocol import file_name
from shmarrow.store.slots import Entry, sum_of
from shmarrow.store.space import Space, round_up
from shmarrow.store.transaction import Transaction

DRAFT_SIZE = 1 << 20
_UNNAMED: int = getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PIECE = 1 << 20
_AROUND = 1 << 13
"""Bytes of memory that a small file may need in addition to its contents."""


THIS_PROCESS = -1


class PutOptions(NamedTuple):
    """The validated options of :meth:`Store.put`.

    ``expires`` is the expiry time by the boot clock and by the wall clock, in nanoseconds; 0 for never. ``owner`` is an
    owner number, 0 for none, or :data:`THIS_PROCESS`. ``beside`` is the name of another object, which must exist when
    this one is published.
    """

    overwrite: bool = False
    expires: tuple[int, int] = (0, 0)
    owner: int = 0
    protect: bool = False
    if_generation: int | None = None
    beside: bytes | None = None


class Publication:
    """An object being written to the store; the `PublishPolicy` of its writer."""

    def __init__(self, catalog: Catalog, name: bytes, options: PutOptions) -> None:
        self._catalog = catalog
        self._space = Space(catalog)
        self._name = name
        self._options = options
        self._draft = -1
        self._reserved = self._file = 0
        self._shares = False

    @property
    def name(self) -> str:
        """The name of the object."""
        return self._name.decode()

    def _check(self, found: Entry | None) -> None:
        """Raise an error if the existing object must not be replaced, or the object ``beside`` is missing."""
        generation = 0 if found is None or found.expired else found.generation
        expected, where = self._options.if_generation, self._catalog.directory.name
        if expected is None:
            if generation and not self._options.overwrite:
                raise ObjectExists(
                    errno.EEXIST,
                    f"the name {self.name!r} is taken in the store {where!r}; delete that object first, or pass "
                    "overwrite=True",
                )
        elif generation != expected:
            now = f"it has generation {generation}" if generation else "there is none"
            raise GenerationChanged(
                errno.EEXIST,
                f"{self.name!r} in the store {where!r} is not the object that was to be replaced: expected generation "
                f"{expected}, and {now}; read it again",
            )
        beside = self._options.beside
        if beside is not None and self._catalog.find(beside) is None:
            raise ObjectNotFound(
                errno.ENOENT,
                f"cannot put {self.name!r} into the store {where!r}: {beside.decode()!r}, which it belongs to, is gone",
            )

    # --- the file ---

    def put_value(self, encoded: Encoded) -> None:
        """Write and publish a value."""
        if encoded.size is not None and encoded.size <= DRAFT_SIZE:
            self.put([piece for part in encoded.pieces() for piece in part])
        else:
            with self.writer(encoded.size or 0) as writer:
                for part in encoded.pieces():
                    writer.write(part)

    def put(self, pieces: list[Any]) -> None:
        """Write and publish a small object."""
        fd = self._open()
        try:
            self._write(fd, pieces)
            self.publish(None, fd)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, "put", self.name) from None
        finally:
            os.close(fd)
            self.discard()

    def writer(self, size: int = 0) -> SegmentWriter:
        """Return a writer for an object written piece by piece or filled in place; its name is checked now."""
        catalog, options = self._catalog, self._options
        self._check(catalog.find(self._name))
        fd = self._open(size)
        catalog.share()  # it outlives its Store
        self._shares = True
        path = f"{catalog.directory.path}/{self.name}"
        durable = catalog.settings.durable
        return SegmentWriter(
            self.name, path, fd, None, mode=None, overwrite=options.overwrite, durable=durable, keeper=self
        )

    def _open(self, size: int = 0) -> int:
        """Create a file, unnamed if the file system supports it; space for a large one is reserved."""
        directory, mode = self._catalog.directory, self._catalog.settings.mode & 0o444
        try:
            if size > DRAFT_SIZE:
                self._reserve(size)
            if _UNNAMED:
                try:
                    return os.open(".", _UNNAMED | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=directory.fd)
                except OSError as error:
                    if error.errno not in _NO_UNNAMED:
                        raise
            if self._draft < 0:
                self._make_draft(round_up(size))
            return directory.open(file_name(self._file), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except BaseException as error:
            self.discard()
            self._catalog.check_exists()
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise storage_error(error, "put", self.name) from None
            raise

    def _write(self, fd: int, pieces: list[Any]) -> None:
        """Write a small object, evicting others if the file system is full."""
        size = sum(map(len, pieces))
        if self._catalog.volatile and not allows_memory(size + _AROUND):
            self._space.check_memory(size + _AROUND, self.name)
        while True:
            try:
                if len(pieces) > 64 or os.pwritev(fd, pieces, 0) != size:
                    pwrite_all(fd, list(pieces), 0)
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._space.make_free(round_up(size) - os.fstat(fd).st_blocks * 512, self.name)

    # --- space ---

    def make_room(self, writer: SegmentWriter, size: int) -> None:
        """Reserve space for an object about to have ``size`` bytes, and more if it grows repeatedly."""
        capacity = self._catalog.settings.capacity
        if capacity is not None and size > capacity:
            raise self._space.full(self.name, size, "it exceeds the capacity")
        more = size - writer.size
        if size <= DRAFT_SIZE:
            if more > self._catalog.directory.free():
                with suppress(StoreFull):  # they may fit a block that is allocated already
                    self._space.check_memory(more, self.name)
        elif size > self._reserved:
            more = self._reserved + (self._reserved >> 3)
            if more > size:
                with suppress(StoreFull):
                    return self._reserve(more)
            self._reserve(size)

    def full(self, writer: SegmentWriter, size: int, error: OSError) -> StorageError:
        """Return the error for a full file system."""
        return self._space.full(self.name, size, error.strerror or "the file system is full")

    def _reserve(self, size: int) -> None:
        """Reserve the bytes of a large object, evicting others for it."""
        self._space.check_memory(size - self._reserved, self.name)
        if self._catalog.settings.capacity is None:
            self._reserved = size
        else:
            self._make_draft(round_up(size))

    @property
    def _counted(self) -> int:
        """The bytes that the catalog reserves for the draft."""
        return self._reserved if self._draft >= 0 else 0

    def _make_draft(self, nbytes: int) -> None:
        catalog = self._catalog
        while True:
            with catalog.locked():
                if self._space.has_room(nbytes - self._counted):
                    transaction = Transaction(catalog)
                    if self._draft < 0:
                        self._draft = transaction.reserve(self._name, nbytes)
                        self._file = transaction.state[p.FILE]
                        catalog.exclusive.acquire(p.DRAFT_LOCKS + self._draft)
                    else:
                        transaction.enlarge_draft(self._draft, self._name, self._file, self._reserved, nbytes)
                    transaction.commit()
                    self._reserved = nbytes
                    return
            self._space.make_room(nbytes - self._counted, self.name)

    # --- publishing ---

    def publish(self, writer: SegmentWriter | None, fd: int) -> str:
        """Publish the complete object, and return the path of its file."""
        catalog, options = self._catalog, self._options
        settings = catalog.settings
        status = os.fstat(fd)
        if settings.mode & 0o444 != status.st_mode & 0o777:
            os.fchmod(fd, settings.mode & 0o444)  # the umask of the process removed bits
        if status.st_uid != catalog.directory.owner[0]:
            catalog.directory.give(fd)
        flags, total = p.PROTECTED if options.protect else 0, 0
        if settings.durable:
            os.fsync(fd)
            flags |= p.SYNCED
        elif not catalog.volatile:
            flags |= p.SUMMED
            total = file_sum(fd, status.st_size)
        needed = allocated = status.st_blocks * 512
        while True:
            with catalog.locked():
                replaced = catalog.find(self._name)
                self._check(replaced)
                needed = allocated - self._counted
                if replaced is not None and not self._space.has_room(needed):
                    needed -= self._space.freed_with(replaced)
                if self._space.evict_here(needed, self._name):
                    return self._commit(fd, status, flags, total, replaced)
            self._space.make_room(needed, self.name)

    def _commit(self, fd: int, status: os.stat_result, flags: int, total: int, replaced: Entry | None) -> str:
        catalog, options = self._catalog, self._options
        transaction = Transaction(catalog)
        owner = catalog.own_number(transaction) if options.owner == THIS_PROCESS else options.owner
        if owner and catalog.owner_of(owner) is None and owner != transaction.owner:
            raise StorageError(
                errno.ESRCH,
                f"cannot put {self.name!r} into the store {catalog.directory.name!r}: the process that was to own it, "
                f"owner number {owner}, has ended",
            )
        slot, file = self._draft, self._file
        if slot < 0:
            slot = transaction.take_slot()
        else:
            transaction.publish_draft(self._reserved)
        if not (file and status.st_nlink):
            file = _link(fd, catalog, transaction, slot, file)
        if catalog.settings.durable:
            catalog.directory.sync()
        place = slot, transaction.new_generation(), catalog.hash(self._name), file, status.st_size
        numbers = status.st_blocks * 512, time.time_ns(), *options.expires, owner, total, p.LIVE, flags
        transaction.insert(Entry(*place, *numbers, self._name), replaced, time.monotonic_ns())
        transaction.commit()
        catalog.end_adding()
        if self._draft >= 0:
            catalog.exclusive.release(p.DRAFT_LOCKS + slot)
            self._draft = -1
        return f"{catalog.directory.path}/{file_name(file)}"

    def discard(self, writer: SegmentWriter | None = None) -> None:
        """Release reserved space; does nothing after :meth:`publish`."""
        catalog, slot = self._catalog, self._draft
        if slot >= 0:
            catalog.exclusive.release(p.DRAFT_LOCKS + slot)
            self._draft = -1
            # A finalizer in the middle of a change leaves the draft; the next process that needs the space frees it.
            if not catalog.lock.mine:
                with suppress(StorageError):
                    self._space.drop_dead(slot)
        if self._shares:
            self._shares = False
            catalog.release()

    def __del__(self) -> None:
        with suppress(AttributeError):  # the constructor failed
            self.discard()


def _link(fd: int, catalog: Catalog, transaction: Transaction, slot: int, file: int) -> int:
    """Link a file under its number, or a new one, and return it; the next lock holder removes it if uncommitted."""
    while True:
        if not file:
            transaction.state[p.FILE] += 1
            file = transaction.state[p.FILE]
        catalog.begin_adding(slot, file)
        try:
            os.link(
                f"/proc/self/fd/{fd}",
                file_name(file),
                src_dir_fd=fd,
                dst_dir_fd=catalog.directory.fd,
                follow_symlinks=True,
            )
            return file
        except FileExistsError:  # a leftover file; no object of the store has this number
            file = 0


def file_sum(fd: int, size: int) -> int:
    """Return the sum of a file's 64-bit words modulo 2**64, which shows after a power failure if it is complete."""
    total = done = 0
    buffer = np.empty(min(size, _PIECE), U1)  # fits the CPU cache
    while count := os.preadv(fd, [buffer.data[: size - done]], done):
        total += sum_of(buffer[:count])
        done += count
    return total & (1 << 64) - 1
