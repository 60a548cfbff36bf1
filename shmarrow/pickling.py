# SPDX-License-Identifier: Apache-2.0
"""Pickling: classes that are passed to other processes as handles, and out-of-band buffers of protocol 5.

Invariants:

* ``pickle.dumps`` gives a copy that depends on nothing. Only the pickler of ``multiprocessing``, which carries objects
  between the processes of one host, has a table of reducers of its own: handles are registered there;
* modules may be imported in any order: :func:`passed_by_handle` notes a class until ``multiprocessing`` is imported,
  which nothing here does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pickle import PickleBuffer
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shmarrow.buffer import Bytes, as_bytes

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

C = TypeVar("C", bound=type)

_PICKLER = "multiprocessing.reduction"
_CLASSES: list[type] = []


def passed_by_handle(cls: C) -> C:
    """Pass instances of a class between processes as handles; a decorator."""
    _CLASSES.append(cls)
    pickler: Any = sys.modules.get(_PICKLER)
    if hasattr(pickler, "ForkingPickler"):  # else the hook below registers it, once the module has been executed
        pickler.ForkingPickler.register(cls, _reduced)
    return cls


def _reduced(value: Any) -> Any:
    """Reduce a value to its handle if it has one, else to a copy; the door to what stands above all classes."""
    from shmarrow.interchange.handles import reduced

    return reduced(value)


def packed(data: Bytes, protocol: int) -> PickleBuffer | bytes:
    """Pickle a buffer; from protocol 5 on, out of band if requested."""
    return PickleBuffer(data.data) if protocol >= 5 else data.tobytes()


def unpacked(data: Any) -> Bytes:
    """Return the bytes of :func:`packed`, read-only, without copying."""
    return as_bytes(data)


def _register(module: Any) -> None:
    for cls in _CLASSES:
        module.ForkingPickler.register(cls, _reduced)


class _ImportHook:
    """Finds the module of the pickler as all others do, once, and registers the classes after its execution."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name != _PICKLER or self not in sys.meta_path:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(cast(Any, self))
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                del loader.exec_module
                execute(module)
                _register(module)

            loader.exec_module = execute_and_register
        return spec


if _PICKLER in sys.modules:
    _register(import_module(_PICKLER))  # waits for a thread that is in the middle of the import
else:
    sys.meta_path.insert(0, cast(Any, _ImportHook()))
