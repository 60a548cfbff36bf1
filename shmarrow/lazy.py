# SPDX-License-Identifier: Apache-2.0
"""Names of a package that are imported on first use: one way for all packages.

A package states such a name twice: in an import under ``if TYPE_CHECKING:``, where type checkers and editors see it,
and in the table that it passes to :func:`lazy`; a test compares the two. Type checkers take ``import x as x`` to mean
that a name is public; ``__all__`` follows from what the package has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from shmarrow.habits import no_attribute


def lazy(package: str, names: Mapping[str, str], *modules: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package, and give it an ``__all__`` if it has none.

    All classes and functions of this project that the package has imported or defined are public.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    names : mapping of str to str
        For each module, relative to the package, the names in it, separated by spaces; empty for the module itself.
    *modules : str
        Modules of the package that are public, besides those in ``names``.
    """
    homes = {name: module for module, text in names.items() for name in text.split() or [module.removeprefix(".")]}

    known = vars(sys.modules[package])
    ours = [name for name, value in known.items() if str(getattr(value, "__module__", "")).startswith("shmarrow.")]
    ours = [name for name in ours if name[0] != "_" and name != "lazy"]
    known.setdefault("__all__", sorted({*ours, *homes, *modules}))

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise no_attribute(package, name, f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name], package)
        value = home if homes[name] == f".{name}" else getattr(home, name)
        known[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*known["__all__"], *[name for name in known if name[:2] == "__"]})

    return __getattr__, __dir__
