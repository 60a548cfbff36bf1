"""Files that are elsewhere: they cannot be mapped, count what is asked of them, and may fail."""

from __future__ import annotations

import errno
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


class FailsOnce(io.RawIOBase):
    """A raw stream that takes at most 64 bytes at a time, and refuses its call ``k``."""

    def __init__(self, data: bytes = b"", k: int = -1) -> None:
        self.data = data
        self.taken = b""
        self.calls = 0
        self.k = k
        self.at = 0

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.k:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._count()
        self.taken += bytes(data[:64])
        return min(64, len(data))

    def readinto(self, room: Any) -> int:
        self._count()
        part = self.data[self.at : self.at + min(64, len(room))]
        room[: len(part)] = part
        self.at += len(part)
        return len(part)
