"""DataFrames and Series: there and back with index, labels and dtypes, as pyarrow does it or better."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from typing import Any

import numpy as np
import pytest
from cases.table import CASES
from parts import address

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas", minversion="3.0")

D = decimal.Decimal
EQUAL = pd.testing.assert_frame_equal


def arrow(values: Any, type: Any) -> Any:
    return pd.Series(values, dtype=pd.ArrowDtype(type))


def grid(columns: Any) -> Any:
    return pd.DataFrame([[1, 2], [3, 4]], columns=columns)


def rows(index: Any) -> Any:
    return pd.DataFrame({"a": [1, 2]}, index=index)


DAYS = pd.DatetimeIndex(["2020-01-01", "2020-01-02"]).as_unit("s")
FRAMES: dict[str, Any] = {
    "numbers": pd.DataFrame({"a": np.arange(4), "b": np.arange(4, dtype="u1"), "f": [0.5, np.inf, -1, 2]}),
    "half and bool": pd.DataFrame({"f": np.array([1, 2], "f2"), "c": [True, False]}),
    "nullable": pd.DataFrame({
        "i": pd.array([1, None, 3], "Int64"), "b": pd.array([True, None, False], "boolean"),
        "s": pd.array(["a", None, "c"], "string"), "f": pd.array([1.5, None, 2], "Float32"),
        "u": pd.array([1, None, 3], "UInt8"),
    }),
    "text": pd.DataFrame({"s": ["a", None, "é"]}),
    "categories": pd.DataFrame({
        "o": pd.Categorical(["b", "a", None], categories=["b", "a", "z"], ordered=True),
        "n": pd.Categorical([3, 1, 3]), "f": pd.Categorical([0.5, None, 0.5]),
    }),
    "moments": pd.DataFrame({
        "t": DAYS.tz_localize("Europe/Paris"), "n": DAYS.as_unit("ns"), "s": DAYS,
        "d": pd.to_timedelta([1, None], unit="s"), "o": DAYS.tz_localize(dt.timezone(dt.timedelta(hours=7))),
    }),
    "objects": pd.DataFrame({
        "d": [dt.date(2020, 1, 1), None], "t": [dt.time(1), None], "n": [D("1.5"), None], "b": [b"x", None],
        "c": pd.Series([True, None], dtype=object), "l": [[1, 2], None],
    }),
    "index": rows(pd.Index(["x", "y"], name="k")),
    "index without a name": rows([5, 3]),
    "range index": rows(pd.RangeIndex(10, 14, 2, name="r")),
    "moments as index": rows(pd.DatetimeIndex(["2020-01-01", "2021-05-01"], tz="UTC", name="when")),
    "categories as index": rows(pd.CategoricalIndex(["q", "p"])),
    "arrow-backed index": rows(pd.Index([1, 2], dtype="int64[pyarrow]", name="k")),
    "nullable index": rows(pd.Index([1, 2], dtype="Int64")),
    "multi-index": rows(pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["k", None])),
    "arrow-backed multi-index": rows(pd.MultiIndex.from_arrays([pd.Index([1, 2], dtype="int64[pyarrow]"), ["a", "b"]])),
    "index like a column": pd.DataFrame({"k": [1, 2], "__index_level_0__": [3, 4]}, index=pd.Index([1, 5], name="k")),
    "uuids": pd.DataFrame({"u": [uuid.UUID(int=1), None]}),
    "periods and intervals": pd.DataFrame({
        "p": pd.period_range("2020", periods=3, freq="Y").to_series().reset_index(drop=True),
        "q": pd.PeriodIndex(["2020-01", None, "2021-03"], freq="M"), "i": pd.interval_range(0, 3),
        "f": pd.arrays.IntervalArray.from_tuples([(0.5, 1.5), None, (2, 3)], closed="left"),
    }),
    "periods as index": rows(pd.period_range("2020", periods=2, freq="D")),
    "intervals as index": rows(pd.interval_range(pd.Timestamp("2020-01-01"), periods=2, name="i")),
    "nothing": pd.DataFrame(),
    "no rows": pd.DataFrame({"a": np.array([], "i4"), "s": pd.Series([], dtype="str")}),
    "no columns": pd.DataFrame(index=pd.RangeIndex(3)),
    "index alone": pd.DataFrame(index=["a", "b"]),
    "integers as labels": grid(None),
    "named labels": grid(pd.Index([7, 9], name="z")),
    "floats as labels": grid([0.5, 1.5]),
    "levels of labels": grid(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["p", "q"])),
    "moments as labels": grid(DAYS),
    "moments of a zone as labels": grid(DAYS.tz_localize("Asia/Tokyo")),
    "bytes as labels": grid([b"a", b"b"]),
}  # fmt: skip


OTHER_INDEX = {"nullable index", "arrow-backed index", "arrow-backed multi-index"}
"""Cases in which pyarrow restores the values but not their dtype."""


@pytest.mark.parametrize("name", FRAMES)
def test_pyarrow_reads_our_metadata_and_we_its(name: str) -> None:
    """That frames come back from our own files is the matter of ``test_random_frames``."""
    frame = FRAMES[name]
    theirs = pa.Table.from_pandas(frame)
    EQUAL(sa.table(frame).to_pyarrow().to_pandas(), theirs.to_pandas())
    EQUAL(sa.table(frame).to_pyarrow().to_pandas(), frame, check_index_type=name not in OTHER_INDEX)
    EQUAL(sa.table(theirs).to_pandas(), frame)
    ours, other = sa.table(frame).schema.pandas_metadata, theirs.schema.pandas_metadata
    assert ours["index_columns"] == other["index_columns"]
    assert [each["field_name"] for each in ours["columns"]] == [each["field_name"] for each in other["columns"]]


def test_labels_follow_their_columns() -> None:
    frame = pd.DataFrame([[1, "x", 2.5]], columns=[dt.date(2024, 1, 1), 7, None])
    table = sa.table(frame)
    assert table.select([2, 0]).to_pandas().columns.tolist() == [None, dt.date(2024, 1, 1)]
    other = table.rename_columns(["2024-01-01", "new", "None"]).append_column("more", [1])
    assert other.to_pandas().columns.tolist() == [dt.date(2024, 1, 1), "new", None, "more"]
    typed = table.set_column(1, "7", [5]).to_pandas()
    assert typed[7].tolist() == [5]
    days = pd.DataFrame({"a": range(4)}, index=pd.date_range("2024", periods=4))
    assert sa.table(days).to_pandas().index.freq == "D"
    assert sa.table(days).slice(1, 2).to_pandas().index.freq == "D"
    assert sa.table(days).take([3, 0]).to_pandas().index.freq is None


def test_columns_of_one_name_keep_their_dtypes() -> None:
    frame = pd.DataFrame([[1, "z", 2.5], [3, "y", 4.5]], columns=["a", "a", "a.1"])
    for made in (sa.table(frame), sa.record_batch(frame)):
        plain = made.to_pandas(ignore_metadata=True)
        assert plain.dtypes.tolist() == frame.dtypes.tolist()
        assert plain.columns.tolist() == ["a", "a", "a.1"]
        backed = made.to_pandas(arrow_backed=True)
        assert [dtype.pyarrow_dtype for dtype in backed.dtypes] == [pa.int64(), pa.large_string(), pa.float64()]
        assert backed.columns.tolist() == ["a", "a", "a.1"]
        categories = made.to_pandas(categories=["a"]).dtypes.tolist()
        assert [dtype == "category" for dtype in categories] == [True, True, False]
        with pytest.raises(sa.ShmarrowError, match="not iterable"):
            made.to_pandas(categories=3)


def test_periods_and_intervals_are_stored_as_pandas_stores_them() -> None:
    for name in ("periods and intervals", "periods as index", "intervals as index"):
        theirs = pa.Table.from_pandas(FRAMES[name])  # registers the types of pandas with pyarrow
        ours = sa.table(FRAMES[name]).to_pyarrow()
        assert ours.schema.equals(theirs.schema)
        assert all(ours[column].combine_chunks() == theirs[column].combine_chunks() for column in ours.column_names)
    for column in ("p", "i"):
        with pytest.raises(sa.InvalidType, match="or pass a DataFrame, which keeps them"):
            sa.array(FRAMES["periods and intervals"][column])


def test_what_a_frame_cannot_store_is_said_to_be_the_index() -> None:
    for frame, where in (
        (rows([1, "x"]), "^the index: row 1: no single type"),
        (rows([[1, 2], ["a", object()]]), "^level 1 of the index: "),
        (grid([object(), 1]), "^the labels of the columns: object has no exact form in JSON"),
        (pd.DataFrame({"__index_level_0__": [1, "x"]}), "^column '__index_level_0__': row 1: no single type"),
    ):
        with pytest.raises(sa.InvalidType, match=where):
            sa.table(frame)


def test_attributes_and_other_metadata() -> None:
    frame = rows(None)
    frame.attrs = {"source": "here", "numbers": [1, 2]}
    table = sa.Table.from_pandas(frame, metadata={"k": "v"})
    assert table.schema.metadata[b"k"] == b"v"
    assert table.to_pandas().attrs == frame.attrs
    assert sa.table(frame, metadata={"k": "v"}).schema.metadata == table.schema.metadata
    frame.attrs = {"when": pd.Timestamp("2024", tz="UTC"), 1: (1, 2), "of": {"a": {3: float("inf")}}}
    assert sa.table(frame).to_pandas().attrs == frame.attrs
    frame.attrs = {"a": 1, "not": object()}
    with pytest.raises(sa.InvalidType, match="attrs 'not': object has no exact form in JSON"):
        sa.table(frame)
    assert table.select([]).schema.pandas_metadata["columns"][0]["name"] == "a"
    assert sa.schema([]).pandas_metadata is None


def test_arguments_of_from_pandas() -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}, index=pd.Index([7, 8], name="k"))
    assert sa.Table.from_pandas(frame).column_names == ["a", "b", "k"]
    assert sa.Table.from_pandas(frame, preserve_index=False).column_names == ["a", "b"]
    assert sa.Table.from_pandas(frame.reset_index(), preserve_index=True).column_names[-1] == "__index_level_0__"
    assert sa.Table.from_pandas(frame, columns=["b"]).column_names == ["b", "k"]
    schema = sa.schema([("b", "float32"), ("a", "int8")])
    made = sa.RecordBatch.from_pandas(frame, schema)
    assert made.schema.equals(schema)
    assert made.to_pydict() == {"b": [0.5, 1.5], "a": [1, 2]}
    series = pd.Series([1.5, np.nan])
    assert sa.Array.from_pandas(series).to_pylist() == [1.5, None]
    assert sa.Array.from_pandas(series, mask=[True, False]).to_pylist() == [None, None]
    for call, error, match in (
        (lambda: sa.Table.from_pandas([1]), sa.InvalidType, "expected a pandas.DataFrame, found list"),
        (lambda: sa.Table.from_pandas(frame, columns="a"), sa.InvalidType, "expected a sequence of labels, found str"),
        (lambda: sa.Table.from_pandas(frame, columns=["x"]), sa.FieldNotFound, "lacks some of the columns"),
        (lambda: sa.Table.from_pandas(grid(["a", "a"]), schema), sa.InvalidArgument, "several named 'a'"),
    ):
        with pytest.raises(error, match=match):
            call()


# --- memory -----------------------------------------------------------------------------------------------------


def test_numbers_of_a_mapped_file_stay_where_they_are(tmp_path: Any) -> None:
    source = {
        "i": np.arange(1000), "u": np.arange(1000, dtype="u2"), "f": np.arange(1000.0),
        "t": np.arange(1000).astype("M8[us]"), "d": np.arange(1000).astype("m8[ns]"),
    }  # fmt: skip
    with sa.ipc.new_file(tmp_path / "x", sa.table(source).schema) as writer:
        writer.write_table(sa.table(source))
    with sa.ipc.open_file(tmp_path / "x") as reader:
        batch = reader.get_batch(0)
        table = reader.read_all()
        for frame in (batch.to_pandas(), table.to_pandas()):
            for name in source:
                values = frame[name].to_numpy()
                assert address(values) == address(batch[name].buffers()[1])
                assert not values.flags.writeable
                assert values.tolist() == source[name].tolist()
        assert address(batch["i"].to_pandas()) == address(batch["i"].buffers()[1])
        assert address(table["i"].to_pandas()) == address(batch["i"].buffers()[1])
        frame = batch.to_pandas()
        with pytest.raises(ValueError, match="read-only"):
            frame.loc[0, "i"] = 5
        backed = batch.to_pandas(arrow_backed=True)
        buffers = backed["i"].array.__arrow_array__().chunk(0).buffers()
        assert buffers[1].address == address(batch["i"].buffers()[1])
        assert batch.to_pandas(zero_copy_only=True).shape == (1000, 5)
    assert frame["f"].sum() == 499500.0  # the frame keeps the mapping


def test_a_writable_frame_has_private_pages_of_a_mapped_file(tmp_path: Any) -> None:
    count = 100_000
    source = sa.table({
        "i": np.arange(count), "f": np.arange(count, dtype="f4"), "t": np.arange(count).astype("M8[us]"),
        "z": sa.array(np.arange(count).astype("M8[us]"), sa.timestamp("us", "UTC")), "n": [None, 1.5] * (count // 2),
        "c": sa.array(["a", "b"] * (count // 2)).dictionary_encode(), "k": np.arange(count) % 2 == 0,
    })  # fmt: skip
    with sa.ipc.new_file(tmp_path / "x", source.schema) as writer:
        writer.write_table(source)
    with sa.ipc.open_file(tmp_path / "x") as reader:
        batch = reader.get_batch(0)
        before = batch.slice(0, 3).to_pylist()
        for made in (batch, reader.read_all()):
            frame = made.to_pandas(writable=True)
            numbers = frame["i"].to_numpy()
            for name in frame:
                frame.loc[0, name] = frame.loc[1, name]
            frame["f"] *= 2
            assert [frame.loc[0, name] for name in "itznck"] == [frame.loc[1, name] for name in "itznck"]
            assert frame["f"].tolist()[:3] == [2.0, 2.0, 4.0]
            assert numbers[0] == 1
            assert address(frame["i"]) == address(numbers)
            assert batch.slice(0, 3).to_pylist() == before
        series = batch["i"].to_pandas(writable=True)
        series[0] = 5
        assert (series[0], batch["i"][0]) == (5, 0)
        backed = batch.to_pandas(arrow_backed=True, writable=True)
        backed.loc[0, "i"] = 7
        assert (backed.loc[0, "i"], batch["i"][0]) == (7, 0)
    small = sa.table(FRAMES["numbers"])
    EQUAL(small.to_pandas(writable=True), FRAMES["numbers"])
    EQUAL(sa.table(FRAMES["multi-index"]).to_pandas(writable=True), FRAMES["multi-index"])


def test_what_is_copied_is_refused_where_a_copy_is_not_wanted() -> None:
    for values in ([1, None], [True]):
        with pytest.raises(sa.CopyRequired, match="pandas needs a copy"):
            sa.array(values).to_pandas(zero_copy_only=True)


def test_numbers_of_a_frame_are_used_in_place() -> None:
    frame = pd.DataFrame({"a": np.arange(9.0), "c": pd.Categorical(["x", "y", "x"] * 3)})
    table = sa.table(frame)
    assert address(table["a"].chunk(0).buffers()[1]) == address(frame["a"].to_numpy())
    assert address(table["c"].chunk(0).buffers()[1]) == address(frame["c"].array.codes)
    back = table.to_pandas()
    assert address(back["a"].to_numpy()) == address(frame["a"].to_numpy())


# --- every type -------------------------------------------------------------------------------------------------


def in_pyarrow(array: Any) -> Any:
    """Return pyarrow's result for the same values, without types that it refuses or gets wrong."""
    return array.for_consumer("pandas").to_pyarrow()


