"""What happens when a part of the package is first imported; parts that not everybody needs are imported late.

``import shmarrow`` loads what reading and writing batches needs. Tensors, bundles and the store come when one of their
names is asked for; this is how a part that is loaded late still meets the parts that stand below it.
"""

from __future__ import annotations

from collections.abc import Callable

_WAITING: dict[str, Callable[[], object]] = {}


def when(part: str, then: Callable[[], object]) -> None:
    """Call ``then`` once, as soon as a part is imported."""
    _WAITING[part] = then


def arrived(part: str) -> None:
    """Say that a part is imported; its own last line."""
    then = _WAITING.pop(part, None)
    if then is not None:
        then()
