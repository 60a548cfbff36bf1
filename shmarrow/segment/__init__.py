"""Mapped files and POSIX shared memory objects: create, publish, attach, unlink.

A location is a path, or ``shm:NAME`` for the shared memory object that programs open as ``shm_open("/NAME")``. On Linux
that object is the file ``/dev/shm/NAME``, so both kinds use the same system calls. On other platforms ``shm:`` names
raise `Unsupported`.

``location`` resolves names and explains refusals, ``attached`` maps published objects, ``writer`` writes and publishes
them, ``files`` creates, fills, links and removes files; each docstring lists the module's invariants.

Examples
--------
>>> from shmarrow.segment import attach, create, unlink
>>> with create("shm:shmarrow-example") as writer:
...     written = writer.write([b"hello, ", b"world"])
>>> segment = attach("shm:shmarrow-example")
>>> unlink("shm:shmarrow-example")
>>> segment.data.tobytes()
b'hello, world'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmarrow.segment.attached import Segment, attach, attach_path
from shmarrow.segment.location import SHM_DIRECTORY, SHM_NAME_MAX, SHM_SCHEME, TEMP_PREFIX, Location, is_location

if TYPE_CHECKING:
    from shmarrow.segment.files import collect_leftovers, remove_unused, unlink
    from shmarrow.segment.writer import Piece, PublishPolicy, SegmentWriter, create

_FILES = {"collect_leftovers", "remove_unused", "unlink"}
_WRITER = {"PublishPolicy", "Piece", "SegmentWriter", "create"}


def __getattr__(name: str) -> Any:
    """Import the writing parts on first access, as most processes only read."""
    home: Any
    if name in _WRITER:
        from shmarrow.segment import writer as home
    elif name in _FILES:
        from shmarrow.segment import files as home
    else:
        raise AttributeError(f"module 'shmarrow.segment' has no attribute {name!r}")
    value = globals()[name] = getattr(home, name)
    return value


__all__ = [
    "SHM_DIRECTORY",
    "SHM_NAME_MAX",
    "SHM_SCHEME",
    "TEMP_PREFIX",
    "Location",
    "Piece",
    "PublishPolicy",
    "Segment",
    "SegmentWriter",
    "attach",
    "attach_path",
    "collect_leftovers",
    "create",
    "is_location",
    "remove_unused",
    "unlink",
]
