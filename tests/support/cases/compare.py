"""Comparing Python values exactly."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import numpy as np


def exact(value: Any) -> Any:
    """Return an object that is equal only for the same value of the same Python type.

    NaN equals NaN, and zeros of different signs differ. Decimals compare by value, whatever their exponents. pandas'
    Timestamp and Timedelta, in which pyarrow returns nanoseconds, compare as numpy's datetime64 and timedelta64.

    Examples
    --------
    >>> from cases.compare import exact
    >>> exact([1, float("nan")]) == exact([1, float("nan")]), exact(1) == exact(1.0), exact(0.0) == exact(-0.0)
    (True, False, False)
    """
    kind = type(value)
    if kind is float:
        return ("float", "nan" if value != value else struct.pack("<d", value))
    if kind is Decimal:
        return ("Decimal", value)
    if kind is dt.datetime:
        return ("datetime", value.replace(tzinfo=None, fold=0), value.utcoffset())
    if kind.__name__ in ("Timestamp", "Timedelta"):  # pandas' classes, in which pyarrow gives nanoseconds
        value = value.to_numpy()
        kind = type(value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return (kind.__name__, value.dtype.str, int(value.astype("i8")))
    if isinstance(value, dict):
        return ("dict", [(key, exact(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (kind.__name__, [exact(item) for item in value])
    if isinstance(value, np.ndarray):
        return ("ndarray", value.dtype.str, value.shape, exact(value.tolist()))
    return (kind.__name__, value)


def same(one: Any, other: Any) -> bool:
    """Whether two values are exactly the same, or the same instants in different time zones."""
    return bool(exact(_in_utc(one)) == exact(_in_utc(other)))


def _in_utc(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, dict):
        return {key: _in_utc(item) for key, item in value.items()}
    return type(value)(map(_in_utc, value)) if type(value) in (list, tuple) else value
