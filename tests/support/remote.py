"""Files that are elsewhere: they can be read and can seek, but not be mapped."""

from __future__ import annotations

import io
from typing import Any


class Counted(io.RawIOBase):
    """A file object that is read by ranges: it notes which, and gives no more than ``most`` bytes at once."""

    def __init__(self, data: bytes, most: int = 1 << 30) -> None:
        self.data = data
        self._most = most
        self.at = 0
        self.reads: list[tuple[int, int]] = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, len(self.data))[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, room: Any) -> int:
        part = self.data[self.at : self.at + min(len(room), self._most)]
        room[: len(part)] = part
        self.reads.append((self.at, self.at + len(part)))
        self.at += len(part)
        return len(part)

    @property
    def total(self) -> int:
        return sum([stop - start for start, stop in self.reads])

    def touched(self, start: int, stop: int) -> bool:
        return any(first < stop and start < last for first, last in self.reads)
