"""Handles: where a partition lies, small enough to travel anywhere, and clear about where it cannot be reached.

Rules kept here:

* a handle is a row of plain values, so a Spark job returns it, and pickle carries it;
* shared memory belongs to one running kernel, so a handle to it knows its boot, and attaching under another one says so
  instead of looking for a name that cannot be there.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, fields

from shmarrow import ipc, segment
from shmarrow.errors import ObjectNotFound, StorageError
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.segment.host import boot_id, host_name


@dataclass(frozen=True, slots=True)
class Handle:
    """One shared partition: what it is called, what is in it, and who put it where.

    Attributes
    ----------
    name : str
        The location of the Arrow file: ``shm:NAME`` or a path.
    num_rows : int
        Rows in all batches.
    num_record_batches : int
        Batches in the file.
    size : int
        Bytes of the file.
    partition : int
        Number of the partition, from 0.
    attempt : int
        Spark's number of the task's attempt, unique in its application.
    pid : int
        The Python worker that wrote it.
    host : str
        Name of the host that it was written on.
    boot : str
        Boot id of that host's kernel.
    """

    name: str
    num_rows: int
    num_record_batches: int
    size: int
    partition: int
    attempt: int
    pid: int
    host: str
    boot: str

    @property
    def is_here(self) -> bool:
        """Whether the object can be on this host: a path may lead anywhere, shared memory stays with its kernel."""
        return not self.name.startswith(segment.SHM_SCHEME) or self.boot == boot_id()

    def attach(self) -> RecordBatchFileReader:
        """Map the partition read-only and open it; nothing is copied.

        Raises
        ------
        StorageError
            If it lies in the memory of another host.
        ObjectNotFound
            If it was released.
        """
        if not self.is_here:
            raise StorageError(
                errno.EREMOTE,
                f"cannot attach to {self.name!r}: it lies in the memory of host {self.host!r} (boot {self.boot}), and "
                f"this is host {host_name()!r} (boot {boot_id()}); attach in a process on that host, or share to a "
                "path that both hosts have",
            )
        try:
            return ipc.open_file(self.name)
        except ObjectNotFound as error:
            raise ObjectNotFound(
                errno.ENOENT,
                f"{error.strerror}; process {self.pid} on host {self.host!r} wrote it as partition {self.partition}",
            ) from None


MANIFEST = ", ".join(f"{field.name} {'string' if field.type == 'str' else 'long'}" for field in fields(Handle))
"""The fields of a handle as columns of a Spark row."""
