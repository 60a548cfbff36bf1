# SPDX-License-Identifier: Apache-2.0
"""Where bytes live: mapped files and shared memory objects, sources and sinks, locks and futexes, and how writers end.

``location`` resolves names and explains refusals. ``attached`` maps published objects, ``mappings`` holds the mappings,
``opening`` opens whatever can be read; ``unnamed_file``, ``segment_writer`` and ``sinks`` write, ``files`` creates,
fills, links and removes files. ``split`` is how bytes in several files are one body. ``life_cycle`` is how every writer
ends, ``state_machine`` its table of states. ``locks`` and ``futex`` are how processes exclude, wake and wait for each
other. ``formats`` recognises formats by their first bytes.
Users know the room as :mod:`shmarrow.segment`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.memory.attached import Segment as Segment
    from shmarrow.memory.attached import attach as attach
    from shmarrow.memory.attached import status_of as status_of
    from shmarrow.memory.files import allocate as allocate
    from shmarrow.memory.files import collect_leftovers as collect_leftovers
    from shmarrow.memory.files import delete as delete
    from shmarrow.memory.files import link_unnamed as link_unnamed
    from shmarrow.memory.files import open_unnamed as open_unnamed
    from shmarrow.memory.files import populate as populate
    from shmarrow.memory.files import sync_directory as sync_directory
    from shmarrow.memory.formats import by_suffix as by_suffix
    from shmarrow.memory.formats import head_of as head_of
    from shmarrow.memory.formats import recognized as recognized
    from shmarrow.memory.formats import unexpected as unexpected
    from shmarrow.memory.futex import Futexes as Futexes
    from shmarrow.memory.futex import Wait as Wait
    from shmarrow.memory.host import allows_memory as allows_memory
    from shmarrow.memory.host import boot_id as boot_id
    from shmarrow.memory.host import host_name as host_name
    from shmarrow.memory.host import in_memory as in_memory
    from shmarrow.memory.host import memory_left as memory_left
    from shmarrow.memory.life_cycle import Sink as Sink
    from shmarrow.memory.life_cycle import Writer as Writer
    from shmarrow.memory.location import SHM_DIRECTORY as SHM_DIRECTORY
    from shmarrow.memory.location import SHM_NAME_MAX as SHM_NAME_MAX
    from shmarrow.memory.location import SHM_SCHEME as SHM_SCHEME
    from shmarrow.memory.location import TEMP_PREFIX as TEMP_PREFIX
    from shmarrow.memory.location import Location as Location
    from shmarrow.memory.location import check_shm as check_shm
    from shmarrow.memory.location import decoded as decoded
    from shmarrow.memory.location import is_location as is_location
    from shmarrow.memory.location import is_shm as is_shm
    from shmarrow.memory.location import refused as refused
    from shmarrow.memory.location import resolve as resolve
    from shmarrow.memory.locks import Exclusive as Exclusive
    from shmarrow.memory.locks import open_unlocked as open_unlocked
    from shmarrow.memory.locks import try_lock as try_lock
    from shmarrow.memory.locks import unlock as unlock
    from shmarrow.memory.mappings import Mapping as Mapping
    from shmarrow.memory.mappings import as_writable as as_writable
    from shmarrow.memory.mappings import map_file as map_file
    from shmarrow.memory.mappings import mapping_of as mapping_of
    from shmarrow.memory.mappings import private_view as private_view
    from shmarrow.memory.mappings import shared_of as shared_of
    from shmarrow.memory.opening import open_source as open_source
    from shmarrow.memory.pipes import spooled as spooled
    from shmarrow.memory.ranges import RangeBody as RangeBody
    from shmarrow.memory.ranges import SourceRange as SourceRange
    from shmarrow.memory.segment_writer import Piece as Piece
    from shmarrow.memory.segment_writer import SegmentWriter as SegmentWriter
    from shmarrow.memory.segment_writer import create as create
    from shmarrow.memory.sinks import open_sink as open_sink
    from shmarrow.memory.source import Source as Source
    from shmarrow.memory.source import name_of as name_of
    from shmarrow.memory.state_machine import CLOSE as CLOSE
    from shmarrow.memory.state_machine import CLOSED as CLOSED
    from shmarrow.memory.state_machine import END as END
    from shmarrow.memory.state_machine import ENDED as ENDED
    from shmarrow.memory.state_machine import FAIL as FAIL
    from shmarrow.memory.state_machine import FAILED as FAILED
    from shmarrow.memory.state_machine import OPEN as OPEN
    from shmarrow.memory.state_machine import READ as READ
    from shmarrow.memory.state_machine import SEQUENTIAL as SEQUENTIAL
    from shmarrow.memory.state_machine import NotCopied as NotCopied
    from shmarrow.memory.state_machine import StateMachine as StateMachine
    from shmarrow.memory.state_machine import Transitions as Transitions
    from shmarrow.memory.state_machine import fork_safe_lock as fork_safe_lock
    from shmarrow.memory.state_machine import lock_of_process as lock_of_process
    from shmarrow.memory.unnamed_file import Destination as Destination
    from shmarrow.memory.unnamed_file import UnnamedFile as UnnamedFile

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".attached": "Segment attach status_of",
            ".files": "allocate collect_leftovers delete link_unnamed open_unnamed populate sync_directory",
            ".formats": "by_suffix head_of recognized unexpected",
            ".futex": "Futexes Wait",
            ".host": "allows_memory boot_id host_name in_memory memory_left",
            ".life_cycle": "Sink Writer",
            ".location": "Location SHM_DIRECTORY SHM_NAME_MAX SHM_SCHEME TEMP_PREFIX "
            "check_shm decoded is_location is_shm refused resolve",
            ".locks": "Exclusive open_unlocked try_lock unlock",
            ".mappings": "Mapping as_writable map_file mapping_of private_view shared_of",
            ".opening": "open_source",
            ".pipes": "spooled",
            ".ranges": "RangeBody SourceRange",
            ".segment_writer": "Piece SegmentWriter create",
            ".sinks": "open_sink",
            ".source": "Source name_of",
            ".state_machine": "CLOSE CLOSED END ENDED FAIL FAILED "
            "NotCopied OPEN READ SEQUENTIAL StateMachine Transitions fork_safe_lock lock_of_process",
            ".unnamed_file": "Destination UnnamedFile",
        },
    )
