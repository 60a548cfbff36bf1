# SPDX-License-Identifier: Apache-2.0
"""Once per host: a value computed by the first process that uses it, and shared by all others on its host.

Invariants:

* the store decides which process computes the value (:meth:`Store.get_or_put`);
* the name of a value is unique to its application, including later ones;
* the key of a function is what it does, as far as its own code says, not where it stands in a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidType, ObjectNotFound, shown
from shmarrow.objects import decode
from shmarrow.spark._pyspark import cluster_session, is_spark, pickled
from shmarrow.spark.app_store import AppStore, driver_store, executor_store, in_worker, location, unless_gone
from shmarrow.spark.delivery import explaining_limits
from shmarrow.spark.values import MISSING, as_given, as_name, as_stored, cache, cached, drop
from shmarrow.store import Store
from shmarrow.store.attach import StoredSegment

if TYPE_CHECKING:
    from shmarrow.memory import Location


def code_key(function: Any) -> str:
    """Return a key of a function, the same for functions of the same code in an application, in 16 hexadecimal digits.

    The code is its instructions, constants and names, its defaults, and what it has from functions around it; names of
    files and numbers of lines do not count. Any other object that can be called counts as it is pickled. One that
    cannot be pickled has another key each time.
    """
    try:
        said = pickled(function, lambda buffer: True, _reduced)
    except Exception:  # then it cannot be sent to a worker, either
        return os.urandom(8).hex()
    return sha256(said).hexdigest()[:16]


def _reduced(value: Any) -> Any:
    """Reduce functions and code to what counts, and broadcasts to what identifies them.

    What counts is given as a state, which is pickled when the function is known: it may have itself. Spark sends
    broadcasts that are pickled to the workers of the next job.
    """
    if isinstance(value, FunctionType):
        cells = [_contents(cell) for cell in value.__closure__ or ()]
        return str, ("function",), (value.__code__, value.__defaults__, value.__kwdefaults__, cells)
    if isinstance(value, CodeType):
        return str, ("code",), (value.co_code, value.co_consts, value.co_names, value.co_flags, value.co_argcount)
    if is_spark(value, "Broadcast"):
        return str, (str(id(value)),)
    return (str, (value.name,)) if type(value).__name__ == "HostBroadcast" else NotImplemented


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty, as that of a function that is being defined
        return "empty"


class Once:
    """A value computed once per host; returned by :func:`once`.

    Use it in any function that Spark runs in Python: it is pickled with the function, including its own function.

    Attributes
    ----------
    name : str
        Name of the value.

    Notes
    -----
    Thread safety: any thread may use it. A forked child may use its parent's.
    """

    def __init__(self, name: str, function: Callable[[], Any], store: AppStore, code: str) -> None:
        self.name = name
        self._function = function
        self._store = store
        self._code = code

    @property
    def _object(self) -> str:
        """The name of its object on each host, which no other application or function has."""
        return f"{_application(self._store)}{self._code}/{self.name}"

    @property
    def value(self) -> Any:
        """The value, as a view of the host's copy; computed on first use on the host.

        Of concurrent processes and threads, one calls the function, and the others wait for it. If it fails, its caller
        gets the error, and the next waiting one calls the function.

        Raises
        ------
        InvalidType
            If the value can be neither stored nor pickled.
        StoreFull
            If there is not enough space for the value.
        StorageError
            If there is no store for it on this host.
        """
        found = cached(self._object)
        return self._open() if found is MISSING else found

    def _open(self) -> Any:
        store, name = self._store.store(), self._object
        with explaining_limits(f"the value of once({self.name!r})"):
            while True:
                with suppress(ObjectNotFound):
                    segment = store.attach(name)
                    break
                store.get_or_put(name, self._compute)
            assert isinstance(segment, StoredSegment)
            generation = segment.entry.generation
            value = as_given(decode(segment))
        return cache(name, value, lambda: store.generation(name) == generation)

    def _compute(self) -> Any:
        return as_stored(self._function())

    def destroy(self) -> None:
        """Delete the value; it is computed again on the next use. Processes that have it mapped keep it.

        On a cluster, the driver runs a job of many short tasks, which reaches most hosts; on others it remains until
        the executor that computed it ends. A process that is computing it, or waiting for it, is not affected: the
        value exists again afterwards.
        """
        drop(self._object)
        remove = partial(self._store.delete_here, self._object)
        remove()
        spark = None if in_worker() else cluster_session()
        if spark is not None:
            from shmarrow.spark.jobs import on_workers

            on_workers(spark, remove)

    def __repr__(self) -> str:
        return f"<Once {self.name!r}>"


def _application(store: AppStore) -> str:
    """The beginning of the names of all values of an application."""
    return f"once/{store.id[:16]}-{store.owner}/"


def once(name: str, function: Callable[[], Any], store: Location | Store | None = None) -> Once:
    """Declare a value that the first Python worker on each host to use it computes; nothing is computed yet.

    Parameters
    ----------
    name : str
        Name, unique in the application: another ``once`` of this name and the same function has the same value. Up to
        200 bytes in UTF-8.
    function : callable
        Returns the value; called without arguments, in a worker or the driver. The value must be one accepted by
        :func:`broadcast`, and is returned like :attr:`HostBroadcast.value`. Its code, its defaults and what it has from
        functions around it are part of the key: an edited function gives a new value, and the old one is removed from
        the driver's host. Other functions that it calls, and global variables, are not.
    store : str, PathLike or Store, optional
        The store for values, as for :func:`share`.

    Returns
    -------
    Once
        ``.value`` is the value, in the driver and in workers.

    Raises
    ------
    InvalidType
        If ``function`` is not callable, or ``name`` is not a string.
    InvalidArgument
        If ``name`` is empty or too long.

    Notes
    -----
    If ``once`` is called in a worker, the value belongs to its executor: all workers of the executor share it.
    """
    name = as_name(name)
    if not callable(function):
        raise InvalidType(f"once needs a function that returns the value, found {shown(function)}")
    there, code = executor_store(location(store)) if in_worker() else driver_store(store), code_key(function)
    if not in_worker():
        opened, application = there.store(), _application(there)
        for each in opened.names(application):
            known, _, other = each.removeprefix(application).partition("/")
            if other == name and known != code:
                with unless_gone():
                    opened.delete(each)
    return Once(name, function, there, code)
