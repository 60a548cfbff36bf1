# SPDX-License-Identifier: Apache-2.0
"""Keys: what the names of directories such as ``day=2024-01-01`` say about all rows below them.

Without a schema, a key is integers, dates or text: the first of these types that all of its texts have. A schema gives
it any type whose values can be written as text; each is read exactly, or refused.

==========================  ==========================================================================================
type                        texts
==========================  ==========================================================================================
integers, durations         ``-1``, ``007``; of durations the number of units
floats                      ``1.5``, ``1e-7``, ``inf``, ``Infinity``, ``NaN``
bool                        ``true``, ``false``, ``1``, ``0``
decimals                    ``1.50``, ``1E+5``
dates                       ``2024-01-01``
times                       ``12:30``, ``12:30:01``, ``12:30:01.000000001``
timestamps                  a date, or a date and a time after a blank or ``T``; with a time zone if, and only if,
                            the type has one: ``Z`` or ``+01:00``
text, binary                any
dictionaries, runs          as their values
==========================  ==========================================================================================

``__HIVE_DEFAULT_PARTITION__`` is null, as is a key that a source lacks. Digits are those of ASCII.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from shmarrow.errors import InvalidData, InvalidType, at, shown
from shmarrow.layout import Array
from shmarrow.layout.order import plain_type
from shmarrow.types import DataType, date32, int64, string

Keys = tuple[tuple[str, str], ...]
"""The names and the texts of keys, outermost first."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = dt.date(1970, 1, 1)
_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(r"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)", re.IGNORECASE)
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")
_TIMESTAMP = re.compile(r"([^ T]*)(?:[ T](.*?))?(Z|[+-][0-9]{2}:[0-9]{2})?")
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def keys_of(path: str) -> Keys:
    """The keys in the names of directories, such as ``day=2024-01-01/part=3``, percent-decoded."""
    parts = [part.partition("=") for part in path.split("/")]
    return tuple([(_decoded(name), _decoded(text)) for name, equals, text in parts if name and equals])


def _decoded(text: str) -> str:
    return unquote(text, errors="surrogateescape")  # bytes that are no text stay as they are in names of files


def key_values(texts: Sequence[str | None], wanted: DataType | None = None) -> Array:
    """Convert the texts of one key, None where a source lacks it, to an array of a type, or of the first that fits all.

    Raises
    ------
    InvalidType
        If the type has no values that can be written as text.
    InvalidData
        If a text is not one of the type, or the type cannot hold its value.
    """
    known = [None if text == _NULL else text for text in texts]
    if wanted is not None:
        return _read(known, wanted)
    for type, pattern in ((int64(), _INTEGER), (date32(), _DATE)):
        if all(text is None or pattern.fullmatch(text) for text in known):
            try:
                return _read(known, type)
            except InvalidData:  # such as 20 digits, or the 30th of February
                continue
    return _read(known, string())


def _read(texts: Sequence[str | None], type: DataType) -> Array:
    """Convert texts to values of a type, each distinct one once."""
    from shmarrow.build import array

    plain = plain_type(type)
    values: dict[str | None, Any] = dict.fromkeys(texts)
    read = _text if hasattr(plain, "text") else _READERS.get(plain.descriptor.values)
    for text in values:
        if text is None:
            continue
        if read is None:
            raise InvalidType(f"a directory cannot have a key of type {type}")
        try:
            values[text] = read(text, plain)
        except (ValueError, ArithmeticError):
            raise InvalidData(f"expected the text of a {plain}, found {shown(text)}") from None
    built = array([values[text] for text in texts], plain)
    return built if plain is type else built.cast(type)


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError
    return found


def _text(text: str, type: Any) -> Any:
    return text if getattr(type, "text", False) else text.encode("utf-8", "surrogateescape")


def _integer(text: str, type: DataType) -> int:
    return int(_matched(_INTEGER, text)[0])


def _float(text: str, type: DataType) -> float:
    value = float(_matched(_FLOAT, text)[0])
    if math.isinf(value) and "n" not in text.lower():
        raise OverflowError
    return value


