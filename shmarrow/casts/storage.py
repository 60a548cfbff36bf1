# SPDX-License-Identifier: Apache-2.0
"""Conversion between the storage of two types: the table of all numeric and temporal conversions.

A conversion preserves the value or raises. Even with ``safe=False`` integers never wrap and dates never leave the range
of their storage; :func:`convert` lists the losses allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from shmarrow.buffer import Mask
from shmarrow.casts import decimals, numbers, time
from shmarrow.casts.numbers import Fault, Values
from shmarrow.errors import InvalidData, InvalidType

if TYPE_CHECKING:
    from shmarrow.types import DataType

Conversion: TypeAlias = Callable[[Values, Any, Any, bool], tuple[Values, list[Fault]]]


def convert(values: Values, valid: Mask | None, source: DataType, target: DataType, safe: bool = True) -> Values:
    """Convert values from the storage of one type to that of another.

    Parameters
    ----------
    values : ndarray
        Storage of ``source``: shape (n,); for decimals of more than 64 bits, uint64 of shape (n, words), least
        significant first; for booleans, bool.
    valid : bool ndarray or None
        Shape (n,), False for null slots, whose values are not checked; None if no slot is null.
    source, target : DataType
        Fixed-width types without children.
    safe : bool
        False allows losses: fractions of numbers and time units are truncated toward zero, timestamps lose their time
        of day as dates and their date as times, integers and decimals become the nearest float and floats the nearest
        decimal, floats out of the range of a narrower type become infinities, and any non-zero number becomes True.
        Other values out of the target's range still raise.

    Returns
    -------
    ndarray
        Storage of ``target``; ``values`` itself if they are the same. Null slots are unspecified.

    Raises
    ------
    InvalidType
        If there is no conversion between the types.
    InvalidData
        If a value does not fit; names the first such row.
    """
    if source == target:
        return values
    way = CONVERSIONS.get((source.descriptor.values, target.descriptor.values))
    if way is None:
        raise no_cast(source, target)
    result, problems = way(values, source, target, safe)
    refuse(problems, valid, target, lambda slot: format_values(source, values[slot : slot + 1]))
    return result


def refuse(problems: list[Fault], valid: Mask | None, target: DataType, show: Callable[[int], str]) -> None:
    """Raise InvalidData for the first invalid slot that is not null; ``show`` formats its value."""
    for fault in problems:
        at = fault.where if valid is None else fault.where & valid
        if at.any():
            slot = int(at.argmax())
            text = f"{target} cannot hold {show(slot)}: {fault.why}"
            raise InvalidData(text, where=[("row", slot)], hint=fault.hint)


def no_cast(source: DataType, target: DataType) -> InvalidType:
    """Return the error for types without a cast between them."""
    texts = [getattr(type, "text", False) for type in (source, target)]
    plain = [type.layout in ("primitive", "bool") and type.descriptor.values != "bytes" for type in (source, target)]
    hint = "format or parse the values in Python" if any(texts) and any(plain) else None
    return InvalidType(f"there is no cast from {source} to {target}", hint=hint)


def format_values(type: Any, values: Values) -> str:
    """Format the single value of a storage; invalid storage as a plain number."""
    kind = type.descriptor.values
    if kind == "decimal":
        return decimals.format_values(type, values)
    if kind in time.KINDS:
        return time.format_values(type, values)
    return str(values.tolist()[0])


def violations(type: Any, values: Values) -> tuple[Mask | None, str]:
    """Return which values of a storage break the rules of their type, or None, and the rule."""
    kind = type.descriptor.values
    if kind == "decimal":
        return decimals.too_wide(type.precision, values), f"expected at most {type.precision} digits"
    return time.violations(type, values) if kind in time.KINDS else (None, "")


def convertible(source: DataType, target: DataType) -> bool:
    """Return whether :func:`convert` supports this conversion."""
    way = CONVERSIONS.get((source.descriptor.values, target.descriptor.values))
    return source == target or (way is not None and (way is not _same_bits or _has_same_bits(source, target)))


def _has_same_bits(source: DataType, target: DataType) -> bool:
    return source.storage is not None and source.storage.kind == "i" and source.storage == target.storage


def _same_bits(values: Values, source: Any, target: Any, safe: bool) -> tuple[Values, list[Fault]]:
    """Reinterpret temporal storage as integers of the same width, and back."""
    if not _has_same_bits(source, target):
        raise no_cast(source, target)
    return values, time.rule_faults(target, values)


CONVERSIONS: dict[tuple[str, str], Conversion] = {
    ("bool", "integer"): numbers.from_bools,
    ("bool", "float"): numbers.from_bools,
    ("integer", "bool"): numbers.to_bools,
    ("integer", "integer"): numbers.integers,
    ("integer", "float"): numbers.integers_to_floats,
    ("integer", "decimal"): decimals.from_integers,
    ("float", "bool"): numbers.to_bools,
    ("float", "integer"): numbers.floats_to_integers,
    ("float", "float"): numbers.floats,
    ("float", "decimal"): decimals.from_floats,
    ("decimal", "integer"): decimals.to_integers,
    ("decimal", "float"): decimals.to_floats,
    ("decimal", "decimal"): decimals.decimals,
    ("date", "date"): time.units,
    ("date", "timestamp"): time.units,
    ("timestamp", "timestamp"): time.units,
    ("timestamp", "date"): time.to_dates,
    ("timestamp", "time"): time.to_times,
    ("time", "time"): time.units,
    ("timedelta", "timedelta"): time.units,
    **{pair: _same_bits for kind in (*time.KINDS, "interval") for pair in (("integer", kind), (kind, "integer"))},
}
"""Conversions by the kinds of source and target values; each returns the storage and its faults."""
