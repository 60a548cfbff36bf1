"""Named objects that any process of the host can have, in shared memory or in a directory, without a server.

``place`` says where they are and whom to trust, ``kinds`` what they are, ``keeper`` how one gets its name,
``space`` how much room there is and what is removed, ``register`` who owns what and until
when, ``watch`` how others hear of it.
"""

from shmarrow.store.info import ObjectInfo, Stats
from shmarrow.store.space import Collected
from shmarrow.store.store import Store
from shmarrow.store.watch import Event, Watch

__all__ = ["Collected", "Event", "ObjectInfo", "Stats", "Store", "Watch"]
