"""Publishing: writing the bytes of an object and adding it to the store atomically.

An object is written to a file without a name. What is larger than :data:`DRAFT_SIZE` is a draft from the start, in a
store that keeps a capacity: a slot of the catalog that counts its bytes. The file gets its name, a number, and the
object its own in one hold of the commit lock. A publication that ends anywhere, by an error or a signal, leaves at most
the number of the file that it was adding, which whoever has the lock next removes.
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
"""Bytes of memory that a small file may take beyond those that are written."""


THIS_PROCESS = -1


class PutOptions(NamedTuple):
    """How an object is put: the arguments of :meth:`Store.put`, checked.

    ``expires`` is by the clock of this boot and by that of the wall, in nanoseconds; 0 for never. ``owner`` is an
    owner's number, 0 for nobody and :data:`THIS_PROCESS` for the number that this process has or gets. ``beside`` is
    the name of another object: if that is not there at the moment of publishing, nothing is published.
    """

    overwrite: bool = False
    expires: tuple[int, int] = (0, 0)
    owner: int = 0
    protect: bool = False
    if_generation: int | None = None
    beside: bytes | None = None


class Publication:
    """An object on its way into the store; the `PublishPolicy` of its writer."""

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
        """The name that the object gets."""
        return self._name.decode()

    def _check(self, found: Entry | None) -> None:
        """Refuse to replace an object that is not to be replaced, or to publish one that nobody waits for any more."""
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
        """A writer for an object whose pieces come one by one, or that is filled in place; its name is checked now."""
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
        """A new file of the store, without a name if the file system can; room is reserved for a large one."""
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
        """Write all of a small object; others are evicted for it where the file system is full."""
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

    # --- room ---

    def make_room(self, writer: SegmentWriter, size: int) -> None:
        """Reserve room for an object that is about to have ``size`` bytes, and for some more where it grows."""
        capacity = self._catalog.settings.capacity
        if capacity is not None and size > capacity:
            raise self._space.full(self.name, size, "it exceeds the capacity")
        more = size - writer.size
        if size <= DRAFT_SIZE:
            if more > self._catalog.directory.free():
                with suppress(StoreFull):  # they may lie in a block that is there already
                    self._space.check_memory(more, self.name)
        elif size > self._reserved:
            more = self._reserved + (self._reserved >> 3)
            if more > size:
                with suppress(StoreFull):
                    return self._reserve(more)
            self._reserve(size)

    def full(self, writer: SegmentWriter, size: int, error: OSError) -> StorageError:
        """The error when the file system has no room."""
        return self._space.full(self.name, size, error.strerror or "the file system is full")

    def _reserve(self, size: int) -> None:
        """Have the bytes of a large object counted, and others evicted for them."""
        self._space.check_memory(size - self._reserved, self.name)
        if self._catalog.settings.capacity is None:
            self._reserved = size
        else:
            self._make_draft(round_up(size))

    @property
    def _counted(self) -> int:
        """The bytes that the catalog counts for the draft."""
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
        """Give the whole object its name; the path of its file."""
        catalog, options = self._catalog, self._options
        settings = catalog.settings
        status = os.fstat(fd)
        if settings.mode & 0o444 != status.st_mode & 0o777:
            os.fchmod(fd, settings.mode & 0o444)  # the umask of the process took bits away
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
                f"number {owner} among its owners, has ended",
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
        """Give back what was reserved; nothing happens after :meth:`publish`."""
        catalog, slot = self._catalog, self._draft
        if slot >= 0:
            catalog.exclusive.release(p.DRAFT_LOCKS + slot)
            self._draft = -1
            # Otherwise it is a finalizer that runs in the middle of a change, and whoever needs the room takes it.
            if not catalog.lock.mine:
                with suppress(StorageError):
                    self._space.drop_dead(slot)
        if self._shares:
            self._shares = False
            catalog.release()

    def __del__(self) -> None:
        with suppress(AttributeError):  # where making it failed
            self.discard()


def _link(fd: int, catalog: Catalog, transaction: Transaction, slot: int, file: int) -> int:
    """Give a file its number, the next one if it has none; what it leaves if it ends here goes with the next lock."""
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
        except FileExistsError:  # no object of the store has this number, whoever left the file
            file = 0


def file_sum(fd: int, size: int) -> int:
    """The sum of a file's 64-bit words, modulo 2**64: what tells after a power cut whether all of it was written."""
    total = done = 0
    buffer = np.empty(min(size, _PIECE), U1)  # small enough for the cache of the processor
    while count := os.preadv(fd, [buffer.data[: size - done]], done):
        total += sum_of(buffer[:count])
        done += count
    return total & (1 << 64) - 1
