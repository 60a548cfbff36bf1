"""Spark: one copy of the data on each host, for all of its Python workers and every other process.

:func:`share` runs inside Spark, with ``mapInArrow``: each partition becomes one object of a store, and only a line
about it, its :class:`Handle`, travels back. :meth:`SharedFrame.map` takes handles into another job, whose workers
attach to the very same memory. :func:`broadcast` gives a value of the driver to all workers, and :func:`once` one that
the first worker of a host computes.

Nothing here runs a server, and nothing here imports Spark before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmarrow.spark.driver_table import share_table
    from shmarrow.spark.frame import SharedFrame
    from shmarrow.spark.handle import Handle
    from shmarrow.spark.host_broadcast import HostBroadcast, broadcast
    from shmarrow.spark.host_once import Once, once
    from shmarrow.spark.session import check_java, local_session
    from shmarrow.spark.sharing import share

__all__ = [
    "Handle",
    "HostBroadcast",
    "Once",
    "SharedFrame",
    "broadcast",
    "check_java",
    "local_session",
    "once",
    "share",
    "share_table",
]

_MODULES = {
    "driver_table": ("share_table",),
    "frame": ("SharedFrame",),
    "handle": ("Handle",),
    "host_broadcast": ("HostBroadcast", "broadcast"),
    "host_once": ("Once", "once"),
    "session": ("check_java", "local_session"),
    "sharing": ("share",),
}
"""Where the names above are; a worker imports only the modules that it needs. No module has the name of a function."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"shmarrow.spark.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
