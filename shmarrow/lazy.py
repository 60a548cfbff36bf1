"""Names of a package that are imported on first use: one way for all packages.

A package states such a name twice: in an import under ``if TYPE_CHECKING:``, where type checkers and editors see it,
and in the table that it passes to :func:`lazy`. A test compares the two with ``__all__``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    names : mapping of str to str
        For each module, relative to the package, the names in it, separated by spaces; empty for the module itself.
    """
    homes = {name: module for module, text in names.items() for name in text.split() or [module.removeprefix(".")]}

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name], package)
        value = home if homes[name] == f".{name}" else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        known = vars(sys.modules[package])
        public = known.get("__all__") or [*[name for name in known if name[0] != "_"], *homes]
        return sorted({*public, *[name for name in known if name[:2] == "__"]})

    return __getattr__, __dir__
