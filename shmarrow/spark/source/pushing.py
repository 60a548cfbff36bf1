"""Filters of Spark's, as filters of a scan, where both leave the same rows.

Invariants:

* a filter that is translated is exact: Spark does not look at the rows again. What has no exact form is left to Spark;
* to Spark, NaN equals itself and is greater than all numbers, and both zeros are equal except within longer lists.
"""

from __future__ import annotations

from typing import Any

from shmarrow.errors import ShmarrowError
from shmarrow.scans.filters import parse
from shmarrow.types import FloatType, Schema

_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
    "IsNotNull": "not in",
}
_NEGATED = {"EqualTo": "!=", "In": "not in"}


def translated(filter: Any, schema: Schema) -> list[list[tuple[str, str, Any]]] | None:
    """Return a filter of ``pyspark.sql.datasource`` as one of :func:`shmarrow.scan`; None if there is no exact form.

    Parameters
    ----------
    filter : pyspark.sql.datasource.Filter
        The filter.
    schema : Schema
        The columns of the read.
    """
    operators = _OPERATORS
    if type(filter).__name__ == "Not":
        filter, operators = filter.child, _NEGATED
    op = operators.get(type(filter).__name__)
    if op is None or len(filter.attribute) != 1:
        return None
    (name,) = filter.attribute
    given = getattr(filter, "value", ())  # IsNotNull has none: a value that is not in an empty list is not null
    values = [value for value in given if value is not None or op == "not in"] if "in" in op else [given]
    is_float = isinstance(schema.field(name).type, FloatType)
    if is_float and any(value != value or ("in" in op and value == 0) for value in values):
        return None
    made = [[(name, op, values if "in" in op else given)]]
    if is_float and op in (">", ">="):
        made.append([(name, "in", [float("nan")])])
    try:
        parse(made, schema)
    except ShmarrowError:
        return None
    return made
