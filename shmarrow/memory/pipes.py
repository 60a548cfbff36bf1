# SPDX-License-Identifier: Apache-2.0
"""What a source begins with, and pipes of data that are read at random."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from contextlib import ExitStack
from typing import Any, NamedTuple

from shmarrow.errors import InvalidType, storage_error
from shmarrow.memory.attached import attach
from shmarrow.memory.formats import HEAD
from shmarrow.memory.location import is_location, resolve
from shmarrow.memory.source import name_of


class Input(NamedTuple):
    """A source whose first bytes were read.

    Attributes
    ----------
    name : str
        Name for messages.
    head : bytes
        The first bytes.
    path : str or list of str
        Path of a file that can be mapped, or of what pyarrow reads; empty for a pipe.
    file : file object
        A pipe, from its start; None for a file.
    """

    name: str
    head: bytes
    path: Any
    file: Any = None


def opened(source: Any) -> Input:
    """Return a source with its first bytes, which a pipe begins with again."""
    if is_location(source):
        with attach(source) as file:
            return Input(file.name, file.data[:HEAD].tobytes(), resolve(source)[1])
    if not hasattr(source, "read"):
        raise InvalidType(f"a source must be a path, a shm: name or a file object, found {type(source).__name__}")
    head = b""
    while len(head) < HEAD and (piece := source.read(HEAD - len(head))):
        head += piece
    name = name_of(source)
    return Input(name, head, "", io.BufferedReader(_Prefixed(head, source, name), 1 << 20))


def spooled(file: Any, stack: ExitStack) -> str:
    """The path of a temporary file with the bytes of a pipe; it has no name, so nothing can be left behind."""
    try:
        copy = stack.enter_context(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        shutil.copyfileobj(file, copy, 1 << 20)
    except OSError as error:
        hint = "TMPDIR names another directory"
        raise storage_error(error, "write a temporary file in", tempfile.gettempdir(), hint) from None
    return f"/proc/{os.getpid()}/fd/{copy.fileno()}"


class _Prefixed(io.RawIOBase):
    """A file object with bytes before it that were read already."""

    def __init__(self, head: bytes, file: Any, name: str) -> None:
        self.name = name
        self._head = head
        self._read = getattr(file, "read1", file.read)

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        data = self._head or self._read(len(room))
        taken, self._head = data[: len(room)], self._head[len(room) :]
        room[: len(taken)] = taken
        return len(taken)
