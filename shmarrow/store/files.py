"""The files of a store's objects: linked before the commit that adds an object, unlinked after the one that removes it.

A new file has the number after the last one given, or that of its draft: only the commit makes it an object. The word
``changing`` tells the next holder of the lock to look for what a killed one left; nothing else depends on it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from shmarrow.errors import InvalidData
from shmarrow.segment.files import link_unnamed
from shmarrow.store import protocol as p
from shmarrow.store.control import ControlFile
from shmarrow.store.directory import Directory
from shmarrow.store.protocol import Entry, file_name

_FILE, _REMOVING, _CHANGING = p.word("file"), p.word("removing"), p.word("changing")
_LARGEST = 1 << 62
_LARGE = 1 << 20


class NotShared(Exception):
    """A file cannot become a part of an object: it has lost its last name, or belongs to another user.

    Attributes
    ----------
    part : int
        The number of the part, from 1 on.
    """

    def __init__(self, part: int) -> None:
        self.part = part


class Files:
    """The files of the objects of one store; used under the commit lock.

    Attributes
    ----------
    closing : list of int
        Descriptors of large removed files: closing the last one frees the memory, which is slow and is done after the
        lock is released.
    """

    def __init__(self, directory: Directory, control: ControlFile) -> None:
        self._directory = directory
        self._control = control
        self.closing: list[int] = []

    def link(self, fd: int, number: int, parts: Sequence[int] = ()) -> int:
        """Give an unnamed file, and its parts, the names of an object; return its number.

        Parts are descriptors of other objects' files, which need not have the same names any more. What a killed writer
        left under the number is removed; where that is impossible, the next number is used.

        Raises
        ------
        NotShared
            If a file cannot be a part; nothing is linked then.
        """
        words = self._control.memory.words
        words[_CHANGING] = 1
        while number < _LARGEST:
            for again in (True, False):
                try:
                    for part, source in enumerate(parts, 1):
                        self._link_part(source, number, part)
                    link_unnamed(fd, file_name(number), self._directory.fd)
                    return number
                except FileExistsError:
                    if again:
                        self._unlink_stray(number)
            number = max(number, words[_FILE]) + 1
        raise InvalidData(f"the catalog of {self._directory.name!r} is damaged: file number {number} is too large")

    def _link_part(self, fd: int, number: int, part: int) -> None:
        try:
            link_unnamed(fd, file_name(number, part), self._directory.fd)
        except FileExistsError:
            raise
        except OSError as error:
            self._unlink_stray(number)
            raise NotShared(part) from error

    def begin_removing(self) -> None:
        """Announce that files are about to be removed."""
        self._control.memory.words[_CHANGING] = 1

    def end(self, removed: int, parts: int) -> None:
        """Unlink the files of the object that the last commit removed, if any."""
        if removed:
            self._unlink(removed, parts)
        self._control.memory.words[_CHANGING] = 0

    def repair(self) -> None:
        """Remove the files that a killed process was adding or removing."""
        words = self._control.memory.words
        if words[_CHANGING]:
            self._unlink_stray(words[_FILE] + 1)
            self._unlink_stray(words[_REMOVING])
            words[_CHANGING] = 0

    def _unlink_stray(self, number: int) -> None:
        """Remove the files of an object that is not there, unless a damaged header names one that is."""
        parts = self.parts_linked(number)
        if parts or self._directory.has(file_name(number)):
            memory = self._control.memory
            slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, memory.slots, p.SLOTS)
            states = slots["state"][(slots["file"] == number) & (slots["state"] != p.UNUSED)]
            if (states == p.GONE).all():  # while it is attached, its parts stay
                self._unlink(number, 0 if len(states) else parts)

    def parts_linked(self, number: int) -> int:
        """Return the number of parts of an object; they are linked in order, and unlinked in reverse."""
        part = 0
        while self._directory.has(file_name(number, part + 1)):
            part += 1
        return part

    def _unlink(self, number: int, parts: int) -> None:
        """Remove the names of an object's files; errors are ignored."""
        for part in range(parts, -1, -1):
            with suppress(OSError):
                self._directory.unlink(file_name(number, part))

    def parts(self, file: int, count: int) -> list[os.stat_result]:
        """Return the status of the files that an object shares with others; none if it was removed meanwhile."""
        names = [file_name(file, part) for part in range(1, min(count, p.PARTS_MAX) + 1)] if file else []
        with suppress(OSError):
            return [os.stat(name, dir_fd=self._directory.fd, follow_symlinks=False) for name in names]
        return []

    def freed_by(self, entry: Entry, names: Counter[int]) -> int:
        """Return the bytes that removing an object frees: those of its files that no other object has.

        ``names`` counts the names of files, by inode, that are removed with it, and gets those of this object.
        """
        if not entry.file:
            return entry.allocated
        return sum(self.freed(entry, range(entry.parts + 1), names).values())

    def freed(self, entry: Entry, parts: range, names: Counter[int]) -> dict[str, int]:
        """Return those files of an object that no other object has, and their bytes; number 0 is its own."""
        found = {}
        for part in parts:
            name = file_name(entry.file, part)
            try:
                status = os.stat(name, dir_fd=self._directory.fd, follow_symlinks=False)
            except OSError:  # somebody has removed it
                found[name] = 0 if part else entry.allocated
                continue
            names[status.st_ino] += 1
            if names[status.st_ino] >= status.st_nlink:
                found[name] = status.st_blocks * 512 if part else entry.allocated
        return found

    def keep(self, files: dict[str, int]) -> None:
        """Open the large ones of these files, which are about to be removed, so that their memory is freed later."""
        for name, nbytes in files.items():
            if nbytes > _LARGE:
                with suppress(OSError):
                    self.closing.append(self._directory.open(name, os.O_RDONLY))

    def close_kept(self) -> None:
        """Free the memory of removed objects; called without the lock."""
        while self.closing:
            os.close(self.closing.pop())
