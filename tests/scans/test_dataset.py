"""Scans as datasets of pyarrow: the same rows as pyarrow's own, in its own calls, DuckDB, DataFusion and Polars."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from processes import python

import shmarrow as sa

duckdb = pytest.importorskip("duckdb")

NAN = float("nan")
ROWS = 120
Rng = np.random.Generator
START = dt.datetime(2024, 1, 1)


def rows_of(rng: Rng) -> pa.Table:
    """Rows whose values lie near each other in a batch, with nulls, NaN, and batches of nulls alone."""

    def some(values: list[Any], type: pa.DataType) -> pa.Array:
        mask = (rng.random(ROWS) < 0.15) | (np.arange(ROWS) // 5 % 7 == 3)
        return pa.array([None if null else value for null, value in zip(mask, values, strict=True)], type)

    near = np.arange(ROWS) // 4
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "i": some(near.tolist(), pa.int64()),
            "u": some([n + (1 << 63) for n in near.tolist()], pa.uint64()),
            "f": some([NAN if rng.random() < 0.1 else i / 4 + 0.1 for i in range(ROWS)], pa.float64()),
            "g": some([NAN if rng.random() < 0.1 else i / 10 for i in range(ROWS)], pa.float32()),
            "s": some([chr(97 + i // 6) for i in range(ROWS)], pa.string()),
            "t": some([START + dt.timedelta(hours=i) for i in range(ROWS)], pa.timestamp("us")),
            "d": some([dt.date(2024, 1, 1) + dt.timedelta(i) for i in range(ROWS)], pa.date32()),
            "c": some([f"c{i // 10}" for i in range(ROWS)], pa.string()).dictionary_encode(),
            "b": some((near % 2 == 0).tolist(), pa.bool_()),
        }
    )


def write(directory: Path, table: pa.Table, statistics: bool) -> sa.Scan:
    unified = sa.table(table).unify_dictionaries()
    for k in range(4):
        (directory / f"k={k}").mkdir(parents=True)
        with sa.ipc.new_file(directory / f"k={k}" / "x.arrow", unified.schema, statistics=statistics) as writer:
            writer.write_table(unified.slice(k * ROWS // 4, ROWS // 4), 5)
    return sa.scan(directory)


@pytest.fixture(scope="module")
def whole() -> pa.Table:
    return rows_of(np.random.default_rng(3))


@pytest.fixture(scope="module")
def scans(whole: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> list[sa.Scan]:
    return [write(tmp_path_factory.mktemp("rows"), whole, statistics) for statistics in (True, False)]


@pytest.fixture(scope="module")
def all_rows(whole: pa.Table) -> pa.Table:
    return whole.append_column("k", pa.array(np.arange(ROWS) // (ROWS // 4)))


def one_of(rng: Rng, options: list[Any]) -> Any:
    return options[rng.integers(len(options))]


def literal(rng: Rng, name: str) -> Any:
    n = int(rng.integers(-1, 31))
    match name:
        case "id" | "k":
            return int(rng.integers(-1, {"id": ROWS, "k": 5}[name]))
        case "i":
            return one_of(rng, [n, n + 0.5, float(n), pa.scalar(n % 100, pa.int8())])
        case "u":
            return pa.scalar((1 << 63) + n + 1, pa.uint64())
        case "f" | "g":
            return one_of(rng, [n, n / 4 + 0.1, n / 10, NAN, pa.scalar(n / 10, pa.float32()), float("inf")])
        case "s":
            return chr(97 + n % 20)
        case "t":
            return one_of(rng, [START + dt.timedelta(hours=4 * n), pa.scalar(n * 10**13, pa.timestamp("ns"))])
        case "d":
            return dt.date(2024, 1, 1) + dt.timedelta(4 * n)
        case "c":
            return f"c{n % 14}"
    return bool(n % 2)


OPERATORS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


def expression(rng: Rng, depth: int = 2) -> pc.Expression:
    if depth and rng.random() < 0.5:
        one, other = expression(rng, depth - 1), expression(rng, depth - 1)
        return one_of(rng, [one & other, one & other, one | other, ~one, pc.if_else(one, other, False),
                            pc.if_else(one, other, pa.scalar(None, pa.bool_()))])  # fmt: skip
    name = one_of(rng, ["id", "k", "i", "u", "f", "g", "s", "t", "d", "c", "b"])
    field = pc.field(name)
    match rng.integers(7):
        case 0:
            return one_of(rng, [field.is_null(), field.is_valid(), field.is_null(nan_is_null=True)])
        case 1 if name != "c":
            values = [literal(rng, name) for _ in range(rng.integers(1, 4))]
            values = [value.as_py() if isinstance(value, pa.Scalar) and name != "t" else value for value in values]
            types = {"i": pa.float64(), "u": pa.uint64(), "f": pa.float64(), "g": pa.float64(), "t": pa.timestamp("us")}
            if name == "t":
                values = [START]
            return field.isin(pa.array([*values, *one_of(rng, [[], [None]])], types.get(name)))
        case 2:
            value = literal(rng, name)
            return getattr(pc.scalar(value), one_of(rng, OPERATORS))(field)
    return getattr(field, one_of(rng, OPERATORS))(literal(rng, name))


def check(seed: int, scans: list[sa.Scan], all_rows: pa.Table) -> bool:
    """Compare one random query; False if pyarrow refuses it."""
    rng = np.random.default_rng(seed)
    dataset, plain = one_of(rng, scans).to_dataset(), ds.InMemoryDataset(all_rows)
    asked: Any = expression(rng)
    columns: Any = rng.permutation(all_rows.column_names)[: rng.integers(0, 5)].tolist()
    columns = one_of(rng, [columns, None, {"n": pc.field("id") + 1}])
    try:
        expected = plain.to_table(columns=columns, filter=asked)
    except (pa.ArrowException, ValueError):
        return False
    got = dataset.to_table(columns=columns, filter=asked)
    assert got.num_rows == expected.num_rows, (seed, asked)
    assert repr(got.to_pylist()) == repr(expected.to_pylist()), (seed, asked)
    assert dataset.count_rows(filter=asked) == expected.num_rows
    n = int(rng.integers(0, 20))
    assert repr(dataset.head(n, columns=columns, filter=asked).to_pylist()) == repr(expected[:n].to_pylist())
    return True


@pytest.mark.parametrize("seed", range(4))
def test_random_filters(seed: int, scans: list[sa.Scan], all_rows: pa.Table) -> None:
    assert sum(check(40 * seed + i, scans, all_rows) for i in range(40)) > 15


SQL_VALUES = {
    "id": ["7", "50.5"], "i": ["3", "2.5", "-1"], "f": ["'nan'::double", "3.1", "0"], "g": ["'nan'::float", "1.5"],
    "s": ["'d'", "''"], "t": ["'2024-01-02'::timestamp"], "d": ["'2024-02-01'::date"], "c": ["'c3'"], "k": ["2"],
}  # fmt: skip


def condition(rng: Rng, depth: int = 2) -> str:
    if depth and rng.random() < 0.4:
        one, other = condition(rng, depth - 1), condition(rng, depth - 1)
        return one_of(rng, [f"({one} AND {other})", f"({one} OR {other})", f"(NOT {one})"])
    name = one_of(rng, list(SQL_VALUES))
    values = SQL_VALUES[name]
    return one_of(rng, [
        f"{name} {one_of(rng, ['=', '<>', '<', '<=', '>', '>='])} {one_of(rng, values)}",
        f"{name} IN ({', '.join(values)}, NULL)", f"{name} IN ({values[0]}, {values[-1]})", f"{name} IS NULL",
        f"{name} IS NOT NULL", f"{name} BETWEEN {values[-1]} AND {values[0]}",
        f"{name} IS DISTINCT FROM {values[0]}",
    ])  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_random_queries_of_duckdb(seed: int, scans: list[sa.Scan], all_rows: pa.Table) -> None:
    """DuckDB asks for columns and filters, in its own order of NaN."""
    rng = np.random.default_rng(seed)
    connection = duckdb.connect()
    connection.register("plain", all_rows)
    connection.execute("CREATE TABLE own AS SELECT * FROM plain")
    for _ in range(15):
        connection.register("rows", one_of(rng, scans).to_dataset())
        columns = ", ".join(rng.permutation(all_rows.column_names)[: rng.integers(1, 4)])
        query = f"SELECT {one_of(rng, [columns, 'count(*)', 'sum(id)'])} FROM {{}} WHERE {condition(rng)}"
        expected = connection.sql(query.format("own")).fetchall()
        assert sorted(map(repr, connection.sql(query.format("rows")).fetchall())) == sorted(map(repr, expected)), query


@pytest.mark.parametrize("seed", range(2))
def test_random_queries_of_datafusion(seed: int, scans: list[sa.Scan], all_rows: pa.Table) -> None:
    datafusion = pytest.importorskip("datafusion")
    rng = np.random.default_rng(seed)
    context = datafusion.SessionContext()
    context.register_dataset("plain", ds.InMemoryDataset(all_rows))
    context.register_dataset("rows", scans[0].to_dataset())
    for _ in range(20):
        name = one_of(rng, ["i", "s", "t", "f"])
        value = {"i": "3", "s": "'d'", "t": "timestamp '2024-01-02'", "f": "3.1"}[name]
        query = f"SELECT id, {name} FROM {{}} WHERE {name} {one_of(rng, ['=', '<', '>='])} {value} AND k < 3"
        found = [sorted(map(repr, context.sql(query.format(table)).to_pylist())) for table in ("rows", "plain")]
        assert found[0] == found[1], query


def test_polars_and_ibis(scans: list[sa.Scan]) -> None:
    pl = pytest.importorskip("polars")
    query = pl.scan_pyarrow_dataset(scans[0].to_dataset()).filter(pl.col("id") > 110, pl.col("k") == 3)
    assert query.select(pl.sum("id")).collect().item() == sum(range(111, 120))


def test_what_a_query_does_not_need_is_not_read(scans: list[sa.Scan], tmp_path: Path, all_rows: pa.Table) -> None:
    scan = write(tmp_path, all_rows.drop_columns(["k"]), statistics=True)
    for k in (0, 1):
        (tmp_path / f"k={k}" / "x.arrow").write_bytes(b"broken")
    rows = sa.scan(tmp_path, schema=scan.schema).to_dataset()
    assert duckdb.sql("SELECT sum(id) FROM rows WHERE k = 3").fetchall() == [(sum(range(90, 120)),)]
    assert rows.to_table(["id"], pc.field("k").isin([2])).num_rows == 30
    with pytest.raises(Exception, match="expected Arrow data"):
        rows.to_table(["id"])
    path = tmp_path / "k=3" / "x.arrow"  # of which all batches but the last are damaged
    data = bytearray(path.read_bytes())
    for i in range(90, 115):
        at = data.index(np.array([i], "<i8").tobytes(), 8)
        data[at : at + 8] = np.array([117], "<i8").tobytes()
    path.write_bytes(data)
    rows = sa.scan(path, schema=scan.schema).to_dataset()
    assert rows.count_rows(pc.field("id") == 117) == 1
    assert duckdb.sql("SELECT count(*) FROM rows WHERE id = 117").fetchall() == [(1,)]
    assert rows.count_rows((pc.field("id") + 0) == 117) > 10, "what is not understood skips nothing"


ENDS = """
import sys
import duckdb
import shmarrow as sa
rows = sa.scan(sys.argv[1]).to_dataset()
batches = iter(rows.to_batches(columns=["id"]))
print(next(batches).num_rows, rows.head(3, columns=["id"]).num_rows)
print(duckdb.sql("SELECT id FROM rows LIMIT 4").fetchall())
"""


@pytest.mark.processes
def test_a_process_ends_while_batches_are_left(tmp_path: Path, all_rows: pa.Table) -> None:
    write(tmp_path, all_rows.drop_columns(["k"]), statistics=True)
    for _ in range(3):
        assert python(ENDS, tmp_path, timeout=60)


def test_calls_of_pyarrow(scans: list[sa.Scan], all_rows: pa.Table) -> None:
    dataset: Any = scans[0].to_dataset()
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema.names == all_rows.column_names
    assert dataset.to_table(columns=[]).num_rows == ROWS == dataset.count_rows()
    assert dataset.head(3)["id"].to_pylist() == [0, 1, 2]
    assert dataset.take([5, 100])["id"].to_pylist() == [5, 100]
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=["id"], batch_size=7)) == ROWS
    late = dataset.filter(pc.field("id") > 100).filter(pc.field("id") < 110)
    assert late.to_table(["id"], filter=pc.field("id") != 105)["id"].to_pylist() == [
        101,
        102,
        103,
        104,
        106,
        107,
        108,
        109,
    ]
    assert (late.count_rows(), pickle.loads(pickle.dumps(late)).count_rows()) == (9, 9)
    assert [part.to_table(["id"]).num_rows for part in dataset.get_fragments()] == [30] * 4
    assert [part.count_rows() for part in dataset.get_fragments(pc.field("k") > 2)] == [30]
    assert dataset.sort_by([("id", "descending")]).to_table()["id"][0].as_py() == ROWS - 1
    names = ds.InMemoryDataset(pa.table({"k": [1], "name": ["one"]}))
    assert dataset.join(names, "k", join_type="inner").to_table()["name"].to_pylist() == ["one"] * 30
    assert dataset.files == scans[0].sources
    with pytest.raises(sa.Unsupported, match="keeps its schema"):
        dataset.replace_schema(dataset.schema)
    for native in (lambda: ds.Scanner.from_dataset(dataset).to_table(), lambda: ds.dataset([dataset]).to_table()):
        with pytest.raises((FileNotFoundError, sa.Unsupported), match=r"a scan( of shmarrow|)"):
            native()
    own = set(vars(type(dataset)))
    public = {name for name in dir(ds.FileSystemDataset) if not name.startswith("_")}
    assert public - own == {"filesystem", "format", "from_paths", "partition_expression", "schema"}


def test_null_tests_in_filters(scans: list[sa.Scan], all_rows: pa.Table) -> None:
    for scan in scans:
        for name in ("i", "s", "c", "f", "k"):
            for op, mask in (("is null", pc.is_null(all_rows[name])), ("is not null", pc.is_valid(all_rows[name]))):
                expected = all_rows.filter(mask)["id"].to_pylist()
                assert scan.where([(name, op)]).to_table()["id"].to_pylist() == expected
    lists = sa.table({"l": [[1], None, []]})
    assert sa.scan(lists, filters=[("l", "is null")]).count_rows() == 1
    with pytest.raises(sa.InvalidArgument, match="'is null'"):
        sa.scan(lists, filters=[("l", "null")])
