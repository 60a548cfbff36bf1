"""How arrays are shown to people: a few values of each, however long and however nested they are."""

from __future__ import annotations


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
