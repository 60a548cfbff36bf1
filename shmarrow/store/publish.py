# SPDX-License-Identifier: Apache-2.0
"""Publishing: writing the bytes of an object and adding it to the store atomically.

An object is written to an unnamed file, and counts once it is added: the file is linked and the object added to the
catalog in one change. What does not fit is refused before it is written, where its size is known. A publication that is
interrupted leaves at most the file that it was linking, whose number the next holder of the lock knows.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shmarrow.errors import GenerationChanged, ObjectExists, StorageError, StoreFull, storage_error
from shmarrow.memory import Destination, UnnamedFile, allows_memory
from shmarrow.store import protocol as p
from shmarrow.store.arguments import THIS_PROCESS, PutOptions
from shmarrow.store.catalog import Catalog
from shmarrow.store.index import slots_for
from shmarrow.store.protocol import Entry, file_name
from shmarrow.store.room import free_bytes, free_slot, full, make_room, round_up, shortfall
from shmarrow.store.transaction import Transaction

LARGE = 1 << 20
"""Size in bytes up to which room is only looked for when an object is added."""
SMALLEST_CHECKED = 1 << 24
"""Size in bytes from which it is found out whether the values of an object are safe for other libraries."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_AROUND = 1 << 13
"""Bytes of memory that a small file may need in addition to its contents."""


def replaced(catalog: Catalog, name: bytes, options: PutOptions) -> Entry | None:
    """Return the object that is replaced, if any; raise an error if it must not be."""
    old = catalog.find(name)
    generation = 0 if old is None or old.expired else old.generation
    expected, where = options.if_generation, catalog.directory.name
    if expected is None:
        if generation and not options.overwrite:
            raise ObjectExists(
                errno.EEXIST,
                f"the name {name.decode()!r} is taken in the store {where!r}",
                hint="delete that object first, or pass overwrite=True",
            )
    elif generation != expected:
        now = f"it has generation {generation}" if generation else "there is none"
        raise GenerationChanged(
            errno.EEXIST,
            f"{name.decode()!r} in the store {where!r} is not the object that was to be replaced: expected generation "
            f"{expected}, and {now}; read it again",
        )
    return old


def _owner_of(catalog: Catalog, change: Transaction, name: bytes, options: PutOptions) -> int:
    """Return the owner number of an object that is published; 0 for none."""
    owner = catalog.own_number(change) if options.owner == THIS_PROCESS else options.owner
    if owner and catalog.owner_of(owner) is None and owner != change.owner:
        raise StorageError(
            errno.ESRCH,
            f"cannot put {name.decode()!r} into the store {catalog.directory.name!r}: the process that was to own it, "
            f"owner number {owner}, has ended",
        )
    return owner


def _add(
    catalog: Catalog,
    name: bytes,
    options: PutOptions,
    nbytes: int,
    insert: Callable[[Transaction, Entry | None, int], None],
) -> None:
    """Add an object of so many bytes once there is room; ``insert`` gets a change, what is replaced, and the owner."""
    while True:
        try:
            with catalog.change() as change:
                old = replaced(catalog, name, options)
                short = shortfall(catalog, change, nbytes, name, old)
                if not short:
                    insert(change, old, _owner_of(catalog, change, name, options) if options.owner else 0)
                    return
        except StoreFull as error:
            free_slot(catalog, name.decode(), error)
        else:
            make_room(catalog, name.decode(), short)


def put_inline(catalog: Catalog, name: bytes, options: PutOptions, data: bytes) -> None:
    """Publish a small object in the control file."""

    def insert(change: Transaction, old: Entry | None, owner: int) -> None:
        flags = p.PROTECTED * options.protect
        change.insert_inline(name, data, old, time.time_ns(), options.expires, owner, flags)

    _add(catalog, name, options, slots_for(name, len(data)) * p.SLOT_SIZE, insert)


