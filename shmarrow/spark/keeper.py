# SPDX-License-Identifier: Apache-2.0
"""The keeper of an executor: a process that owns what the executor's workers put into the store of their host.

Only hosts that do not see the driver's store have keepers. The first worker of an executor that puts something there
starts one; it waits for the end of the executor, removes its objects, and ends. So they live as long as the executor,
however it ends, and do not depend on workers, which Spark ends whenever they are idle for a minute.

If a keeper is killed too, the kernel drops its lock in the store, and the next collection removes its objects.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from contextlib import suppress

from shmarrow.errors import ObjectExists, ObjectNotFound, StorageError
from shmarrow.store import Store


def executor() -> int:
    """In a Python worker, return the process id of its executor.

    That is the nearest ancestor that runs Java: between the two is the daemon from which workers are forked.
    """
    pid = parent = os.getppid() or os.getpid()  # a sandbox may hide the parent
    while pid:  # in a container, Java may be process 1
        name, parent_of = _process(pid)[:2]
        if name == "java":
            return pid
        pid = int(parent_of)
    return parent


def registration(pid: int) -> str:
    """Return the name of the object with the owner number of a process's keeper; no other process ever has it."""
    return f"keeper/{os.readlink('/proc/self/ns/pid')}-{pid}-{_process(pid)[2]}"


def _process(pid: int) -> tuple[str, str, str]:
    """Return the name of a process, the id of its parent, and when it started."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            name, _, rest = os.fsdecode(file.read()).partition("(")[2].rpartition(")")
    except OSError as error:
        raise StorageError(errno.ESRCH, f"the executor of this worker has ended (process {pid}: {error})") from None
    fields = rest.split()
    return name, fields[1], fields[19]


def start(store: Store, name: str, pid: int) -> None:
    """Start the keeper of a process, unless another worker has, and return when one is registered.

    Raises
    ------
    StorageError
        If it cannot be started.
    """
    command = [sys.executable, "-m", "shmarrow.spark.keeper", store.path, name, str(pid)]
    keeper = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # this package may come with the application
        start_new_session=True,  # what ends the worker's session must not end it
    )
    assert keeper.stdout is not None
    with keeper.stdout:
        said = keeper.stdout.read()  # it lets go of its output when it is registered
    keeper.returncode = 0  # it outlives this process, which does not wait for it
    if name not in store:
        text = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise StorageError(errno.ECHILD, f"cannot start the process that owns objects on this host: {text}")


def main(path: str, name: str, pid: int) -> None:
    """Own objects in a store until a process ends, then remove them."""
    end = os.pidfd_open(pid)
    if registration(pid) != name:  # it has ended meanwhile, and another process has its number
        return
    with Store(path, owned=True, create=False) as store:
        try:
            store.put(name, store.owner(), protect=True)
        except ObjectExists:  # another worker started one as well
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        select.select([end], [], [])
        for each in store.names():
            with suppress(ObjectNotFound):
                if store.info(each).owner == os.getpid():
                    store.delete(each)
        store.collect()  # and what its workers had not published


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
