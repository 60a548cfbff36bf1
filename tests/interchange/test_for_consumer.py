"""``for_consumer``: every type of the shared table, cast for a tool, goes through that tool with equal values."""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pytest
import tools_page
from cases.definition import Case
from cases.table import CASES
from cases.table import case as by_name
from parts import plain

import shmarrow as sa
from shmarrow.types.consumers import CONSUMERS

pa = pytest.importorskip("pyarrow", minversion="26")


# --- the tools --------------------------------------------------------------------------------------------------


def through_polars(table: Any) -> Any:
    pl = pytest.importorskip("polars", minversion="2.1")
    return pl.DataFrame(table).to_arrow()


@cache
def connection() -> Any:
    return pytest.importorskip("duckdb", minversion="2.0").connect(config={"threads": 1})


@pytest.fixture(scope="module", autouse=True)
def closed_connection() -> Iterator[None]:
    yield
    if connection.cache_info().currsize:
        connection().close()
        connection.cache_clear()


def through_duckdb(table: Any) -> Any:
    connection().register("given", table)
    return connection().sql("SELECT * FROM given").to_arrow_table()


def through_pandas(table: Any) -> Any:
    pd = pytest.importorskip("pandas", minversion="3.0")
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
    """The conversion of ``createDataFrame`` before it hands a table to the JVM."""
    pytest.importorskip("pyspark", minversion="4.3")
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
"""The names in ``lossy`` that allow them, if any do."""


KNOWN = {
    "polars": ["odd-fixed-size-list-offset"],  # wants no items beyond the last list
}
"""Cases that a tool does not take for a reason other than their type."""


def of(case: Case, names: Iterable[str]) -> str | None:
    """The name that a case is of."""
    return next((name for name in names if re.fullmatch(f"{name}(-nulls|-all-null|-empty)?", case.name)), None)


def refused(array: Any, name: str) -> sa.ShmarrowError | None:
    try:
        array.for_consumer(name)
    except sa.ShmarrowError as error:
        return error
    return None


_NAMES = {case.name for case in CASES}
SOME = [
    case
    for case in CASES
    if case.type.layout == "dictionary" or not (case.name.endswith("-all-null") or f"{case.name}-nulls" in _NAMES)
]


@pytest.mark.parametrize("name", TOOLS)
def test_every_type_goes_through_every_tool_with_equal_values(name: str) -> None:
    title, failures, helped = CONSUMERS[name].title, [], set()
    for case in SOME:
        array = case.array()
        kind = LOST.get(name, {}).get(of(case, LOST.get(name, {})) or "")
        refusal = refused(array, name)
        expected = sa.Unsupported if of(case, NOTHING_FOR[name]) else sa.InvalidData
        if refusal is None:
            assert not of(case, NOTHING_FOR[name]), case
            cast = array.for_consumer(name)
        else:
            assert isinstance(refusal, expected), case
            assert expected is sa.Unsupported or of(case, NO_FIT[name]), case
            assert title in str(refusal)
            assert str(refusal).count(f"lossy={kind!r}") == (kind is not None)
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
            found = plain(sa.chunked_array(back).to_pylist())
        except pytest.skip.Exception:  # the tool is not installed
            raise
        except BaseException as error:  # Polars panics
            failures.append(f"{case.name}: {array.type} -> {cast.type}: {type(error).__name__} {str(error)[:300]}")
            continue
        wanted = plain(array.to_pylist())
        if case.name not in helped and found != wanted:
            failures.append(f"{case.name}: {array.type} -> {cast.type}: {found} is not {wanted}")
    assert not failures, "\n".join(failures)
    assert {of(by_name(each), LOST.get(name, {})) for each in helped} == set(LOST.get(name, {}))


# --- the rules --------------------------------------------------------------------------------------------------

