"""Rings in the commands ``info`` and ``top``: who writes and reads, positions and misses.

Looking takes no lock and no slot.
"""

from __future__ import annotations

import argparse
import os
import stat
from contextlib import suppress
from typing import Any

import shmarrow as sa
from shmarrow.cli.host import command_of, owner_of
from shmarrow.cli.report import Fields, Table, render, size_text
from shmarrow.errors import printable
from shmarrow.ring import ring_info
from shmarrow.ring.protocol import MAGIC
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME


def is_ring(where: str) -> bool:
    """Whether a word names a ring."""
    path = f"{SHM_DIRECTORY}/{where[len(SHM_SCHEME) :]}" if where.startswith(SHM_SCHEME) else where
    with suppress(OSError, ValueError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return stat.S_ISREG(os.fstat(fd).st_mode) and os.pread(fd, len(MAGIC), 0) == MAGIC
        finally:
            os.close(fd)
    return False


def shared_rings() -> list[str]:
    """The rings in shared memory that this user may read, as sorted ``shm:NAME``."""
    with suppress(OSError), os.scandir(SHM_DIRECTORY) as found:
        names = [SHM_SCHEME + each.name for each in found if each.name[0] != "."]
        return sorted(filter(is_ring, names))
    return []


def look(where: str, trust: bool) -> dict[str, Any] | None:
    """The state of a ring; ``error`` and ``message`` if it cannot be opened, None if it is gone."""
    try:
        found = ring_info(where, trust)
    except sa.ObjectNotFound:
        return None
    except sa.ShmarrowError as error:
        kind = type(error).__name__
        return {"ring": where, "user": owner_of(where), "error": kind, "message": str(error), "reason": error.message}
    readers = [{**each._asdict(), "command": command_of(each.process)} for each in found.readers]
    shown = {"kind": found.kind, "policy": found.policy, "slots": found.slots, "bytes": found.nbytes}
    state = {"frames": found.frames, "writer": found.writer, "readers": readers}
    return {"ring": where, "user": owner_of(where), **shown, **state}


def readers_text(found: dict[str, Any]) -> list[str]:
    """The writer and the readers of a ring, one line each."""
    writer = found["writer"]
    first = "no writer" if writer is None else f"written by {writer} {command_of(writer) or ''}".rstrip()
    return [
        first,
        *[
            f"frame {each['position']}, {each['missed']} missed, by {each['process']} {each['command'] or ''}".rstrip()
            for each in found["readers"]
        ],
    ]


def describe_ring(arguments: argparse.Namespace) -> int:
    """Describe a ring, for ``info``."""
    found = look(arguments.store, arguments.trust)
    if found is None or "error" in found:
        ring_info(arguments.store, arguments.trust)  # raises the error
        return 1
    writer = found["writer"]
    fields = {
        "ring": printable(found["ring"]),
        "kind": f"{found['slots']} slots, each a {found['kind']}",
        "policy": found["policy"],
        "size": f"{size_text(found['bytes'])} ({found['bytes']} bytes)",
        "frames": str(found["frames"]),
        "writer": "none" if writer is None else f"process {writer} {command_of(writer) or ''}".rstrip(),
        "readers": str(len(found["readers"])),
    }
    rows = [
        (str(each["process"]), each["command"] or "", str(each["position"]), str(each["missed"]))
        for each in found["readers"]
    ]
    table = [Table(("reader", "command", "frame", "missed"), rows)] if rows else []
    render(arguments.json, found, Fields(fields), *table)
    return 0
