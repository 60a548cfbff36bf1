"""Opening targets: bytes, a path, ``shm:NAME``, or an object of a store."""

from __future__ import annotations

import os
from typing import Any

from shmarrow.errors import ObjectNotFound
from shmarrow.segment import SHM_SCHEME, is_location
from shmarrow.sources import Source, open_source


def open_target(target: Any, trust: bool = False) -> Source:
    """Map a target, or view its bytes, without copying.

    Parameters
    ----------
    target : path, ``shm:NAME``, ``shm:STORE/NAME``, ``DIRECTORY/NAME`` of a store, Segment or bytes-like
        The object to open. A file at the path takes precedence over an object of a store.
    trust : bool
        Accept a store that is owned or writable by other users.

    Raises
    ------
    ObjectNotFound
        If no such file or object exists.
    StorageError
        If the operating system cannot open or map it.
    """
    if not is_location(target):
        return open_source(target)
    name = os.fspath(target)
    name = name if isinstance(name, str) else os.fsdecode(name)
    if not (name.startswith(SHM_SCHEME) and "/" in name):
        try:
            return open_source(name)
        except ObjectNotFound:
            found = _in_store(name, trust)
            if found is None:
                raise
            return found
    found = _in_store(name, trust)
    return open_source(name) if found is None else found


def _in_store(name: str, trust: bool) -> Source | None:
    """Open the object ``STORE/NAME``; None if no part of the name is a store."""
    from shmarrow.store import Store
    from shmarrow.store.arguments import as_name
    from shmarrow.store.attach import read_entry
    from shmarrow.store.directory import split_name

    found = split_name(name)
    if found is None:
        return None
    with Store(found[0], trust=trust, create=False) as store:
        read = read_entry(store._catalog, as_name(found[1]))
        if read is None:
            raise store._missing([found[1]])
        return open_source(read)
