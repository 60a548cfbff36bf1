"""Values that a process has attached, so that a later task or call has them in microseconds.

Rules kept here:

* a value is handed out only while its object is still there: whoever holds one says how to find out;
* when another value comes, those whose objects are gone are dropped, so that their memory is given back;
* there are no locks: threads that attach to the same object at once map it twice, and one of the two is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from shmarrow.errors import ShmarrowError

MISSING: Final = object()
_VALUES: dict[Hashable, tuple[Any, Callable[[], bool]]] = {}


def held(key: Hashable) -> Any:
    """The value of a key, or ``MISSING``."""
    found = _VALUES.get(key)
    return found[0] if found is not None and _is_there(found) else MISSING


def hold(key: Hashable, value: Any, is_there: Callable[[], bool]) -> Any:
    """Keep a value for as long as ``is_there`` says that its object exists; the value that is kept."""
    for other, found in list(_VALUES.items()):
        if not _is_there(found):
            drop(other)
    return _VALUES.setdefault(key, (value, is_there))[0]


def drop(key: Hashable) -> None:
    """Forget a value; whoever has it keeps it."""
    _VALUES.pop(key, None)


def _is_there(found: tuple[Any, Callable[[], bool]]) -> bool:
    try:
        return found[1]()
    except ShmarrowError:  # its store was destroyed, or closed
        return False