def test_every_type_becomes_what_pyarrow_makes_of_it() -> None:
    refused = set()
    for case in CASES:
        if not case.name.endswith(("-nulls", "-empty")) and not case.name.startswith(("spec", "odd")):
            continue
        array = case.array()
        try:
            made = array.to_pandas()
        except sa.Unsupported:
            refused.add(case.type)
            continue
        if str(made.dtype) in ("Int64", "UInt64"):  # pyarrow rounds them
            assert made.astype(object).where(made.notna(), None).tolist() == array.to_pylist(), case
            continue
        peer = in_pyarrow(array).to_pandas()
        assert made.dtype == peer.dtype, case
        assert repr(made.tolist()) == repr(peer.tolist()), case
        if case.name.endswith("-empty"):
            continue
        frame = sa.record_batch({"c": array}).to_pandas()
        assert repr(frame["c"].tolist()) == repr(peer.tolist()), case
        chunked = sa.chunked_array([array, array])
        assert len(chunked.to_pandas()) == 2 * len(array), case
    unions = {case.type for case in CASES if "union" in str(case.type)}
    assert refused == unions | {sa.month_interval(), sa.day_time_interval()}


def test_extension_types_become_what_their_storage_does() -> None:
    batch = sa.record_batch({
        "u": sa.array([b"1" * 16, None], sa.uuid()),
        "s": sa.array([{"u": b"1" * 16}, None], sa.struct({"u": sa.uuid()})),
        "b": sa.array([True, False], sa.bool8()),
        "j": sa.array(["{}", None], sa.json_(sa.string())),
        "t": sa.array([[1, 2], [3, 4]], sa.fixed_shape_tensor(sa.int8(), [2])),
    })  # fmt: skip
    frame = batch.to_pandas()
    assert frame["u"].tolist() == [uuid.UUID(bytes=b"1" * 16), None]
    assert frame["s"].tolist() == [{"u": b"1" * 16}, None]  # where pyarrow has no UUIDs
    assert frame["b"].dtype == bool
    assert frame["j"].dtype == "str"
    assert [row.tolist() for row in frame["t"]] == [[1, 2], [3, 4]]


