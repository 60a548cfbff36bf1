# SPDX-License-Identifier: Apache-2.0
"""The stores and rings that commands work on: a named one, or all of this host; and the words that describe them.

Nothing here locks, pins or changes a store or a ring.
"""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import shmarrow as sa
from shmarrow.cli.command import time_text
from shmarrow.display import size as size_text
from shmarrow.errors import printable
from shmarrow.memory import SHM_DIRECTORY, SHM_SCHEME, head_of, recognized
from shmarrow.ring import ring_info
from shmarrow.store import ObjectInfo
from shmarrow.store.directory import has_magic

COUNTERS = ("puts", "evictions", "expired")
_MOST_NAMES = 10_000
"""At most so many names are searched for one that is similar to a missing one."""


# --- one store --------------------------------------------------------------------------------------------------


@contextmanager
def opened(arguments: argparse.Namespace, where: str | None = None, guess: bool = True) -> Iterator[sa.Store]:
    """Open the store of a command; errors about missing names suggest similar ones, unless it deletes."""
    where = where or arguments.store
    try:
        store = sa.Store(where, accept_users=arguments.accept_users, create=False)
    except sa.StorageError as error:
        if is_ring(where):
            error.hint = f"{where} is a ring: `shmarrow info {where}` describes it"
        elif isinstance(error, sa.ObjectNotFound):
            error.hint = "`shmarrow names` lists the stores in shared memory"
            if guess:
                _guess(error, where if ":" in where or "/" in where else SHM_SCHEME + where, shared(is_store))
        raise
    with store:
        try:
            yield store
        except sa.ObjectNotFound as error:
            if isinstance(name := getattr(arguments, "name", None), str) and name not in store:
                guess_object(error, name, store)
            raise


def guess_object(error: sa.ObjectNotFound, name: str, store: sa.Store) -> None:
    """Suggest a similar object, if there is one, in the hint of an error."""
    if store.stats().objects <= _MOST_NAMES:
        _guess(error, name, store.names())


def _guess(error: sa.ObjectNotFound, name: str, names: list[str]) -> None:
    """Suggest a similar name, if there is one, in the hint of an error."""
    from difflib import get_close_matches

    stem = os.path.splitext(name)[0]  # the object of a file, which may have its suffix at the command line only
    for found in [stem] if stem in names else get_close_matches(name, names, n=1, cutoff=0.7):
        error.hint = f"did you mean {found!r}?"


# --- all stores and rings ---------------------------------------------------------------------------------------


def shared(test: Callable[[str], bool]) -> list[str]:
    """What this user may read in shared memory and passes a test, as sorted ``shm:NAME``."""
    with suppress(OSError):
        names = [SHM_SCHEME + name for name in os.listdir(SHM_DIRECTORY) if name[0] != "."]
        return sorted(filter(test, names))
    return []


def is_store(where: str) -> bool:
    """Whether a location is that of a store."""
    path = _path(where)
    return not os.path.islink(path) and has_magic(path)


def is_ring(where: str) -> bool:
    """Whether a location is that of a ring."""
    return recognized(head_of(_path(where))).kind == "ring"


def is_object(where: str) -> bool:
    """Whether a location is that of an Arrow file, stream or tensor of its own, in no store."""
    return recognized(head_of(_path(where))).kind in ("arrow", "arrows")


def object_state(where: str) -> dict[str, Any] | None:
    """The user and the size of an object in no store, for JSON; None if it is gone."""
    with suppress(OSError):
        return {"object": where, "user": owner_of(where), "bytes": os.stat(_path(where)).st_blocks * 512}
    return None


def _path(where: str) -> str:
    return f"{SHM_DIRECTORY}/{where[len(SHM_SCHEME) :]}" if where.startswith(SHM_SCHEME) else where


def look(where: str, accept_users: bool) -> dict[str, Any] | None:
    """The state of a store or a ring; ``error`` and ``message`` if it cannot be opened, None if it is gone."""
    ring = is_ring(where)
    known = {"ring" if ring else "store": where, "user": owner_of(where)}
    try:
        if ring:
            return known | ring_state(where, accept_users)
        with sa.Store(where, create=False, accept_users=accept_users) as store:
            return known | holdings(store)
    except (sa.ObjectNotFound, FileNotFoundError):
        return None
    except sa.ShmarrowError as error:
        return known | {"error": type(error).__name__, "message": str(error), "reason": error.message}


