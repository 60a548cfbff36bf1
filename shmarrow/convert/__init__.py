"""The checked converter for numbers and time, and what makes storage of Python values and back.

Its files are imported when the first value is converted: who opens a file and uses its memory needs none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmarrow.convert.storage import convert, convertible

__all__ = ["convert", "convertible", "exact_items", "kinds_of"]


def kinds_of(values: Iterable[Any]) -> set[Any]:
    """The classes of Python values."""
    return set(map(type, values))


def exact_items(value: Any) -> Any:
    """The items of a list, tuple or set: itself, or as a list where a subclass may lie about its length."""
    if type(value) in _HONEST:
        return value
    return [item for item in value]  # noqa: C416, as list() would ask for the length


_HONEST = {list, tuple, set, frozenset}


def __getattr__(name: str) -> Any:
    if name not in ("convert", "convertible"):
        raise AttributeError(f"module 'shmarrow.convert' has no attribute {name!r}")
    from shmarrow.convert import storage

    value = globals()[name] = getattr(storage, name)
    return value