def test_arrow_backed_columns_keep_their_types() -> None:
    for case in CASES:
        if not case.name.endswith("-nulls"):
            continue
        array = case.array()
        try:
            batch = sa.record_batch({"c": array}).for_consumer("pandas")
        except sa.Unsupported:
            continue
        frame = batch.to_pandas(arrow_backed=True)
        assert frame["c"].dtype == pd.ArrowDtype(batch["c"].to_pyarrow().type), case
        back = sa.table(frame)
        assert back["c"].type == batch["c"].type, case
        assert back.to_pandas()["c"].dtype == frame["c"].dtype, case


# --- options and metadata ---------------------------------------------------------------------------------------


def test_options() -> None:
    table = sa.table({"s": ["a", "b", "a"], "i": [1, None, 3]})
    assert table.to_pandas(strings_to_categorical=True)["s"].dtype == "category"
    assert table.to_pandas(integer_object_nulls=True)["i"].tolist() == [1, None, 3]
    assert table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)["i"].dtype == "Int64"
    indexed = sa.table(FRAMES["multi-index"])
    assert indexed.to_pandas(ignore_metadata=True).columns.tolist() == ["a", "k", "__index_level_1__"]
    for options, match in (
        ({"self_destruct": True}, "to_pandas has no option 'self_destruct'; expected one or more of categories, "),
        ({"dtype_backend": "pyarrow"}, "no option 'dtype_backend'; arrow_backed=True gives"),
        ({"arrow_backed": True, "types_mapper": None}, "one or the other"),
        ({"types_mapper": 3}, "with the options given: TypeError"),
    ):
        for column in (table, table["s"], table["s"].chunk(0)):
            with pytest.raises(sa.InvalidArgument, match=match):
                column.to_pandas(**options)


