# SPDX-License-Identifier: Apache-2.0
"""The store of a Spark application on a host, and the owner of its objects there.

Invariants:

* on the driver's host, objects are owned by the driver through its lock in the store: they are collected once it has
  ended, for whatever reason, and not before;
* on any other host they are owned by the keeper of the executor whose workers put them there, a process that the first
  of these starts: it waits for the end of the executor, removes its objects, and ends. So they live as long as the
  executor, like the blocks that Spark caches in it, however it ends, and do not depend on workers, which Spark ends
  whenever they are idle for a minute. If a keeper is killed too, the next collection removes its objects;
* whether the driver's store is visible is decided by the store's id: host names and boot ids do not identify
  containers, which may have a private /dev/shm;
* values are unpickled from it, so a store that other users own or may write to is refused, by driver and workers;
* what owners have left that ended is collected when a driver or a new worker uses the store of its host;
* there are no locks: threads that open a store at once open it twice, and one of the two is kept.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from shmarrow.errors import InvalidData, ObjectExists, ObjectNotFound, ShmarrowError, StorageError
from shmarrow.memory import Location
from shmarrow.store import Store
from shmarrow.store.directory import locate

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What does not say that a store is elsewhere."""
_MOST = 64
"""Maximum number of stores that a process keeps open for reuse."""
_stores: dict[AppStore, Store] = {}
"""Open stores."""
_executors: dict[Location | None, tuple[AppStore, str]] = {}
"""In a worker: the stores of its executor by their locations, and the names that its keeper is registered under."""


class AppStore(NamedTuple):
    """A store and the owner of objects put there; small and picklable.

    Attributes
    ----------
    where : str
        Location of the store: ``shm:NAME`` or an absolute path.
    id : str
        Id of the store.
    owner : int
        Owner number in that store; 0 if objects have no owner.
    user : int
        User id of the store's owner.
    """

    where: str
    id: str
    owner: int
    user: int

    def visible(self) -> Store | None:
        """Return the store, open; None if it is on another host, or this user may not use it."""
        known = _stores.get(self)
        if known is not None:
            return known
        try:
            store = Store(self.where, owned=self.owner or False, accept_users=self.user, create=False)
        except (StorageError, InvalidData) as error:  # the latter from another version's store of that name
            if isinstance(error, StorageError) and error.errno in _EXHAUSTED:
                raise
            return None
        if store.id == self.id:
            _check_private(store, self.user)
            return _kept(self, store)
        store.close()
        return None

    def here(self) -> AppStore:
        """Return the store for objects of this process: this one, or on another host that of the worker's executor.

        Raises
        ------
        StorageError
            If the store is not visible, and this process is not a Python worker of Spark.
        """
        if self.visible() is not None:
            return self
        if not in_worker():
            raise StorageError(
                errno.EREMOTE,
                f"the store {self.where!r} of another process is not visible in this one: use it on that process's "
                "host, as its user, or in a Python worker of Spark",
            )
        there = executor_store(self._elsewhere())
        return there if self.owner else there._replace(owner=0)

    def store(self) -> Store:
        """Return the store of :meth:`here`, in which this process puts objects."""
        here = self.here()
        store = here.visible()
        if store is None:
            raise StorageError(errno.ESTALE, f"the store {here.where!r} was destroyed while it was opened")
        return store

    def delete_here(self, *names: str, prefix: str | None = None) -> None:
        """Delete objects of the application in its store on this host, if they are there."""
        with unless_gone():
            store = self.visible()
            store = Store(self._elsewhere(), create=False) if store is None else store
            if prefix is not None:
                store.delete(prefix=prefix)
            for name in names:
                with unless_gone():
                    store.delete(name)

    def _elsewhere(self) -> str:
        """Return the location of the application's store on hosts that do not see this one."""
        return default_location() if self.where == default_location(self.user) else self.where