DEEP = {
    "string_view": ("spark", sa.string(), sa.array(["a", None], "string_view")),
    "uint8": ("spark", sa.int16(), sa.array([1, None], "uint8")),
    "dictionary": ("spark", sa.string(), sa.array(["a", None], sa.dictionary("int8", "string"))),
    "run_end_encoded": ("polars", sa.int8(), sa.array([1, None], sa.run_end_encoded("int32", "int8"))),
    "float16": ("duckdb", sa.float32(), sa.array([0.5, None], "float16")),
    "timestamp": (
        "spark", sa.timestamp("us", "Asia/Tokyo"), sa.array([10**9, None], sa.timestamp("ns", "Asia/Tokyo"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DEEP)
def test_rules_apply_at_any_depth(kind: str) -> None:
    name, target, inner = DEEP[kind]
    rows = inner.to_pylist()
    struct = sa.struct({"x": inner.type, "n": sa.int8()})
    forms = {
        "list": (sa.list_(inner.type), [rows], sa.list_(target)),
        "struct": (struct, [{"x": row, "n": 1} for row in rows], sa.struct({"x": target, "n": sa.int8()})),
        "map": (sa.map_(sa.int8(), inner.type), [[(1, row)] for row in rows], sa.map_(sa.int8(), target)),
        "lists of structs": (
            sa.list_(struct), [[{"x": row, "n": 1} for row in rows]],
            sa.list_(sa.struct({"x": target, "n": sa.int8()})),
        ),
    }  # fmt: skip
    for type, values, wanted in forms.values():
        batch = sa.record_batch({"c": sa.array(values, type)})
        made = batch.for_consumer(name)
        assert made.schema == batch.schema.for_consumer(name) == sa.schema({"c": wanted})
        assert plain(made["c"].to_pylist()) == plain(values)
        table = sa.Table.from_batches([batch, batch]).for_consumer(name)
        assert table.schema == made.schema
        assert plain(table["c"].to_pylist()) == plain(values * 2)


def test_what_is_accepted_stays_the_same_object() -> None:
    batch = sa.record_batch({"a": [1, 2], "v": sa.array(["x", "y"], "string_view"), "t": ["p", "q"]})
    assert batch.for_consumer("polars") is batch
    assert batch.schema.for_consumer("polars") is batch.schema.for_consumer("duckdb")
    table = sa.Table.from_batches([batch])
    assert table.for_consumer("polars") is table
    assert table["a"].for_consumer("spark").chunks[0] is batch["a"]
    made = batch.for_consumer("spark")
    assert made["a"] is batch["a"]
    assert made["t"] is batch["t"]
    assert made["v"].type == sa.string()
    nested = sa.array([{"v": "x", "n": 1}], sa.struct({"v": sa.string_view(), "n": sa.int64()}))
    address = nested.field("n").buffers()[1].ctypes.data
    assert nested.for_consumer("spark").field("n").buffers()[1].ctypes.data == address


def test_metadata_and_nullability_stay() -> None:
    schema = sa.schema([sa.field("a", sa.uint8(), nullable=False, metadata={"k": "v"})], {"of": "schema"})
    made = sa.record_batch({"a": [1]}, schema).for_consumer("spark").schema
    assert made == sa.schema([sa.field("a", sa.int16(), nullable=False)])
    assert made.field("a").metadata == {b"k": b"v"}
    assert made.metadata == {b"of": b"schema"}


def test_only_what_is_named_may_lose_something() -> None:
    type = sa.struct({"t": sa.timestamp("ns"), "d": sa.decimal256(50, 2)})
    array = sa.array([{"t": 1001, "d": 5}], type)
    with pytest.raises(
        sa.InvalidData, match=r"column 'c': .*Spark.*of us; lossy='decimal256' .*; lossy='timestamp' drops fractions"
    ):
        sa.record_batch({"c": array}).for_consumer("spark")
    made = array.for_consumer("spark", lossy=["timestamp"])
    assert made.type == sa.struct({"t": sa.timestamp("us"), "d": sa.decimal128(38, 2)})
    assert made.to_pylist() == [{"t": dt.datetime(1970, 1, 1, 0, 0, 0, 1), "d": 5}]
    assert array.for_consumer("spark", lossy="all").to_pylist() == [
        {"t": dt.datetime(1970, 1, 1, 0, 0, 0, 1), "d": 5.0}
    ]
    big = sa.array([{"t": 1001, "d": 10**40}], type)
    with pytest.raises(sa.InvalidData, match="lossy='decimal256' drops digits"):
        big.for_consumer("spark", lossy="timestamp")
    assert big.for_consumer("spark", lossy={"timestamp", "decimal256"}).to_pylist()[0]["d"] == 1e40
    times = sa.array([1001], sa.time64("ns"))
    with pytest.raises(sa.InvalidData, match="lossy='time64'"):
        times.for_consumer("spark")
    made = times.for_consumer("spark", lossy="time64")
    assert (made.type, made.to_pylist()) == (sa.time64("ns"), [dt.time(0, 0, 0, 1)])


def test_negative_scales_become_whole_numbers() -> None:
    array = sa.array([5000, None], sa.decimal128(5, -3))
    for name in ("spark", "polars", "duckdb", "parquet"):
        made = array.for_consumer(name)
        assert (made.type, made.to_pylist()) == (sa.decimal128(8, 0), [5000, None])


def test_dictionaries_lose_nulls_and_repeated_values_where_a_tool_wants_categories() -> None:
    values = sa.array(["b", None, "a", "b"])
    array = sa.DictionaryArray.from_arrays(sa.array([3, 1, 2, None], "int8"), values, ordered=True)
    for column in (array, sa.chunked_array([array, array])):
        made = column.for_consumer("pandas")
        assert made.type == array.type
        assert made.to_pylist() == ["b", None, "a", None] * (len(column) // 4)
    made = array.for_consumer("pandas")
    assert made.dictionary.to_pylist() == ["b", "a"]
    assert made.for_consumer("pandas") is made
    assert sa.record_batch({"c": array}).for_consumer("pandas")["c"].dictionary.to_pylist() == ["b", "a"]
    assert array.for_consumer("polars") is array


def test_extension_types_go_as_their_storage_or_as_what_a_tool_knows() -> None:
    uuids = sa.array([b"1" * 16], sa.uuid())
    assert uuids.for_consumer("duckdb") is uuids
    assert uuids.for_consumer("parquet") is uuids
    assert uuids.for_consumer("polars").type == sa.binary(16)
    assert uuids.for_consumer("spark").type == sa.binary()
    flags = sa.array([True, None], sa.bool8())
    assert flags.for_consumer("spark").to_pylist() == [True, None]
    assert flags.for_consumer("spark").type == sa.bool_()
    texts = sa.array(["1"], sa.json_(sa.string_view()))
    assert texts.for_consumer("spark").type == sa.string()


@pytest.mark.parametrize(
    ("name", "lossy", "error", "match"),
    [
        ("oracle", (), sa.InvalidArgument, "expected one of spark, polars, duckdb, pandas, parquet, found 'oracle'"),
        (1, (), sa.InvalidType, "expected the name of a consumer, found int"),
        ("spark", "bool", sa.InvalidArgument, r"lossy='bool'.*'all', or one or more of date64, .*timestamp"),
        ("Spark", "timestamps", sa.InvalidArgument, "no kind of type has that name; did you mean 'timestamp'"),
        ("POLARS", "texts", sa.InvalidArgument, "no kind of type has that name; expected 'all', or one or more of "),
        ("pandas", "timestamp", sa.InvalidArgument, "pandas accepts it without loss, or not at all; leave lossy out"),
        ("spark", 3, sa.InvalidType, "found int"),
    ],
    ids=["unknown", "no name", "never lost", "typing error", "no kind", "nothing lost", "no kinds"],
)
def test_wrong_arguments(name: Any, lossy: Any, error: type[Exception], match: str) -> None:
    batch = sa.record_batch({"a": [1]})
    for each in (batch, batch.schema, batch["a"], sa.chunked_array([batch["a"]]), sa.Table.from_batches([batch])):
        with pytest.raises(error, match=match):
            each.for_consumer(name, lossy=lossy)


def test_names_and_numbers_of_columns() -> None:
    twice = sa.record_batch([[1], [2]], ["a", "a"])
    assert twice.for_consumer("spark") is twice
    with pytest.raises(sa.Unsupported, match="Polars requires a unique name for each column, found 'a' more than once"):
        twice.for_consumer("polars")
    with pytest.raises(sa.Unsupported, match="column 's': Polars requires a unique name for each field"):
        sa.schema({"s": sa.struct([("x", sa.int8()), ("x", sa.int8())])}).for_consumer("polars")
    with pytest.raises(sa.Unsupported, match="DuckDB has no tables without columns"):
        sa.schema([]).for_consumer("duckdb")


def test_the_page_is_that_of_the_rules() -> None:
    assert tools_page.PAGE.read_text(encoding="utf-8") == tools_page.page(), "run make docs"


def test_readers_cast_each_batch_as_it_is_read(tmp_path: Any) -> None:
    batch = sa.record_batch({"n": sa.array([1, 2], "uint64"), "s": sa.array(["a", "b"], "string_view")})
    large = sa.record_batch({"n": sa.array([2**60], "uint64"), "s": sa.array(["c"], "string_view")})
    path = tmp_path / "file"
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
        writer.write(large)
    file = sa.ipc.open_file(path)
    for source in (file, file, sa.Table.from_batches([batch, large]).to_reader()):
        reader = source.for_consumer("spark")
        assert reader.schema.types == [sa.decimal128(20, 0), sa.string()]
        assert [[int(n) for n in each["n"].to_pylist()] for each in reader] == [[1, 2], [2**60]]
        reader.close()
    assert file.get_batch(0).num_rows == 2
    with pytest.raises(sa.Closed):
        next(source)
    with pytest.raises(sa.InvalidArgument, match="expected one of"):
        file.for_consumer("nobody")


@pytest.mark.parametrize(
    "type", [sa.list_(sa.binary(3)), sa.large_list(sa.binary(3)), sa.list_(sa.binary(3), 2), sa.list_view(sa.binary(3))]
)
def test_pandas_has_lists_of_bytes_of_one_width(type: Any) -> None:
    """pyarrow converts lists of other bytes only."""
    pytest.importorskip("pandas")
    column = sa.array([[b"abc", None], None], type)
    for values in (column.to_pandas(), sa.table({"x": column}).to_pandas()["x"]):
        assert [None if value is None else list(value) for value in values] == [[b"abc", None], None]
