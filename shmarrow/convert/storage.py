"""Between the storage of two types: the table of all conversions of numbers and time, and the rules they keep.

A conversion gives the same value in the storage of another type, or is refused. Integers never wrap and dates never
lie outside of what their storage holds, whatever the caller allows; :func:`convert` says what may be given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from shmarrow.bitmap import Mask
from shmarrow.convert import decimals, numbers, time
from shmarrow.convert.exact import Fault, Values
from shmarrow.errors import InvalidData, InvalidType, Place, placed

if TYPE_CHECKING:
    from shmarrow.types import DataType

Way: TypeAlias = Callable[[Values, Any, Any, bool], tuple[Values, list[Fault]]]


def convert(values: Values, valid: Mask | None, source: DataType, target: DataType, safe: bool = True) -> Values:
    """The same values in the storage of another type.

    Parameters
    ----------
    values : ndarray
        The storage of ``source``: shape (n,); for decimals of more than 64 bits (n, words) of uint64, the lowest word
        first; truth values as bool.
    valid : bool ndarray or None
        Shape (n,), False for null slots, which may hold anything and are not checked; None where no slot is null.
    source, target : DataType
        Types without children, of a fixed number of bits.
    safe : bool
        False accepts losses: fractions of numbers and of seconds are dropped (toward zero), a timestamp loses its time
        of day as a date and its date as a time, integers and decimals become the nearest float and floats the nearest
        decimal, a float beyond the range of a narrower one becomes an infinity, and every number other than 0 is a
        true bool. Values out of the target's range are refused all the same.

    Returns
    -------
    ndarray
        The storage of ``target``; ``values`` where that is the same. Null slots hold anything.

    Raises
    ------
    InvalidType
        If values of the one type are never values of the other.
    InvalidData
        If a value does not fit; names the first such slot.
    """
    if source == target:
        return values
    way = _WAYS.get((source.descriptor.values, target.descriptor.values))
    if way is None:
        raise no_way(source, target)
    result, found = way(values, source, target, safe)
    refuse(found, valid, target, lambda slot: shown(source, values[slot : slot + 1]))
    return result


def refuse(found: list[Fault], valid: Mask | None, target: DataType, show: Callable[[int], str]) -> None:
    """Raise InvalidData for the first slot that is at fault and not null; ``show`` says what it holds."""
    for fault in found:
        at = fault.where if valid is None else fault.where & valid
        if at.any():
            slot = int(at.argmax())
            raise placed(InvalidData, f"{target}: ", Place((slot,)), f" holds {show(slot)}: {fault}")


def no_way(source: DataType, target: DataType) -> InvalidType:
    """The error for types that have no values in common."""
    texts = [getattr(type, "text", False) for type in (source, target)]
    plain = [type.layout in ("primitive", "bool") and type.descriptor.values != "bytes" for type in (source, target)]
    hint = "; format or parse the values in Python" if any(texts) and any(plain) else ""
    return InvalidType(f"there is no cast from {source} to {target}{hint}")


def shown(type: Any, values: Values) -> str:
    """The only value of a storage, as people write it; storage that means nothing as the number it is."""
    kind = type.descriptor.values
    if kind == "decimal":
        return decimals.shown(type, values)
    if kind in time.KINDS:
        return time.shown(type, values)
    return str(values.tolist()[0])


def broken(type: Any, values: Values) -> tuple[Mask | None, str]:
    """Which values of a storage break the rules of their type, None where none does, and the rule."""
    kind = type.descriptor.values
    if kind == "decimal":
        return decimals.too_wide(type.precision, values), f"a value has at most {type.precision} digits"
    return time.broken(type, values) if kind in time.KINDS else (None, "")


def convertible(source: DataType, target: DataType) -> bool:
    """Whether :func:`convert` has a way from one type to the other."""
    way = _WAYS.get((source.descriptor.values, target.descriptor.values))
    return source == target or (way is not None and (way is not _same_bits or _has_same_bits(source, target)))


def _has_same_bits(source: DataType, target: DataType) -> bool:
    return source.storage is not None and source.storage.kind == "i" and source.storage == target.storage


def _same_bits(values: Values, source: Any, target: Any, safe: bool) -> tuple[Values, list[Fault]]:
    """The numbers that stand for dates and times as integers of as many bits, and back."""
    if not _has_same_bits(source, target):
        raise no_way(source, target)
    return values, time.rule_faults(target, values)


_WAYS: dict[tuple[str, str], Way] = {
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
"""By the kind of the source's values and that of the target's: the storage, and what is wrong with it where."""
