# SPDX-License-Identifier: Apache-2.0
"""Spark integration: one copy of the data per host, shared by all Python workers and other processes.

:func:`share` runs inside Spark, with ``mapInArrow``: each partition becomes one object of a store, and only its
:class:`PartitionHandle` is returned to the driver. :meth:`SharedFrame.map` sends the handles to another job, whose
workers attach to the same memory. :func:`broadcast` shares a value of the driver with all workers, and :func:`once` a
value computed by the first worker of each host. :func:`lookup` adds columns of a frame to a DataFrame by key.

There is no server, and Spark is imported only on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.spark.file_set import FileSet, files
    from shmarrow.spark.frame import SharedFrame
    from shmarrow.spark.handle import PartitionHandle
    from shmarrow.spark.joining import lookup
    from shmarrow.spark.key_index import FrameIndex
    from shmarrow.spark.sharing import attached, share, share_table
    from shmarrow.spark.values import HostBroadcast, Once, broadcast, once

__all__ = [
    "FileSet",
    "FrameIndex",
    "HostBroadcast",
    "Once",
    "PartitionHandle",
    "SharedFrame",
    "attached",
    "broadcast",
    "files",
    "lookup",
    "once",
    "share",
    "share_table",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".file_set": "FileSet files",
            ".frame": "SharedFrame",
            ".handle": "PartitionHandle",
            ".joining": "lookup",
            ".key_index": "FrameIndex",
            ".sharing": "attached share share_table",
            ".values": "HostBroadcast Once broadcast once",
        },
    )
"""A worker imports only what it needs. No module has the name of a function."""
