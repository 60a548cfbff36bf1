"""Pickling: classes that are passed to other processes as handles, and out-of-band buffers of protocol 5.

Invariants:

* ``pickle.dumps`` gives a copy that depends on nothing. The picklers that carry objects between the processes of one
  host, such as that of ``multiprocessing``, have tables of reducers of their own: handles are registered there;
* classes and picklers may be loaded in any order: :func:`travels` notes a class, :func:`add_pickler` a pickler, and
  each class is registered with each pickler;
* nothing is imported for it: the modules of :data:`PICKLERS` are awaited until other code imports them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pickle import PickleBuffer
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shmarrow.buffer import Bytes, as_bytes

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

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


# --- picklers of other packages ---------------------------------------------------------------------------------

PICKLERS = (
    "multiprocessing.reduction",
    "joblib.externals.loky.backend.reduction",
    "loky.backend.reduction",
    "distributed.protocol.serialize",
)
"""The modules whose picklers carry objects between the processes of one host."""


def await_picklers(register: Callable[[ModuleType], None]) -> None:
    """Register with each pickler: now if its module is imported already, else right after its import.

    Parameters
    ----------
    register : callable
        Takes the module of a pickler, and adds the pickler.
    """
    for name in PICKLERS:
        if name in sys.modules:
            register(import_module(name))  # waits for a thread that is in the middle of the import
        else:
            _AWAITED.add(name)
    sys.meta_path.insert(0, cast(Any, _Finder(register)))


_AWAITED: set[str] = set()


class _Finder:
    """An import hook that finds nothing itself: it adds a call to the loaders of the modules that are awaited."""

    def __init__(self, register: Callable[[ModuleType], None]) -> None:
        self._register = register

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name not in _AWAITED:
            return None
        _AWAITED.discard(name)  # the nested search below does not come here again
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            _AWAITED.add(name)
            return spec
        loader: Any = _Loader(spec.loader, self._register)
        spec.loader = loader
        return spec


class _Loader:
    """The loader of a module, which registers with its pickler when the module has been executed."""

    def __init__(self, loader: Any, register: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._register = register

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._register(module)
