"""Casts compared with pyarrow's: samples of every type, what differs and why, and the page that says so.

Invariants:

* a cast of one value gives the same value here and in pyarrow, or is refused by both, or :data:`DEVIATIONS` has a line
  for it; lines that nothing needs are mistakes too;
* values are compared by their storage, so that nothing that Python values hide is lost;
* ``make docs`` writes the tables of docs/casts.md, and a test checks that they are up to date.
"""

from __future__ import annotations

import decimal
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from environment import ROOT
from marked import filled, table

import shmarrow as sa

PAGE = ROOT / "docs" / "casts.md"

# --- samples ----------------------------------------------------------------------------------------------------

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MOST = (1 << 63) - 1
_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 1.5, 0.1, 65504.0, 65520.0, 2049.0, 16777217.0, 1e10, 9007199254740992.0,
    9223372036854775808.0, -9223372036854775808.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
_ENTRIES = pa.struct([("key", pa.string()), ("value", pa.int8())])


def _integers(bits: int, signed: bool) -> list[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    some = (-1, 0, 1, 127, 128, 255, 2049, 65504, 86399, 86400000, (1 << 24) + 1, 1700000000, (1 << 53) + 1)
    return [low, *[number for number in some if low < number < high], high]


def _decimals(type: Any) -> list[Decimal]:
    most = 10**type.precision - 1
    numbers = {0, 1, -1, 100, 12345, most, -most, 10 ** min(max(type.scale, 0), type.precision - 1)}
    with decimal.localcontext(decimal.Context(prec=100)):
        return [Decimal(number).scaleb(-type.scale) for number in sorted(numbers)]


def _times() -> Iterator[tuple[Any, list[int]]]:
    days = [0, -1, 1, 19000, -719162, 2932896, (1 << 31) - 1, -(1 << 31)]
    yield pa.date32(), days
    yield pa.date64(), [86_400_000 * day for day in [*days, 1 << 31]]
    for unit, each in UNITS.items():
        make = pa.time32 if each <= 10**3 else pa.time64
        yield make(unit), [0, 1, each, 86399 * each, 86400 * each - 1, 43200 * each + each // 2]
        yield pa.duration(unit), [0, 1, -1, each, 1000 * each, 86400 * each, MOST, -MOST]
        for zone in (None, "UTC", "America/New_York"):
            years = [] if unit == "ns" else [-62135596800 * each, 253402300799 * each]
            seconds = [0, 1, 86400, -86400, 1_700_000_000, 1_720_000_000]
            near = [1, -1, 86400 * each + 1, 1_700_000_000 * each + each // 2]
            yield pa.timestamp(unit, zone), [*[each * second for second in seconds], *near, *years, MOST, -MOST]


def _samples() -> Iterator[tuple[Any, Any]]:
    """Types and values of them; integers where they stand for times."""
    yield pa.bool_(), [True, False]
    for bits in (8, 16, 32, 64):
        yield getattr(pa, f"int{bits}")(), _integers(bits, True)
        yield getattr(pa, f"uint{bits}")(), _integers(bits, False)
    yield pa.float16(), [np.float16(value) for value in _FLOATS if abs(value) < 65520 or value - value != 0]
    yield pa.float32(), [value for value in _FLOATS if abs(value) != 1e300]
    yield pa.float64(), _FLOATS
    for type in (
        pa.decimal32(9, 2), pa.decimal32(5, 0), pa.decimal64(18, 5), pa.decimal128(38, 10), pa.decimal128(5, -3),
        pa.decimal128(20, 0), pa.decimal256(76, 20),
    ):  # fmt: skip
        yield type, _decimals(type)
    yield from _times()
    yield pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3])]
    yield pa.binary(3), [b"abc", b"\xff\xfe\xfd", "é1".encode()]
    yield pa.binary(4), [b"abcd"]
    yield pa.binary(16), [b"1" * 16]
    for name in ("binary", "large_binary", "binary_view"):
        yield getattr(pa, name)(), [b"", b"abc", b"\xff", b"abcd", "é1".encode(), b"x" * 40]
    for name in ("string", "large_string", "string_view"):
        yield getattr(pa, name)(), ["", "abc", "é1", "abcd", "x" * 40, "1"]
    yield pa.null(), []
    for make in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        yield make(pa.int16()), [[], [1, None], [300, 2]]
        yield make(pa.int8()), [[], [1, None], [1, 2, 3]]
    yield pa.list_(pa.int16(), 2), [[1, None], [300, 2]]
    yield pa.list_(pa.int8(), 3), [[1, None, 3]]
    yield pa.struct([("a", pa.int16()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None}, {"a": 300, "b": ""}]
    yield pa.struct([("b", pa.string()), ("a", pa.int8())]), [{"a": 1, "b": "x"}, {"a": None, "b": None}]
    yield pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": None}]
    yield pa.struct([pa.field("a", pa.int16(), nullable=False)]), [{"a": 1}]
    yield pa.map_(pa.string(), pa.int16()), [[], [("b", 1), ("a", None)], [("a", 300)]]
    yield pa.map_(pa.string(), pa.int8()), [[], [("a", 1), ("b", None)]]
    yield pa.map_(pa.string(), pa.int8(), keys_sorted=True), [[], [("a", 1), ("b", None)]]
    yield pa.list_(_ENTRIES), [[], [{"key": "a", "value": 1}], [{"key": None, "value": 1}]]
    yield pa.dictionary(pa.int8(), pa.string()), ["", "abc", "é1"]
    yield pa.dictionary(pa.int32(), pa.large_string()), ["", "abc", "é1"]
    yield pa.dictionary(pa.int16(), pa.int16()), [1, 300]
    yield pa.dictionary(pa.int16(), pa.int8()), [1, 3]
    yield pa.run_end_encoded(pa.int32(), pa.int16()), [1, 300]
    yield pa.run_end_encoded(pa.int16(), pa.int8()), [1, 3]
    yield pa.uuid(), [b"1" * 16]
    yield pa.bool8(), [1, 0]
    yield pa.json_(), ["1", "null", '{"a": 2}']


def build(type: Any, values: Sequence[Any]) -> Any:
    """A pyarrow array of values, which for times are the integers in their storage."""
    if isinstance(type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type, build(type.storage_type, values))
    if pa.types.is_dictionary(type):
        keys = pa.array([None if value is None else i for i, value in enumerate(values)], type.index_type)
        return pa.DictionaryArray.from_arrays(keys, pa.array(values, type.value_type))
    if pa.types.is_run_end_encoded(type):
        ends = pa.array(range(1, len(values) + 1), type.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, type.value_type))
    if pa.types.is_temporal(type) and not pa.types.is_interval(type):
        return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    return pa.array(values, type)


