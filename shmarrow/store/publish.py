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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from shmarrow.errors import GenerationChanged, ObjectExists, StorageError, StoreFull, storage_error
from shmarrow.segment import SegmentWriter
from shmarrow.segment.host import allows_memory
from shmarrow.store import protocol as p
from shmarrow.store.arguments import THIS_PROCESS, PutOptions
from shmarrow.store.catalog import Catalog
from shmarrow.store.index import slots_for
from shmarrow.store.protocol import Entry, file_name
from shmarrow.store.space import Space, round_up
from shmarrow.store.transaction import Transaction

T = TypeVar("T")
DRAFT_SIZE = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_AROUND = 1 << 13
"""Bytes of memory that a small file may need in addition to its contents."""


def check_replaced(catalog: Catalog, name: str, found: Entry | None, options: PutOptions) -> None:
    """Raise an error if the existing object must not be replaced."""
    generation = 0 if found is None or found.expired else found.generation
    expected, where = options.if_generation, catalog.directory.name
    if expected is None:
        if generation and not options.overwrite:
            raise ObjectExists(
                errno.EEXIST,
                f"the name {name!r} is taken in the store {where!r}",
                hint="delete that object first, or pass overwrite=True",
            )
    elif generation != expected:
        now = f"it has generation {generation}" if generation else "there is none"
        raise GenerationChanged(
            errno.EEXIST,
            f"{name!r} in the store {where!r} is not the object that was to be replaced: expected generation "
            f"{expected}, and {now}; read it again",
        )


def _owner_of(catalog: Catalog, transaction: Transaction, name: str, options: PutOptions) -> int:
    """Return the owner number of an object that is published; 0 for none."""
    owner = catalog.own_number(transaction) if options.owner == THIS_PROCESS else options.owner
    if owner and catalog.owner_of(owner) is None and owner != transaction.owner:
        raise StorageError(
            errno.ESRCH,
            f"cannot put {name!r} into the store {catalog.directory.name!r}: the process that was to own it, "
            f"owner number {owner}, has ended",
        )
    return owner


def _publish(catalog: Catalog, name: bytes, options: PutOptions, needed: int, commit: Callable[[Entry | None], T]) -> T:
    """Call a function under the lock that adds an object of ``needed`` bytes, once there is room for it.

    The function is given the object that is replaced, if any.
    """
    space, text = Space(catalog), name.decode()
    while True:
        with catalog.mutex, catalog.locked:
            replaced = catalog.find(name)
            check_replaced(catalog, text, replaced, options)
            more = needed
            if replaced is not None and not space.has_room(needed):
                more -= space.freed_with(replaced)
            if space.evict_here(more, name):
                return commit(replaced)
        space.make_room(more, text)


def put_inline(catalog: Catalog, name: bytes, options: PutOptions, data: bytes) -> None:
    """Publish a small object in the control file."""

    def commit(replaced: Entry | None) -> None:
        catalog.check_exists()  # else a removed control file would take it
        transaction = catalog.transaction()
        owner = _owner_of(catalog, transaction, name.decode(), options)
        now, flags = time.time_ns(), p.PROTECTED if options.protect else 0
        generation = transaction.new_generation()
        fields = generation, catalog.hash(name), 0, 0, 0, now, options.expires, owner, p.LIVE, flags
        transaction.insert_inline(Entry(*fields, len(name), 0, 0, name), data, replaced, now)
        catalog.commit(transaction)

    _publish(catalog, name, options, slots_for(name, len(data)) * p.SLOT_SIZE, commit)


