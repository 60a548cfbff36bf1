"""Named objects that any process of the host can have, in shared memory or in a directory, without a server.

``protocol`` has the numbers of the format, ``directory`` finds and checks where a store is, ``locks`` says who has
what, ``catalog`` maps the names and ``transaction`` changes them, ``attach`` and ``publish`` map and write one object,
``space`` keeps the capacity, ``watch`` tells what happens, ``info`` what there is; ``store`` is what programs use.
"""

from shmarrow.store.attach import Pin
from shmarrow.store.info import Found, ObjectInfo, Stats
from shmarrow.store.settings import Settings
from shmarrow.store.space import Collected
from shmarrow.store.store import Store
from shmarrow.store.watch import Event, Watch

__all__ = ["Collected", "Event", "Found", "ObjectInfo", "Pin", "Settings", "Stats", "Store", "Watch"]
