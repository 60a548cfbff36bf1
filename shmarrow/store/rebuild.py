# SPDX-License-Identifier: Apache-2.0
"""Rebuilding the catalog from its slots, on first use after a reboot.

After a reboot, a durable store keeps its objects, and any other is empty. No process of the previous boot is alive, so
there are no pins or owners, and pages of the control file may differ in age. A slot is kept if its checksum is correct
and its file exists with the recorded size; chains, lists and counts are rebuilt from these. A process killed during the
rebuild leaves the old boot id, so the next one starts over.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from shmarrow.store import protocol as p
from shmarrow.store.control import JOURNAL, SEQUENCE, Memory
from shmarrow.store.directory import Directory
from shmarrow.store.index import parts_of, read_inline, read_slot
from shmarrow.store.protocol import Entry, file_name, is_object
from shmarrow.store.settings import this_boot

if TYPE_CHECKING:
    from shmarrow.store.lookup import Lookup

_SKIPPED = 1 << 24
"""Number of generations to skip, as lost objects may have used them."""
_LARGEST = 1 << 62
_Files = dict[str, os.stat_result]


def rebuild(catalog: Lookup) -> None:
    """Rebuild the catalog; called under the lock."""
    memory = catalog.control.map(check=False)
    boot = p.HEADER["boot_id"][0]
    data, words = memory.bytes, memory.words
    journals = sorted(commit for area in p.JOURNALS if (commit := memory.journal(area)) is not None)
    for commit in journals:
        if words[JOURNAL] <= commit[0] < _LARGEST:  # an older one would undo later commits
            memory.apply(commit)
    words[SEQUENCE], words[JOURNAL] = words[SEQUENCE] % _LARGEST | 1, words[JOURNAL] % _LARGEST
    catalog.read_settings()
    files = _files(catalog.directory)
    state = {field: number if number < _LARGEST else 0 for field, number in memory.state()._asdict().items()}
    state["file"] = max([state["file"], *(number for file in files if (number := int(file[:16], 16)) < _LARGEST)])
    kept = _kept(catalog, state, files) if catalog.settings.durable else []
    named = {name for entry in kept if entry.file for name in _names(entry)}
    allocated = {files[name].st_ino: files[name].st_blocks * 512 for name in named}
    state["bytes"] = sum(allocated.values()) + sum([entry.allocated for entry in kept if not entry.file])
    _write(memory, state, kept)
    data[p.EVENT_RING : p.SLOTS] = bytes(p.SLOTS - p.EVENT_RING)  # no watcher is older than this boot
    state["events"] = 0
    p.STATE.struct.pack_into(data, p.STATE.start, *state.values())
    os.fdatasync(catalog.control_fd)
    for name in files.keys() - named:
        with suppress(OSError):
            catalog.directory.unlink(name)
    for area in p.JOURNALS:
        data[area : area + p.JOURNAL_HEAD.size] = bytes(p.JOURNAL_HEAD.size)
    data[boot : boot + 16] = this_boot()
    words[p.word("changing")] = 0
    words[SEQUENCE] += 1
    os.fdatasync(catalog.control_fd)


def _files(directory: Directory) -> _Files:
    """Return the status of the objects' files in a directory, by name."""
    with os.scandir(directory.fd) as listing:
        files = {each.name: each.stat(follow_symlinks=False) for each in listing if is_object(each.name)}
    return {name: status for name, status in files.items() if stat.S_ISREG(status.st_mode)}


def _names(entry: Entry) -> list[str]:
    """Return the names of an object's files."""
    return [file_name(entry.file, part) for part in range(entry.parts + 1)]


def _kept(catalog: Lookup, state: dict[str, int], files: _Files) -> list[Entry]:
    """Return the objects to keep in order of slot; raise the last used numbers in ``state`` to theirs."""
    memory = catalog.memory
    names: dict[bytes, Entry] = {}
    numbers: dict[int, Entry] = {}
    slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, memory.slots, p.SLOTS)
    for slot in np.flatnonzero(slots["state"] == p.LIVE).tolist():
        entry = read_slot(memory, slot)
        if entry is None or not entry.generation or max(entry.generation, entry.file, entry.owner) >= _LARGEST:
            continue
        for field in ("generation", "file", "owner"):
            state[field] = max(state[field], getattr(entry, field))
        if not entry.file:
            parts = parts_of(memory, entry)
            if parts is None or read_inline(memory, entry) is None:
                continue
            allocated = (len(parts) + 1) * p.SLOT_SIZE
        elif entry.parts < len(files) and all(name in files for name in _names(entry)):
            status = files[file_name(entry.file)]
            if status.st_size != entry.size:
                continue
            allocated = status.st_blocks * 512
        else:
            continue
        flags = entry.flags & p.PROTECTED  # a disk may have returned other values
        entry = entry._replace(allocated=allocated, hash=catalog.hash(entry.name), flags=flags)
        key = entry.file or -entry.slot - 1
        others = {one for one in (names.get(entry.name), numbers.get(key)) if one is not None}
        if all(one.generation < entry.generation for one in others):
            for one in others:
                del names[one.name], numbers[one.file or -one.slot - 1]
            names[entry.name] = numbers[key] = entry
    state["generation"] += _SKIPPED
    return sorted(names.values(), key=lambda entry: entry.slot)


def _write(memory: Memory, state: dict[str, int], kept: list[Entry]) -> None:
    """Write the slots, the chains, the lists, and the counts."""
    slots = np.frombuffer(memory.bytes, p.SLOT_DTYPE, memory.slots, p.SLOTS)
    raw = np.frombuffer(memory.bytes, "u1", memory.slots * p.SLOT_SIZE, p.SLOTS).reshape(-1, p.SLOT_SIZE)
    used = np.array([entry.slot for entry in kept], np.int64)
    unused = np.ones(memory.slots, np.bool_)
    unused[used] = False
    parts = [parts_of(memory, entry) or [] for entry in kept]
    unused[[slot for each in parts for slot in each]] = False
    raw[unused] = 0
    for entry in kept:
        at = p.SLOTS + entry.slot * p.SLOT_SIZE
        memory.bytes[at : at + p.USED] = entry.pack()
    count = int(np.flatnonzero(np.append(True, ~unused))[-1])
    links = np.zeros((2, memory.slots), np.uint32)
    heads, following = links
    if kept:
        size = 1 << (count - 1).bit_length()
        bucket = (slots["hash"][used] & np.uint64(size - 1)).astype(np.int64)
        bucket[bucket >= count] -= size >> 1
        order = np.argsort(bucket, kind="stable")
        bucket, used = bucket[order], used[order]
        first = np.append(True, bucket[1:] != bucket[:-1])
        heads[bucket[first]] = used[first] + 1
        following[used[:-1][~first[1:]]] = used[1:][~first[1:]] + 1
    for each in parts:
        following[each[:-1]] = np.array(each[1:], np.uint32) + 1
    free = np.flatnonzero(unused[:count])
    following[free[:-1]] = free[1:] + 1
    slots["head"], slots["next"], slots["used"] = heads, following, 0
    state |= {
        "buckets": count,
        "objects": len(kept),
        "free": int(free[0]) + 1 if len(free) else 0,
        "removed": 0,
        "removing": 0,
    }
