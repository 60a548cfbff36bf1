"""Named objects that any process of the host can have, in shared memory or in a directory, without a server.

``protocol`` has the numbers of the format, ``directory`` finds and checks where a store is, ``locks`` says who has
what, ``catalog`` maps the names and ``transaction`` changes them, ``attach`` and ``publish`` map and write one object,
``space`` keeps the capacity, ``watch`` tells what happens, ``info`` what there is; ``store`` is what programs use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shmarrow.store.attach import Pin
from shmarrow.store.settings import Settings
from shmarrow.store.store import Store

if TYPE_CHECKING:
    from shmarrow.store.info import Found, ObjectInfo, Stats
    from shmarrow.store.space import Collected
    from shmarrow.store.watch import Event, Watch

__all__ = ["Collected", "Event", "Found", "ObjectInfo", "Pin", "Settings", "Stats", "Store", "Watch"]

_HOMES = {
    "Collected": "space", "Event": "watch", "Found": "info", "ObjectInfo": "info", "Stats": "info", "Watch": "watch",
}  # fmt: skip
"""The module of each name that is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shmarrow.store' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"shmarrow.store.{_HOMES[name]}"), name)
    return value