SAMPLES: dict[str, tuple[Any, list[Any]]] = {str(type): (type, [*values, None]) for type, values in _samples()}
"""Types of pyarrow by name, with values of each and a null."""


@functools.cache
def peer_type(name: str) -> Any:
    """The same type of this package."""
    return sa.array(build(*SAMPLES[name])).type


# --- kinds ------------------------------------------------------------------------------------------------------

_PREFIXES = {
    "bool": "bool", "int": "integer", "uint": "integer", "halffloat": "float", "float": "float", "double": "float",
    "decimal": "decimal", "date": "date", "time32": "time", "time64": "time", "timestamp": "timestamp",
    "duration": "duration", "month_day": "interval", "fixed_size_binary": "bytes", "binary": "bytes",
    "large_binary": "bytes", "string": "text", "large_string": "text", "null": "null", "list": "list",
    "large_list": "list", "fixed_size_list": "list", "struct": "struct", "map": "map", "dictionary": "dictionary",
    "run_end_encoded": "runs", "extension": "extension",
}  # fmt: skip
KINDS = tuple(dict.fromkeys(_PREFIXES.values()))
NUMBERS = ("bool", "integer", "float", "decimal")
TIMES = ("date", "time", "timestamp", "duration", "interval")
WORDS = ("bytes", "text")


