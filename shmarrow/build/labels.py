"""Labels, names and attributes of pandas as JSON, exactly: what JSON lacks becomes ``{"$Kind": parts}``.

Invariants: a value either comes back equal and of its own class, or is refused when it is written.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import sys
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from shmarrow.errors import InvalidType, full_name
from shmarrow.types.zones import zone_name


def to_json(value: Any) -> Any:
    """Return a value as JSON; InvalidType if it has no exact form."""
    kind = value.__class__
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [to_json(item) for item in value]
    if kind is dict and all(key.__class__ is str and key[:1] != "$" for key in value):
        return {key: to_json(item) for key, item in value.items()}
    form = _FORMS.get(kind.__name__)
    if form is None or kind.__module__.partition(".")[0] not in _MODULES:
        if not isinstance(value, np.generic) or value.dtype.kind not in "biuf" or kind is np.longdouble:
            raise InvalidType(f"{full_name(value)} has no exact form in JSON")
        return {"$numpy": [value.dtype.str, to_json(value.item())]}
    return {f"${kind.__name__}": form[0](value)}


def from_json(value: Any) -> Any:
    """Return the value that :func:`to_json` wrote."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if name[:1] != "$":
        return {key: from_json(item) for key, item in value.items()}
    parts = value[name]
    return np.dtype(parts[0]).type(from_json(parts[1])) if name == "$numpy" else _FORMS[name[1:]][1](parts)


def _aware(value: dt.datetime | dt.time) -> str:
    if value.tzinfo is not None:
        raise InvalidType(f"{full_name(value)} with a time zone has no exact form in JSON; use pandas.Timestamp")
    return value.isoformat()


def _pandas(name: str) -> Any:
    """A class of pandas, which whoever has its values or reads them has imported."""
    return getattr(sys.modules["pandas"], name)


def _count(value: Any) -> list[Any]:
    """The count and the unit of a Timestamp or a Timedelta."""
    return [int(value.asm8.astype(np.int64)), value.unit]


def _moment(value: Any) -> list[Any]:
    return [*_count(value), None if value.tz is None else zone_name(value.tz)]


def _read_moment(parts: Any) -> Any:
    moment = _pandas("Timestamp")(np.datetime64(parts[0], parts[1]))
    return moment if parts[2] is None else moment.tz_localize("UTC").tz_convert(parts[2])


_FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "float": (repr, float),
    "tuple": (lambda value: to_json(list(value)), lambda parts: tuple(from_json(parts))),
    "set": (lambda value: to_json(list(value)), lambda parts: set(from_json(parts))),
    "dict": (
        lambda value: [to_json(list(item)) for item in value.items()],
        lambda parts: dict(map(from_json, parts)),
    ),
    "bytes": (bytes.hex, bytes.fromhex),
    "date": (dt.date.isoformat, dt.date.fromisoformat),
    "time": (_aware, dt.time.fromisoformat),
    "datetime": (_aware, dt.datetime.fromisoformat),
    "timedelta": (lambda value: [value.days, value.seconds, value.microseconds], lambda parts: dt.timedelta(*parts)),
    "Decimal": (str, decimal.Decimal),
    "UUID": (str, uuid.UUID),
    "Timestamp": (_moment, _read_moment),
    "Timedelta": (_count, lambda parts: _pandas("Timedelta")(np.timedelta64(*parts))),
    "Period": (
        lambda value: [value.ordinal, value.freqstr],
        lambda parts: _pandas("Period")(ordinal=parts[0], freq=parts[1]),
    ),
    "Interval": (
        lambda value: [to_json(value.left), to_json(value.right), value.closed],
        lambda parts: _pandas("Interval")(from_json(parts[0]), from_json(parts[1]), parts[2]),
    ),
    "NaTType": (lambda value: None, lambda parts: _pandas("NaT")),
    "NAType": (lambda value: None, lambda parts: _pandas("NA")),
}
"""How values of a class are written and read, by the name of the class."""

_MODULES = {"builtins", "datetime", "decimal", "_decimal", "uuid", "pandas"}