def holdings(store: sa.Store) -> dict[str, Any]:
    """The contents of a store, for JSON: bytes, object counts, counters, and attached objects by process."""
    found = store.stats()
    taken = found.nbytes + found.removed
    return {
        "store": store.name,
        "user": owner_of(store.path),
        "objects": found.objects,
        "bytes": found.nbytes,
        "pinned": found.pinned,
        "removed": found.removed,
        "capacity": found.capacity,
        "room": found.free if found.capacity is None else max(min(found.free, found.capacity - taken), 0),
        "total": found.total,
        "free": found.free,
        "catalog": found.catalog,
        **{name: getattr(found, name) for name in COUNTERS},
        "pins": [
            {"process": process, "command": command_of(process), "objects": count}
            for process, count in sorted(found.pins.items(), key=lambda each: (-each[1], each[0]))
        ],
    }


def ring_state(where: str, accept_users: bool) -> dict[str, Any]:
    """The state of a ring, for JSON: its frames, writer and readers."""
    found = ring_info(where, accept_users)
    readers = [{**each._asdict(), "command": command_of(each.process)} for each in found.readers]
    shown = {"kind": found.kind, "policy": found.policy, "slots": found.slots, "bytes": found.nbytes}
    return {**shown, "frames": found.frames, "writer": found.writer, "readers": readers}


def reason(found: dict[str, Any]) -> str:
    """A short reason why a store was not opened."""
    return f"not opened: {found['reason']}"


def owner_of(where: str) -> str | None:
    """The name of the user who owns what is at a location; None if it is gone."""
    with suppress(OSError):
        uid = os.stat(_path(where)).st_uid
        with suppress(KeyError):
            return pwd.getpwuid(uid).pw_name
        return str(uid)
    return None


def command_of(process: int) -> str | None:
    """The command name of a process; None if it has ended or belongs to another container."""
    with suppress(OSError), open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
        return printable(file.read().rstrip("\n"))
    return None


def process_text(process: int, command: str | None) -> str:
    """A process as people know it."""
    return f"{process} {command or ''}".rstrip() if process > 0 else "another container"


def pins_text(pins: list[dict[str, Any]], most: int = 4) -> list[str]:
    """The number of attached objects by process, one line each."""
    lines = [f"{each['objects']} by {process_text(each['process'], each['command'])}" for each in pins[:most]]
    others = pins[most:]
    if others:
        lines.append(f"{sum([each['objects'] for each in others])} by {len(others)} others")
    return lines


def readers_text(found: dict[str, Any]) -> list[str]:
    """The writer and the readers of a ring, one line each."""
    writer = found["writer"]
    return [
        "no writer" if writer is None else f"written by {process_text(writer, command_of(writer))}",
        *[
            f"frame {each['position']}, {each['missed']} missed, by {process_text(each['process'], each['command'])}"
            for each in found["readers"]
        ],
    ]


# --- objects ----------------------------------------------------------------------------------------------------


def described(found: ObjectInfo) -> dict[str, Any]:
    """What a store knows of an object, for JSON."""
    what = found.description
    return {
        "name": found.name,
        "kind": found.kind,
        "rows": what.num_rows,
        "batches": what.num_batches,
        "shape": None if what.shape is None else list(what.shape),
        "type": None if what.type is None else str(what.type),
        "schema": None if what.schema is None else {field.name: str(field.type) for field in what.schema.fields},
        "bytes": found.nbytes,
        "allocated": found.allocated,
        "shared": found.shared,
        "sources": list(found.sources),
        "generation": found.generation,
        "path": found.path,
        "age": found.age,
        "idle": found.idle,
        "pins": found.pins,
        "expires_in": found.expires_in,
        "owner": found.owner,
        "orphaned": found.orphaned,
        "protected": found.protected,
    }


def state_fields(found: dict[str, Any]) -> dict[str, str]:
    """What a store knows of an object beside its contents, for people."""
    shared = f"{size_text(found['shared'])}, with {', '.join(found['sources'])}"
    return {
        "shared": shared if found["shared"] else "",
        "file": found["path"] or "none: it is inline in the control file",
        "generation": str(found["generation"]),
        "age": f"{time_text(found['age'])}, last used {time_text(found['idle'])} ago",
        "pins": f"{found['pins']} (processes that have it attached)",
        "expires": "" if found["expires_in"] is None else f"in {time_text(found['expires_in'])}",
        "owner": owner_text(found),
        "state": "protected" if found["protected"] else "",
    }


def owner_text(found: dict[str, Any]) -> str:
    """The process that owns an object."""
    return "orphaned" if found["orphaned"] else "" if found["owner"] is None else str(found["owner"])
