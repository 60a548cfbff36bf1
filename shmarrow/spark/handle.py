"""Handles: where a partition lies, small enough to travel anywhere, and clear about where it cannot be reached."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from dataclasses import dataclass, fields

from shmarrow.errors import InvalidData, ObjectNotFound, StorageError
from shmarrow.segment.host import host_name
from shmarrow.spark.home import Home
from shmarrow.store import Store
from shmarrow.tables import Table


@dataclass(frozen=True, slots=True)
class Handle:
    """One shared partition: what it is called, what is in it, and who put it where.

    Attributes
    ----------
    store : str
        The location of the store that it is in.
    store_id : str
        The id of that store.
    user : int
        The user whose store it is.
    name : str
        The name of the object.
    num_rows : int
        Rows in all batches.
    num_record_batches : int
        Batches.
    size : int
        Bytes of the object.
    partition : int
        Number of the partition, from 0.
    attempt : int
        Spark's number of the task's attempt, unique in its application; 0 if no task wrote it.
    pid : int
        The process that wrote it.
    host : str
        Name of the host that it was written on.
    address : str
        The host as Spark's scheduler names it; empty where that is not known.
    """

    store: str
    store_id: str
    user: int
    name: str
    num_rows: int
    num_record_batches: int
    size: int
    partition: int
    attempt: int
    pid: int
    host: str
    address: str

    @property
    def is_here(self) -> bool:
        """Whether this process sees the store that it is in."""
        return self.home.driver_store() is not None

    @property
    def home(self) -> Home:
        """The store that it is in."""
        return Home(self.store, self.store_id, 0, self.user)

    def attach(self) -> Table:
        """The partition, over the memory that it lies in; nothing is copied.

        Raises
        ------
        StorageError
            If it lies on another host, or this process may not read it, or the address space of this process is limited
            and has no room for it.
        ObjectNotFound
            If it was released, or its store was.
        """
        store = self.home.driver_store()
        if store is None:
            raise StorageError(
                errno.EREMOTE,
                f"cannot attach to partition {self.partition}, {self.name!r}: its store {self.store!r} on host "
                f"{self.host!r} is not visible in this process, on host {host_name()!r}; attach in a process of the "
                "same user that sees that directory, or share to a directory that all hosts have",
            )
        try:
            found = store.get(self.name)
        except ObjectNotFound:
            raise ObjectNotFound(
                errno.ENOENT,
                f"partition {self.partition}, {self.name!r}, is no longer in the store {self.store!r}: it was "
                f"released, or the process that owned it has ended; process {self.pid} on host {self.host!r} wrote it. "
                "DataFrames are computed when they are asked for: collect or write them before release()",
            ) from None
        except (StorageError, MemoryError):
            from shmarrow.spark.carriers import mapping

            with mapping(f"partition {self.partition}, {self.name!r}", self.size):
                raise
        if not isinstance(found, Table):
            raise InvalidData(f"partition {self.partition}, {self.name!r}, is a {type(found).__name__}, not a table")
        return found


def is_frame(name: object) -> bool:
    """Whether this is what a frame can be called."""
    return isinstance(name, str) and re.fullmatch("frame-[0-9a-f]{16}", name) is not None


def delete_frame(store: Store, name: str) -> None:
    """Remove all objects of a frame from a store, and nothing else."""
    store.delete(prefix=f"{name}/")
    with suppress(ObjectNotFound):
        store.delete(name)  # the marker, if its job has not ended


MANIFEST = ", ".join(f"{field.name} {'string' if field.type == 'str' else 'long'}" for field in fields(Handle))
"""The fields of a handle as columns of a Spark row."""
