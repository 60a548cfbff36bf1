"""``for_consumer``: every type of the shared table, cast for a tool, goes through that tool with equal values."""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
from cases import CASES, Case

import shmarrow as sa
from shmarrow.interchange.consumers import CONSUMERS

pa = pytest.importorskip("pyarrow")


# --- the tools --------------------------------------------------------------------------------------------------


def through_polars(table: Any) -> Any:
    pl = pytest.importorskip("polars")
    return pl.DataFrame(table).to_arrow()


@cache
def connection() -> Any:
    return pytest.importorskip("duckdb").connect(config={"threads": 1})


def through_duckdb(table: Any) -> Any:
    connection().register("given", table)
    return connection().sql("SELECT * FROM given").to_arrow_table()


def through_pandas(table: Any) -> Any:
    pd = pytest.importorskip("pandas")
    table.to_pandas()
    if any(pa.types.is_interval(type) or pa.types.is_null(type) for type in table.schema.types):
        return table
    return pa.Table.from_pandas(table.to_pandas(types_mapper=pd.ArrowDtype))


def through_parquet(table: Any) -> Any:
    pq = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(file)


def through_spark(table: Any) -> Any:
    """What ``createDataFrame`` does before it hands a table to the JVM."""
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    wanted = to_arrow_schema(from_arrow_schema(table.schema), timezone="UTC")
    return table.cast(wanted)


TOOLS: dict[str, Callable[[Any], Any]] = {
    "polars": through_polars,
    "duckdb": through_duckdb,
    "pandas": through_pandas,
    "parquet": through_parquet,
    "spark": through_spark,
}


def plain(value: Any) -> Any:
    """Values that are equal whatever type of integer, moment, list or map they were."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if hasattr(value, "nanoseconds") and not value.months:
        return dt.timedelta(value.days, microseconds=value.nanoseconds // 1000)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.astype(f"{value.dtype.kind}8[us]").item()
    return value


# --- what is refused --------------------------------------------------------------------------------------------

UNIONS = ["dense-union", "dense-union-codes", "sparse-union", "sparse-union-codes", "union-nested", "struct-union",
          "spec-dense-union", "spec-sparse-union", "odd-sparse-union-offset", "odd-dense-union-offset"]  # fmt: skip
INTERVALS = ["interval-month", "interval-day-time", "interval-month-day-nano"]
NOTHING_FOR = {
    "polars": [*UNIONS, *INTERVALS, "struct-duplicate-names", "timestamp-ms-offset"],
    "duckdb": INTERVALS,
    "pandas": [*UNIONS, "interval-month", "interval-day-time"],
    "parquet": [*UNIONS, *INTERVALS, "struct-no-fields"],
    "spark": [*UNIONS, "interval-day-time", "interval-month-day-nano"],
}
"""Cases whose type a tool does not have, unless something may be lost."""

NO_FIT = {
    "polars": ["decimal256"],
    "duckdb": ["decimal256"],
    "spark": ["decimal256"],
}
"""Cases with values that do not fit, unless something may be lost."""

LOST = {
    "polars": {"decimal256": "decimal256", "timestamp-ms-offset": "timestamp"},
    "duckdb": {"decimal256": "decimal256", "interval-month-day-nano": "month_day_nano_interval"},
    "spark": {"decimal256": "decimal256"},
}
"""What ``lossy`` has to name for them, for those that it helps."""


KNOWN = {
    "polars": ["odd-fixed-size-list-offset"],  # wants no items beyond the last list
}
"""Cases that a tool does not take for a reason other than their type."""


def of(case: Case, names: Iterable[str]) -> str | None:
    """The name that a case is of."""
    return next((name for name in names if re.fullmatch(f"{name}(-nulls|-all-null|-empty)?", case.name)), None)


SOME = [case for case in CASES if case.type.layout == "dictionary" or not case.name.endswith("-all-null")]


@pytest.mark.parametrize("name", TOOLS)
def test_every_type_goes_through_every_tool_with_equal_values(name: str) -> None:
    title, failures, helped = CONSUMERS[name].title, [], set()
    for case in SOME:
        array = case.array()
        kind = LOST.get(name, {}).get(of(case, LOST.get(name, {})) or "")
        try:
            cast = array.for_consumer(name)
            assert not of(case, NOTHING_FOR[name])
        except (sa.Unsupported, sa.InvalidData) as error:
            refused = NOTHING_FOR if isinstance(error, sa.Unsupported) else NO_FIT
            assert of(case, refused[name]), f"{case.name}: {error}"
            assert title in str(error)
            assert (f"lossy={kind!r}" if kind else "lossy") in str(error) or not kind
            if kind is None:
                continue
            helped.add(case.name)
            cast = array.for_consumer(name, lossy=kind)
        if name == "spark" and case.type == sa.month_interval():
            assert cast is array
            continue  # pyarrow cannot make it
        if of(case, KNOWN.get(name, ())):
            continue
        try:
            back = TOOLS[name](pa.table({"c": cast.to_pyarrow()})).column(0)
            found = plain(sa.ChunkedArray.from_pyarrow(back).to_pylist())
        except BaseException as error:  # Polars panics
            failures.append(f"{case.name}: {array.type} -> {cast.type}: {type(error).__name__} {str(error)[:300]}")
            continue
        wanted = plain(array.to_pylist())
        if case.name not in helped and found != wanted:
            failures.append(f"{case.name}: {array.type} -> {cast.type}: {found} is not {wanted}")
    assert not failures, "\n".join(failures)
    assert {of(CASES_BY_NAME[each], LOST.get(name, {})) for each in helped} == set(LOST.get(name, {}))


CASES_BY_NAME = {case.name: case for case in CASES}
