"""Vectorized integer arithmetic that reports inexact results; the basis of all conversions.

Invariants: ranges are checked before multiplying, so that nothing wraps; if the minimum and maximum of an array
are in range, its values are not checked one by one.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from shmarrow.buffer import Mask, NDArray

Values: TypeAlias = NDArray

MAX = (1 << 63) - 1
"""The largest 64-bit integer."""


class Fault(NamedTuple):
    """Values that cannot be converted exactly, and the reason.

    Attributes
    ----------
    where : bool ndarray
        True for invalid values; shape (n,).
    why : str
        Reason, which follows "int8 cannot hold 300: " in messages.
    hint : str, optional
        What ``safe=False`` does to such values, if it helps.
    """

    where: Mask
    why: str
    hint: str | None = None


def faults(*found: tuple[Mask | None, str] | tuple[Mask | None, str, str]) -> list[Fault]:
    """Return the faults whose masks are not None, from masks, reasons, and effects of ``safe=False``."""
    return [
        Fault(where, why, *[f"a cast with safe=False {effect}" for effect in effects])
        for where, why, *effects in found
        if where is not None
    ]


def outside(values: Values, low: int, high: int) -> Mask | None:
    """Return which integers of shape (n,) are not within [low, high]; None if all are."""
    held = np.iinfo(values.dtype)
    if not len(values) or (low <= held.min and held.max <= high):
        return None
    if low <= int(values.min()) and int(values.max()) <= high:
        return None
    return (values < low) | (values > high)


def multiplied(values: Values, factor: int) -> tuple[Values, Mask | None]:
    """Multiply 64-bit integers by a positive factor; return also which products overflow, which are set to 0."""
    if factor == 1:
        return values, None
    over = outside(values, -(MAX // factor), MAX // factor)
    if over is not None:
        values = np.where(over, 0, values)
    return (values * factor if factor <= MAX else np.zeros_like(values)), over


def divided(values: Values, divisor: int, floor: bool = False) -> tuple[Values, Mask | None]:
    """Divide 64-bit integers by a positive divisor; return also which leave a remainder.

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
