"""Conversions between bools, integers and floats.

Losses with ``safe=False``: any non-zero number becomes True, fractions are dropped, integers become the nearest float,
and numbers out of the range of a float become infinities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shmarrow.casts.exact import Fault, Values, faults, outside

Outcome = tuple[Values, list[Fault]]

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
    found = []
    if not fits.all():
        found = faults((~fits, f"not within {info.min} to {info.max}"))
        whole = np.where(fits, whole, 0)
        wide = np.where(fits, wide, 0)
    if safe and not np.array_equal(whole, wide):
        found += faults((whole != wide, "not a whole number", "drops fractions"))
    return whole.astype(target.storage), found


def floats(values: Values, source: Any, target: Any, safe: bool) -> Outcome:
    """Convert floats to the nearest of another width."""
    with np.errstate(over="ignore"):
        result = values.astype(target.storage)
    if not safe or target.storage.itemsize >= values.dtype.itemsize or not np.isinf(result).any():
        return result, []
    over = np.isinf(result) & np.isfinite(values)
    return result, faults((over, f"beyond the range of a {8 * target.storage.itemsize}-bit float", "gives infinities"))
