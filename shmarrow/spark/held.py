"""Cache of attached values, so that later tasks and calls get them in microseconds.

Invariants:

* a value is returned only while its object exists; the caller of :func:`hold` provides the check;
* adding a value drops those whose objects are gone, so that their memory is freed;
* there are no locks: threads that attach to the same object at once map it twice, and one mapping is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from shmarrow.errors import ShmarrowError

MISSING: Final = object()
_VALUES: dict[Hashable, tuple[Any, Callable[[], bool]]] = {}


def held(key: Hashable) -> Any:
    """Return the value of a key, or ``MISSING``."""
    found = _VALUES.get(key)
    return found[0] if found is not None and _is_there(found) else MISSING


def hold(key: Hashable, value: Any, is_there: Callable[[], bool]) -> Any:
    """Cache a value for as long as ``is_there`` returns True, and return the cached value."""
    for other, found in list(_VALUES.items()):
        if not _is_there(found):
            drop(other)
    return _VALUES.setdefault(key, (value, is_there))[0]


def drop(key: Hashable) -> None:
    """Drop a value from the cache; existing references stay valid."""
    _VALUES.pop(key, None)


def _is_there(found: tuple[Any, Callable[[], bool]]) -> bool:
    try:
        return found[1]()
    except ShmarrowError:  # its store was destroyed, or closed
        return False
