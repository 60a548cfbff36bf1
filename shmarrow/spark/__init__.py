"""Spark: one copy of the data on each host, for all of its Python workers and every other process.

:func:`share` runs inside Spark, with ``mapInArrow``: each partition becomes one object of a store, and only a line
about it, its :class:`Handle`, travels back. :meth:`SharedFrame.map` takes handles into another
job, whose workers attach to the very same memory. :func:`broadcast` gives a value of the driver to all workers.

Nothing here runs a server, and nothing here imports Spark before it is used. Workers import modules of this package
one by one, so the package itself imports none before a name is asked for; and no module has a name of :data:`__all__`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmarrow.spark.frame import SharedFrame
    from shmarrow.spark.handle import Handle
    from shmarrow.spark.host_broadcast import HostBroadcast, broadcast
    from shmarrow.spark.session import check_java, local_session
    from shmarrow.spark.sharing import share

__all__ = ["Handle", "HostBroadcast", "SharedFrame", "broadcast", "check_java", "local_session", "share"]

_HOMES = {
    "Handle": "handle",
    "HostBroadcast": "host_broadcast",
    "SharedFrame": "frame",
    "broadcast": "host_broadcast",
    "check_java": "session",
    "local_session": "session",
    "share": "sharing",
}
"""The module of each name, which is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shmarrow.spark' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"shmarrow.spark.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
