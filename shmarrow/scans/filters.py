# SPDX-License-Identifier: Apache-2.0
"""Filters on rows, in the form that pyarrow has for Parquet, evaluated by array operations.

``[("x", ">", 1), ("y", "in", ["a", "b"])]`` keeps the rows that fulfil all conditions; a list of such lists keeps those
that fulfil all of any list. The operators are ``=`` or ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in`` and
``not in``, with a value; ``("x", "is null")`` and ``("x", "is not null")`` ask for nulls, of columns of any type.

Invariants:

* a value is converted to the type of its column once, when the filter is made, exactly or not at all;
* a null matches nothing, with ``!=`` and ``not in`` neither; NaN matches ``!=``, ``not in``, and a NaN in ``in``;
* a column is built when a condition on it is evaluated, and only if rows are left by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow.buffer import Mask
from shmarrow.build import array
from shmarrow.columns import several
from shmarrow.errors import InvalidArgument, InvalidType, ShmarrowError, at, shown
from shmarrow.layout import Array
from shmarrow.layout.order import OPERATORS, compare, is_in, ordered_type, plain_type
from shmarrow.types import DataType, Schema

_MEMBERSHIP = ("in", "not in")
_NULLS = ("is null", "is not null")
_ALTERNATIVES = 64
"""Alternatives of a filter that is made of others, beyond which it says nothing."""
_EXACT = 1 << 53
"""All integers below are the same number as a 64-bit float."""


class Condition(NamedTuple):
    """A condition on the values of one column.

    Attributes
    ----------
    column : int
        The position of the column in the schema of the scan.
    op : str
        The operator, ``"="`` for ``"=="``.
    values : Array
        The value, or the values of ``in`` and ``not in``, in the type of the column's values; none for null tests.
    """

    column: int
    op: str
    values: Any = None


Filter: TypeAlias = tuple[tuple[Condition, ...], ...]
"""Alternatives, of which a row has to fulfil one: conditions that all hold."""


class Bounds(NamedTuple):
    """What is known about the values of a column in each of several parts.

    Attributes
    ----------
    least, greatest : Array
        Bounds of the values of each part, without NaN; null where unknown.
    empty : bool ndarray
        Whether a part has no values but nulls.
    nulls, nan : bool ndarray
        Whether a part has nulls, or NaN.
    exact : bool
        Whether all values of a part equal both bounds.
    """

    least: Array
    greatest: Array
    empty: Mask
    nulls: Mask
    nan: Mask
    exact: bool = False


def parse(filters: Any, schema: Schema) -> Filter:
    """Check filters, and convert their values to the types of the columns.

    Raises
    ------
    InvalidArgument
        If they have another form or an unknown operator, or a value is null, as None and NaT are.
    FieldNotFound
        If a column does not exist.
    InvalidType
        If the type of a column has no order, or a value is of another kind.
    InvalidData
        If a column's type cannot hold a value.
    """
    items = several(filters, "filters such as [('x', '>', 1)]")
    if items and all(isinstance(item, list) for item in items):
        return tuple([_conjunction(item, schema) for item in items])
    return (_conjunction(items, schema),)


def _conjunction(items: Iterable[Any], schema: Schema) -> tuple[Condition, ...]:
    return tuple([_condition(item, schema) for item in items])


def _condition(item: Any, schema: Schema) -> Condition:
    if isinstance(item, tuple) and len(item) == 2 and item[1] in _NULLS:
        return Condition(schema.index_of(item[0]), item[1])
    if not isinstance(item, tuple) or len(item) != 3:
        form = "[('x', '>', 1), ('y', 'in', ['a', 'b']), ('z', 'is null')]"
        raise InvalidArgument(f"expected filters like {form}, or a list of such lists, found {shown(item)}")
    name, op, value = item
    op = "=" if op == "==" else op
    if op not in OPERATORS and op not in _MEMBERSHIP:
        raise InvalidArgument(f"expected one of {', '.join([*OPERATORS, *_MEMBERSHIP, *_NULLS])}, found {shown(op)}")
    column = schema.index_of(name)
    field = schema.field(column)
    with at("a filter on column", field.name):
        values = _listed(value, op) if op in _MEMBERSHIP else [value]
        converted = array(values, ordered_type(field.type))
        if converted.null_count:  # None, NaT, pandas' NA
            raise InvalidArgument(
                f"a null matches nothing, found {shown(value)}", hint=f"({name!r}, 'is null') asks for it"
            )
        return Condition(column, op, converted)


def _listed(value: Any, op: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise InvalidType(f"{op!r} needs a list of values, found {shown(value)}")
    return value.to_pylist() if hasattr(value, "to_pylist") else list(value)


def columns_of(filters: Iterable[Filter]) -> list[int]:
    """The positions of the columns that filters ask for."""
    return sorted({each.column for one in filters for conjunction in one for each in conjunction})


# --- rows ---------------------------------------------------------------------------------------------------------


def matching(filters: Iterable[Filter], column: Callable[[int], Array], num_rows: int) -> Mask:
    """Return which rows fulfil all filters; shape (num_rows,).

    Parameters
    ----------
    filters : iterable of Filter
        The filters.
    column : callable
        Returns a column by its position in the schema of the scan.
    num_rows : int
        Number of rows.
    """
    return _all_of(filters, lambda each: _matches(column(each.column), each), num_rows)


def _matches(values: Array, condition: Condition) -> Mask:
    if condition.op in _NULLS:
        nulls = values._logical_nulls()
        nulls = np.zeros(len(values), np.bool_) if nulls is None else nulls
        return nulls if condition.op == "is null" else ~nulls
    if condition.op == "in":
        return is_in(values, condition.values)
    if condition.op == "not in":
        missing = values._logical_nulls()
        found = ~is_in(values, condition.values)
        return found if missing is None else found & ~missing
    return compare(values, condition.op, condition.values)


def _all_of(filters: Iterable[Filter], ask: Callable[[Condition], Mask], count: int) -> Mask:
    """Combine the answers to all conditions; what cannot change the result is not asked."""
    result = np.ones(count, np.bool_)
    for one in filters:
        any_of = np.zeros(count, np.bool_)
        for conjunction in one:
            every = result.copy()
            for condition in conjunction:
                if every.any():
                    every &= ask(condition)
            any_of |= every
        result = any_of
    return result


# --- parts that may have such rows --------------------------------------------------------------------------------


def possible(filters: Iterable[Filter], bounds: Callable[[int], Bounds | None], count: int) -> Mask:
    """Return which of ``count`` parts may have rows that fulfil all filters, as far as bounds of their columns tell."""

    def ask(condition: Condition) -> Mask:
        known = bounds(condition.column)
        if known is None:
            return np.ones(count, np.bool_)
        return known.nulls if condition.op == "is null" else _possible(known, condition) & ~known.empty

    return _all_of(filters, ask, count)


def _possible(known: Bounds, condition: Condition) -> Mask:
    op, values = condition.op, condition.values
    if op == "is not null":
        return ~known.empty
    if op in ("<", "<="):
        return _may(known.least, op, values)
    if op in (">", ">="):
        return _may(known.greatest, op, values)
    if op in ("!=", "not in"):
        return _matches(known.least, condition) if known.exact else ~known.empty
    found = np.zeros(len(known.empty), np.bool_)
    for i in range(len(values)):
        value = values.slice(i, 1)
        nans = value._nans() if op == "in" else None
        found |= known.nan & (nans is not None and nans[0])
        found |= _may(known.least, "<=", value) & _may(known.greatest, ">=", value)
    return found


def _may(bounds: Array, op: str, value: Array) -> Mask:
    """Return where a bound fulfils a condition, or is unknown."""
    missing = bounds._logical_nulls()
    found = compare(bounds, op, value)
    return found if missing is None else found | missing


# --- what other libraries ask for ---------------------------------------------------------------------------------


def both(one: Filter | None, other: Filter | None) -> Filter | None:
    """What fulfils two filters, of which None says nothing."""
    if one is None or other is None or len(one) * len(other) > _ALTERNATIVES:
        return other if one is None else one
    return tuple([(*some, *more) for some in one for more in other])


def either(one: Filter | None, other: Filter | None) -> Filter | None:
    """What fulfils one of two filters, of which None says nothing."""
    return None if one is None or other is None or len(one) + len(other) > _ALTERNATIVES else one + other


def comparable(values: Array, type: DataType) -> Array | None:
    """Values in the type in which those of a column are compared; None if that might not be what a library compares.

    Whichever of the two types a library converts to the other, or both to a third, the comparison must be the same.
    """
    given, plain = plain_type(values.type), plain_type(type)
    kinds = {kind.descriptor.values for kind in (given, plain)}
    if kinds == {"integer", "float"}:
        numbers = values.cast(given).to_numpy(zero_copy_only=False)
        safe = bool(np.all(np.abs(numbers.astype(np.float64)) < _EXACT))
    else:
        safe = len(kinds) == 1 or kinds == {"date", "timestamp"} or kinds == {"integer", "decimal"}
        zones = [getattr(kind, "tz", None) is None for kind in (given, plain)]
        texts = [getattr(kind, "text", False) for kind in (given, plain)]
        safe = safe and len(set(zones)) == len(set(texts)) == 1
    if not safe:
        return None
    try:
        cast = values.cast(plain)
        ordered = cast.cast(ordered_type(type))
        exact = cast.cast(given).equals(values.cast(given))
    except ShmarrowError:
        return None
    return ordered if exact and not ordered.null_count else None


def together(batches: Iterable[Any], rows: int) -> Iterator[list[Any]]:
    """Batches that another library reads at once, of at least so many rows as long as there are more."""
    some: list[Any] = []
    count = 0
    for batch in batches:
        some.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield some
            some, count = [], 0
    if some:
        yield some
