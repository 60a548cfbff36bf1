# SPDX-License-Identifier: Apache-2.0
"""Checked conversion of numeric and temporal values: between types, and from and to Python values.

Its modules are imported when the first value is converted: reading arrays in place needs none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.casts.storage import convert, convertible

__all__ = ["convert", "convertible", "kinds_of", "listed"]


def kinds_of(values: Iterable[Any]) -> set[Any]:
    """Return the classes of Python values."""
    return set(map(type, values))


def listed(value: Any) -> Any:
    """Return a list, tuple or set itself, or as a list if a subclass may misreport its length."""
    if type(value) in _EXACT_CLASSES:
        return value
    return [item for item in value]  # noqa: C416, as list() would ask for the length


_EXACT_CLASSES = {list, tuple, set, frozenset}


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, {".storage": "convert convertible"})
