"""Scans in Polars: the same rows as Polars' own frames, whatever is pushed down; and what is not read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import python

import shmarrow as sa

pl = pytest.importorskip("polars")

NAN = float("nan")
FRAME = pl.DataFrame(
    {
        "i": [1, 2, None, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        "f": [0.5, NAN, 1.5, None, -0.5, 0.1, 3.0, 4.0, NAN, 9.0, 9.5, 0.0],
        "g": pl.Series([0.1, 0.5] * 6, dtype=pl.Float32),
        "s": ["a", "b", "c", None, "ab", "é", "z", "zz", "a", "b", "c", "d"],
        "b": [True, False, None] * 4,
        "d": [dt.date(2024, 1, day) for day in range(1, 13)],
        "t": [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in range(12)],
        "n": pl.Series([Decimal(n) / 4 for n in range(12)], dtype=pl.Decimal(10, 2)),
        "c": pl.Series(list("xyzxyzxyzxyz"), dtype=pl.Categorical),
        "e": pl.Series(list("xyzxyzxyzxyz"), dtype=pl.Enum(["z", "y", "x"])),
    }
)


def write(directory: Path, frame: pl.DataFrame = FRAME, rows: int = 2) -> sa.Scan:
    """Write a frame to files of two batches in two directories, with statistics; ``k`` is the directory's."""
    table = sa.table(frame).unify_dictionaries()
    half = len(table) // 2
    for k in range(2):
        (directory / f"k={k}").mkdir()
        with sa.ipc.new_file(directory / f"k={k}" / "x.arrow", table.schema, statistics=True) as writer:
            writer.write_table(table.slice(k * half, half), rows)
    return sa.scan(directory)


PREDICATES = [
    pl.col("i") > 4,
    (pl.col("i") >= 3) & (pl.col("i") < 7.0),
    pl.col("i") < 2.5,
    pl.lit(3) <= pl.col("i"),
    pl.col("i").is_in([1, 9, None]),
    pl.col("i").is_in([]),
    pl.col("i").is_between(3, 5),
    pl.col("i").is_null() | (pl.col("i") == 1),
    ~(pl.col("i") > 4),
    pl.col("i") + 1 > 4,
    pl.col("i") > pl.col("f"),
    pl.col("f") > 1,
    pl.col("f") >= 9.25,
    pl.col("f") <= 0,
    pl.col("f") == NAN,
    pl.col("f") < NAN,
    pl.col("f") != 0.5,
    pl.col("f").is_in([NAN, 3.0]),
    pl.col("g") == 0.1,
    pl.col("g") > 0.1,
    pl.col("g") <= 0.1,
    pl.col("s") > "b",
    pl.col("s") == "é",
    (pl.col("s") == "a") | (pl.col("s") == "zz") | (pl.col("i") == 12),
    pl.col("s").str.starts_with("a"),
    pl.col("b"),
    pl.col("b") == False,  # noqa: E712
    pl.col("d") > dt.date(2024, 1, 9),
    pl.col("d") > dt.datetime(2024, 1, 9, 12),
    pl.col("t") <= dt.datetime(2024, 1, 1, 3, tzinfo=dt.UTC),
    pl.col("n") == Decimal("0.75"),
    pl.col("n") > 2,
    pl.col("c") == "x",
    pl.col("c") > "x",
    pl.col("e") > "y",
    (pl.col("k") == 1) & (pl.col("i") > 0),
    pl.col("k") != 0,
    pl.col("k") == 7,
]


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> sa.Scan:
    return write(tmp_path_factory.mktemp("frame"))


