# SPDX-License-Identifier: Apache-2.0
"""Handles: picklable references to shared partitions; and the names of what belongs to a frame."""

from __future__ import annotations

import errno
import io
import os
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from shmarrow.columns import Table
from shmarrow.errors import InvalidData, ObjectNotFound, StorageError, at
from shmarrow.ipc import new_stream
from shmarrow.memory import host_name
from shmarrow.objects import decode
from shmarrow.spark.app_store import AppStore, in_worker

if TYPE_CHECKING:
    from shmarrow.spark.delivery import Way


@dataclass(frozen=True, slots=True)
class PartitionHandle:
    """A reference to one shared partition.

    Attributes
    ----------
    store : AppStore
        Its store.
    name : str
        Name of the object.
    num_rows : int
        Number of rows.
    num_record_batches : int
        Number of record batches.
    size : int
        Size of the object in bytes.
    partition : int
        Number of the partition, from 0.
    pid : int
        Id of the process that wrote it.
    host : str
        Name of the host on which it was written.
    way : Way or None
        The way to it on other hosts, if it was put by the driver.
    digest : str
        The SHA-256 of its rows if it ends with an executor, and Spark may compute it again; else empty.
    """

    store: AppStore
    name: str
    num_rows: int
    num_record_batches: int
    size: int
    partition: int
    pid: int
    host: str
    way: Way | None = None
    digest: str = ""

    @classmethod
    def of_object(
        cls, store: AppStore, name: str, rows: int, batches: int, size: int, partition: int
    ) -> PartitionHandle:
        """Return the handle of an object that this process has put."""
        return cls(store._replace(owner=0), name, rows, batches, size, partition, os.getpid(), host_name())

    def with_digest(self) -> PartitionHandle:
        """Return the handle with a digest of the rows: the same for the same batches, wherever they lie."""
        sink = _Digest()
        table = self.attach()
        with new_stream(sink, table.schema) as writer:
            writer.write(table)
        return replace(self, digest=sink.sum.hexdigest())

    @property
    def is_here(self) -> bool:
        """Whether its store is visible in this process."""
        return self.store.visible() is not None

    def attach(self) -> Table:
        """Attach to the partition and return it as a table, zero-copy.

        Raises
        ------
        StorageError
            If it is on another host, this process may not read it, or its address space is limited and too small.
        ObjectNotFound
            If it was destroyed.
        """
        from shmarrow.spark.delivery import InStore, explaining_limits, open_first

        what = f"{self.name!r}, which is on host {self.host!r}"
        ways = [InStore(self.store, self.name), *([] if self.way is None else [self.way])]
        with at(f"partition {self.partition}"), explaining_limits(what, self.size):
            try:
                found = decode(open_first(what, ways).segment)
            except StorageError as error:
                if error.errno == errno.EREMOTE and in_worker():
                    error.hint = "Spark found no free core there within spark.locality.wait, and tries again"
                raise
            if not isinstance(found, Table):
                raise InvalidData(f"{what}, is a {type(found).__name__}, not a table")
        return found


class _Digest(io.RawIOBase):
    """A sink that keeps only the digest of what is written."""

    def __init__(self) -> None:
        self.sum = sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sum.update(data)
        return memoryview(data).nbytes


def frame_name() -> str:
    """Return a name for a new frame."""
    return f"frame-{os.urandom(8).hex()}"


def marker(name: str) -> str:
    """Return the name of the object that is in the driver's store as long as a frame is wanted."""
    return f".{name}"


def seconds_left(name: str, until: float | None) -> float | None:
    """Return for how many seconds the objects of a frame are kept; None if they have an owner.

    Raises
    ------
    ObjectNotFound
        If it has expired.
    """
    if until is None:
        return None
    left = until - time.time()
    if left <= 0:
        raise ObjectNotFound(
            errno.ENOENT, f"the shared frame {name!r} has expired", hint="share it again, with a longer keep="
        )
    return left


def remove_here(store: AppStore, name: str) -> None:
    """Remove all objects of a frame on this host, and nothing else."""
    store.delete_here(marker(name), prefix=f"{name}/")