def _decimal(text: str, type: DataType) -> Decimal:
    return Decimal(_matched(_DECIMAL, text)[0])


def _bool(text: str, type: DataType) -> bool:
    if text.lower() not in _BOOLS:
        raise ValueError
    return _BOOLS[text.lower()]


def _date(text: str, type: DataType) -> dt.date:
    return dt.date.fromisoformat(_matched(_DATE, text)[0])


def _nanoseconds(text: str) -> int:
    """The time since midnight."""
    hours, minutes, seconds, fraction = _matched(_TIME, text).groups("0")
    whole = dt.timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))
    if int(hours) > 23 or int(minutes) > 59 or int(seconds) > 59:
        raise ValueError
    return int(whole.total_seconds()) * 10**9 + int(fraction.ljust(9, "0"))


def _counted(nanoseconds: int, type: Any) -> int:
    """Nanoseconds as a number of the units of a type."""
    count, rest = divmod(nanoseconds, 10**9 // _PER_SECOND[type.unit])
    if rest:
        raise ValueError
    return count


def _time(text: str, type: Any) -> int:
    return _counted(_nanoseconds(text), type)


def _timestamp(text: str, type: Any) -> int:
    date, time, zone = _matched(_TIMESTAMP, text).groups()
    if (zone is None) != (type.tz is None):  # which moment is meant is not known, or not what the type says
        raise ValueError
    days = (_date(date, type) - _EPOCH).days
    offset = 0
    if zone not in (None, "Z"):
        offset = (1 if zone[0] == "+" else -1) * _nanoseconds(zone[1:])
    return _counted(days * 86_400 * 10**9 + (0 if time is None else _nanoseconds(time)) - offset, type)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "integer": _integer, "timedelta": _integer, "float": _float, "decimal": _decimal, "bool": _bool, "date": _date,
    "time": _time, "timestamp": _timestamp, "bytes": _text,
}  # fmt: skip


# --- writing ------------------------------------------------------------------------------------------------------


def directories_of(names: Sequence[str], columns: Sequence[Array]) -> list[str]:
    """The path of the directories of each row, one below the other, from columns of equal length.

    Raises
    ------
    InvalidType
        If a column has a type whose values have no text, or a name that hides the directory.
    InvalidData
        If a text would be read as null, or a value has none.
    """
    parts = []
    for name, column in zip(names, columns, strict=True):
        with at("column", name):
            if name[:1] in ("_", "."):
                raise InvalidType("a directory whose name begins with _ or . is hidden; rename the column")
            texts = _texts_of(column)
            if _NULL in texts:
                raise InvalidData(f"the text {_NULL!r} would be read as null")
        key = f"{_quoted(name)}="
        parts.append([key + (_NULL if text is None else _quoted(text)) for text in texts])
    return ["/".join(row) for row in zip(*parts, strict=True)]


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


def _texts_of(column: Array) -> list[str | None]:
    """The texts of an array's values, None for null."""
    plain: Any = column.cast(plain_type(column.type))
    type = plain.type
    kind = ("text" if type.text else "bytes") if hasattr(type, "text") else type.descriptor.values
    if kind == "timestamp":
        texts = np.datetime_as_string(plain.values.view(f"M8[{type.unit}]")).tolist()
        zone = "" if type.tz is None else "Z"
        known = zip(texts, plain.is_valid().to_pylist(), strict=True)
        return [text.replace("T", " ") + zone if valid else None for text, valid in known]
    if kind not in _WRITERS:
        raise InvalidType(f"a {type} has no text that names a directory")
    write = _WRITERS[kind]
    return [None if value is None else write(value) for value in plain.to_pylist()]


_WRITERS: dict[str, Callable[[Any], str]] = {
    "text": str, "integer": str, "float": repr, "decimal": str, "bool": lambda value: str(value).lower(),
    "date": dt.date.isoformat, "time": dt.time.isoformat,
    "bytes": lambda value: value.decode("utf-8", "surrogateescape"),
}  # fmt: skip
