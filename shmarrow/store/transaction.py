# SPDX-License-Identifier: Apache-2.0
"""A change of a store: ``with catalog.change() as change:``, which is the only way to change one.

Entering takes the commit lock, among threads and among processes, and repairs what a killed process left. The methods
collect what is to change; nothing else sees it. What was collected is committed when the block ends, if no exception
ends it, or by :meth:`Transaction.commit` before that, after which the change goes on. Invariants:

* a commit fits a journal, and removes the files of at most one object;
* slots are written before the chains that lead to them, and the state last, so that a reader finds an old object or a
  new one;
* a file is linked before the commit that adds its object, and unlinked after the one that removes it. The word
  ``changing`` tells the next holder of the lock to look for what a killed one left; nothing else depends on it;
* one thread is in one change. What interrupts it, such as a signal handler or a finalizer, is refused another.
"""

from __future__ import annotations

import _thread
import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from shmarrow.errors import InvalidData, ShmarrowError
from shmarrow.memory import link_unnamed
from shmarrow.store import protocol as p
from shmarrow.store.control import JOURNAL, JOURNAL_NUMBERS, SEQUENCE
from shmarrow.store.index import (
    COVERED,
    FIRST_HASH,
    FIRST_HEAD,
    FIRST_NEXT,
    FIRST_STATE,
    SLOT_INTS,
    bucket_of,
    parts_of,
    read_inline,
    start_of,
    used_at,
)
from shmarrow.store.protocol import SLOT_WORDS, Entry, file_name
from shmarrow.store.settings import BOOT, RESCUE, SETTINGS, destroyed, this_boot

if TYPE_CHECKING:
    from shmarrow.store.control import Memory, Pieces
    from shmarrow.store.directory import Directory
    from shmarrow.store.lookup import Lookup

_FILE, _REMOVING, _CHANGING = p.word("file"), p.word("removing"), p.word("changing")
_SWEPT = 2
"""Removed slots that a commit examines."""
_LARGEST_FILE = 1 << 62
_LARGE = 1 << 20
_ERRORS_IGNORED = suppress(OSError)
_NONSENSE = (struct.error, ArithmeticError, LookupError, ValueError)
"""Exceptions that invalid numbers in the catalog can cause."""


class NotShared(Exception):
    """A file cannot become a part of an object: it has lost its last name, or belongs to another user.

    Attributes
    ----------
    part : int
        The number of the part, from 1 on.
    """

    def __init__(self, part: int) -> None:
        self.part = part


def sole_links(directory: Directory, file: int, allocated: int, parts: range, names: dict[int, int]) -> dict[str, int]:
    """Return those files of an object that have no other names, and the bytes that count for them.

    ``names`` counts the names of files, by inode, that are to go with these, and gets those of this object.
    ``allocated`` are the bytes of the object's own file, number 0, also if it has no name any more.
    """
    sizes = {}
    for part in parts:
        name = file_name(file, part)
        try:
            status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
        except OSError:  # of a removed object that is attached, or somebody else has removed it
            if part:
                break  # linked in order, and unlinked in reverse: whatever number of parts a slot claims
            sizes[name] = allocated
            continue
        names[status.st_ino] = going = names.get(status.st_ino, 0) + 1
        if going >= status.st_nlink:
            sizes[name] = status.st_blocks * 512 if part else allocated
    return sizes


def bytes_freed(directory: Directory, file: int, allocated: int, parts: int, names: dict[int, int]) -> int:
    """Return the bytes that are free if an object goes that is not attached; ``names`` as for :func:`sole_links`."""
    return sum(sole_links(directory, file, allocated, range(parts + 1), names).values()) if file else allocated


