# SPDX-License-Identifier: Apache-2.0
"""What can be read of a store whose catalog is damaged, or gone. It is neither opened nor changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidData, StorageError, storage_error
from shmarrow.memory import Location, Segment, map_file
from shmarrow.reuse import SharedFiles
from shmarrow.store import protocol as p
from shmarrow.store.control import Memory
from shmarrow.store.directory import Directory, check_trust, find_directory
from shmarrow.store.index import COVERED, read_inline, read_slot
from shmarrow.store.protocol import Entry, file_name, is_object

_COMPRESSED, _SMALL = 16, 1 << 26
"""Maximum ratio of size to allocated bytes of a control file that is read, and bytes on top: others may be holes."""


def readable(where: Location, accept_users: bool | tuple[int, ...]) -> Iterator[tuple[str, Callable[[], Segment]]]:
    """Iterate over the names of objects, and functions that map or copy them: whole slots, then files without one."""
    directory = find_directory(where, accept_users)
    try:
        memory = _catalog_of(directory)
        numbers = {int(file[:16], 16) for file in os.listdir(directory.fd) if is_object(file) and "-" not in file}
        slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, memory.slots, p.SLOTS)
        for slot in np.flatnonzero(slots["state"] != p.UNUSED).tolist():
            entry = read_slot(memory, slot)
            if entry is not None and entry.file:
                numbers.discard(entry.file)
            elif entry is None:
                numbers.discard(_deleted(memory, slot))
            if entry is not None and not entry.expired:
                yield entry.name.decode(), partial(_mapped if entry.file else _copied, directory, memory, entry)
        for number in sorted(numbers):
            yield file_name(number), partial(_map, directory, number)
    finally:
        os.close(directory.fd)


def _catalog_of(directory: Directory) -> Memory:
    """Copy the control file, as far as it is there, as the last complete journal leaves it."""
    data = b""
    try:
        with open(directory.open(p.CONTROL, os.O_RDONLY), "rb") as control:
            check_trust(directory, stat.S_IMODE(os.fstat(control.fileno()).st_mode))
            status = os.fstat(control.fileno())
            data = control.read(min(status.st_size, status.st_blocks * 512 * _COMPRESSED + _SMALL))
    except FileNotFoundError:
        check_trust(directory, 0)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, "read the control file of", directory.name) from None
    slots = max(len(data) - p.SLOTS, 0) // p.SLOT_SIZE
    memory = Memory.of(bytearray(data[: p.SLOTS + slots * p.SLOT_SIZE].ljust(p.SLOTS, b"\0")))
    if commit := memory.pending():
        memory.apply(commit)
    return memory


def _deleted(memory: Memory, slot: int) -> int:
    """The file of an object that was deleted, which others may share; 0 for other slots."""
    raw = bytes(memory.slot(slot)[:COVERED])
    gone = Entry._make((*p.ENTRY.struct.unpack_from(raw), b"", slot))
    return gone.file if gone.state == p.GONE and gone.pack() == raw else 0


def _copied(directory: Directory, memory: Memory, entry: Entry) -> Segment:
    data = read_inline(memory, entry)
    if data is None:
        raise InvalidData("its checksum is wrong")
    return Segment(entry.name.decode(), "", np.frombuffer(data, U1), os.fstat(directory.fd))


def _mapped(directory: Directory, memory: Memory, entry: Entry) -> Segment:
    segment = _map(directory, entry.file)
    if segment.size != entry.size:
        raise InvalidData(f"expected {entry.size} bytes, found {segment.size}")
    return segment


def _map(directory: Directory, number: int) -> Segment:
    """Map the file of an object, and its parts when they are needed."""

    def data_of(part: int) -> Bytes:
        file = file_name(number, part)
        try:
            fd = directory.open(file, os.O_RDONLY)
        except OSError as error:
            raise storage_error(error, "read", file) from None
        try:
            status = os.fstat(fd)
            shared = None if part else SharedFiles(p.PARTS_MAX, data_of)
            return map_file(fd, status.st_size, f"{directory.path}/{file}", status, shared=shared)
        finally:
            os.close(fd)

    file = file_name(number)
    data = data_of(0)
    return Segment(file, f"{directory.path}/{file}", data, os.stat(file, dir_fd=directory.fd))