def driver_store(store: Location | Store | None = None) -> AppStore:
    """Open the store in which this process owns objects, and collect the objects of owners that have ended.

    Parameters
    ----------
    store : str, PathLike or Store, optional
        The store, created if missing; by default the user's store for Spark.

    Raises
    ------
    StorageError
        If the directory of the store cannot be created, or is not trusted, or if other users than this one and root own
        it or may write to it.
    """
    opened = store if isinstance(store, Store) else _opened(store)
    found = _described(opened, opened.owner())
    opened.collect()
    return found


def executor_store(where: Location | None) -> AppStore:
    """In a Python worker, return the store at a location on this host, where its executor's keeper owns objects.

    The first worker of the executor that asks starts the keeper.

    Raises
    ------
    StorageError
        If the store cannot be opened or created, or the keeper cannot be started.
    """
    known = _executors.get(where)
    if known is not None and _is_kept(*known):
        return known[0]
    store, pid = _opened(where), executor()
    name = registration(pid)
    store.collect()  # what executors have left that were killed together with their keepers
    if name not in store:
        start_keeper(store, name, pid)
    number: Any = store.get(name)
    found = _described(store, number)
    _executors[where] = found, name
    return found


def _is_kept(found: AppStore, name: str) -> bool:
    """Whether a store is there, and its keeper runs."""
    with unless_gone():
        store = found.visible()
        return store is not None and not store.info(name).orphaned
    return False


def in_worker() -> bool:
    """Whether this process is running a task of Spark; imports nothing."""
    module = sys.modules.get("pyspark.taskcontext")
    return module is not None and module.TaskContext.get() is not None


def location(store: Location | Store | None) -> Location | None:
    """Return the location of a store."""
    if not isinstance(store, Store):
        return store
    return store.name if store.name.startswith("shm:") else store.path


def _described(store: Store, owner: int) -> AppStore:
    where: Any = location(store)
    _check_private(store, os.geteuid())
    return AppStore(where, store.id, owner, os.stat(store.path).st_uid)


def _check_private(store: Store, user: int) -> None:
    """Refuse a store from which code could be run that others wrote: unpickling a value runs what is in it."""
    owner = os.stat(store.path).st_uid
    who = "" if store.is_private else "may be written to by other users"
    who = who if owner in (user, 0) else f"belongs to user {owner}"
    if who:
        raise StorageError(
            errno.EPERM,
            f"the store {store.name!r} {who}, who could replace what Spark's workers unpickle from it",
            hint="use a store of your own, of mode 0600, 0640 or 0644; others may read it",
        )


def _opened(where: Location | None) -> Store:
    if where is not None:
        return Store(where)
    try:
        return Store(default_location())
    except StorageError as error:
        whose = ""
        with suppress(OSError):
            whose = f" (its directory belongs to user {os.stat(locate(default_location())[1]).st_uid})"
        hint = "the argument store= chooses another store"
        raise type(error)(error.errno, f"{error.problem}{whose}", hint=hint) from None


@contextmanager
def unless_gone() -> Iterator[None]:
    """Use objects that others may have removed already, perhaps together with their store."""
    try:
        yield
    except ObjectNotFound:
        pass
    except StorageError as error:
        if error.errno != errno.ESTALE:
            raise


def default_location(user: int | None = None) -> str:
    """Return the location of the default store of a user's Spark applications; by default, of this user's."""
    return f"shm:shmarrow-spark-{os.geteuid() if user is None else user}"


def _kept(key: AppStore, store: Store) -> Store:
    """Keep a store open, and return the one that is kept; drop destroyed stores, and the oldest of too many."""
    for other, found in list(_stores.items()):
        if len(_stores) >= _MOST or not _exists(found):
            _stores.pop(other, None)
    return _stores.setdefault(key, store)


def _exists(store: Store) -> bool:
    try:
        return store.exists
    except (OSError, ShmarrowError):  # closed, as by a forked child that closed all descriptors
        return False


# --- the keeper of an executor ------------------------------------------------------------------------------------


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


def start_keeper(store: Store, name: str, pid: int) -> None:
    """Start the keeper of a process, unless another worker has, and return when one is registered.

    Raises
    ------
    StorageError
        If it cannot be started.
    """
    import subprocess

    command = [sys.executable, "-m", "shmarrow.spark.app_store", store.path, name, str(pid)]
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
