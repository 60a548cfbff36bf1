"""Random queries over scans give what they give over Polars' own frame of the same rows.

Each query is a chain of steps in which limits, slices, filters and selections come in any order, or SQL with its WHERE
and LIMIT, also in subqueries. The scan has several files in directories, with statistics or without, and is asked by
both of Polars' engines, and by DuckDB where rows have no order to be lost.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmarrow as sa

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

NAN = float("nan")
ROWS = 60
ENGINES = ["in-memory", "streaming"]
Rng = np.random.Generator


def frame_of(rng: Rng) -> pl.DataFrame:
    """Rows whose values lie near each other in a batch, with nulls and NaN."""

    def some_null(values: list[Any]) -> list[Any]:
        return [None if rng.random() < 0.15 else value for value in values]

    start = dt.datetime(2024, 1, 1)
    floats = [NAN if rng.random() < 0.1 else i / 4 + rng.random() for i in range(ROWS)]
    columns = {
        "id": pl.Series(range(ROWS)),
        "i": pl.Series(some_null((np.arange(ROWS) // 3 + rng.integers(0, 3, ROWS)).tolist()), dtype=pl.Int64),
        "f": pl.Series(some_null(floats), dtype=pl.Float64),
        "s": pl.Series(some_null([chr(97 + i // 5) for i in range(ROWS)]), dtype=pl.String),
        "t": pl.Series(some_null([start + dt.timedelta(hours=i) for i in range(ROWS)]), dtype=pl.Datetime("us")),
    }
    return pl.DataFrame(columns).with_columns(k=pl.col("id") // (ROWS // 4))


def write(directory: Path, frame: pl.DataFrame, statistics: bool) -> sa.Scan:
    for (k,), part in frame.partition_by("k", as_dict=True, maintain_order=True).items():
        (directory / f"k={k}").mkdir(parents=True)
        table = sa.table(part.drop("k"))
        with sa.ipc.new_file(directory / f"k={k}" / "x.arrow", table.schema, statistics=statistics) as writer:
            writer.write_table(table, 4)
    return sa.scan(directory)


def one_of(rng: Rng, options: list[Any]) -> Any:
    return options[rng.integers(len(options))]


def literal(rng: Rng, name: str) -> Any:
    if name in ("id", "k", "i"):
        return int(rng.integers(-1, {"id": ROWS, "k": 4, "i": ROWS // 3}[name] + 1))
    if name == "f":
        return one_of(rng, [NAN, 0.0, 3.5, float(rng.integers(0, 16)), float("inf")])
    return (
        chr(97 + rng.integers(0, 13))
        if name == "s"
        else dt.datetime(2024, 1, 1) + dt.timedelta(hours=int(rng.integers(0, 60)))
    )


COMPARE: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b,
    lambda a, b: a >= b,
]  # fmt: skip


def predicate(rng: Rng, names: list[str], depth: int = 2) -> pl.Expr:
    if depth and rng.random() < 0.4:
        one, other = predicate(rng, names, depth - 1), predicate(rng, names, depth - 1)
        return one_of(rng, [one & other, one | other, ~one])
    name = one_of(rng, names)
    column = pl.col(name)
    kind = rng.integers(7)
    if kind == 0:
        return column.is_in([literal(rng, name) for _ in range(rng.integers(0, 3))] or [literal(rng, name)])
    if kind == 1:
        return one_of(rng, [column.is_null(), column.is_not_null()])
    if kind == 2:
        return one_of(rng, COMPARE)(pl.lit(literal(rng, name)), column)
    return one_of(rng, COMPARE)(column, literal(rng, name))


def step(rng: Rng, names: list[str]) -> tuple[str, Callable[[Any], Any], list[str]]:
    """What a step is called, the step on a lazy or an eager frame, and the columns that it leaves."""
    n = int(rng.integers(0, ROWS // 2))
    match rng.integers(10):
        case 0 | 1 | 2:
            return f"head({n})", lambda frame: frame.head(n), names
        case 3:
            offset = int(rng.integers(-20, 20))
            return f"slice({offset}, {n})", lambda frame: frame.slice(offset, n), names
        case 4:
            return f"tail({n})", lambda frame: frame.tail(n), names
        case 5:
            some = rng.permutation(names)[: rng.integers(1, len(names) + 1)].tolist()
            return f"select({some})", lambda frame: frame.select(some), some
        case 6:
            some = rng.permutation(names)[: rng.integers(1, len(names) + 1)].tolist()
            return f"drop_nulls({some})", lambda frame: frame.drop_nulls(some), names
        case _:
            asked = predicate(rng, names)
            return f"filter({asked})", lambda frame: frame.filter(asked), names


def sql(rng: Rng, names: list[str]) -> str:
    """A query with WHERE and LIMIT in any nesting, which Polars and DuckDB understand."""
    source = "rows"
    for _ in range(rng.integers(1, 4)):
        where = ""
        if rng.random() < 0.6:
            name = one_of(rng, ["id", "k", "i", "s"])
            value = literal(rng, name)
            text = f"'{value}'" if name == "s" else str(value)
            where = f" WHERE {name} {one_of(rng, ['=', '<>', '<', '<=', '>', '>='])} {text}"
            where = one_of(rng, [where, where, f" WHERE {name} IS NOT NULL"])
        limit = f" LIMIT {rng.integers(0, ROWS // 2)}" if rng.random() < 0.6 else ""
        source = f"(SELECT {', '.join(names)} FROM {source}{where}{limit}) AS part"
    return f"SELECT * FROM {source}"


def check(seed: int, frame: pl.DataFrame, scans: list[sa.Scan]) -> None:
    rng = np.random.default_rng(seed)
    scan, engine = one_of(rng, scans), one_of(rng, ENGINES)
    if rng.random() < 0.25:
        query = sql(rng, ["id", "k", "i", "s"])
        expected = pl.SQLContext(rows=frame).execute(query, eager=True)
        got = pl.SQLContext(rows=scan.to_polars()).execute(query).collect(engine=engine)
        assert got.equals(expected), (seed, query)
        if "LIMIT" not in query:
            rows = scan.to_polars()  # noqa: F841
            assert sorted(map(repr, duckdb.sql(query).fetchall())) == sorted(map(repr, expected.rows())), (seed, query)
        return
    names, lazy, expected, words = frame.columns, scan.to_polars().select(frame.columns), frame, []
    if rng.random() < 0.5:
        lazy = scan.select(frame.columns).to_polars()
    for _ in range(rng.integers(1, 5)):
        word, apply, names = step(rng, names)
        words.append(word)
        lazy, expected = apply(lazy), apply(expected)
    got = lazy.collect(engine=engine)
    assert repr(got.rows()) == repr(expected.rows()), (seed, engine, words)
    assert got.schema == expected.schema


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, list[sa.Scan]]:
    frame = frame_of(np.random.default_rng(7))
    return frame, [write(tmp_path_factory.mktemp("rows"), frame, statistics) for statistics in (True, False)]


@pytest.mark.parametrize("seed", range(10))
def test_random_queries(seed: int, both: tuple[pl.DataFrame, list[sa.Scan]]) -> None:
    for number in range(40):
        check(seed * 40 + number, *both)


def test_a_limit_before_a_filter(both: tuple[pl.DataFrame, list[sa.Scan]]) -> None:
    for scan in both[1]:
        first = scan.to_polars().head(5)
        assert first.filter(pl.col("id") > 2).collect()["id"].to_list() == [3, 4]
        assert first.filter(pl.col("k") == 3).collect().height == 0
