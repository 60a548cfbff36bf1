"""The page ``docs/spark-types.md``: Arrow's types in Spark, and Spark's in Arrow.

``make docs`` writes it. Invariants: what Arrow's types become is asked of the data source,
what Spark's become of Spark itself; the tests of the source send the same types through Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cases.table import CASES
from environment import ROOT
from marked import filled, table

import shmarrow as sa
from shmarrow.columns.names import checked_schema
from shmarrow.spark.types import spark_struct, unwrapped
from shmarrow.types.consumers import RULES, kind_of

PAGE = ROOT / "docs" / "spark-types.md"


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


def to_spark() -> Iterator[tuple[str, ...]]:
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
        yield ", ".join(names), shown, losses


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


def to_arrow() -> Iterator[tuple[str, ...]]:
    """Spark's types, what they are in Arrow, and what they are when they are read back."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    for name, kind in spark_types():
        try:
            made = checked_schema(to_arrow_schema(StructType().add("c", kind), timezone="UTC"))
        except PySparkException:
            yield f"`{name}`", "none", ""
            continue
        yield f"`{name}`", f"`{made.field(0).type}`", f"`{_in_spark(made.field(0).type)}`"


def page() -> str:
    """The whole page, with the tables as they should be."""
    return filled(
        PAGE,
        to_spark=table(("Arrow", "Spark", "what may not fit"), to_spark()),
        to_arrow=table(("Spark", "Arrow", "read back as"), to_arrow()),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