class Transaction:
    """A hold of the commit lock, and what is to change; made by :meth:`Catalog.change`.

    Attributes
    ----------
    catalog : Lookup
        The catalog of the store.
    memory : Memory
        The control file.
    state : dict of str to int
        The state after the change; the fields are those of :class:`~shmarrow.store.protocol.State`.
    """

    memory: Memory
    state: dict[str, int]

    def __init__(self, catalog: Lookup) -> None:
        self.catalog = catalog
        self._mutex: _thread.RLock | None = None
        self._closing: list[int] = []
        """Descriptors of large removed files: closing the last one frees the memory, which is slow."""

    # --- the lock -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        catalog = self.catalog
        if not catalog.writable:
            catalog.check_writable()
        self._mutex = mutex = catalog.lock.mutex
        try:
            mutex.acquire()
            catalog.lock.acquire()
            self._repair()
            self._begin()
            return self
        except BaseException as error:
            if not catalog.lock.mine:  # it was interrupted while it waited for another thread
                self._mutex = None
            self.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and (self._slots or self._others or self.owner):
                self._commit()
        except ShmarrowError:
            raise
        except _NONSENSE as nonsense:
            error = nonsense
        finally:
            self._release()
        if isinstance(error, _NONSENSE) and not isinstance(error, ShmarrowError):
            raise InvalidData(f"the catalog of {self.catalog.directory.name!r} is damaged: {error}") from error

    def _release(self) -> None:
        """Release both locks."""
        lock, mutex = self.catalog.lock, self._mutex
        if mutex is None:
            return
        try:
            self.catalog.pins.admit()
        finally:
            try:
                lock.release()
            finally:
                mutex.release()
        self._mutex = None
        while self._closing:
            os.close(self._closing.pop())

    def __del__(self) -> None:
        if self._mutex is not None and self.catalog.lock.mine:  # interrupted at the first instruction of `__exit__`
            self._release()

    def _repair(self) -> None:
        """Repair what a killed process left."""
        catalog = self.catalog
        memory = catalog.control.memory
        words = memory.words
        if words[0] == p.DESTROYED or not os.fstat(catalog.control_fd).st_nlink:
            raise destroyed(catalog.directory.name)
        if memory.bytes[BOOT] != this_boot():
            from shmarrow.store.rebuild import rebuild

            rebuild(catalog)
        number = words[JOURNAL] + 1
        pending = words[JOURNAL_NUMBERS[number & 1]] == number or words[SEQUENCE] & 1
        if pending and catalog.control.replay():  # its writer was killed before it woke the waiting processes
            catalog.waiters.wake(None)
        memory = catalog.control.whole()
        if memory.bytes[SETTINGS] != catalog.settings_read:
            catalog.read_settings()
        if memory.words[_CHANGING]:
            self._unlink_stray(memory.words[_FILE] + 1)
            self._unlink_stray(memory.words[_REMOVING])
            memory.words[_CHANGING] = 0

    def _begin(self) -> None:
        """Begin to collect."""
        self.memory = memory = self.catalog.control.memory
        self.state = dict(zip(p.State._fields, p.STATE.struct.unpack_from(memory.bytes, p.STATE.start), strict=True))
        self.state["removing"] = 0
        self.owner = self._parts = 0
        self._swept = False
        self._told: list[bytes] = []
        self._links: dict[int, int] = {}  # by the index of the link in the 32-bit words
        self._slots: dict[int, tuple[bytes, bytes]] = {}  # the fields up to `used`, and the name
        self._others: list[tuple[int, bytes]] = []

    def commit(self) -> None:
        """Commit what was collected so far, and go on."""
        self._commit()
        self._begin()

    def _commit(self) -> None:
        """Commit what was collected, wake waiting processes, unlink the files of what was removed."""
        catalog, words = self.catalog, self.memory.words
        if self.state["removed"] and not self._swept:
            self.sweep(_SWEPT)
        removed = self.state["removing"]
        if removed:
            words[_CHANGING] = 1
        catalog.control.commit(self._pieces(), catalog.settings.durable)
        if self.owner:
            catalog.owner = self.owner
        if self._told:
            catalog.waiters.wake(self._told)
        if removed:
            self._unlink(removed, self._parts)
        words[_CHANGING] = 0

    def _pieces(self) -> Pieces:
        """Return what was collected in the order to apply: slots, then links, then the state."""
        links, ints, pieces = self._links, self.memory.ints, self._others
        for slot, (fields, name) in self._slots.items():
            at = slot * SLOT_INTS
            head, following = links.pop(at + FIRST_HEAD, None), links.pop(at + FIRST_NEXT, None)
            head = ints[at + FIRST_HEAD] if head is None else head
            following = ints[at + FIRST_NEXT] if following is None else following
            both = (following << 32 | head).to_bytes(8, "little")
            pieces.append((p.SLOTS + slot * p.SLOT_SIZE, fields + both + name))
        for at, link in links.items():
            pieces.append((at << 2, link.to_bytes(4, "little")))
        pieces.append((p.STATE.start, p.STATE.struct.pack(*self.state.values())))
        return pieces

    # --- objects --------------------------------------------------------------------------------------------------

    def insert(self, entry: Entry, replaced: Entry | None, used: int) -> None:
        """Insert an object, replacing one of the same name if given."""
        state = self.state
        if replaced is not None:
            self.remove(replaced, told=False)
        self.write(entry, used)
        self._chain(entry.slot, entry.hash)
        self.catalog.remember(entry, self._slots[entry.slot][0][:COVERED])
        state["objects"] += 1
        state["bytes"] += entry.allocated
        state["puts"] += 1
        self._tell(p.PUBLISHED, entry)

    def insert_inline(
        self, name: bytes, data: bytes, replaced: Entry | None, published: int, expires: int, owner: int, flags: int
    ) -> Entry:
        """Insert an inline object, and return its entry.

        Its bytes are written into free slots, which nobody reads before the commit.
        """
        payload, step = name.ljust(start_of(name), b"\0") + data, p.PAYLOAD_SIZE
        slots = self.take(-(-len(payload) // step))
        memory, start, link = self.memory.bytes, 0, 0
        for slot in slots:
            at = p.SLOTS + slot * p.SLOT_SIZE + p.PAYLOAD
            piece = payload[start : start + step]
            memory[at : at + len(piece)] = piece
            start += step
        for slot in reversed(slots[1:]):
            self._links[slot * SLOT_INTS + FIRST_NEXT] = link
            link = slot + 1
        if self.catalog.settings.durable:
            self.catalog.control.sync()
        place = self.new_generation(), p.hash_of(name, self.catalog.modulus), 0, len(data), len(slots) * p.SLOT_SIZE
        fields = published, expires, owner, p.LIVE, flags, len(name), link, zlib.crc32(data)
        entry = Entry(*place, *fields, name, slots[0])
        self.insert(entry, replaced, published)
        return entry

    def remove(self, entry: Entry, told: bool = True, evicted: bool = False) -> None:
        """Remove an object, at most one per commit; the commit unlinks its files.

        If it is attached, its slot stays, and so do its parts, which may be mapped later, and its own file, if others
        share it. Its bytes count until the slot is free.
        """
        state, freed = self.state, entry.allocated
        self._unchain(entry.slot, entry.hash)
        # Excluded until the commit is done, as a reader that pins the slot now would pin the next object there.
        attached = not self.catalog.pins.exclude(entry.slot)
        if not entry.file:
            self._free_more(entry)
            freed -= p.SLOT_SIZE * attached
        elif not attached:
            freed = self._unlink_later(entry, range(entry.parts + 1))
        else:
            if sole_links(self.catalog.directory, entry.file, 0, range(1), {}):
                self._unlink_later(entry, range(1))
            freed = 0
        state["objects"] -= 1
        self._less("bytes", freed)
        if entry.expired:
            state["expired"] += 1
        elif evicted:
            state["evictions"] += 1
        if attached:
            self._keep(entry)
        else:
            self._free(entry.slot)
        if told:
            self._tell(p.DELETED, entry)

    def rename(self, entry: Entry, name: bytes, replaced: Entry | None) -> None:
        """Rename an object; it gets a new generation. One that is inline moves to other slots."""
        self._tell(p.DELETED, entry)
        if not entry.file:
            data = read_inline(self.memory, entry)
            if data is None:
                raise self._damaged(f"the checksum of {entry.name!r} is wrong")
            moved = self.insert_inline(name, data, replaced, entry.published, entry.expires, entry.owner, entry.flags)
            self.write(moved, self.memory.words[used_at(entry.slot)])
            self.state["puts"] -= 1
            self.remove(entry, told=False)
            return
        if replaced is not None:
            self.remove(replaced, told=False)
        self._unchain(entry.slot, entry.hash)
        generation, name_hash = self.new_generation(), p.hash_of(name, self.catalog.modulus)
        renamed = entry._replace(generation=generation, hash=name_hash, name=name, name_length=len(name))
        self.write(renamed)
        self._chain(renamed.slot, renamed.hash)
        self._tell(p.PUBLISHED, renamed)

    def write_header(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset of the header."""
        self._others.append((offset, data))

    def new_generation(self) -> int:
        """Return the generation of the next object."""
        self.state["generation"] += 1
        return self.state["generation"]

    def _tell(self, kind: int, entry: Entry) -> None:
        self.state["events"] += 1
        number = self.state["events"]
        self._told.append(entry.name)
        record = p.EVENT_STRUCT.pack(number, entry.generation, kind, len(entry.name)) + entry.name.ljust(264, b"\0")
        self._others.append((p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE, record))

    def _less(self, field: str, nbytes: int) -> None:
        """Subtract bytes from a counter, which never becomes negative."""
        self.state[field] -= min(nbytes, self.state[field])

    def _damaged(self, reason: str) -> InvalidData:
        where = self.catalog.directory.name
        return InvalidData(f"the catalog of {where!r} is damaged: {reason}", hint=RESCUE.format(where))

    # --- removed slots --------------------------------------------------------------------------------------------

    def sweep(self, limit: int) -> bool:
        """Free removed slots that are no longer attached, examining up to ``limit``; True if the last was reached.

        The next call continues after them. A freed slot needs about 140 bytes of the journal. As a commit removes the
        files of one object, it frees at most one slot with files, and none if it removes an object.
        """
        pins, slots, removes = self.catalog.pins, self.memory.slots, self.state["removing"]
        self._swept = True
        previous = pins.swept
        if not 0 < previous <= slots or self.memory.ints[(previous - 1) * SLOT_INTS + FIRST_STATE] != p.GONE:
            previous = 0
        for _ in range(limit):
            here = self._following(previous - 1) if previous else self.state["removed"]
            if not here:
                pins.swept = 0
                return True
            gone = self._gone_at(here - 1)
            has_files = gone.file and (gone.parts or self.catalog.directory.has(file_name(gone.file)))
            if pins.pinned(here - 1) or (has_files and removes):
                previous = here
                continue
            if has_files and self.state["removing"]:
                break
            self._less("bytes", self._unlink_later(gone, range(gone.parts + 1)) if has_files else gone.allocated)
            following = self._following(here - 1)
            if previous:
                self._links[(previous - 1) * SLOT_INTS + FIRST_NEXT] = following
            else:
                self.state["removed"] = following
            self._free(here - 1)
        pins.swept = previous if previous and self._following(previous - 1) else 0
        return previous > 0 and not pins.swept

    def _keep(self, entry: Entry) -> None:
        """List the slot of a removed object that is attached; its bytes count until it is freed."""
        parts, allocated = (entry.parts, entry.allocated) if entry.file else (0, p.SLOT_SIZE)
        self.write(Entry(0, 0, entry.file, 0, allocated, 0, 0, 0, p.GONE, 0, 0, parts, 0, b"", entry.slot), 0)
        self._links[entry.slot * SLOT_INTS + FIRST_NEXT] = self.state["removed"]
        self.state["removed"] = entry.slot + 1

    def _gone_at(self, slot: int) -> Entry:
        """Return the entry of a removed slot; InvalidData if it is none."""
        changed = self._slots.get(slot)
        fields = p.ENTRY.struct.unpack_from(changed[0] if changed else self.memory.slot(slot))
        gone = Entry._make((*fields, b"", slot))
        if gone.state != p.GONE:
            raise self._damaged(f"slot {slot} is in the list of removed slots, and is not removed")
        return gone._replace(parts=min(gone.parts, p.PARTS_MAX))

    # --- files ----------------------------------------------------------------------------------------------------

    def link(self, fd: int, parts: Sequence[int] = ()) -> int:
        """Give an unnamed file, and its parts, the names of the next object; return its number.

        Parts are descriptors of other objects' files, which need not have the same names any more. What a killed writer
        left under the number is removed; where that is impossible, the next number is used.

        Raises
        ------
        NotShared
            If a file cannot be a part; nothing is linked then.
        """
        directory = self.catalog.directory
        self.memory.words[_CHANGING] = 1
        number = self.state["file"] + 1
        while number < _LARGEST_FILE:
            for again in (True, False):
                try:
                    for part, source in enumerate(parts, 1):
                        self._link_part(source, number, part)
                    link_unnamed(fd, file_name(number), directory.fd)
                    self.state["file"] = number
                    return number
                except FileExistsError:
                    if again:
                        self._unlink_stray(number)
                except OSError as error:
                    raise directory.unlinkable(error) from None
            number += 1
        raise InvalidData(f"the catalog of {directory.name!r} is damaged: file number {number} is too large")

    def _link_part(self, fd: int, number: int, part: int) -> None:
        try:
            link_unnamed(fd, file_name(number, part), self.catalog.directory.fd)
        except FileExistsError:
            raise
        except OSError as error:
            self._unlink_stray(number)
            raise NotShared(part) from error

    def _unlink_later(self, entry: Entry, parts: range) -> int:
        """Let the commit unlink files of an object, of which number 0 is its own; return the bytes that this frees."""
        self.state["removing"], self._parts = entry.file, parts[-1]
        freed = sole_links(self.catalog.directory, entry.file, entry.allocated, parts, {})
        for name, nbytes in freed.items():
            if nbytes > _LARGE:
                with suppress(OSError):
                    self._closing.append(self.catalog.directory.open(name, os.O_RDONLY))
        return sum(freed.values())

    def _unlink(self, number: int, parts: int) -> None:
        """Remove the names of an object's files; errors are ignored."""
        for part in range(parts, -1, -1):
            with _ERRORS_IGNORED:
                os.unlink(file_name(number, part), dir_fd=self.catalog.directory.fd)

    def _unlink_stray(self, number: int) -> None:
        """Remove the files of an object that is not there, unless a damaged header names one that is."""
        directory, memory, parts = self.catalog.directory, self.catalog.control.memory, 0
        while directory.has(file_name(number, parts + 1)):  # linked in order, and unlinked in reverse
            parts += 1
        if parts or directory.has(file_name(number)):
            slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, memory.slots, p.SLOTS)
            states = slots["state"][(slots["file"] == number) & (slots["state"] != p.UNUSED)]
            if (states == p.GONE).all():  # while it is attached, its parts stay
                self._unlink(number, 0 if len(states) else parts)

    # --- slots, chains and lists ----------------------------------------------------------------------------------

    def take(self, count: int) -> list[int]:
        """Return free slots; extend the file if there are too few."""
        state, taken = self.state, list[int]()
        while len(taken) < count:
            if free := state["free"]:
                slot = free - 1
                state["free"] = self._link(slot * SLOT_INTS + FIRST_NEXT)  # checks that the slot exists
            else:
                slot = state["buckets"]
                if slot >= self.memory.slots:
                    self.memory = self.catalog.control.grow()
            if self.memory.ints[slot * SLOT_INTS + FIRST_STATE] != p.UNUSED and slot not in self._slots:
                raise self._damaged(f"slot {slot} is in use, and listed as free")
            if not free:
                state["buckets"] = slot + 1
                if slot:
                    self._split(slot)
            taken.append(slot)
        return taken

    def _free(self, slot: int) -> None:
        """Put a slot into the list of free slots."""
        self._slots[slot] = bytes(p.HEAD), b""
        self._links[slot * SLOT_INTS + FIRST_NEXT] = self.state["free"]
        self.state["free"] = slot + 1

    def _free_more(self, entry: Entry) -> None:
        """Free the slots of an inline object but the first one: their chain goes before the list of free slots."""
        if parts := parts_of(self.memory, entry):
            self._links[parts[-1] * SLOT_INTS + FIRST_NEXT] = self.state["free"]
            self.state["free"] = entry.parts

    def write(self, entry: Entry, used: int | None = None) -> None:
        """Set the contents of a slot; ``used`` stays as it is if it is None."""
        if used is None:
            used = self.memory.words[used_at(entry.slot)]
        self._slots[entry.slot] = entry.pack() + used.to_bytes(8, "little"), entry.name

    def _link(self, at: int) -> int:
        """Return a link after the change, by its index in the 32-bit words; InvalidData if it leads nowhere."""
        link = self._links.get(at)
        if link is None:
            link = self.memory.ints[at] if at < len(self.memory.ints) else self.memory.slots + 1
        if link > self.memory.slots:
            raise self._damaged(f"a list contains slot {link - 1}, which does not exist")
        return link

    def _following(self, slot: int) -> int:
        """Return the link from a slot to the next one."""
        return self._link(slot * SLOT_INTS + FIRST_NEXT)

    def _chain(self, slot: int, name_hash: int) -> None:
        """Put a slot into the chain of a hash."""
        head = bucket_of(name_hash, self.state["buckets"]) * SLOT_INTS + FIRST_HEAD
        self._links[slot * SLOT_INTS + FIRST_NEXT] = self._link(head)
        self._links[head] = slot + 1

    def _unchain(self, slot: int, name_hash: int) -> None:
        """Take a slot out of its chain."""
        at = bucket_of(name_hash, self.state["buckets"]) * SLOT_INTS + FIRST_HEAD
        for _ in range(self.memory.slots + 1):
            link = self._link(at)
            if link == slot + 1:
                self._links[at] = self._following(slot)
                return
            if not link:
                break
            at = (link - 1) * SLOT_INTS + FIRST_NEXT
        raise self._damaged(f"slot {slot} is not in its chain")

    def _split(self, bucket: int) -> None:
        """Move the slots of a new bucket out of the chain of its parent."""
        mask = (1 << bucket.bit_length()) - 1
        at = (bucket ^ (mask + 1 >> 1)) * SLOT_INTS + FIRST_HEAD
        head = bucket * SLOT_INTS + FIRST_HEAD
        for _ in range(self.memory.slots + 1):
            link = self._link(at)
            if not link:
                return
            following = (link - 1) * SLOT_INTS + FIRST_NEXT
            if self.memory.words[(link - 1) * SLOT_WORDS + FIRST_HASH] & mask == bucket:
                self._links[at] = self._link(following)
                self._links[following] = self._link(head)
                self._links[head] = link
            else:
                at = following
        raise self._damaged("a chain is circular")
