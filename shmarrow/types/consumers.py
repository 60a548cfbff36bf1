# SPDX-License-Identifier: Apache-2.0
"""The types that other tools accept, and the casts of all others: one table of rules per consumer.

A consumer accepts every type without a rule. The first matching rule applies, at any depth, children first. The tests
pass every type to every consumer and check the rules against the installed versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from shmarrow.types import nested, primitive
from shmarrow.types.base import DataType
from shmarrow.types.extension import ExtensionType


class Rule(NamedTuple):
    """A cast of types of some kinds.

    Attributes
    ----------
    kinds : str
        Kinds of types, separated by spaces; see :func:`kind_of`.
    becomes : callable or None
        Returns the new type for the old one; None if the consumer has no such type.
    shown : str
        The new type, in words.
    when : callable
        Which types of these kinds it applies to.
    which : str
        The same in words.
    lossy : bool
        True if values always lose something, so that the caller must allow the rule.
    loses : str
        What is lost: always by a lossy rule, otherwise if a value does not fit.
    through : callable or None
        An intermediate type that the values must fit, if the new type has more digits than the consumer keeps.
    inside : bool
        True if the rule applies only within other types.
    """

    kinds: str
    becomes: Callable[[Any], DataType] | None
    shown: str = ""
    when: Callable[[Any], bool] = lambda type: True
    which: str = ""
    lossy: bool = False
    loses: str = ""
    through: Callable[[Any], DataType] | None = None
    inside: bool = False


@dataclass(frozen=True)
class Consumer:
    """A consumer and its rules; it accepts all types without a rule."""

    title: str
    rules: tuple[Rule, ...]
    extensions: frozenset[str] = frozenset()
    """Names of the extension types that it supports; others are replaced by their storage types."""
    nested_extensions: bool = True
    """Whether it supports them within other types, too."""
    unique_names: bool = False
    """Whether the names of columns, and of fields of a struct, must be unique."""
    some_column: bool = False
    """Whether at least one column is required."""
    distinct: bool = False
    """Whether dictionaries must not contain nulls or duplicates."""


# --- kinds ------------------------------------------------------------------------------------------------------

_FIXED = {"FixedSizeList": "fixed_size_list", "FixedSizeBinary": "fixed_size_binary"}


def kind_of(type: Any) -> str:
    """Return the kind of a type: the name of its factory function, such as ``timestamp``."""
    if isinstance(type, ExtensionType):
        return type.extension_name
    if type.layout.endswith("_union"):
        return str(type.layout)
    descriptor = type.descriptor
    name: str = _FIXED.get(descriptor.member) or descriptor.factory.format(t=type)
    return name.rstrip("_")


_PLAIN = {"string", "large_string", "binary", "large_binary"}
_TEXT = {"string", "large_string", "string_view"}


# --- rules that consumers share ---------------------------------------------------------------------------------


def _plain(type: Any) -> DataType:
    """Return the equivalent type without views."""
    kind = kind_of(type)
    if kind == "list_view":
        return nested.list_(type.value_field)
    if kind == "large_list_view":
        return nested.large_list(type.value_field)
    return primitive.string() if kind == "string_view" else primitive.binary()


def _as_list(type: Any) -> DataType:
    return nested.list_(type.value_field)


def _values(type: Any) -> DataType:
    return type.value_type


def _to(type: DataType) -> Callable[[Any], DataType]:
    return lambda _: type


def _with_unit(unit: str) -> Callable[[Any], DataType]:
    def become(type: Any) -> DataType:
        kind = kind_of(type)
        if kind == "timestamp":
            return primitive.timestamp(unit, type.tz)
        return primitive.duration(unit) if kind == "duration" else primitive.time64(unit)

    return become


def _finer(type: Any) -> bool:
    return bool(type.unit == "ns")


def _is_decimal128(type: Any) -> bool:
    return bool(0 <= type.scale <= 38)


def _whole(type: Any) -> DataType:
    return primitive.decimal128(type.precision - type.scale, 0)


def _nullable_fields(type: Any) -> DataType:
    return nested.struct([field.with_nullable(True) for field in type.fields])


_REQUIRED_FIELDS = Rule(  # their slots are null if the struct is null, which not all tools accept
    "struct", _nullable_fields, "the same with nullable fields",
    lambda t: not all(field.nullable for field in t.fields), "with fields that are not nullable",
)  # fmt: skip
_VIEWS = Rule("string_view binary_view", _plain, "string, binary")
_LIST_VIEWS = Rule("list_view large_list_view", _plain, "list, large_list")
_RUNS = Rule("run_end_encoded", _values, "the type of the values")
_UNIONS = Rule("dense_union sparse_union", None)
_INTERVALS = Rule("month_interval day_time_interval", None)
_ALL_INTERVALS = Rule("month_interval day_time_interval month_day_nano_interval", None)
_HALF = Rule("float16", _to(primitive.float32()), "float32")
_NO_WIDTH = Rule("fixed_size_binary", _to(primitive.binary()), "binary", lambda t: t.width == 0, "of width 0")
_NO_ITEMS = Rule("fixed_size_list", _as_list, "list", lambda t: t.list_size == 0, "of size 0")
_WIDE_DECIMALS = (
    Rule("decimal256", _to(primitive.float64()), "float64", lossy=True, loses="digits beyond a float's precision"),
    Rule(
        "decimal256", lambda t: primitive.decimal128(38, t.scale), "decimal128(38, scale)", _is_decimal128,
        "with a scale of 0 to 38", loses="more than 38 digits",
    ),
    Rule("decimal256", None, which="with another scale, unless named in `lossy`"),
)  # fmt: skip
_NEGATIVE_SCALE = (
    Rule(
        "decimal32 decimal64 decimal128", _whole, "decimal128(precision - scale, 0)",
        lambda t: t.scale < 0 and t.precision - t.scale <= 38, "with a negative scale",
    ),
    Rule(
        "decimal32 decimal64 decimal128", _to(primitive.float64()), "float64",
        lambda t: not 0 <= t.scale <= t.precision,
        "whose scale is not between 0 and the precision", lossy=True, loses="digits beyond a float's precision",
    ),
    Rule(
        "decimal32 decimal64 decimal128", None, when=lambda t: not 0 <= t.scale <= t.precision,
        which="with such a scale, unless named in `lossy`",
    ),
)  # fmt: skip


def _decoded(kinds: set[str], which: str) -> Rule:
    """Return the rule that decodes dictionaries of all but some kinds of values."""
    return Rule("dictionary", _values, "the type of the values", lambda t: kind_of(t.value_type) not in kinds, which)


_NUMBERS = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
}  # fmt: skip
_MOMENTS = {"date32", "date64", "time32", "time64", "timestamp", "duration"}
_DECIMALS = {"decimal32", "decimal64", "decimal128", "decimal256"}
_FLAT = _NUMBERS | _MOMENTS | _DECIMALS | _PLAIN | _TEXT | {"binary_view", "fixed_size_binary", "null"}
_OF_NESTED = "of nested values, or of dictionaries or runs"


def _over_plain(type: Any) -> DataType:
    return nested.dictionary(type.index_type, _plain(type.value_type), type.ordered)


def _of_binary(type: Any) -> DataType:
    fields = [field.with_type(primitive.binary()) for field in type.fields]
    if type.layout == "fixed_size_list":
        return nested.list_(fields[0], type.list_size)
    return (nested.large_list if type.layout.startswith("large") else nested.list_)(fields[0])


_DICTIONARY_OF_VIEWS = Rule(
    "dictionary", _over_plain, "a dictionary of plain values",
    lambda t: kind_of(t.value_type) in ("string_view", "binary_view"), "of views",
)  # fmt: skip

CONSUMERS: dict[str, Consumer] = {
    "spark": Consumer(
        "Spark",
        (
            Rule("uint8", _to(primitive.int16()), "int16"),
            Rule("uint16", _to(primitive.int32()), "int32"),
            Rule("uint32", _to(primitive.int64()), "int64"),
            Rule("uint64", _to(primitive.decimal128(20, 0)), "decimal128(20, 0)"),
            _HALF,
            *_NEGATIVE_SCALE,
            Rule("decimal32 decimal64", lambda t: primitive.decimal128(t.precision, t.scale), "decimal128"),
            *_WIDE_DECIMALS,
            Rule("date64", _to(primitive.date32()), "date32", loses="times of day"),
            Rule("time32", _with_unit("ns"), "time64[ns]"),
            Rule(
                "time64", _with_unit("ns"), "time64[ns], whole microseconds", _finer, "of nanoseconds",
                loses="fractions of a microsecond", through=_with_unit("us"),
            ),
            Rule("time64", _with_unit("ns"), "time64[ns]"),
            Rule(
                "timestamp duration", _with_unit("us"), "the same in microseconds", lambda t: t.unit != "us",
                "of other units than microseconds", loses="fractions of a microsecond",
            ),
            Rule("day_time_interval month_day_nano_interval", None),
            Rule("fixed_size_binary", _to(primitive.binary()), "binary"),
            _VIEWS,
            Rule("large_list fixed_size_list list_view large_list_view", _as_list, "list"),
            _REQUIRED_FIELDS,
            _RUNS,
            Rule("dictionary", _values, "the type of the values"),
            _UNIONS,
        ),
    ),
    "polars": Consumer(
        "Polars",
        (
            *_NEGATIVE_SCALE,
            Rule("decimal32 decimal64", lambda t: primitive.decimal128(t.precision, t.scale), "decimal128"),
            *_WIDE_DECIMALS,
            Rule("date64", _to(primitive.date32()), "date32", loses="times of day"),
            Rule(
                "timestamp", lambda t: primitive.timestamp(t.unit, "UTC"), "the same in UTC",
                lambda t: t.tz is not None and t.tz[:1] in "+-", "with an offset as time zone", lossy=True,
                loses="the offset",
            ),
            Rule(
                "timestamp", None, when=lambda t: t.tz is not None and t.tz[:1] in "+-",
                which="with an offset, unless named in `lossy`",
            ),
            _ALL_INTERVALS,
            _NO_WIDTH,
            _NO_ITEMS,
            _LIST_VIEWS,
            _RUNS,
            _decoded(_TEXT, "of other values than text"),
            _UNIONS,
        ),
        unique_names=True,
    ),
    "duckdb": Consumer(
        "DuckDB",
        (
            _HALF,
            *_NEGATIVE_SCALE,
            *_WIDE_DECIMALS,
            Rule(
                "timestamp", _with_unit("us"), "the same in microseconds", lambda t: t.tz is not None and _finer(t),
                "of nanoseconds, with a time zone", loses="fractions of a microsecond",
            ),
            Rule(
                "duration", _with_unit("us"), "duration[us]", _finer, "of nanoseconds",
                loses="fractions of a microsecond",
            ),
            Rule("month_day_nano_interval", lambda t: t, "itself", lossy=True, loses="fractions of a microsecond"),
            _INTERVALS,
            _NO_ITEMS,
            Rule(
                "run_end_encoded", _values, "the type of the values", lambda t: kind_of(t.value_type) not in _FLAT,
                _OF_NESTED,
            ),
            _decoded(_FLAT, _OF_NESTED),
            Rule(
                "dense_union sparse_union", lambda t: nested.sparse_union(t.fields), "sparse_union with codes from 0",
                lambda t: t.mode == "dense" or tuple(t.type_codes) != tuple(range(len(t.fields))),
                "that are dense, or have other codes than 0, 1, 2 and so on",
            ),
        ),
        extensions=frozenset({"arrow.uuid", "arrow.bool8", "arrow.json"}),
        some_column=True,
    ),
    "pandas": Consumer(
        "pandas",
        (
            Rule(
                "list large_list fixed_size_list list_view large_list_view", _of_binary, "lists of binary",
                lambda t: kind_of(t.value_type) == "fixed_size_binary", "of fixed_size_binary",
            ),
            _VIEWS,
            _LIST_VIEWS,
            _RUNS,
            _DICTIONARY_OF_VIEWS,
            _decoded(_FLAT, _OF_NESTED),
            _INTERVALS,
            _UNIONS,
        ),
        extensions=frozenset({"arrow.uuid"}),
        nested_extensions=False,
        distinct=True,
    ),
    "parquet": Consumer(
        "Parquet, as pyarrow writes it",
        (
            *_NEGATIVE_SCALE,
            _ALL_INTERVALS,
            _NO_WIDTH,
            _NO_ITEMS,
            _REQUIRED_FIELDS,
            Rule("struct", None, when=lambda t: not t.fields, which="without fields"),
            _RUNS,
            _DICTIONARY_OF_VIEWS,
            _decoded(_FLAT, _OF_NESTED),
            _UNIONS,
        ),
        distinct=True,
        extensions=frozenset({
            "arrow.uuid", "arrow.bool8", "arrow.json", "arrow.fixed_shape_tensor", "arrow.opaque",
        }),
    ),
}  # fmt: skip
"""The consumers by name."""

RULES: dict[str, dict[str, list[Rule]]] = {
    name: {
        kind: [rule for rule in consumer.rules if kind in rule.kinds.split()]
        for kind in " ".join([rule.kinds for rule in consumer.rules]).split()
    }
    for name, consumer in CONSUMERS.items()
}
"""The rules of each consumer by kind of type."""

LOSSY: dict[str, dict[str, str]] = {
    name: {kind: rule.loses for rule in reversed(consumer.rules) if rule.loses for kind in rule.kinds.split()}
    for name, consumer in CONSUMERS.items()
}
"""The kinds of types whose values may lose something for each consumer, and what they lose."""

KINDS = _FLAT | {"list", "map"} | {kind for rules in RULES.values() for kind in rules}
"""All kinds of types."""