@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
def test_predicates(predicate: pl.Expr, scan: sa.Scan) -> None:
    whole = FRAME.with_columns(k=pl.int_range(pl.len()) // 6)
    expected = whole.filter(predicate)
    assert scan.to_polars().filter(predicate).collect().to_dicts().__repr__() == expected.to_dicts().__repr__()
    found = scan.to_polars().filter(predicate).select("s", "k").head(2).collect()
    assert found.equals(expected.select("s", "k").head(2))
    assert scan.to_polars().filter(predicate).select(pl.len()).collect().item() == expected.height


def test_filters_of_the_scan_and_of_the_query(scan: sa.Scan) -> None:
    lazy = scan.where([("i", ">", 4)]).select(["s", "i"]).to_polars()
    assert lazy.collect_schema() == {"s": pl.String, "i": pl.Int64}
    assert lazy.filter(pl.col("i") < 7).collect().rows() == [("ab", 5), ("é", 6)]
    query = lazy.group_by("s").agg(pl.col("i").sum()).sort("s")
    for _ in range(2):
        assert query.collect().rows() == [("a", 9), ("ab", 5), ("b", 10), ("c", 11), ("d", 12), ("z", 7), ("zz", 8),
                                          ("é", 6)]  # fmt: skip


def test_what_a_query_does_not_need_is_not_read(tmp_path: Path) -> None:
    scan = write(tmp_path, pl.DataFrame({"x": range(12), "s": ["a"] * 12}))
    (tmp_path / "k=0" / "x.arrow").write_bytes(b"broken")
    lazy = sa.scan(tmp_path, schema=scan.schema).to_polars()
    assert lazy.filter(pl.col("k") == 1, pl.col("x") > 10).select("x").collect()["x"].to_list() == [11]
    with pytest.raises(Exception, match="expected Arrow data"):
        lazy.filter(pl.col("x") > 10).collect()
    path = tmp_path / "k=1" / "x.arrow"
    data = path.read_bytes()
    for x in (6, 8):  # two of three batches
        at = data.index(np.array([x, x + 1], "<i8").tobytes())
        data = data[:at] + np.array([100, 100]).tobytes() + data[at + 16 :]
    path.write_bytes(data)
    lazy = sa.scan(path).to_polars()
    assert lazy.filter(pl.col("x") >= 10).select(pl.col("x").sum(), n=pl.len()).collect().rows() == [(21, 2)]
    assert lazy.select(pl.col("x").sum()).collect().item() == 421


def test_text_of_other_columns_is_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    with sa.ipc.new_file(path, sa.schema({"x": "int64", "s": "string_view"})) as writer:
        writer.write(sa.record_batch({"x": [1, 2], "s": sa.array(["one-two", "b"], sa.string_view())}))
    path.write_bytes(path.read_bytes().replace(b"one-two", b"one\xfftwo"))
    lazy = sa.scan(path).to_polars()
    assert lazy.select(pl.col("x").sum()).collect().item() == 3
    with pytest.raises(Exception, match="UTF-8"):
        lazy.select("s").collect()


def test_a_limit_reads_no_more(tmp_path: Path) -> None:
    for i in range(3):
        with sa.ipc.new_file(tmp_path / f"{i}.arrow", sa.schema({"x": "int64"})) as writer:
            writer.write(sa.record_batch({"x": [i, i]}))
    (tmp_path / "2.arrow").write_bytes(b"broken")
    values: Any = sa.scan(tmp_path).to_polars().head(3).collect()["x"].to_list()
    assert values == [0, 0, 1]


@pytest.mark.parametrize("nulls_equal", [False, True])
def test_batches_with_nulls_where_these_equal_nulls(nulls_equal: bool, tmp_path: Path) -> None:
    batches = [pl.DataFrame({"x": values}, schema={"x": pl.Int64}) for values in ([1, 2], [None, None], [7, None])]
    with sa.ipc.new_file(tmp_path / "a.arrow", sa.schema({"x": "int64"}), statistics=True) as writer:
        for frame in batches:
            writer.write_table(sa.table(frame))
    predicate = pl.col("x").is_in([1, None], nulls_equal=nulls_equal)
    rows = sa.scan(tmp_path).to_polars().filter(predicate).collect()["x"].to_list()
    assert rows == ([1, None, None, None] if nulls_equal else [1])


LOADED = """
import sys
import polars as pl
import shmarrow as sa
assert sa.scan(sys.argv[1]).to_polars().select(pl.sum("c7")).collect().item() == 20 * 15
print(*sys.modules)
"""


@pytest.mark.processes
def test_pyarrow_is_not_imported_for_many_compressed_batches_nor_are_masked_arrays(tmp_path: Path) -> None:
    batch = sa.record_batch({f"c{i}": np.arange(6) for i in range(50)})
    options = sa.ipc.IpcWriteOptions("lz4")
    with sa.ipc.new_file(tmp_path / "x.arrow", batch.schema, options) as writer:
        for _ in range(20):
            writer.write(batch)
    loaded = set(python(LOADED, str(tmp_path / "x.arrow")).split())
    assert not loaded & {"pyarrow", "numpy.ma"}