def kind(type: Any) -> str:
    """Return the page's name for the kind of a pyarrow type."""
    name = str(type)
    return _PREFIXES[max((prefix for prefix in _PREFIXES if name.startswith(prefix)), key=len)]


def inner_kind(type: Any) -> str:
    """The same of the values that a dictionary, runs or an extension are made of."""
    while True:
        if isinstance(type, pa.BaseExtensionType):
            type = type.storage_type
        elif pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
            type = type.value_type
        else:
            return kind(type)


# --- what differs -----------------------------------------------------------------------------------------------

OURS, THEIRS, DIFFER = "shmarrow refuses", "pyarrow refuses", "values differ"
BOTH = (True, False)


@dataclass(frozen=True)
class Deviation:
    """A reason why casts from some kinds to others differ from pyarrow's.

    ``pattern`` is found in the message of the side that refuses; ``safe`` says under which value of that argument.
    """

    side: str
    sources: Sequence[str]
    targets: Sequence[str]
    reason: str
    pattern: str = ""
    safe: Sequence[bool] = BOTH
    shown: str = field(default="")
    """The kinds as the page shows them, where they are many."""

    def covers(self, source: Any, target: Any, safe: bool, side: str, message: str) -> bool:
        kinds = inner_kind(source), inner_kind(target)
        return (
            side == self.side
            and safe in self.safe
            and kinds[0] in self.sources
            and kinds[1] in self.targets
            and re.search(self.pattern, message) is not None
        )


SAFE, UNSAFE = (True,), (False,)
_NO_FORMS = "there is no cast from"
_BEYOND = "not within|beyond|more than [0-9]+ digits"

DEVIATIONS = (
    Deviation(
        THEIRS, KINDS, KINDS, "pyarrow 26 has no such cast: views, runs, float16, and dictionaries of other values "
        "than text lack most of theirs", "Unsupported cast|No function|NotImplemented", shown="any → any",
    ),
    Deviation(
        OURS, (*NUMBERS, *TIMES), ("text",), "numbers and times are not written as text, which has many forms",
        _NO_FORMS, shown="number, time → text",
    ),
    Deviation(
        OURS, WORDS, (*NUMBERS, *TIMES), "text is not parsed", _NO_FORMS, shown="text, bytes → number, time",
    ),
    Deviation(
        OURS, KINDS, ("null",), "pyarrow gives nulls for the values of a dictionary, which are lost", _NO_FORMS,
        shown="dictionary → null",
    ),
    Deviation(
        OURS, NUMBERS, ("bool",), "pyarrow makes true of every number but 0", "neither 0 nor 1|not within", SAFE,
    ),
    Deviation(
        OURS, ("timestamp",), ("date", "time"), "pyarrow goes on with the last rules of a time zone beyond the years 1 "
        "to 9999", "time zones are known",
    ),
    Deviation(OURS, ("timestamp",), ("date",), "pyarrow drops the time of day", "not midnight", SAFE),
    Deviation(OURS, ("timestamp",), ("time",), "pyarrow drops the date", "not on 1970-01-01", SAFE),
    Deviation(
        OURS, ("integer",), ("date", "time"), "pyarrow takes integers that no date64 and no time of day has",
        "whole number of days|a time must be within",
    ),
    Deviation(OURS, ("integer",), ("float",), "pyarrow does not check float16", "not exact as a 16-bit float", SAFE),
    Deviation(
        THEIRS, ("integer",), ("float",), "pyarrow refuses all integers beyond `2**24` or `2**53`, also those that are "
        "floats", "not in range", SAFE,
    ),
    Deviation(OURS, ("decimal",), ("float",), "pyarrow rounds to the nearest float", "float keeps", SAFE),
    Deviation(DIFFER, ("decimal",), ("float",), "pyarrow computes in floats and misses the nearest by a bit"),
    Deviation(OURS, ("decimal",), ("decimal",), "pyarrow cuts digits on the way to fewer bits", "more digits", SAFE),
    Deviation(
        THEIRS, ("decimal",), ("decimal",), "pyarrow refuses some values that fit, on the way to fewer bits",
        "data loss|not enough|does not fit", SAFE,
    ),
    Deviation(
        DIFFER, ("decimal",), ("decimal",), "pyarrow gives other numbers on the way to fewer bits (0.14 for 1)",
    ),
    Deviation(
        THEIRS, ("decimal",), ("integer",), "pyarrow compares with the range of the integer in the width of the "
        "decimal, where it may wrap", "Integer value out of bounds", SAFE,
    ),
    Deviation(OURS, ("float",), ("decimal",), "pyarrow rounds to the scale", "more digits", SAFE),
    Deviation(DIFFER, ("float",), ("decimal",), "pyarrow makes 16384 of 5e-324", safe=UNSAFE),
    Deviation(OURS, ("float",), ("float",), "pyarrow makes infinities of numbers", "beyond the range of a", SAFE),
    Deviation(
        THEIRS, ("bool", "integer"), ("decimal",), "pyarrow wants room for every integer of the type, whatever the "
        "values, and no negative scale", "Precision is not great enough|Scale must be non-negative",
    ),
    Deviation(
        OURS, ("struct",), ("struct",), "pyarrow drops the fields that the target does not name", "would be lost", SAFE,
    ),
    Deviation(
        OURS, ("map",), ("map",), "pyarrow says that keys are sorted that are not", "keys_sorted",
    ),
    Deviation(DIFFER, ("list",), ("list",), "pyarrow loses the items of the last list of a list view"),
    Deviation(
        THEIRS, ("list",), ("list",), "pyarrow misses the items of the last list of a list view", "the expected size",
    ),
    Deviation(
        THEIRS, ("list",), ("list",), "between fixed sizes pyarrow refuses nulls too", "Size of FixedSizeList",
    ),
    Deviation(
        OURS, KINDS, KINDS, "what is out of range is refused; pyarrow wraps, saturates or gives 0", _BEYOND, UNSAFE,
        shown="any → any",
    ),
    Deviation(
        DIFFER, ("timestamp",), ("date", "time"), "pyarrow wraps beyond the year 292277", safe=UNSAFE,
    ),
)  # fmt: skip