HOSTILE: list[Any] = [
    b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, {}, {"index_columns": []}, {"index_columns": 5, "columns": []},
    {"index_columns": [{"kind": "x"}], "columns": []}, {"index_columns": ["a"], "columns": []},
    {"index_columns": [], "columns": [{"name": "a"}]}, {"index_columns": [], "columns": 1, "column_indexes": []},
    {"index_columns": [{"kind": "range", "name": None, "start": 0, "stop": 3, "step": 0}], "columns": []},
    {"index_columns": [], "columns": [{"name": "a", "field_name": "a", "pandas_type": "x", "numpy_type": "x[pyarrow"}]},
    {"index_columns": [], "columns": [], "column_indexes": [{"name": "x", "pandas_type": "y", "numpy_type": "z"}]},
    {"index_columns": [], "columns": [], "column_indexes": [{"name": None}] * 2},
]  # fmt: skip


def test_metadata_that_do_not_fit_are_refused_or_left_out() -> None:
    table = sa.table({"a": [1, 2]})
    for found in HOSTILE:
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        odd = table.replace_schema_metadata({"pandas": text})
        with pytest.raises(sa.InvalidData, match=r"metadata b'pandas'.*ignore_metadata=True"):
            odd.to_pandas()
        assert odd.to_pandas(ignore_metadata=True)["a"].tolist() == [1, 2]
    for text in (b"", b"{", b"[]", b"[" * 100_000):
        with pytest.raises(sa.InvalidData, match="metadata b'pandas'"):
            _ = table.replace_schema_metadata({"pandas": text}).schema.pandas_metadata


