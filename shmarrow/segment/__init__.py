"""Where bytes live: a mapped file, or a POSIX shared memory object; create, attach, seal, unlink.

A location is a path, or ``shm:NAME``, the shared memory object that any program opens as ``shm_open("/NAME")``. On
Linux that object is the file ``/dev/shm/NAME``, so both kinds use the same few system calls. Other platforms have no
such files, and ``shm:`` names raise `Unsupported` there.

``location`` says what a name means and why one was refused, ``attached`` how a published object is mapped, ``writer``
how one is written and published, ``files`` how a file is made, filled, named and removed; each opens with the rules
that it keeps.

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
    """What writes and removes is imported when it is first asked for: most processes read."""
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