# --- comparing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """A refused cast, and why it was refused; all refusals are equal."""

    message: str = field(compare=False)
    by_type: bool = field(compare=False, default=False)


def canonical(array: Any) -> Any:
    """Values that are equal when their storage is, of an array of pyarrow."""
    if isinstance(array.type, pa.BaseExtensionType):
        return canonical(array.storage)
    if pa.types.is_dictionary(array.type):
        return canonical(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return canonical(pc.run_end_decode(array))
    if pa.types.is_floating(array.type):
        valid = array.is_valid().to_pylist()
        bits = np.frombuffer(array.buffers()[1] or b"", f"u{array.type.bit_width // 8}").tolist()
        return [bit if ok else None for bit, ok in zip(bits[array.offset :], valid, strict=False)]
    if pa.types.is_temporal(array.type) and not pa.types.is_interval(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    return array.to_pylist()


def ours(array: Any, target: Any, safe: bool) -> Any:
    """The values of our cast, which are valid, or a refusal."""
    try:
        made = array.cast(target, safe)
    except sa.ShmarrowError as error:
        return Refusal(f"{type(error).__name__}: {error}", isinstance(error, sa.InvalidType))
    assert made.type == target
    getattr(made, "storage", made).validate(full=True)  # whether text is JSON is no matter of the cast
    return canonical(made.to_pyarrow())


def theirs(array: Any, target: Any, safe: bool) -> Any:
    """The values of pyarrow's cast, or a refusal; text that is not UTF-8 is none."""
    try:
        return canonical(array.cast(target, safe=safe))
    except (pa.ArrowException, NotImplementedError, ValueError, TypeError) as error:
        return Refusal(f"{type(error).__name__}: {error}", isinstance(error, NotImplementedError))


def side_of(mine: Any, peer: Any) -> str | None:
    """Say which side alone refuses, or that values differ; None if neither."""
    if mine == peer:
        return None
    return OURS if isinstance(mine, Refusal) else THEIRS if isinstance(peer, Refusal) else DIFFER


@dataclass
class Pair:
    """The outcome of casting the values of one type to another."""

    refused: bool = False
    by_type: bool = False
    used: set[Deviation] = field(default_factory=set)
    unexplained: list[str] = field(default_factory=list)

    def note(self, source: Any, target: Any, safe: bool, value: Any, mine: Any, peer: Any) -> None:
        """Find the reason why results differ, if they do."""
        side = side_of(mine, peer)
        if side is None:
            return
        message = {OURS: mine, THEIRS: peer}.get(side, Refusal("")).message
        found = next((each for each in DEVIATIONS if each.covers(source, target, safe, side, message)), None)
        if found is None:
            self.unexplained.append(f"{source} -> {target}, safe={safe}: {value!r}: {side}: {mine}, pyarrow {peer}")
        else:
            self.used.add(found)


def both(source: Any, values: Sequence[Any]) -> tuple[Any, Any]:
    """An array of pyarrow, and the same here."""
    made = build(source, values)
    return made, sa.array(made)


def compare(source: Any, values: Sequence[Any], target: Any, ours_target: Any, safe: bool, whole: Any = None) -> Pair:
    """Cast all values at once, of which ``whole`` are the arrays, and one by one where that does not settle it."""
    pair = Pair()
    whole, own = whole or both(source, values)
    mine = ours(own, ours_target, safe)
    peer = theirs(whole, target, safe)
    pair.refused = isinstance(mine, Refusal)
    pair.by_type = isinstance(mine, Refusal) and mine.by_type
    if (pair.by_type and not isinstance(peer, Refusal)) or (isinstance(peer, Refusal) and peer.by_type):
        pair.note(source, target, safe, values, mine, peer)
    elif mine != peer or isinstance(mine, Refusal):
        for value in values:
            one, own = both(source, [value])
            mine, peer = ours(own, ours_target, safe), theirs(one, target, safe)
            pair.note(source, target, safe, value, mine, peer)
    return pair


@functools.cache
def pairs(safe: bool) -> dict[tuple[str, str], Pair]:
    """All pairs of types but those of equal ones."""
    arrays = {name: both(*sample) for name, sample in SAMPLES.items()}
    return {
        (source, target): compare(*SAMPLES[source], SAMPLES[target][0], peer_type(target), safe, arrays[source])
        for source in SAMPLES
        for target in SAMPLES
        if source != target
    }


# --- the page ---------------------------------------------------------------------------------------------------


def matrix() -> Iterator[tuple[str, ...]]:
    """A row for each kind that is cast, with those that it is cast to."""
    cells: dict[tuple[str, str], set[str]] = {}
    for (source, target), pair in pairs(True).items():
        sign = "–" if pair.by_type else "if" if pair.refused else "always"
        cells.setdefault((kind(SAMPLES[source][0]), kind(SAMPLES[target][0])), set()).add(sign)
    for source in KINDS:
        signs = {target: cells.get((source, target), {"always"}) - {"–"} for target in KINDS}
        fitting = [target for target in KINDS if "if" in signs[target]]
        always = [target for target in KINDS if signs[target] == {"always"}]
        everything = f"all but {', '.join(fitting)}" if fitting else "all"
        to = everything if len(always) + len(fitting) == len(KINDS) else ", ".join(always)
        yield source, to, ", ".join(fitting)


def page() -> str:
    """The whole page, with the tables as they should be."""
    deviations = [
        (
            each.shown or f"{', '.join(each.sources)} → {', '.join(each.targets)}",
            each.side,
            each.reason,
            "" if len(each.safe) == 2 else str(each.safe[0]),
        )
        for each in DEVIATIONS
    ]
    return filled(
        PAGE,
        pairs=table(("from", "to, always", "to, if the values fit"), matrix()),
        deviations=table(("cast", "what differs", "why", "`safe=`"), deviations),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
