"""Where bytes live: mapped files and shared memory objects, sources and sinks, locks and futexes, and how writers end.

``location`` resolves names and explains refusals. ``attached`` maps published objects, ``mappings`` holds the mappings,
``opening`` opens whatever can be read; ``segment_writer`` and ``sinks`` write, ``files`` creates, fills, links and
removes files. ``life_cycle`` is how every writer ends, ``state_machine`` its table of states. ``locks`` and ``futex``
are how processes exclude, wake and wait for each other. ``formats`` recognises formats by their first bytes.
Users know the room as :mod:`shmarrow.segment`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy
from shmarrow.memory.attached import Segment, attach
from shmarrow.memory.location import SHM_DIRECTORY, SHM_NAME_MAX, SHM_SCHEME, TEMP_PREFIX, Location, is_location
from shmarrow.memory.opening import open_source
from shmarrow.memory.source import Source

if TYPE_CHECKING:
    from shmarrow.memory.files import collect_leftovers, delete
    from shmarrow.memory.segment_writer import Piece, SegmentWriter, create
    from shmarrow.memory.sinks import open_sink

__all__ = [
    "SHM_DIRECTORY",
    "SHM_NAME_MAX",
    "SHM_SCHEME",
    "TEMP_PREFIX",
    "Location",
    "Piece",
    "Segment",
    "SegmentWriter",
    "Source",
    "attach",
    "collect_leftovers",
    "create",
    "delete",
    "is_location",
    "open_sink",
    "open_source",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".files": "collect_leftovers delete",
            ".segment_writer": "Piece SegmentWriter create",
            ".sinks": "open_sink",
        },
    )
