"""Pickling: classes that are passed to other processes as handles, and out-of-band buffers of protocol 5.

Invariants:

* ``pickle.dumps`` gives a copy that depends on nothing; what carries objects between the processes of one host (that of
  ``multiprocessing``, for one) has a table of reducers of its own, where handles are registered;
* both sides may come at any time: :func:`travels` notes a class, :func:`add_pickler` a table, and each meets all of the
  other kind. Neither imports anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any, TypeVar

from shmarrow.buffer import Bytes, as_bytes

C = TypeVar("C", bound=type)
Register = Callable[[type, Callable[[Any], Any]], object]

_CLASSES: list[type] = []
_PICKLERS: list[tuple[Register, Callable[[Any], Any]]] = []


def travels(cls: C) -> C:
    """Pass instances of a class between processes as handles; a decorator."""
    _CLASSES.append(cls)
    for register, reduce in _PICKLERS:
        register(cls, reduce)
    return cls


def add_pickler(register: Register, reduce: Callable[[Any], Any]) -> None:
    """Register a reducer for all classes passed as handles, including those defined later.

    Parameters
    ----------
    register : callable
        Takes a class and its reducer, as ``ForkingPickler.register`` does.
    reduce : callable
        Takes an instance and returns what ``__reduce__`` returns.
    """
    _PICKLERS.append((register, reduce))
    for cls in _CLASSES:
        register(cls, reduce)


def packed(data: Bytes, protocol: int) -> PickleBuffer | bytes:
    """Pickle a buffer; from protocol 5 on, out of band if requested."""
    return PickleBuffer(data.data) if protocol >= 5 else data.tobytes()


def unpacked(data: Any) -> Bytes:
    """Return the bytes of :func:`packed`, read-only, without copying."""
    return as_bytes(data)
