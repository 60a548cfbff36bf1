"""Spark: one copy of the data on each host, for all of its Python workers and every other process.

:func:`share` runs inside Spark, with ``mapInArrow``: each partition becomes one object of a store, and only a line
about it, its :class:`Handle`, travels back. :meth:`SharedFrame.map` takes handles into another
job, whose workers attach to the very same memory. :func:`broadcast` gives a value of the driver to all workers, and
:func:`once` one that the first worker of a host computes.

Nothing here runs a server, and nothing here imports Spark before it is used.
"""

from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.handle import Handle
from shmarrow.spark.host_broadcast import HostBroadcast, broadcast
from shmarrow.spark.host_once import Once, once
from shmarrow.spark.session import check_java, local_session
from shmarrow.spark.share import share

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
]
