# SPDX-License-Identifier: Apache-2.0
"""Conversions between bools, integers and floats, and vectorized integer arithmetic that reports inexact results.

Invariants: ranges are checked before multiplying, so that nothing wraps; if the minimum and maximum of an array
are in range, its values are not checked one by one.

Losses with ``safe=False``: any non-zero number becomes True, fractions are dropped, integers become the nearest float,
and numbers out of the range of a float become infinities.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

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


def faults(*checks: tuple[Mask | None, str] | tuple[Mask | None, str, str]) -> list[Fault]:
    """Return the faults whose masks are not None, from masks, reasons, and effects of ``safe=False``."""
    return [
        Fault(where, why, *[f"a cast with safe=False {effect}" for effect in effects])
        for where, why, *effects in checks
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


Outcome = tuple[Values, list[Fault]]


# --- conversions --------------------------------------------------------------------------------------------------

_MANTISSA = {2: 1 << 11, 4: 1 << 24, 8: 1 << 53}
"""Up to where all integers are exact, by the size of a float in bytes."""


def from_bools(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert bools to 0 and 1."""
    return values.astype(target.storage), []


def to_bools(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert 0 and 1 to bools."""
    result = values != 0
    other = result & (values != 1) if safe else None
    return result, faults((other, "neither 0 nor 1", "makes non-zero values True"))


def integers(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert between integer types."""
    info = np.iinfo(target.storage)
    over = outside(values, info.min, info.max)
    return values.astype(target.storage), faults((over, f"not within {info.min} to {info.max}"))


def integers_to_floats(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert integers to floats."""
    with np.errstate(over="ignore"):
        result = values.astype(target.storage)
    limit = _MANTISSA[target.storage.itemsize]
    if not safe or outside(values, -limit, limit) is None:
        return result, []
    wide = result.astype(np.float64)
    bits = 8 * values.dtype.itemsize
    low, high = (0.0, 2.0**bits) if values.dtype.kind == "u" else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
    fits = (wide >= low) & (wide < high)
    exact = fits & (np.where(fits, wide, 0).astype(values.dtype) == values)
    return result, faults((~exact, f"not exact as a {8 * target.storage.itemsize}-bit float", "rounds"))


def floats_to_integers(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert floats to integers, exact for whole numbers."""
    wide = values.astype(np.float64, copy=False)
    info = np.iinfo(target.storage)
    whole = np.trunc(wide)
    fits = (whole >= float(info.min)) & (whole < float(info.max + 1))
    problems = []
    if not fits.all():
        problems = faults((~fits, f"not within {info.min} to {info.max}"))
        whole = np.where(fits, whole, 0)
        wide = np.where(fits, wide, 0)
    if safe and not np.array_equal(whole, wide):
        problems += faults((whole != wide, "not a whole number", "drops fractions"))
    return whole.astype(target.storage), problems


def floats(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert floats to the nearest of another width."""
    with np.errstate(over="ignore"):
        result = values.astype(target.storage)
    if not safe or target.storage.itemsize >= values.dtype.itemsize or not np.isinf(result).any():
        return result, []
    over = np.isinf(result) & np.isfinite(values)
    return result, faults((over, f"beyond the range of a {8 * target.storage.itemsize}-bit float", "gives infinities"))
