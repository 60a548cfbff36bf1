"""The files of a store's objects: linked before the commit that adds an object, unlinked after the one that removes it.

A new file has the number after the last one given, or that of its draft: only the commit makes it an object. The word
``changing`` tells the next holder of the lock to look for what a killed one left; nothing else depends on it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from shmarrow.errors import InvalidData
from shmarrow.store import protocol as p
from shmarrow.store.control import ControlFile
from shmarrow.store.directory import Directory
from shmarrow.store.protocol import Entry, file_name

_FILE, _REMOVING, _CHANGING = p.word("file"), p.word("removing"), p.word("changing")
_LARGEST = 1 << 62
_LARGE = 1 << 20


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

    def link(self, fd: int, number: int, parts: Sequence[str] = ()) -> int:
        """Give an unnamed file, and its parts, the names of an object; return its number.

        Parts are files of other objects, given by their names. What a killed writer left under the number is removed;
        where that is impossible, the next number is used.
        """
        names, words = self._directory.fd, self._control.memory.words
        words[_CHANGING] = 1
        while number < _LARGEST:
            for again in (True, False):
                try:
                    for part, source in enumerate(parts, 1):
                        os.link(source, file_name(number, part), src_dir_fd=names, dst_dir_fd=names)
                    os.link(f"/proc/self/fd/{fd}", file_name(number), src_dir_fd=fd, dst_dir_fd=names)
                    return number
                except FileExistsError:
                    if again:
                        self._unlink_stray(number)
            number = max(number, words[_FILE]) + 1
        raise InvalidData(f"the catalog of {self._directory.name!r} is damaged: file number {number} is too large")

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
            if not ((slots["file"] == number) & (slots["state"] == p.LIVE)).any():
                self._unlink(number, parts)

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

    def freed_by(self, entry: Entry) -> int:
        """Return the bytes that removing an object frees: those of its files that no other object has."""
        if not entry.file:
            return entry.allocated
        freed = 0
        for part in range(entry.parts + 1):
            try:
                status = os.stat(file_name(entry.file, part), dir_fd=self._directory.fd, follow_symlinks=False)
            except OSError:
                freed += 0 if part else entry.allocated
            else:
                if status.st_nlink == 1:
                    freed += status.st_blocks * 512 if part else entry.allocated
        return freed

    def keep(self, entry: Entry) -> None:
        """Open the file of a large object that is about to be removed, so that its memory is freed later."""
        if entry.file and entry.allocated > _LARGE:
            with suppress(OSError):
                self.closing.append(self._directory.open(file_name(entry.file), os.O_RDONLY))

    def close_kept(self) -> None:
        """Free the memory of removed objects; called without the lock."""
        while self.closing:
            os.close(self.closing.pop())
