"""Values in the JSON form of Arrow's integration tests: integers, floats, decimals, intervals, text and bytes.

Invariants:

* whole arrays at a time: from a list of JSON values to storage and back;
* JSON has no exact numbers of 64 bits and none that are not finite, so those are strings; bytes are hexadecimal;
* a value of another kind, or one that its type cannot hold, ends in an :class:`InvalidData` with its path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow import bitmap, types
from shmarrow.buffer import as_bytes
from shmarrow.convert.decimals import decimal_integers, decimal_words
from shmarrow.errors import InvalidData
from shmarrow.integration.json_schema import shown
from shmarrow.layout.binary import join_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

Values: TypeAlias = "npt.NDArray[Any]"


def check_kinds(items: Sequence[Any], kinds: tuple[type, ...], expected: str, where: str) -> None:
    """Refuse items of other classes than ``kinds``."""
    if not set(map(_class_of, items)) <= set(kinds):
        i = next(i for i, item in enumerate(items) if item.__class__ not in kinds)
        raise InvalidData(f"{where}[{i}]: expected {expected}, found {shown(items[i])}")


def _class_of(value: Any) -> Any:
    return value.__class__


def read_integers(items: Sequence[Any], dtype: Any, where: str) -> Values:
    """Integers from numbers, or from strings, which is how those of 64 bits are written."""
    check_kinds(items, (int, str), "an integer", where)
    try:
        return np.array(list(map(int, items)), dtype)
    except (ValueError, OverflowError):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        i = next(i for i, item in enumerate(items) if not _fits(item, low, high))
        raise InvalidData(f"{where}[{i}]: expected a number from {low} to {high}, found {shown(items[i])}") from None


def _fits(item: Any, low: int, high: int) -> bool:
    try:
        return low <= int(item) <= high
    except ValueError:
        return False


def write_integers(values: Values) -> list[Any]:
    """Integers as numbers, those of 64 bits as strings."""
    numbers: list[Any] = values.tolist()
    return list(map(str, numbers)) if values.dtype.itemsize == 8 else numbers


_NOT_FINITE = {"NaN": np.nan, "Infinity": np.inf, "+Infinity": np.inf, "-Infinity": -np.inf}
_NOT_FINITE |= {"Inf": np.inf, "+Inf": np.inf, "-Inf": -np.inf}


def _read_floats(type: Any, items: Sequence[Any], where: str) -> Values:
    """Floats from numbers; strings hold what JSON has no numbers for."""
    if not set(map(_class_of, items)) <= {float, int}:
        items = [_NOT_FINITE.get(item, item) if item.__class__ is str else item for item in items]
        check_kinds(items, (float, int), "a number, NaN or Infinity", where)
    try:
        with np.errstate(over="ignore"):
            return np.array(items, np.float64).astype(type.storage)
    except OverflowError:
        raise InvalidData(f"{where}: an integer is larger than any {type}") from None


def _write_floats(type: Any, values: Values) -> list[Any]:
    """Floats with as few digits as tell them from all others of their width."""
    if values.dtype.itemsize < 8:
        short = values.astype(np.str_).astype(np.float64)
        # A reader rounds twice, to 64 bits and then to fewer, which for a few values ends in a neighbour.
        kept = short.astype(values.dtype) == values
        numbers: list[Any] = np.where(kept, short, values.astype(np.float64)).tolist()
    else:
        numbers = values.tolist()
    for i in np.flatnonzero(~np.isfinite(values)).tolist():
        numbers[i] = "NaN" if np.isnan(values[i]) else "Infinity" if values[i] > 0 else "-Infinity"
    return numbers


def _read_decimals(type: Any, items: Sequence[Any], where: str) -> Values:
    check_kinds(items, (str, int), "the unscaled value as a string", where)
    bound = 1 << (type.bits - 1)
    for i, item in enumerate(items):
        if not _fits(item, -bound, bound - 1):
            raise InvalidData(f"{where}[{i}]: expected an integer of {type.bits} bits, found {shown(item)}")
    return decimal_words(type, list(map(int, items)))


def _read_bools(type: Any, items: Sequence[Any], where: str) -> Values:
    check_kinds(items, (bool, int), "true or false", where)
    if not set(items) <= {0, 1}:
        i = next(i for i, item in enumerate(items) if item not in (0, 1))
        raise InvalidData(f"{where}[{i}]: expected true or false, found {shown(items[i])}")
    return bitmap.pack(np.array(items, np.bool_))


def _read_intervals(type: Any, items: Sequence[Any], where: str) -> Values:
    if type.storage.names is None:
        return read_integers(items, type.storage, where)
    result = np.zeros(len(items), type.storage)
    check_kinds(items, (dict,), f"an object of {', '.join(type.storage.names)}", where)
    for name in type.storage.names:
        numbers = [item.get(name) for item in items]
        if None in numbers:
            raise InvalidData(f"{where}[{numbers.index(None)}]: expected a member {name!r}")
        result[name] = read_integers(numbers, type.storage[name], f"{where}.{name}")
    return result


def _write_intervals(type: Any, values: Values) -> list[Any]:
    names = type.storage.names
    numbers: list[Any] = values.tolist()
    return numbers if names is None else [dict(zip(names, item, strict=True)) for item in numbers]


def _read_fixed(type: Any, items: Sequence[Any], where: str) -> Values:
    data, lengths = read_hex(items, where)
    wrong = lengths != type.width
    if wrong.any():
        i = int(wrong.argmax())
        raise InvalidData(f"{where}[{i}]: expected {type.width} bytes, found {int(lengths[i])}")
    return as_bytes(data)


def read_text(text: bool, items: Sequence[Any], where: str) -> tuple[bytes, Values]:
    """The bytes of values that are text or hexadecimal, one after another, and the length of each."""
    if not text:
        return read_hex(items, where)
    check_kinds(items, (str,), "a string", where)
    try:
        return join_bytes(types.string(), items, None)
    except InvalidData as error:
        raise InvalidData(f"{where}: {error}") from None


def read_hex(items: Sequence[Any], where: str) -> tuple[bytes, Values]:
    """The bytes of hexadecimal values, one after another, and the length of each."""
    check_kinds(items, (str,), "a string of hexadecimal digits", where)
    digits = np.fromiter(map(len, items), np.int64, len(items))
    try:
        data = bytes.fromhex("".join(items))
    except ValueError:
        data = b""
    if 2 * len(data) != int(digits.sum()) or (digits & 1).any():
        i = next(i for i, item in enumerate(items) if not _is_hex(item))
        raise InvalidData(f"{where}[{i}]: expected pairs of hexadecimal digits, found {shown(items[i])}")
    return data, digits >> 1


def _is_hex(item: str) -> bool:
    try:
        return 2 * len(bytes.fromhex(item)) == len(item)
    except ValueError:
        return False


def upper_hex(data: bytes) -> str:
    """Bytes as hexadecimal digits."""
    return data.hex().upper()


class ValueForm(NamedTuple):
    """How the values of a kind of type look.

    Attributes
    ----------
    zero : callable
        What stands for a null slot of a type, whatever JSON holds there; None takes what JSON holds, which bounds
        the memory of wide slots by the size of the document.
    read : callable
        The storage from a type, JSON values and their path.
    write : callable
        The JSON values from a type and storage.
    """

    zero: Callable[[Any], Any]
    read: Callable[[Any, Sequence[Any], str], Values]
    write: Callable[[Any, Values], list[Any]]


_INTEGERS = ValueForm(
    lambda type: 0,
    lambda type, items, where: read_integers(items, type.storage, where),
    lambda type, values: write_integers(values),
)

VALUES: dict[str, ValueForm] = {
    **dict.fromkeys(("integer", "index", "date", "time", "timestamp", "timedelta"), _INTEGERS),
    "bool": ValueForm(lambda type: False, _read_bools, lambda type, values: values.tolist()),
    "float": ValueForm(lambda type: 0.0, _read_floats, _write_floats),
    "decimal": ValueForm(
        lambda type: "0", _read_decimals, lambda type, values: list(map(str, decimal_integers(type, values)))
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
"""The forms of values, by their kind in the descriptors of types."""


def _split_hex(data: bytes, width: int, count: int) -> list[str]:
    text = upper_hex(data)
    return [text[2 * width * i : 2 * width * (i + 1)] for i in range(count)]