class Publication(Destination):
    """An object of the store that is being written: its name is checked at the start and when it is published.

    ``size`` is that of the object if it is known. ``parts`` are open descriptors of files that it shares with other
    objects. ``columns`` are those of its rows.
    """

    def __init__(
        self,
        catalog: Catalog,
        name: bytes,
        options: PutOptions,
        size: int = 0,
        parts: Sequence[int] = (),
        columns: Iterable[Any] = (),
    ) -> None:
        self._catalog = catalog
        self._coded = name
        self._options = options
        self._expected = size
        self._checked_size = 0
        """There was memory for so many bytes; nothing reserves them."""
        self._parts = parts
        self._columns = columns
        text = name.decode()
        super().__init__(text, f"{catalog.directory.path}/{text}")

    @property
    def location(self) -> str:
        """The path of the file, once published."""
        return self.path

    def create(self) -> tuple[int, None]:
        """Check the name and the size, if that is known, and open a file in the directory of the store."""
        catalog = self._catalog
        try:
            self._refuse(self._expected)
            return catalog.directory.create(catalog.settings.mode & 0o444), None
        except OSError as error:
            catalog.check_exists()
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, "put", self.name) from None

    def _refuse(self, size: int) -> None:
        """Refuse an object whose name is taken, or that does not fit; for a large one, others are evicted.

        A small object of known size is written before either is known, and refused when it is published.
        """
        catalog = self._catalog
        if size and size <= LARGE:
            return
        old = replaced(catalog, self._coded, self._options)
        if size:
            less = old.allocated if old is not None and not catalog.pins.pinned(old.slot) else 0
            make_room(catalog, self.name, round_up(size) - less)

    def make_room(self, file: UnnamedFile, size: int, reserved: bool = False) -> None:
        """Refuse an object larger than the capacity; evict others if there is no memory for one of ``size`` bytes."""
        if reserved:
            self._refuse(size)
        catalog, capacity = self._catalog, self._catalog.settings.capacity
        if capacity is not None and size > capacity:
            raise full(catalog, self.name, size, "it exceeds the capacity")
        if size > self._checked_size:
            more = size - file.size + _AROUND
            if size > LARGE or (catalog.volatile and not allows_memory(more)):
                make_room(catalog, self.name, 0, more)
            if size > LARGE:
                self._checked_size = size + (size >> 3)  # one that grows is not checked at each write

    def recover(self, file: UnnamedFile, error: OSError, action: str, size: int) -> None:
        """Evict others for a small object if the file system is full."""
        if error.errno not in _FULL:
            super().recover(file, error, action, size)
        if size > LARGE:
            raise full(self._catalog, self.name, size, error.strerror or "the file system is full") from None
        needed = round_up(size) - os.fstat(file.fd).st_blocks * 512
        make_room(self._catalog, self.name, 0, max(needed, free_bytes(self._catalog) + 1))

    def publish(self, file: UnnamedFile) -> None:
        """Link the file, and add the object to the catalog, in one change."""
        catalog, fd, options, name = self._catalog, file.fd, self._options, self._coded
        settings, directory = catalog.settings, catalog.directory
        status = os.fstat(fd)
        if settings.mode & 0o444 != status.st_mode & 0o777:
            os.fchmod(fd, settings.mode & 0o444)  # the umask of the process removed bits
        if status.st_uid != directory.owner[0]:
            directory.give(fd)
        if settings.durable:
            os.fsync(fd)
        allocated, checked = status.st_blocks * 512, False
        if file.size >= SMALLEST_CHECKED and not self._parts:
            from shmarrow.objects.check import are_safe

            checked = are_safe(self._columns)

        def insert(change: Transaction, old: Entry | None, owner: int) -> None:
            [slot] = change.take(1)
            number = change.link(fd, self._parts)
            if settings.durable:
                directory.sync()
            now, flags = time.time_ns(), p.PROTECTED * options.protect | p.CHECKED * checked
            place = change.new_generation(), p.hash_of(name, catalog.modulus), number, status.st_size
            fields = allocated, now, options.expires, owner, p.LIVE, flags, len(name), len(self._parts), 0
            change.insert(Entry(*place, *fields, name, slot), old, now)
            self.path = f"{directory.path}/{file_name(number)}"

        _add(catalog, name, options, allocated, insert)
