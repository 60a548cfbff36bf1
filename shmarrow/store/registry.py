"""The open stores of a process: one catalog each, since closing a second one would release the locks of the first."""

from __future__ import annotations

import _thread
import os

from shmarrow.segment import Location
from shmarrow.store.catalog import Catalog
from shmarrow.store.directory import Directory, Trust, check_trust, open_directory, retried
from shmarrow.store.settings import Wanted

_open: list[Catalog] = []
_mutex = _thread.RLock()


def open_catalog(where: Location, want: Wanted, trust: Trust, create: bool) -> Catalog:
    """Open the catalog of a store, or share the open one; release it with :meth:`Catalog.release`."""
    return retried(lambda: _open_catalog(where, want, trust, create), create)


def _open_catalog(where: Location, want: Wanted, trust: Trust, create: bool) -> Catalog:
    with _mutex:
        _open[:] = [catalog for catalog in _open if not catalog.retire()]
        directory = open_directory(where, want, trust, create)
        try:
            catalog = _shared(directory)
            try:
                catalog.reload(want)
                check_trust(directory, catalog.settings.mode, catalog.control_fd)
            except BaseException:
                catalog.release()
                raise
        finally:
            if all(catalog.directory is not directory for catalog in _open) and directory.fd >= 0:
                os.close(directory.fd)
        return catalog


def _shared(directory: Directory) -> Catalog:
    for catalog in _open:
        if catalog.directory.key == directory.key and catalog.share():
            if catalog.inherited and catalog.exists:
                return catalog
            catalog.release()
    catalog = Catalog(directory)
    _open.append(catalog)
    return catalog


def _after_fork() -> None:
    global _mutex
    _mutex = _thread.RLock()
    for catalog in _open:
        catalog.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
