"""The stores that commands work on: a named one, or all of this host, and their contents.

Nothing here locks, pins or changes a store.
"""

from __future__ import annotations

import argparse
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import shmarrow as sa
from shmarrow.errors import printable
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME
from shmarrow.store.protocol import CONTROL, MAGIC

COUNTERS = ("puts", "hits", "misses", "evictions", "expired")
_MOST_SECONDS = 1e9
_MOST_NAMES = 10_000
"""At most so many names are searched for one that is similar to a missing one."""


# --- one store --------------------------------------------------------------------------------------------------


def add_store(
    parser: argparse.ArgumentParser, store: str | None = None, help: str = "the store: shm:NAME or a directory"
) -> None:
    """Add the arguments that all store commands have."""
    parser.add_argument("store", metavar="STORE", nargs=store, help=help)
    parser.add_argument("--json", action="store_true", help="print results and errors as JSON")
    parser.add_argument("--trust", action="store_true", help="accept a store that other users own or may write to")
    parser.set_defaults(wrong_usage=parser.error)


def seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to {_MOST_SECONDS:.0f}, found {text!r}")
    return value


@contextmanager
def opened(arguments: argparse.Namespace, where: str | None = None) -> Iterator[sa.Store]:
    """Open the store of a command; errors about missing names suggest similar ones."""
    where = where or arguments.store
    try:
        store = sa.Store(where, trust=arguments.trust, create=False)
    except sa.ObjectNotFound as error:
        error.hint = "`shmarrow names` lists the stores in shared memory"
        _guess(error, where if ":" in where or "/" in where else SHM_SCHEME + where, shared_stores())
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

    for found in get_close_matches(name, names, n=1, cutoff=0.7):
        error.hint = f"did you mean {found!r}?"


# --- all stores -------------------------------------------------------------------------------------------------


def shared_stores() -> list[str]:
    """The stores in shared memory whose directory this user may read, as sorted ``shm:NAME``."""
    with suppress(OSError), os.scandir(SHM_DIRECTORY) as found:
        return sorted([SHM_SCHEME + each.name for each in found if each.name[0] != "." and _is_store(each)])
    return []


def _is_store(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        if entry.is_dir(follow_symlinks=False):
            fd = os.open(f"{entry.path}/{CONTROL}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return stat.S_ISREG(os.fstat(fd).st_mode) and os.pread(fd, len(MAGIC), 0) == MAGIC
            finally:
                os.close(fd)
    return False


def holdings(store: sa.Store) -> dict[str, Any]:
    """The contents of a store, for JSON: bytes, object counts, counters, and attached objects by process."""
    found = store.stats()
    taken = found.nbytes + found.removed + found.drafts
    room = found.free if found.capacity is None else max(min(found.free, found.capacity - taken), 0)
    return {
        "store": store.name,
        "user": owner_of(store.path),
        "objects": found.objects,
        "bytes": found.nbytes,
        "pinned": found.pinned,
        "removed": found.removed,
        "drafts": found.drafts,
        "capacity": found.capacity,
        "room": room,
        "total": found.total,
        "free": found.free,
        "catalog": found.catalog,
        **{name: getattr(found, name) for name in COUNTERS},
        "pins": [
            {"process": process, "command": command_of(process), "objects": count}
            for process, count in sorted(found.pins.items(), key=lambda each: (-each[1], each[0]))
        ],
    }


def look(where: str, trust: bool) -> dict[str, Any] | None:
    """The contents of the store at a location; ``error`` and ``message`` if it cannot be opened, None if it is gone."""
    try:
        with sa.Store(where, create=False, trust=trust) as store:
            return holdings(store)
    except (sa.ObjectNotFound, FileNotFoundError):
        return None
    except sa.ShmarrowError as error:
        kind = type(error).__name__
        return {"store": where, "user": owner_of(where), "error": kind, "message": str(error), "reason": error.message}


def reason(found: dict[str, Any]) -> str:
    """A short reason why a store was not opened."""
    return f"not opened: {found['reason']}"


def owner_of(where: str) -> str | None:
    """The name of the user who owns what is at a location; None if it is gone."""
    path = f"{SHM_DIRECTORY}/{where[len(SHM_SCHEME) :]}" if where.startswith(SHM_SCHEME) else where
    with suppress(OSError):
        uid = os.stat(path).st_uid
        with suppress(KeyError):
            return pwd.getpwuid(uid).pw_name
        return str(uid)
    return None


def command_of(process: int) -> str | None:
    """The command name of a process; None if it has ended or belongs to another container."""
    with suppress(OSError), open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
        return printable(file.read().rstrip("\n"))
    return None


def pins_text(pins: list[dict[str, Any]], most: int = 4) -> list[str]:
    """The number of attached objects by process, one line each."""
    lines = [
        f"{each['objects']} by "
        + (f"{each['process']} {each['command'] or ''}".rstrip() if each["process"] > 0 else "another container")
        for each in pins[:most]
    ]
    others = pins[most:]
    if others:
        lines.append(f"{sum([each['objects'] for each in others])} by {len(others)} others")
    return lines
