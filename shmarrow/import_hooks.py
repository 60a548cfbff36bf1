"""Callbacks for the first import of a part of the package, or of another package.

``import shmarrow`` loads what reading and writing batches needs. Tensors, bundles and the store come when one of their
names is asked for; this is how a part that is loaded late still meets the parts that stand below it. Modules of other
packages are never imported for their hooks: :func:`when_imported` waits until somebody else imports them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_WAITING: dict[str, Callable[[], object]] = {}


def when(part: str, then: Callable[[], object]) -> None:
    """Call ``then`` once, when a part is imported."""
    _WAITING[part] = then


def arrived(part: str) -> None:
    """Mark a part as imported; called by its last line."""
    then = _WAITING.pop(part, None)
    if then is not None:
        then()


def when_imported(module: str, then: Callable[[ModuleType], object]) -> None:
    """Call ``then`` with a module of another package: now if it is already imported, else right after its import.

    An exception in ``then`` is one of the ``import`` statement that ran it, so it must not fail.
    """
    if module in sys.modules:
        then(import_module(module))  # waits for a thread that is in the middle of the import
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _AWAITED[module] = then


_AWAITED: dict[str, Callable[[ModuleType], object]] = {}


class _Finder:
    """An import hook that finds nothing by itself: it adds a call to the loaders of the modules that are awaited."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        then = _AWAITED.pop(name, None)  # the nested search below does not come here again
        if then is None:
            return None
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            _AWAITED[name] = then
            return spec
        loader: Any = _Loader(spec.loader, then)
        spec.loader = loader
        return spec


class _Loader:
    """The loader of a module, which makes one call when the module has been executed."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], object]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)


_FINDER: Any = _Finder()
