"""Where bytes live: a mapped file, or a POSIX shared memory object; create, attach, seal, unlink.

A location is a path, or ``shm:NAME``, the shared memory object that any program opens as ``shm_open("/NAME")``. On
Linux that object is the file ``/dev/shm/NAME``, so both kinds go through the same few system calls. Elsewhere shared
memory objects take no ``pwritev`` and no ``link``: they can be attached and unlinked, not published.

``location`` says what a name means and why one was refused, ``attached`` how a published object is mapped, ``writer``
how one is written and published, ``files`` how a file is made, filled, named and removed; each opens with the rules
that it keeps.

Examples
--------
>>> with create("shm:shmarrow-example") as writer:
...     written = writer.write([b"hello, ", b"world"])
>>> segment = attach("shm:shmarrow-example")
>>> unlink("shm:shmarrow-example")
>>> segment.data.tobytes()
b'hello, world'
"""

from shmarrow.segment.attached import Segment, attach, attach_path
from shmarrow.segment.files import collect_leftovers, remove_unused, supports_unnamed, unlink
from shmarrow.segment.location import SHM_DIRECTORY, SHM_NAME_MAX, SHM_SCHEME, TEMP_PREFIX, Location, is_location
from shmarrow.segment.writer import Keeper, Piece, SegmentWriter, create

__all__ = [
    "SHM_DIRECTORY",
    "SHM_NAME_MAX",
    "SHM_SCHEME",
    "TEMP_PREFIX",
    "Keeper",
    "Location",
    "Piece",
    "Segment",
    "SegmentWriter",
    "attach",
    "attach_path",
    "collect_leftovers",
    "create",
    "is_location",
    "remove_unused",
    "supports_unnamed",
    "unlink",
]
