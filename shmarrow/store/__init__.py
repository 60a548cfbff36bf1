"""A store of named objects, shared between the processes of a host in shared memory or a directory, without a server.

``protocol`` defines the constants of the format, ``directory`` locates and checks the directory of a store, ``locks``
contains its locks, ``catalog`` maps the names and ``transaction`` changes them, ``attach`` and ``publish`` map and
write one object, ``space`` enforces the capacity, ``watch`` reports changes, ``info`` describes objects; ``store`` is
the public interface.
"""

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy
from shmarrow.store.attach import Pin
from shmarrow.store.settings import Settings
from shmarrow.store.store import Store

if TYPE_CHECKING:
    from shmarrow.store.info import Found, ObjectInfo, Stats
    from shmarrow.store.space import Collected
    from shmarrow.store.watch import Event, Watch

__all__ = ["Collected", "Event", "Found", "ObjectInfo", "Pin", "Settings", "Stats", "Store", "Watch"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__, {".info": "Found ObjectInfo Stats", ".space": "Collected", ".watch": "Event Watch"}
    )
