# SPDX-License-Identifier: Apache-2.0
"""Mapped files and POSIX shared memory objects: create, publish, attach, delete.

A location is a path, or ``shm:NAME`` for the shared memory object that programs open as ``shm_open("/NAME")``. On Linux
that object is the file ``/dev/shm/NAME``, so both kinds use the same system calls. On other platforms ``shm:`` names
raise `Unsupported`.

It hands out names of :mod:`shmarrow.memory`, where they are.

Examples
--------
>>> from shmarrow.memory import attach, create, delete
>>> with create("shm:shmarrow-example") as writer:
...     written = writer.write([b"hello, ", b"world"])
>>> segment = attach("shm:shmarrow-example")
>>> delete("shm:shmarrow-example")
>>> segment.data.tobytes()
b'hello, world'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy
from shmarrow.memory import SHM_DIRECTORY, SHM_NAME_MAX, SHM_SCHEME, TEMP_PREFIX, Location, Segment, attach, is_location

if TYPE_CHECKING:
    from shmarrow.memory import Piece, SegmentWriter, collect_leftovers, create, delete

__all__ = [
    "SHM_DIRECTORY",
    "SHM_NAME_MAX",
    "SHM_SCHEME",
    "TEMP_PREFIX",
    "Location",
    "Piece",
    "Segment",
    "SegmentWriter",
    "attach",
    "collect_leftovers",
    "create",
    "delete",
    "is_location",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, {"shmarrow.memory": "Piece SegmentWriter collect_leftovers create delete"})
