"""Mapped files and POSIX shared memory objects: create, publish, attach, delete.

A location is a path, or ``shm:NAME`` for the shared memory object that programs open as ``shm_open("/NAME")``. On Linux
that object is the file ``/dev/shm/NAME``, so both kinds use the same system calls. On other platforms ``shm:`` names
raise `Unsupported`.

``location`` resolves names and explains refusals, ``attached`` maps published objects, ``writer`` writes and publishes
them, ``files`` creates, fills, links and removes files; each docstring lists the module's invariants.

Examples
--------
>>> from shmarrow.segment import attach, create, delete
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
from shmarrow.segment.attached import Segment, attach
from shmarrow.segment.location import SHM_DIRECTORY, SHM_NAME_MAX, SHM_SCHEME, TEMP_PREFIX, Location, is_location

if TYPE_CHECKING:
    from shmarrow.segment.files import collect_leftovers, delete
    from shmarrow.segment.writer import Piece, SegmentWriter, create

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
    __getattr__, __dir__ = lazy(
        __name__,
        {".files": "collect_leftovers delete", ".writer": "Piece SegmentWriter create"},
    )
