"""Pickling: which classes other processes get handles of, and buffers that protocol 5 passes out of band.

Rules kept here:

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
    """Let instances of a class travel as handles between processes; a decorator."""
    _CLASSES.append(cls)
    for register, reduce in _PICKLERS:
        register(cls, reduce)
    return cls


def add_pickler(register: Register, reduce: Callable[[Any], Any]) -> None:
    """Register a reducer for all classes that travel, those that are still to come included.

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
    """A run of bytes as a pickle of this protocol holds it: since protocol 5, out of band where that is asked for."""
    return PickleBuffer(data.data) if protocol >= 5 else data.tobytes()


def unpacked(data: Any) -> Bytes:
    """The bytes of :func:`packed`, read-only, without a copy."""
    return as_bytes(data)
