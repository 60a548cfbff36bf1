"""Every byte of an Arrow object explained: its meaning, the chapter that defines it, and its decoded value.

:func:`overview` finds the kind, the schema and the offsets of the batches, fast for objects of any size. :func:`walk`
yields a :class:`Region` for every byte, :func:`summary` one for every message, and :func:`findings` the deviations from
the specification.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shmarrow.xray.model import Finding, Region

if TYPE_CHECKING:
    from shmarrow.xray.glance import summary
    from shmarrow.xray.leaves import Leaf, Node
    from shmarrow.xray.overviews import Overview, overview
    from shmarrow.xray.sentences import KINDS
    from shmarrow.xray.walker import findings, walk

_HOMES = {
    "KINDS": "sentences",
    "Leaf": "leaves",
    "Node": "leaves",
    "Overview": "overviews",
    "findings": "walker",
    "overview": "overviews",
    "summary": "glance",
    "walk": "walker",
}
"""The module of each name that is imported on first use."""

__all__ = ["KINDS", "Finding", "Leaf", "Node", "Overview", "Region", "findings", "overview", "summary", "walk"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shmarrow.xray' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"shmarrow.xray.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
