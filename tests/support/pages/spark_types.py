"""The page ``docs/spark-types.md``: Arrow's types in Spark, and Spark's in Arrow.

``make docs`` writes it. Invariants: what Arrow's types become is asked of the data source,
what Spark's become of Spark itself; the tests of the source send the same types through Spark.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from cases.table import CASES
from environment import ROOT

import shmarrow as sa
from shmarrow.column_names import checked_schema
from shmarrow.spark.types import spark_struct, unwrapped
from shmarrow.types.consumers import RULES, kind_of

PAGE = ROOT / "docs" / "spark-types.md"

TEXT = """\
# Types: Arrow and Spark

<!-- Made by tests/support/pages/spark_types.py from what the source and Spark say, by `make docs`. -->

## Arrow's types in Spark

How `spark.read.format("shmarrow")` maps each type. Values are never changed: one that does not fit is an error that
names the column and the value. A type with no Spark counterpart raises an error at planning time;
`.option("columns", ...)` chooses other columns. Dictionaries and runs become their values, and nested types are made of
these:

{to_spark}

Also:

- Extension types are read as their storage, `arrow.bool8` as `boolean`. `variant`, `geometry` and `geography` come from
  structs that Spark has written, which it marks in the metadata of their fields.
- Columns, fields and elements are nullable, as in all files that Spark reads.
- Time zones of timestamps are dropped; the moments stay. Spark shows them in the zone of its session.
- The metadata that Spark keeps for a column are restored.
- Two columns of one name, or two fields of one struct, are refused, as Spark cannot read them from a Python data
  source. Names that differ in case only are read.

## Spark's types in Arrow

What Spark sends to Python and expects from it, as `to_arrow_schema(schema, timezone="UTC")` says, and what such a
column is when it is read back.

{to_arrow}

`share` gets the same types, but timestamps in the time zone of the session, and `large_string` and `large_binary` where
`spark.sql.execution.arrow.useLargeVarTypes` is set.

## Exceptions

- **Year-month intervals**: Spark's Python side has no Arrow type for them. A file's column of such intervals is read as
  `int`, the number of months; `make_ym_interval(0, months)` makes intervals of it again. Neither `share` nor a write
  takes them: cast them to `int` first.
- **Calendar intervals** cannot be sent to Python at all. Arrow's month-day-nano intervals are unsupported for the same
  reason.
- **User-defined types** come back as what they are made of. A null vector of `pyspark.ml`, whose type has fields that
  are not nullable, fails in Spark's own `toArrow` and on the way back from Python.
- **Collations** are lost on the way to Arrow; `.schema(df.schema)` restores them, and user-defined types.
"""


def _leaves(type: Any) -> Iterator[Any]:
    """The types of which values a type is made."""
    type = unwrapped(type)
    if not type.fields:
        yield type
    for field in type.fields:
        yield from _leaves(field.type)


def _loss(type: Any) -> str:
    """Say which values Spark's type does not hold, for a type without children."""
    rules = [rule for rule in RULES["spark"].get(kind_of(type), ()) if rule.when(type)]
    if not rules or not rules[0].loses or (getattr(type, "unit", "ns") in ("s", "ms") and kind_of(type) != "date64"):
        return ""
    return f"{next((rule.loses for rule in rules if rule.loses and not rule.lossy), rules[0].loses)}: refused"


def _in_spark(type: Any) -> str:
    """Spark's type for one of Arrow's, as SQL writes it."""
    return spark_struct(sa.schema([("x", type)]))[0].dataType.simpleString()


def to_spark() -> Iterator[tuple[str, list[str]]]:
    """Arrow's types, what they are in Spark, and what may be lost, without those that are made of others."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in CASES:
        name = f"`{case.type}`"
        if name.count("<") > 1 or re.match("spec-|odd-|struct-duplicate|dictionary-|ree-", case.name):
            continue
        try:
            shown = f"`{_in_spark(case.type)}`"
            losses = "; ".join(dict.fromkeys(filter(None, map(_loss, _leaves(case.type)))))
        except sa.Unsupported:
            shown, losses = "unsupported", ""
        names = found.setdefault((shown, losses), [])
        if name not in names:
            names.append(name)
    for (shown, losses), names in found.items():
        yield ", ".join(names), [shown, losses]


def spark_types() -> list[tuple[str, Any]]:
    """Types of Spark's, with what they are called."""
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import types as t

    plain = [
        t.NullType(), t.BooleanType(), t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType(), t.FloatType(),
        t.DoubleType(), t.DecimalType(10, 2), t.StringType(), t.StringType("UNICODE_CI"),
        t.BinaryType(), t.DateType(), t.TimestampType(), t.TimestampNTZType(), t.TimeType(0), t.TimeType(6),
        t.DayTimeIntervalType(), t.YearMonthIntervalType(), t.CalendarIntervalType(), t.ArrayType(t.LongType()),
        t.ArrayType(t.LongType(), False), t.MapType(t.StringType(), t.LongType()),
        t.StructType([t.StructField("x", t.LongType()), t.StructField("y", t.StringType(), False)]),
        t.VariantType(), t.GeometryType(4326), t.GeographyType(4326),
    ]  # fmt: skip
    named = [(each.simpleString(), each) for each in plain]
    return [*named, ("vector of pyspark.ml", VectorUDT())]


def to_arrow() -> Iterator[tuple[str, list[str]]]:
    """Spark's types, what they are in Arrow, and what they are when they are read back."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    for name, kind in spark_types():
        try:
            made = checked_schema(to_arrow_schema(StructType().add("c", kind), timezone="UTC"))
        except PySparkException:
            yield f"`{name}`", ["none", ""]
            continue
        yield f"`{name}`", [f"`{made.field(0).type}`", f"`{_in_spark(made.field(0).type)}`"]


def table(rows: Iterator[tuple[str, list[str]]], *heads: str) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)])


def page() -> str:
    """The text of the page."""
    return TEXT.format(
        to_spark=table(to_spark(), "Arrow", "Spark", "what may not fit"),
        to_arrow=table(to_arrow(), "Spark", "Arrow", "read back as"),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
