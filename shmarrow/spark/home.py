"""The store of a Spark application, and the owner of its objects.

Invariants:

* the objects of an application are owned by its driver, through the driver's lock in the store: they are collected
  once the driver has ended, for whatever reason, and not before;
* whether the driver's store is visible is decided by the store's id: host names and boot ids do not identify
  containers, which may have a private /dev/shm;
* if the driver's store is not visible, the lifetime of objects is that of the executor: they are owned by the daemon of
  :mod:`shmarrow.spark.daemon`, or are in Spark's local directory, which Spark removes.
"""

from __future__ import annotations

import _thread
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from shmarrow.errors import InvalidArgument, ObjectNotFound, ShmarrowError, StorageError
from shmarrow.segment import Location
from shmarrow.store import Store
from shmarrow.store.directory import locate

OWNER = "SHMARROW_SPARK_OWNER"
"""The environment variable that names the store and owner for the objects of a daemon's workers."""
LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"
"""The environment variable with Spark's directories for local files."""

_MOST = 64
"""Maximum number of stores that a process keeps open for reuse."""
_stores: dict[tuple[str, str, int], Store] = {}
"""Open stores, by location, id and owner."""
_mutex = _thread.allocate_lock()


class Home(NamedTuple):
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

    def driver_store(self) -> Store | None:
        """Return the store; None if it is on another host, or this user may not use it."""
        with _mutex:
            store = _stores.get(self[:3])
            if store is None:
                store = self._open()
                if store is not None:
                    _keep(self[:3], store)
            return store

    def _open(self) -> Store | None:
        try:
            store = Store(self.where, owned=self.owner or False, trust=self.user, create=False)
        except StorageError:
            return None
        if store.id == self.id:
            return store
        store.close()
        return None

    def store(self) -> Store:
        """Return the store for objects of this process: the driver's, or if that is not visible, one of this host.

        Raises
        ------
        StorageError
            If the driver's store is not visible, and this process is not a Python worker of Spark.
        """
        store = self.driver_store()
        if store is None and OWNER in os.environ:
            store = of_daemon(os.environ[OWNER]).driver_store()
        return self.local_store() if store is None else store

    def local_store(self) -> Store:
        """In a Python worker, return a store in Spark's local directory, for objects without an owner.

        Raises
        ------
        StorageError
            If this process is no Python worker of Spark's.
        """
        return local_store(f"the store {self.where!r} of the driver is not visible in this process")


def home(store: Location | Store | None = None) -> Home:
    """Open the store in which this process owns objects, and collect the objects of owners that have ended.

    Parameters
    ----------
    store : str, PathLike or Store, optional
        The store, created if missing; by default the user's store for Spark.

    Raises
    ------
    StorageError
        If the directory of the store cannot be created, or is not trusted.
    """
    with _mutex:
        opened = store if isinstance(store, Store) else _opened(store)
        where = opened.name if opened.name.startswith("shm:") else opened.path
        found = Home(where, opened.id, opened.owner(), os.stat(opened.path).st_uid)
        opened.collect()
        if found[:3] not in _stores:
            _keep(found[:3], Store(where, owned=found.owner, trust=found.user, create=False))
        return found


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
def removing() -> Iterator[None]:
    """Remove objects that others may have removed already, perhaps together with their store."""
    try:
        yield
    except ObjectNotFound:
        pass
    except StorageError as error:
        if error.errno != errno.ESTALE:
            raise


def default_location() -> str:
    """Return the location of the default store of this user's Spark applications."""
    return f"shm:shmarrow-spark-{os.geteuid()}"


def local_store(why: str) -> Store:
    """In a Python worker, return a store in Spark's local directory, which Spark removes with the executor.

    Parameters
    ----------
    why : str
        Why it is needed, for the error message.

    Raises
    ------
    StorageError
        If this process is no Python worker of Spark's.
    """
    directory = os.environ.get(LOCAL_DIRECTORIES, "").split(",")[0]
    if not os.path.isabs(directory):
        raise StorageError(
            errno.EREMOTE,
            f"{why}, and {LOCAL_DIRECTORIES}, where Spark tells its Python workers a directory, has no absolute path "
            f"but {directory!r}; use it on the driver's host, as the driver's user, or in a Python worker",
        )
    where = os.path.join(directory, f"shmarrow-{os.geteuid()}")
    key = where, "", 0
    with _mutex:
        if key not in _stores:
            _keep(key, Store(where))
        return _stores[key]


def _keep(key: tuple[str, str, int], store: Store) -> None:
    """Keep a store open; drop destroyed stores, and the oldest if there are too many."""
    for other, found in list(_stores.items()):
        if len(_stores) >= _MOST or not _exists(found):
            del _stores[other]
    _stores[key] = store


def _exists(store: Store) -> bool:
    try:
        return store._catalog.exists
    except (OSError, ShmarrowError):  # closed, as by a forked child that closed all descriptors
        return False


def of_daemon(text: str) -> Home:
    """Parse the value of :data:`OWNER`; the inverse of :func:`for_workers`."""
    try:
        where, identity, owner, user = text.split("\n")
        return Home(where, identity, int(owner), int(user))
    except ValueError:
        raise InvalidArgument(
            f"{OWNER} is {text!r}, which is not what shmarrow.spark.daemon sets; remove it from the environment of the "
            "executors"
        ) from None


def for_workers(found: Home) -> str:
    """Format a home as the value of :data:`OWNER`."""
    return "\n".join(map(str, found))


def _after_fork() -> None:
    global _mutex
    _mutex = _thread.allocate_lock()


os.register_at_fork(after_in_child=_after_fork)
