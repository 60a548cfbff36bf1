"""A file that is elsewhere: it can be read and can seek, but not be mapped."""

from __future__ import annotations

import io
from typing import Any


class Remote(io.RawIOBase):
    """A file object that is read by ranges, and counts the reads."""

    def __init__(self, data: bytes) -> None:
        self._file, self.count = io.BytesIO(data), 0
        self.seek, self.tell = self._file.seek, self._file.tell  # type: ignore[method-assign]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.count += 1
        return self._file.readinto(buffer)
