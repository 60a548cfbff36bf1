# SPDX-License-Identifier: Apache-2.0
"""Values in the JSON format of Arrow's integration tests: integers, floats, decimals, intervals, text and bytes.

Invariants:

* whole arrays are converted at a time, between a list of JSON values and storage;
* JSON numbers are neither exact for 64 bits nor infinite or NaN, so these are strings; bytes are hexadecimal;
* a value of another kind, or out of range for its type, raises :class:`InvalidData` with its position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow import bitmap, types
from shmarrow.buffer import NDArray, as_bytes
from shmarrow.casts.decimals import decimal_integers, decimal_words
from shmarrow.errors import InvalidData, at
from shmarrow.integration.json_schema import shown
from shmarrow.layout.binary import join_bytes

Values: TypeAlias = NDArray


def no_item(index: int, text: str) -> InvalidData:
    """Return the error for an item of an array."""
    return InvalidData(text, where=[("item", index)])


def check_kinds(items: Sequence[Any], kinds: tuple[type, ...], expected: str) -> None:
    """Refuse items of other classes than ``kinds``."""
    if not set(map(_class_of, items)) <= set(kinds):
        i = next(i for i, item in enumerate(items) if item.__class__ not in kinds)
        raise no_item(i, f"expected {expected}, found {shown(items[i])}")


def _class_of(value: Any) -> Any:
    return value.__class__


def read_integers(items: Sequence[Any], dtype: Any) -> Values:
    """Read integers from numbers or strings, the form of 64-bit integers."""
    check_kinds(items, (int, str), "an integer")
    try:
        return np.array(list(map(int, items)), dtype)
    except (ValueError, OverflowError):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        i = next(i for i, item in enumerate(items) if not _fits(item, low, high))
        raise no_item(i, f"expected a number from {low} to {high}, found {shown(items[i])}") from None


def _fits(item: Any, low: int, high: int) -> bool:
    try:
        return low <= int(item) <= high
    except ValueError:
        return False


def write_integers(values: Values) -> list[Any]:
    """Write integers as numbers, or as strings for 64 bits."""
    numbers: list[Any] = values.tolist()
    return list(map(str, numbers)) if values.dtype.itemsize == 8 else numbers


_NOT_FINITE = {"NaN": np.nan, "Infinity": np.inf, "+Infinity": np.inf, "-Infinity": -np.inf}
_NOT_FINITE |= {"Inf": np.inf, "+Inf": np.inf, "-Inf": -np.inf}


def _read_floats(type: Any, items: Sequence[Any]) -> Values:
    """Read floats from numbers, or from strings for NaN and infinities."""
    if not set(map(_class_of, items)) <= {float, int}:
        items = [_NOT_FINITE.get(item, item) if item.__class__ is str else item for item in items]
        check_kinds(items, (float, int), "a number, NaN or Infinity")
    try:
        with np.errstate(over="ignore"):
            return np.array(items, np.float64).astype(type.storage)
    except OverflowError:
        raise InvalidData(f"an integer is larger than any {type}") from None


def _write_floats(type: Any, values: Values) -> list[Any]:
    """Write floats with the fewest digits that identify them within their width."""
    if values.dtype.itemsize < 8:
        short = values.astype(np.str_).astype(np.float64)
        # A reader rounds twice, to 64 bits and then to the width, which for a few values yields an adjacent float.
        is_exact = short.astype(values.dtype) == values
        numbers: list[Any] = np.where(is_exact, short, values.astype(np.float64)).tolist()
    else:
        numbers = values.tolist()
    for i in np.flatnonzero(~np.isfinite(values)).tolist():
        numbers[i] = "NaN" if np.isnan(values[i]) else "Infinity" if values[i] > 0 else "-Infinity"
    return numbers


def _read_decimals(type: Any, items: Sequence[Any]) -> Values:
    check_kinds(items, (str, int), "the unscaled value as a string")
    bound = 1 << (type.bits - 1)
    for i, item in enumerate(items):
        if not _fits(item, -bound, bound - 1):
            raise no_item(i, f"expected an integer of {type.bits} bits, found {shown(item)}")
    return decimal_words(type, list(map(int, items)))


def _read_bools(type: Any, items: Sequence[Any]) -> Values:
    check_kinds(items, (bool, int), "true or false")
    if not set(items) <= {0, 1}:
        i = next(i for i, item in enumerate(items) if item not in (0, 1))
        raise no_item(i, f"expected true or false, found {shown(items[i])}")
    return bitmap.pack(np.array(items, np.bool_))


def _read_intervals(type: Any, items: Sequence[Any]) -> Values:
    if type.storage.names is None:
        return read_integers(items, type.storage)
    result = np.zeros(len(items), type.storage)
    check_kinds(items, (dict,), f"an object of {', '.join(type.storage.names)}")
    for name in type.storage.names:
        numbers = [item.get(name) for item in items]
        if None in numbers:
            raise no_item(numbers.index(None), f"expected a member {name!r}")
        with at(name):
            result[name] = read_integers(numbers, type.storage[name])
    return result


def _write_intervals(type: Any, values: Values) -> list[Any]:
    names = type.storage.names
    numbers: list[Any] = values.tolist()
    return numbers if names is None else [dict(zip(names, item, strict=True)) for item in numbers]


def _read_fixed(type: Any, items: Sequence[Any]) -> Values:
    data, lengths = read_hex(items)
    wrong = lengths != type.width
    if wrong.any():
        i = int(wrong.argmax())
        raise no_item(i, f"expected {type.width} bytes, found {int(lengths[i])}")
    return as_bytes(data)


def read_text(text: bool, items: Sequence[Any]) -> tuple[bytes, Values]:
    """Return the concatenated bytes of text or hexadecimal values, and their lengths."""
    if not text:
        return read_hex(items)
    check_kinds(items, (str,), "a string")
    return join_bytes(types.string(), items, None)


def read_hex(items: Sequence[Any]) -> tuple[bytes, Values]:
    """Return the concatenated bytes of hexadecimal values, and their lengths."""
    check_kinds(items, (str,), "a string of hexadecimal digits")
    digits = np.fromiter(map(len, items), np.int64, len(items))
    try:
        data = bytes.fromhex("".join(items))
    except ValueError:
        data = b""
    if 2 * len(data) != int(digits.sum()) or (digits & 1).any():
        i = next(i for i, item in enumerate(items) if not _is_hex(item))
        raise no_item(i, f"expected pairs of hexadecimal digits, found {shown(items[i])}")
    return data, digits >> 1


def _is_hex(item: str) -> bool:
    try:
        return 2 * len(bytes.fromhex(item)) == len(item)
    except ValueError:
        return False


def upper_hex(data: bytes) -> str:
    """Format bytes as uppercase hexadecimal digits."""
    return data.hex().upper()


class ValueForm(NamedTuple):
    """The JSON format of the values of a kind of type.

    Attributes
    ----------
    zero : callable
        Returns the replacement for the JSON value of null slots, by type. None keeps the JSON value, which bounds the
        memory of wide slots by the size of the document.
    read : callable
        Returns the storage for a type and JSON values.
    write : callable
        Returns the JSON values for a type and storage.
    """

    zero: Callable[[Any], Any]
    read: Callable[[Any, Sequence[Any]], Values]
    write: Callable[[Any, Values], list[Any]]


_INTEGERS = ValueForm(
    lambda type: 0,
    lambda type, items: read_integers(items, type.storage),
    lambda type, values: write_integers(values),
)

VALUES: dict[str, ValueForm] = {
    **dict.fromkeys(("integer", "index", "date", "time", "timestamp", "timedelta"), _INTEGERS),
    "bool": ValueForm(lambda type: False, _read_bools, lambda type, values: values.tolist()),
    "float": ValueForm(lambda type: 0.0, _read_floats, _write_floats),
    "decimal": ValueForm(
        lambda type: "0", _read_decimals, lambda type, values: list(map(str, decimal_integers(values)))
    ),
    "interval": ValueForm(
        lambda type: 0 if type.storage.names is None else dict.fromkeys(type.storage.names, 0),
        _read_intervals,
        _write_intervals,
    ),
    "bytes": ValueForm(
        lambda type: None,
        _read_fixed,
        lambda type, values: _split_hex(values.tobytes(), type.width, len(values)),
    ),
}
"""The formats of values, by their kind in the type descriptors."""


def _split_hex(data: bytes, width: int, count: int) -> list[str]:
    text = upper_hex(data)
    return [text[2 * width * i : 2 * width * (i + 1)] for i in range(count)]