def test_no_integer_is_rounded() -> None:
    big, half = 2**53 + 1, sa.uint64()
    table = sa.table({
        "whole": [big, big], "small": [1, None], "nulls": [big, None], "unsigned": sa.array([None, 2**64 - 1], half),
        "lists": [[big, None], None], "structs": [{"a": big}, {"a": None}],
        "chunks": sa.chunked_array([[big], [None]], sa.int64()).combine_chunks(),
    })  # fmt: skip
    made = table.to_pandas()
    dtypes = ["int64", "float64", "Int64", "UInt64", "object", "object", "Int64"]
    assert list(map(str, made.dtypes)) == dtypes
    assert [int(made["nulls"][0]), int(made["unsigned"][1]), int(made["chunks"][0])] == [big, 2**64 - 1, big]
    assert made["nulls"].isna().tolist() == [False, True]
    assert made["lists"][0].tolist() == [big, None]
    assert made["structs"][0] == {"a": big}
    assert table.to_pandas(writable=True)["nulls"][0] == big
    assert table.to_pandas(integer_object_nulls=True)["nulls"].tolist() == [big, None]
    assert str(sa.chunked_array([[-big], [None]]).to_pandas().dtype) == "Int64"
    assert sa.array([[-big, None]]).to_pandas()[0].tolist() == [-big, None]
    index = pd.Index(pd.array([big, None], "Int64"), name="i")
    described = sa.table(pd.DataFrame({"x": [1, 2]}, index=index))
    assert described.to_pandas().index[0] == big
    text = described.schema.metadata[b"pandas"].replace(b"Int64", b"int64")
    assert described.replace_schema_metadata({"pandas": text}).to_pandas().index[0] == big


