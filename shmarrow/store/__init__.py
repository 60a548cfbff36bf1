# SPDX-License-Identifier: Apache-2.0
"""A store of named objects, shared between the processes of a host in shared memory or a directory, without a server.

Read ``protocol`` first: it tells the design, and declares the format. Then, from below: ``control`` maps the control
file and commits to it, ``index`` reads it; ``directory`` finds, creates and removes stores; ``locks`` and ``waiters``
are among processes; ``lookup`` is what a process has open of a store, and finds objects; ``transaction`` is the only
way to change it, and ``catalog`` makes these; ``attach`` and ``publish`` map and write one object; ``room`` evicts,
``snapshot`` lists, ``info`` describes, ``watch`` reports, ``rescue`` reads what is damaged; ``store`` is the public
interface.
"""

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.store.attach import Pin
    from shmarrow.store.info import Found, ObjectInfo, Stats
    from shmarrow.store.settings import Settings
    from shmarrow.store.store import Store
    from shmarrow.store.watch import Event, Watch

__all__ = ["Event", "Found", "ObjectInfo", "Pin", "Settings", "Stats", "Store", "Watch"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".attach": "Pin",
            ".info": "Found ObjectInfo Stats",
            ".settings": "Settings",
            ".store": "Store",
            ".watch": "Event Watch",
        },
    )
