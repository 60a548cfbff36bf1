"""The space of a store: how much its objects take, room for new ones, and what may be removed.

There is no server that counts. The bytes of all objects are known from a scan of the directory, which is kept in a
small file, the ledger, and brought up to date by whoever publishes or removes under the store's lock; objects that are
being written have a temporary name in the control directory, so all can see how large they are going to be. Rules kept
here:

* a ledger is what a scan has found, and no more: it is believed for twenty times as long as the scan took, and not at
  all after a writer was killed. What must not be wrong (that there is no room) is scanned anew;
* an object is removed to make room, or because it is orphaned or has expired, only if it can be locked exclusively, so
  while nobody has it attached, and only under the store's lock, so that its name still leads to it;
* nothing is evicted for an object that would not fit even then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from shmarrow.errors import StoreFull
from shmarrow.segment import TEMP_PREFIX, remove_unused
from shmarrow.store import register
from shmarrow.store.place import Found, Place, found_as
from shmarrow.store.register import Register

LEDGER = "ledger"
_LEDGER = struct.Struct("<qqq")
_WORTH = 20


class Shortage(NamedTuple):
    """Why there is no room.

    Attributes
    ----------
    used : int
        Bytes of all objects.
    pinned : int
        Bytes of those that somebody has attached.
    drafts : int
        Bytes of those that are being written.
    """

    used: int
    pinned: int
    drafts: int


class Collected(NamedTuple):
    """What was removed.

    Attributes
    ----------
    objects : list of str
        Names of objects.
    nbytes : int
        Their bytes, and those of temporary files.
    leftovers : int
        Temporary files, and lock files, of processes that are gone.
    """

    objects: list[str]
    nbytes: int
    leftovers: int


class Space:
    """The space of one store, as one process sees it; all methods are called under the store's lock.

    Parameters
    ----------
    place : Place
        Where the objects are.
    register : Register
        What is known of them.
    capacity : int or None
        The most bytes that all objects may take.
    """

    def __init__(self, place: Place, register: Register, capacity: int | None) -> None:
        self._place = place
        self._register = register
        self.capacity = capacity
        self._ledger = os.path.join(place.control, LEDGER)
        self._took = 0
        # What the last eviction left, the one used longest ago last, and how long that is good for.
        self._known: list[Found] = []
        self._known_until = 0

    # --- accounting ---

    def used(self) -> int:
        """Bytes of all objects, by the ledger while it can be believed."""
        try:
            with open(self._ledger, "rb") as file:
                used, when, took = _LEDGER.unpack(file.read())
        except (FileNotFoundError, struct.error):
            return self.scan()[0]
        age = time.time_ns() - when
        return int(used) if 0 <= age < _WORTH * took else self.scan()[0]

    def scan(self) -> tuple[int, list[Found]]:
        """Bytes of all objects, and the objects; writes the ledger."""
        start = time.perf_counter_ns()
        found = list(self._place.scan())
        used = sum([each.size for each in found])
        self._took = time.perf_counter_ns() - start
        if self.capacity is not None:
            self._write(used, time.time_ns(), self._took)
        return used, found

    def note(self, change: int) -> None:
        """Objects of so many bytes were added; removed where it is negative."""
        try:
            with open(self._ledger, "r+b", buffering=0) as file:
                used, when, took = _LEDGER.unpack(file.read())
                os.pwrite(file.fileno(), _LEDGER.pack(used + change, when, took), 0)
        except (FileNotFoundError, struct.error):
            return

    def distrust(self) -> None:
        """Forget what the last scan found."""
        try:
            os.unlink(self._ledger)
        except FileNotFoundError:
            return

    def _write(self, used: int, when: int, took: int) -> None:
        fd = os.open(self._ledger, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(fd, self._place.directory_mode & 0o666)
            os.pwrite(fd, _LEDGER.pack(used, when, took), 0)
        finally:
            os.close(fd)

    def drafts(self, own: int) -> int:
        """Bytes of objects that are being written, but for the one that has the inode ``own``.

        Those whose writers are gone are removed; it is not known how far they came.
        """
        total = 0
        for file in os.listdir(self._place.control):
            if not file.startswith(TEMP_PREFIX):
                continue
            path = os.path.join(self._place.control, file)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if status.st_ino == own:
                continue
            if remove_unused(path):
                self.distrust()
            else:
                total += status.st_size
        return total

    # --- room ---

    def make_room(self, size: int, grows: int, own: int, replaced: Found | None, evict: bool) -> None:
        """See to it that there is room for an object, removing others where that is asked for.

        Parameters
        ----------
        size : int
            The bytes that the object is going to have.
        grows : int
            How many of them it has not got yet.
        own : int
            Its inode.
        replaced : Found, optional
            The object that it is going to replace, which does not count.
        evict : bool
            Whether objects may be removed that somebody may still want.

        Raises
        ------
        RoomRefused
            If there is no room, and cannot be.
        """
        spared = replaced.size if replaced is not None else 0
        drafts = self.drafts(own) if self.capacity is not None else 0
        short = self._short(self.used, size + drafts - spared, grows if evict else 0)
        if short <= 0 or (evict and self._evict_known(short, replaced)):
            return
        used, found = self.scan()
        short = self._short(lambda: used, size + drafts - spared, grows if evict else 0)
        if short > 0:
            candidates = [each for each in found if replaced is None or each.key != replaced.key]
            shortage = Shortage(used, 0, drafts)
            if sum([each.size for each in self.evict(short, candidates, shortage, evict)]) < short:
                raise RoomRefused(shortage)

    def _short(self, used: Callable[[], int], wanted: int, grows: int) -> int:
        """How many bytes are to be removed: of the capacity, or of the file system where ``grows`` is not 0."""
        over = used() + wanted - self.capacity if self.capacity is not None else 0
        return max(over, grows - self._place.free()) if grows else over

    def evict(self, short: int, found: Iterable[Found], shortage: Shortage, evict: bool = True) -> list[Found]:
        """Remove objects of ``short`` bytes or more: orphaned and expired ones first, then those used longest ago.

        Returns
        -------
        list of Found
            What was removed: less than that only if somebody has attached some of it at the same moment.

        Raises
        ------
        RoomRefused
            If there are not that many bytes that nobody uses; nothing is removed then.
        """
        dead = self.collectable()
        order = sorted(found, key=lambda each: (each.key not in dead, each.used))
        victims: list[Found] = []
        free = pinned = taken = 0
        for each in order:
            taken += 1
            if is_pinned(self._place.path(each.name)):
                pinned += each.size
            elif evict or each.key in dead:
                free += each.size
                victims.append(each)
                if free >= short:
                    break
        else:
            raise RoomRefused(shortage._replace(pinned=pinned))
        removed = self.remove(victims)
        rest = order[taken:]
        self._known = rest[::-1] if evict else []
        self._known_until = time.monotonic_ns() + _WORTH * self._took
        left = short - sum([each.size for each in removed])
        if left > 0:
            with suppress(RoomRefused):
                removed += self.evict(left, rest, shortage, evict)
        return removed

    def _evict_known(self, short: int, replaced: Found | None) -> bool:
        """Evict by what the last eviction saw, if that is enough and not long ago: no scan for every object."""
        if time.monotonic_ns() > self._known_until:
            return False
        victims: list[Found] = []
        free = 0
        while free < short and self._known:
            each = self._known.pop()
            try:
                now = found_as(each.name, os.lstat(self._place.path(each.name)))
            except OSError:
                continue
            if now == each and (replaced is None or each.key != replaced.key):
                victims.append(each)
                free += each.size
        return free >= short and sum([each.size for each in self.remove(victims)]) >= short

    def remove(self, victims: Iterable[Found]) -> list[Found]:
        """Remove objects that nobody has attached; gives those that were removed."""
        removed = [each for each in victims if remove_unused(self._place.path(each.name))]
        self.note(-sum([each.size for each in removed]))
        return removed

    # --- what nobody needs ---

    def collectable(self) -> set[register.Key]:
        """The objects that have expired or whose owner is gone."""
        rows = self._register.rows().copy()
        if not rows:
            return set()
        alive = {0} | {owner.number for owner in register.owners(self._place) if owner.alive}
        return {key for key, row in rows.items() if row.expired or row.owner not in alive}

    def collect(self) -> Collected:
        """Remove what is orphaned, has expired, or was left over by killed processes."""
        leftovers = nbytes = 0
        for file in os.listdir(self._place.control):
            path = os.path.join(self._place.control, file)
            if file.startswith(TEMP_PREFIX):
                status = os.lstat(path)
                if remove_unused(path):
                    leftovers += 1
                    nbytes += status.st_size if status.st_nlink == 1 else 0
        self.distrust()
        dead = self.collectable()
        _, found = self.scan()
        removed = self.remove([each for each in found if each.key in dead])
        gone = {each.key for each in removed}
        kept = {each.key for each in found} - gone
        self._register.keep(kept)
        needed = {row.owner for row in self._register.rows().copy().values()}
        for owner in register.owners(self._place):
            if not owner.alive and owner.number not in needed:
                os.unlink(owner.path)
                leftovers += 1
        return Collected(
            sorted([each.name for each in removed]), nbytes + sum([each.size for each in removed]), leftovers
        )


class RoomRefused(Exception):
    """There is no room; the store says so in its own words as `StoreFull`."""

    def __init__(self, shortage: Shortage) -> None:
        self.shortage = shortage


def is_pinned(path: str) -> bool:
    """Whether somebody has the object attached; False too where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def pin_counts() -> dict[int, int]:
    """How often each inode is attached, where the system says it."""
    counts: dict[int, int] = {}
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return counts
    for line in lines:
        words = line.split()
        if "FLOCK" in words and "READ" in words and "->" not in words:
            inode = int(words[-3].rpartition(":")[2])
            counts[inode] = counts.get(inode, 0) + 1
    return counts


def full(place: Place, name: str, size: int, capacity: int | None, shortage: Shortage, reason: str) -> StoreFull:
    """The error that says what is short, and of what."""
    try:
        status = os.statvfs(place.directory)
        system = (
            f"the file system of {place.directory!r} has {status.f_blocks * status.f_frsize} bytes "
            f"({status.f_blocks * status.f_frsize >> 20} MiB), of which {status.f_bavail * status.f_frsize} are free"
        )
    except OSError:
        system = "its file system cannot be looked at"
    hint = (
        "containers often give /dev/shm 64 MiB: enlarge it with docker's --shm-size=8g, a memory-backed emptyDir in "
        "Kubernetes, or mount -o remount,size=8g /dev/shm"
        if place.prefix
        else "delete objects, or let go of those that are attached"
    )
    limit = "no capacity of its own" if capacity is None else f"a capacity of {capacity} bytes"
    return StoreFull(
        errno.ENOSPC,
        f"no room for {size} bytes of {name!r} in the store {place.name!r}: {reason}; the store has {limit}, and its "
        f"objects use {shortage.used} bytes, of which {shortage.pinned} are pinned by readers; {shortage.drafts} more "
        f"are being written; {system}; {hint}",
    )