# --- zones, nanoseconds, rows ---------------------------------------------------------------------------------------

BERLIN = sa.timestamp("us", "Europe/Berlin")
MIDNIGHT = dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dictionaries_of_zoned_times_keep_their_zone(unit: str) -> None:
    """pyarrow drops the zone, and shows the time of UTC."""
    days = pd.date_range("2024", periods=2, tz="Europe/Berlin", unit=unit)
    for frame in (pd.DataFrame({"c": pd.Categorical([days[1], None, days[0]])}), rows(pd.CategoricalIndex(days))):
        EQUAL(sa.table(frame).to_pandas(), frame)
    array = sa.array([MIDNIGHT, None, MIDNIGHT], sa.timestamp(unit, "Europe/Berlin")).dictionary_encode()
    expected = [pd.Timestamp(MIDNIGHT), None, pd.Timestamp(MIDNIGHT)]
    for column in (array, array.slice(0, 3), sa.chunked_array([array.slice(0, 1), array.slice(1)])):
        for found in (column.to_pandas(), sa.table({"c": column}).to_pandas()["c"]):
            assert str(found.cat.categories.dtype) == f"datetime64[{unit}, Europe/Berlin]"
            assert [None if value is pd.NaT else value for value in found] == expected
            assert found[0].hour == 0
    nothing = sa.array([None], array.type)
    for column in (array.slice(0, 0), sa.chunked_array([], array.type), nothing):
        assert str(column.to_pandas().cat.categories.dtype) == f"datetime64[{unit}, Europe/Berlin]"