class Publication(SegmentWriter):
    """An object being written to the store, whose name is checked at the start and when it is published.

    ``size`` is that of the object if it is known: space for a large one is reserved. ``parts`` are open descriptors of
    files that it shares with other objects.

    Attributes
    ----------
    checked : bool
        Whether its values are known to be safe for other libraries; set before it is published.
    """

    def __init__(
        self, catalog: Catalog, name: bytes, options: PutOptions, size: int = 0, parts: Sequence[int] = ()
    ) -> None:
        self._catalog = catalog
        self._space = Space(catalog)
        self._coded = name
        self._options = options
        self._draft: Entry | None = None
        self._draft_bytes = 0
        self._expected = size
        self._parts = parts
        self.checked = False
        text = name.decode()
        super().__init__(text, f"{catalog.directory.path}/{text}")

    @property
    def location(self) -> str:
        """The path of the file, once published."""
        return self.path

    def _open(self) -> None:
        catalog, size = self._catalog, self._expected
        directory, mode = catalog.directory, catalog.settings.mode & 0o444
        if not 0 < size <= DRAFT_SIZE:  # a small object is checked soon enough
            check_replaced(catalog, self.name, catalog.find(self._coded), self._options)
        try:
            if size > DRAFT_SIZE:
                self._reserve_draft(size)
            self._fd = directory.create(mode)
        except OSError as error:
            catalog.check_exists()
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, "put", self.name) from None

    # --- space ---

    def _make_room(self, size: int) -> None:
        """Reserve space for an object about to have ``size`` bytes, and more if it grows repeatedly."""
        capacity = self._catalog.settings.capacity
        if capacity is not None and size > capacity:
            raise self._space.full(self.name, size, "it exceeds the capacity")
        if size <= DRAFT_SIZE:
            more = size - self.size + _AROUND
            if self._catalog.volatile and not allows_memory(more):
                self._space.check_memory(more, self.name)
        elif size > self._draft_bytes:
            more = self._draft_bytes + (self._draft_bytes >> 3)
            if more > size:
                with suppress(StoreFull):
                    return self._reserve_draft(more)
            self._reserve_draft(size)

    def _recover(self, error: OSError, action: str, size: int) -> None:
        """Evict others for a small object if the file system is full."""
        if error.errno not in _FULL:
            super()._recover(error, action, size)
        if size > DRAFT_SIZE:
            raise self._space.full(self.name, size, error.strerror or "the file system is full") from None
        needed = round_up(size) - os.fstat(self._fd).st_blocks * 512
        self._space.release(max(needed - self._space.free(), 1), self.name, needed, files=True)

    def _reserve_draft(self, size: int) -> None:
        """Reserve the bytes of a large object, evicting others for it."""
        self._space.check_memory(size - self._draft_bytes, self.name)
        if self._catalog.settings.capacity is None:
            self._draft_bytes = size
        else:
            self._make_draft(round_up(size))

    @property
    def _counted(self) -> int:
        """The bytes that the catalog reserves for the draft."""
        return self._draft.allocated if self._draft is not None else 0

    def _make_draft(self, nbytes: int) -> None:
        catalog = self._catalog
        while True:
            with catalog.mutex, catalog.locked:
                if self._space.has_room(nbytes - self._counted):
                    transaction = catalog.transaction()
                    if self._draft is None:
                        draft = transaction.reserve(self._coded, nbytes)
                        catalog.exclusive.acquire(p.DRAFT_LOCKS + draft.slot)
                    else:
                        draft = transaction.enlarge(self._draft, nbytes)
                    self._draft = draft
                    catalog.commit(transaction)
                    self._draft_bytes = nbytes
                    return
            self._space.make_room(nbytes - self._counted, self.name)

    def _drop_draft(self) -> None:
        catalog, draft = self._catalog, self._draft
        if draft is not None:
            catalog.exclusive.release(p.DRAFT_LOCKS + draft.slot)
            # A finalizer in the middle of a change leaves the draft; the next process that needs the space frees it.
            if not catalog.lock.mine:
                with suppress(StorageError):
                    self._space.drop_dead(draft.slot)
            self._draft = None

    # --- publishing ---

    def _publish(self) -> None:
        catalog, fd = self._catalog, self._fd
        settings = catalog.settings
        status = os.fstat(fd)
        if settings.mode & 0o444 != status.st_mode & 0o777:
            os.fchmod(fd, settings.mode & 0o444)  # the umask of the process removed bits
        if status.st_uid != catalog.directory.owner[0]:
            catalog.directory.give(fd)
        if settings.durable:
            os.fsync(fd)
        needed = status.st_blocks * 512 - self._counted
        self.path = _publish(catalog, self._coded, self._options, needed, partial(self._commit, fd, status))

    def _commit(self, fd: int, status: os.stat_result, replaced: Entry | None) -> str:
        catalog, options = self._catalog, self._options
        transaction = catalog.transaction()
        owner = _owner_of(catalog, transaction, self.name, options)
        state, draft = transaction.state, self._draft
        if draft is None:
            [slot], file = transaction.take(), state["file"] + 1
        else:
            slot, file = draft.slot, draft.file
            transaction.publish_draft(draft)
        file = catalog.files.link(fd, file, self._parts)
        state["file"] = max(file, state["file"])
        if catalog.settings.durable:
            catalog.directory.sync()
        now, flags = time.time_ns(), p.PROTECTED * options.protect | p.CHECKED * self.checked
        place = transaction.new_generation(), catalog.hash(self._coded), file, status.st_size, status.st_blocks * 512
        fields = now, options.expires, owner, p.LIVE, flags, len(self._coded), len(self._parts), 0
        transaction.insert(Entry(*place, *fields, self._coded, slot), replaced, now)
        catalog.commit(transaction)
        if draft is not None:
            catalog.exclusive.release(p.DRAFT_LOCKS + slot)
            self._draft = None
        return f"{catalog.directory.path}/{file_name(file)}"

    def _drop(self) -> None:
        if not self._states.inherited:
            self._drop_draft()
        super()._drop()
