# SPDX-License-Identifier: Apache-2.0
"""Previews of arrays: a bounded number of values at any length and nesting."""

from __future__ import annotations

from typing import Any

from shmarrow.errors import ShmarrowError


class Budget:
    """Remaining number of values that a preview may show, across nesting."""

    __slots__ = ("left",)

    def __init__(self, left: int = 200) -> None:
        self.left = left

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def preview_bytes(head: bytes, size: int, text: bool) -> str:
    """Format the first bytes of a value, stating its size if anything is cut."""
    shown = repr(head.decode(errors="replace")) if text else repr(head)
    return shown if size == len(head) else f"{shown}... ({size} bytes)"


def preview_items(array: Any, budget: Budget) -> str:
    """Format the first and last ten values of an array, within the budget."""
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
    """A slot as text, or the name of the error if it is invalid."""
    try:
        return str(array._item_preview(index, budget))
    except ShmarrowError as error:
        return f"<{type(error).__name__}>"
