"""Arithmetic on whole arrays of integers that says where it would not be exact: what all conversions are made of.

Rules kept here: ranges are checked before multiplying, so that nothing wraps; an array that is fine as a whole, by its
lowest and highest value, is not looked at value by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow.bitmap import Mask

if TYPE_CHECKING:
    import numpy.typing as npt

Values: TypeAlias = "npt.NDArray[Any]"

MAX = (1 << 63) - 1
"""The highest integer of 64 bits."""


class Fault(NamedTuple):
    """Where values cannot be converted exactly, and why.

    Attributes
    ----------
    where : bool ndarray
        True for values at fault; shape (n,).
    why : str
        What follows "slot 3 holds 300: ".
    loss : str
        What ``safe=False`` does with such values; empty where it does not help.
    """

    where: Mask
    why: str
    loss: str = ""

    def __str__(self) -> str:
        return f"{self.why}; a cast with safe=False {self.loss}" if self.loss else self.why


def faults(*found: tuple[Mask | None, str] | tuple[Mask | None, str, str]) -> list[Fault]:
    """The faults of those masks that are not None."""
    return [Fault(*each) for each in found if each[0] is not None]


def outside(values: Values, low: int, high: int) -> Mask | None:
    """Which integers of shape (n,) are not within [low, high]; None where all are."""
    if not len(values) or (low <= int(values.min()) and int(values.max()) <= high):
        return None
    where: Mask = (values < low) | (values > high)
    return where


def multiplied(values: Values, factor: int) -> tuple[Values, Mask | None]:
    """Integers of 64 bits times a positive factor, and which products do not fit; those are 0."""
    if factor == 1:
        return values, None
    over = outside(values, -(MAX // factor), MAX // factor)
    if over is not None:
        values = np.where(over, 0, values)
    return (values * factor if factor <= MAX else np.zeros_like(values)), over


def divided(values: Values, divisor: int, floor: bool = False) -> tuple[Values, Mask | None]:
    """Integers of 64 bits divided by a positive divisor, and which left a remainder.

    Quotients are rounded toward zero, or down with ``floor``.
    """
    if divisor == 1:
        return values, None
    if divisor > MAX:
        quotient = np.where(values < 0, -1, 0) if floor else np.zeros_like(values)
        return quotient, (values != 0 if values.any() else None)
    quotient = values // divisor
    inexact = quotient * divisor != values
    if not inexact.any():
        return quotient, None
    if not floor:
        quotient += inexact & (values < 0)
    return quotient, inexact
