"""How arrays are shown to people: a few values of each, however long and however nested they are."""

from __future__ import annotations

from typing import Any

from shmarrow.errors import ShmarrowError


class Budget:
    """How many values a preview may still show, whatever the nesting."""

    __slots__ = ("left",)

    def __init__(self, left: int = 200) -> None:
        self.left = left

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def clip(text: str, length: int) -> str:
    """The first characters of a text, and how many there are where some are left out."""
    return text if len(text) <= length else f"{text[:length]}... ({len(text)} characters)"


def preview_bytes(head: bytes, size: int, text: bool) -> str:
    """The first bytes of a value as they are shown to people."""
    shown = repr(head.decode(errors="replace")) if text else repr(head)
    return shown if size == len(head) else f"{shown}... ({size} bytes)"


def preview_items(array: Any, budget: Budget) -> str:
    """The first ten values of an array and the last ten, as many of them as the budget has left."""
    shown = list(range(min(len(array), 10)))
    tail = list(range(max(len(array) - 10, 10), len(array)))
    parts = []
    for i in [*shown, None, *tail] if len(array) > 20 else shown + tail:
        if i is None:
            parts.append("...")
        elif not budget.take():
            parts.append("...")
            break
        else:
            parts.append(_item(array, i, budget))
    return "[" + ", ".join(parts) + "]"


def _item(array: Any, index: int, budget: Budget) -> str:
    """A slot as text, or the name of the error where its bytes break the format."""
    try:
        return str(array._item_preview(index, budget))
    except ShmarrowError as error:
        return f"<{type(error).__name__}>"