@pytest.mark.parametrize(
    "type",
    [sa.list_(BERLIN), sa.large_list(BERLIN), sa.list_(BERLIN, 1), sa.list_view(BERLIN), sa.large_list_view(BERLIN),
     sa.list_(sa.timestamp("ns", "Europe/Berlin"))],
    ids=str,
)  # fmt: skip
def test_lists_of_zoned_times_keep_their_zone(type: Any) -> None:
    array = sa.array([[MIDNIGHT], None, [MIDNIGHT]], type)
    for column in (array, array.slice(0, 3), sa.chunked_array([array.slice(0, 1), array.slice(1)])):
        for found in (column.to_pandas(), sa.table({"c": column}).to_pandas()["c"]):
            assert found[1] is None
            for value in (found[0], found[2]):
                assert value.tolist() == [MIDNIGHT]
                assert (value[0].hour, str(value[0].tz)) == (0, "Europe/Berlin")
    assert len(array.slice(0, 0).to_pandas()) == 0
    nested = sa.array([[[MIDNIGHT], None]], sa.list_(type)).to_pandas()[0]
    assert (nested[0][0].hour, nested[1]) == (0, None)
    frame = pd.DataFrame({"l": [[pd.Timestamp(1, tz="Europe/Berlin")], None, []]})
    assert sa.table(frame).to_pandas()["l"].tolist() == frame["l"].tolist()


def test_times_of_several_zones_are_of_no_single_type() -> None:
    """pyarrow takes the first."""
    two = [pd.Timestamp("2024", tz="Europe/Berlin"), pd.Timestamp("2024", tz="Asia/Tokyo")]
    for values in ([[two]], [[{"t": two[0]}], [{"t": two[1]}]], [two]):
        with pytest.raises(sa.InvalidType, match=r"time zones Europe/Berlin, Asia/Tokyo; pass type="):
            sa.table(pd.DataFrame({"x": values[0] if len(values) == 1 else [value[0] for value in values]}))
    assert sa.array(two, BERLIN).to_pandas().tolist() == two


def test_nanoseconds_that_would_wrap_are_refused() -> None:
    """pyarrow makes 1815 of 2400."""
    dates = sa.table({"x": sa.array([1, 157054], "date32")})
    with pytest.raises(sa.InvalidArgument, match="no option 'coerce_temporal_nanoseconds'"):
        dates.to_pandas(coerce_temporal_nanoseconds=True)
    with pytest.raises(sa.InvalidData, match="cannot hold"):
        dates.cast(sa.schema([("x", sa.timestamp("ns"))]))
    assert dates[:1].cast(sa.schema([("x", sa.timestamp("ns"))])).to_pandas()["x"][0] == pd.Timestamp("1970-01-02")
    with pytest.raises(sa.ShmarrowError, match="29349"):
        sa.array([10**7], sa.date32()).to_pandas()


def test_rows_without_columns_are_rows() -> None:
    """pyarrow makes them none."""
    table = sa.table({"x": [1, 2, 3]})
    described = sa.table(pd.DataFrame(index=["a", "b", "c"]))
    for bare in (table.select([]), table.to_batches()[0].select([]), described, described.select([])):
        for options in ({}, {"arrow_backed": True}, {"ignore_metadata": True}, {"writable": True}):
            assert len(bare.to_pandas(**options)) == 3
    assert sa.table(table.select([]).to_pandas()).shape == (3, 0)


# --- by a writer's schema -----------------------------------------------------------------------------------------

