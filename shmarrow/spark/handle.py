"""Handles: picklable references to shared partitions."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmarrow.errors import InvalidData, StorageError, at
from shmarrow.objects import decode
from shmarrow.spark.home import Home, in_worker, removing
from shmarrow.store import Store
from shmarrow.tables import Table

if TYPE_CHECKING:
    from shmarrow.spark.carriers import Carrier


@dataclass(frozen=True, slots=True)
class PartitionHandle:
    """A reference to one shared partition.

    Attributes
    ----------
    store : str
        Location of its store.
    store_id : str
        Id of the store.
    user : int
        User id of the store's owner.
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
    attempt : int
        Spark's task attempt id, unique in the application; 0 if no task wrote it.
    pid : int
        Id of the process that wrote it.
    host : str
        Name of the host on which it was written.
    carrier : Carrier or None
        What carries it to other hosts, if it was put by the driver.
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
    carrier: Carrier | None = None

    @property
    def is_here(self) -> bool:
        """Whether its store is visible in this process."""
        return self.home.visible_store() is not None

    @property
    def home(self) -> Home:
        """Its store."""
        return Home(self.store, self.store_id, 0, self.user)

    def attach(self) -> Table:
        """Attach to the partition and return it as a table, zero-copy.

        Raises
        ------
        StorageError
            If it is on another host, this process may not read it, or its address space is limited and too small.
        ObjectNotFound
            If it was destroyed.
        """
        from shmarrow.spark.carriers import InStore, mapping, open_first

        what = f"{self.name!r}, which is on host {self.host!r}"
        ways = [InStore(self.home, self.name), *([] if self.carrier is None else [self.carrier])]
        with at(f"partition {self.partition}"), mapping(what, self.size):
            try:
                found = decode(open_first(what, ways).segment)
            except StorageError as error:
                if error.errno == errno.EREMOTE and in_worker():
                    error.hint = "Spark found no free core there within spark.locality.wait, and tries again"
                raise
            if not isinstance(found, Table):
                raise InvalidData(f"{what}, is a {type(found).__name__}, not a table")
        return found


def is_frame(name: object) -> bool:
    """Whether this is a valid name of a frame."""
    return isinstance(name, str) and re.fullmatch("frame-[0-9a-f]{16}", name) is not None


def delete_frame(store: Store, name: str) -> None:
    """Remove all objects of a frame from a store, and nothing else."""
    with removing():
        store.delete(prefix=f"{name}/")
    with removing():
        store.delete(name)  # the marker