FITTING: dict[str, tuple[Any, Any, Any]] = {
    "maps": (sa.map_(sa.string(), sa.int64()), [{"a": 1}, None, [("b", 2)]], [[("a", 1)], None, [("b", 2)]]),
    "integers beside nulls": (sa.int16(), [1, None, 3], [1, None, 3]),
    "empty lists": (sa.list_(sa.int32()), [[], [], None], [[], [], None]),
    "nothing": (sa.string(), [np.nan, np.nan], [None, None]),
    "nothing as objects": (sa.list_(sa.date32()), [None, None], [None, None]),
    "decimals": (sa.decimal128(10, 3), [D("1.5"), None], [D("1.500"), None]),
    "whole decimals": (sa.decimal64(10, 0), [1, 2], [D(1), D(2)]),
    "bytes": (sa.binary(2), [b"ab", None], [b"ab", None]),
    "lists of moments": (sa.list_(BERLIN), [[pd.Timestamp(MIDNIGHT)], None], [[MIDNIGHT], None]),
    "offsets": (sa.month_day_nano_interval(), [pd.DateOffset(months=1), pd.DateOffset(2)], [(1, 0, 0), (0, 2, 0)]),
    "dictionaries": (sa.dictionary("int8", "string"), ["a", None, "a"], ["a", None, "a"]),
    "structs": (sa.struct({"x": sa.int8(), "y": sa.list_(sa.int8())}), [{"x": 1, "y": []}], [{"x": 1, "y": []}]),
    "views": (sa.string_view(), ["a", None], ["a", None]),
}


@pytest.mark.parametrize("name", FITTING)
def test_a_writer_writes_frames_by_its_schema(name: str, tmp_path: Any) -> None:
    type, values, expected = FITTING[name]
    schema = sa.schema({"before": sa.int8(), "x": type})
    frame = pd.DataFrame({"x": values, "before": range(len(values))})
    frame.attrs = {"not stored": object()}
    with sa.ipc.new_file(tmp_path / "x.arrow", schema) as writer:
        writer.write(frame)
        writer.write(frame.iloc[:0])
    found = sa.ipc.open_file(tmp_path / "x.arrow").read_all()
    assert found["x"].to_pylist() == expected
    assert found.schema == schema


@pytest.mark.parametrize(
    ("frame", "error", "match"),
    [
        (pd.DataFrame({"x": [1, 300]}), sa.InvalidData, "column 'x': row 1: int8 cannot hold 300"),
        (pd.DataFrame({"x": [1.0, None, 0.5]}), sa.InvalidData, "column 'x': row 2: .*not a whole number"),
        (pd.DataFrame({"x": ["a"]}), sa.InvalidType, "column 'x'"),
        (pd.DataFrame({"x": [1], "y": [2]}), sa.InvalidArgument, "no field for the columns .'y'"),
        (pd.DataFrame({"y": [2]}), sa.FieldNotFound, "'x'"),
        (pd.DataFrame({"x": [1]}, index=[5]), sa.InvalidArgument, "no field for .*index; frame.reset_index"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), sa.InvalidArgument, "several named 'x'"),
    ],
    ids=["too large", "fraction", "text", "another column", "a column less", "an index", "twice"],
)
def test_a_frame_that_does_not_fit_is_refused(frame: Any, error: Any, match: str, tmp_path: Any) -> None:
    with sa.ipc.new_file(tmp_path / "x.arrow", sa.schema({"x": sa.int8()})) as writer:
        with pytest.raises(error, match=match):
            writer.write(frame)
        writer.write(pd.DataFrame({"x": [1, None]}))
    assert sa.ipc.open_file(tmp_path / "x.arrow").read_all().to_pydict() == {"x": [1, None]}


def test_a_writer_gives_no_time_a_zone(tmp_path: Any) -> None:
    naive = pd.DataFrame({"x": pd.to_datetime(["2024-01-01"])})
    for frame, type in ((naive, BERLIN), (naive.assign(x=naive["x"].dt.tz_localize("UTC")), sa.timestamp("us"))):
        writer = sa.ipc.new_file(tmp_path / "x.arrow", sa.schema({"x": type}), overwrite=True)
        with writer, pytest.raises(sa.InvalidType, match=r"no exact cast to .*tz_localize"):
            writer.write(frame)
