"""A store keeps values: what is put comes back with its type and its values, or is refused by name.

Expectations are the values and types that went in, and what pyarrow reads from the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases import table as cases

import shmarrow as sa

pd = pytest.importorskip("pandas", reason="the package pandas is not installed")

BIG = 2**53 + 1
"""An integer that is no float64."""


@pytest.fixture(scope="module")
def module_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Store]:
    with sa.Store(tmp_path_factory.mktemp("values") / "store") as made:
        yield made


@pytest.fixture
def store(module_store: sa.Store) -> sa.Store:
    """An empty store."""
    module_store.clear()
    return module_store


def there_and_back(store: sa.Store, value: Any) -> Any:
    return store.get(store.put(None, value))


@pytest.mark.parametrize("kind", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_sparse_arrays_of_scipy(store: sa.Store, kind: str) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="the package scipy is not installed")
    dense = np.array([[0, 0, 2.5], [0, -1, 0]])
    for suffix in ("array", "matrix"):
        found = there_and_back(store, getattr(sparse, f"{kind}_{suffix}")(dense))
        np.testing.assert_array_equal(found.to_dense(), dense)


def same(mine: list[Any], theirs: list[Any]) -> bool:
    """Whether two lists of Python values are equal and of the same classes; NaN is like NaN."""
    return repr(mine) == repr(theirs)


# --- arrays -----------------------------------------------------------------------------------------------------


TYPES = [
    case
    for case in cases.CASES
    if case.name.endswith("-nulls") or case in cases.SPECIFIED or case in cases.ODD
    if "dictionary-dictionary" not in case.name
]


@pytest.mark.parametrize("case", TYPES, ids=str)
def test_arrays_of_every_type(store: sa.Store, case: cases.Case) -> None:
    values = case.array()
    found = there_and_back(store, values)
    found.validate(full=True)
    assert isinstance(found, sa.Array)
    assert found.type == case.type
    assert same(found.to_pylist(), values.to_pylist())
    part = there_and_back(store, values[1:3])
    assert same(part.to_pylist(), values.to_pylist()[1:3])


EXTENSIONS = {
    "uuid": sa.array([b"0123456789abcdef", None], sa.uuid()),
    "bool8": sa.array([True, None, False], sa.bool8()),
    "json": sa.array(['{"a": 1}', None], sa.json_("string_view")),
    "opaque": sa.array([1, None], sa.opaque("int8", "counter", "x")),
    "tensors": sa.array([[1, 2, 3, 4], None], sa.fixed_shape_tensor("int8", [2, 2], permutation=[1, 0])),
    "within a list": sa.array([[True], None, [None]], sa.list_(sa.bool8())),
    "of a dictionary": sa.array([True, None, True], sa.bool8()).dictionary_encode(index_type="int8"),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_arrays_of_extension_types(store: sa.Store, name: str) -> None:
    values = EXTENSIONS[name]
    found = there_and_back(store, values)
    assert found.type == values.type
    assert type(found) is type(values)
    assert found.to_pylist() == values.to_pylist()


class Celsius(sa.ExtensionType):
    extension_name = "store.celsius"


@pytest.mark.parametrize("type", [Celsius("double"), sa.list_(Celsius("double"))], ids=["itself", "within a list"])
def test_a_type_that_nobody_registered_is_refused(store: sa.Store, type: Any) -> None:
    values = sa.array([None], type)
    with pytest.raises(sa.InvalidType, match=r"store\.celsius.*register_extension_type"):
        store.put("x", values)
    assert store.names() == []
    sa.register_extension_type(Celsius)
    try:
        assert there_and_back(store, values).type == type
    finally:
        sa.unregister_extension_type("store.celsius")


def test_types_that_look_alike_in_messages_are_refused(store: sa.Store) -> None:
    """A message says of a dictionary of an extension type what it says of an extension type over a dictionary."""
    inner = sa.opaque("string", "a", "b")
    with pytest.raises(sa.InvalidType, match=r"would come back as one of extension<arrow\.opaque"):
        store.put("x", sa.array(["x"], inner).dictionary_encode())
    outer = sa.opaque(sa.dictionary("int32", "string"), "a", "b")
    values = sa.ExtensionArray.from_storage(outer, sa.array(["x"]).dictionary_encode())
    assert there_and_back(store, values).type == outer


# --- what others have -------------------------------------------------------------------------------------------

PYARROW = {
    "numbers": pa.array([BIG, None]),
    "bytes": pa.array([b"\xff", None], pa.large_binary()),
    "truth values": pa.array([True, None]),
    "decimals": pa.array([None, 1], pa.decimal256(50, 3)),
    "moments": pa.array([1, None], pa.timestamp("ns", "Europe/Rome")),
    "maps": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
    "dictionaries": pa.array(["a", None, "a"]).dictionary_encode(),
    "slices": pa.array(["a", "b", None, "c"]).slice(1, 2),
    "nothing": pa.nulls(3),
    "extensions": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16))),
    "chunks": pa.chunked_array([[1, None], [2]], pa.int8()),
    "no chunks": pa.chunked_array([], pa.float16()),
    "a batch": pa.record_batch({"a": pa.array([BIG, None]), "b": pa.array(["x", None])}),
    "a table": pa.table({"a": pa.chunked_array([[BIG], [None]])}),
}


@pytest.mark.parametrize("name", PYARROW)
def test_what_pyarrow_has_comes_back_the_same(store: sa.Store, name: str) -> None:
    value = PYARROW[name]
    back = there_and_back(store, value).to_pyarrow()
    assert type(back) is type(value)
    assert back.equals(value)
    if hasattr(value, "chunks"):
        assert [len(chunk) for chunk in back.chunks] == [len(chunk) for chunk in value.chunks]


def test_tensors_of_pyarrow(store: sa.Store) -> None:
    dense = np.array([[0, 5, 0], [7, 0, 0]], np.int16)
    found = there_and_back(store, pa.Tensor.from_numpy(dense.T, ["x", "y"]))
    assert (found.dim_names, found.strides, found.to_numpy().tolist()) == (("x", "y"), (2, 6), dense.T.tolist())
    for form in ("SparseCOOTensor", "SparseCSRMatrix", "SparseCSCMatrix"):
        sparse = there_and_back(store, getattr(pa, form).from_dense_numpy(dense, ["x", "y"]))
        assert isinstance(sparse, getattr(sa, form))
        assert (sparse.dim_names, sparse.to_dense().tolist()) == (("x", "y"), dense.tolist())
    with pytest.raises(sa.InvalidType, match="does not expose the axis order of a SparseCSFTensor"):
        store.put("x", pa.SparseCSFTensor.from_dense_numpy(dense))


def series() -> dict[str, tuple[Any, Any, list[Any]]]:
    return {
        "numbers": (pd.Series([1, 2], dtype="int8"), sa.int8(), [1, 2]),
        "nullable": (pd.Series([BIG, None], dtype="Int64"), sa.int64(), [BIG, None]),
        "NaN": (pd.Series([0.5, np.nan]), sa.float64(), [0.5, None]),
        "truth values": (pd.Series([True, None], dtype="boolean"), sa.bool_(), [True, None]),
        "of pyarrow": (pd.Series([1, None], dtype="uint8[pyarrow]"), sa.uint8(), [1, None]),
        "an array": (pd.array([1, None], dtype="Int16"), sa.int16(), [1, None]),
        "categories": (pd.Categorical([1, None, 1]), sa.dictionary("int8", "int64"), [1, None, 1]),
        "an index": (pd.Index([3, 4]), sa.int64(), [3, 4]),
    }


@pytest.mark.parametrize("name", list(series()))
def test_what_pandas_has(store: sa.Store, name: str) -> None:
    value, type, expected = series()[name]
    found = there_and_back(store, value)
    assert isinstance(found, sa.Array)
    assert found.type == type
    assert same(found.to_pylist(), expected)


def test_an_index_is_not_dropped(store: sa.Store) -> None:
    for series in (pd.Series([1, 2], index=[1, 0]), pd.Series([1, 2], index=["a", "b"])):
        with pytest.raises(sa.InvalidType, match="does not keep the index of a Series"):
            store.put("x", series)
    assert there_and_back(store, pd.Series([1, 2, 3])).to_pylist() == [1, 2, 3]
    assert there_and_back(store, pd.Series([1, 2, 3], index=[0, 1, 2])).to_pylist() == [1, 2, 3]


def test_a_dictionary_of_a_dictionary_is_refused(store: sa.Store) -> None:
    """No message holds one."""
    with pytest.raises(sa.Unsupported, match="a dictionary whose values are themselves dictionary-encoded"):
        store.put("x", cases.case("dictionary-dictionary").array())
    assert store.names() == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"a store accepts a RecordBatch, .*, found object"),
        (pa.scalar(1), r"found pyarrow.Int64Scalar"),
        (np.zeros(2, "M8[h]"), r"ndarray of datetime64\[h\]; put shmarrow.array\(values\) instead"),
        (np.array(["a"]), r"put shmarrow.array\(values\) instead"),
        (np.array([1, None]), r"put shmarrow.array\(values\) instead"),
        (np.ma.array([1, 2], mask=[True, False]), r"MaskedArray .* put shmarrow.array\(values\) instead"),
        (np.array([1j]), r"complex128"),
        (np.array([1], "m8[D]"), r"timedelta64\[D\]"),
        (np.array(["2024-01-01", "NaT"], "M8[D]"), r"NaT"),
        (np.array([2**31], "M8[D]"), r"beyond 2"),
    ],
    ids=["object", "scalar", "hours", "strings", "objects", "masked", "complex", "days of a span", "no day", "far day"],
)
def test_what_cannot_be_kept_is_refused(store: sa.Store, value: Any, message: str) -> None:
    with pytest.raises((sa.InvalidType, sa.InvalidData), match=message):
        store.put("x", value)
    assert store.names() == []


def test_frames_are_kept_as_tables(store: sa.Store) -> None:
    pl = pytest.importorskip("polars")
    column = there_and_back(store, pl.Series("x", [1, None], dtype=pl.UInt16))
    assert (column.type, column.to_pylist()) == (sa.uint16(), [1, None])
    for frame in (pl.DataFrame({"a": [1, None]}), pd.DataFrame({"a": pd.array([1, None], "Int64")})):
        back = store.get(store.put(None, frame))
        assert isinstance(back, sa.Table)
        assert back.to_pydict() == {"a": [1, None]}
    with pytest.raises(sa.InvalidType, match=r"found polars\.LazyFrame; call \.collect\(\) first"):
        store.put("x", pl.LazyFrame({"a": [1]}))


# --- ndarrays ---------------------------------------------------------------------------------------------------

NDARRAYS = {
    "integers": np.array([[BIG, -1]]),
    "halves": np.array([0.5, np.nan, -0.0], np.float16),
    "truth values": np.array([True, False]),
    "moments": np.array(["2024-02-29T12:00", "NaT"], "M8[us]"),
    "days": np.array(["2024-02-29", "0001-01-01"], "M8[D]"),
    "spans": np.array([1, 2], "m8[ns]"),
    "bytes": np.array([b"ab", b"c"], "V2"),
    "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "a number": np.float32(0.1),
}


@pytest.mark.parametrize("name", NDARRAYS)
def test_ndarrays_come_back_with_their_dtype(store: sa.Store, name: str) -> None:
    value = NDARRAYS[name]
    for _ in range(2):  # the second is read by what is known of the first
        found = there_and_back(store, value)
        assert isinstance(found, np.ndarray)
        assert found.dtype == value.dtype
        assert found.tobytes() == value.tobytes()
        assert found.shape == value.shape


def test_anything_with_an_arrow_stream_is_kept(store: sa.Store) -> None:
    class Streamed:
        def __init__(self, source: Any) -> None:
            self.source = source

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.source.__arrow_c_stream__(requested_schema)

    rows = there_and_back(store, Streamed(pa.table({"a": [1, None]}).to_reader()))
    assert (type(rows), rows.to_pydict()) == (sa.Table, {"a": [1, None]})
    column = there_and_back(store, Streamed(pa.chunked_array([[1], [None]])))
    assert (type(column), column.to_pylist()) == (sa.ChunkedArray, [1, None])


# --- tensors of columns -----------------------------------------------------------------------------------------

WITH_NULLS = {
    "array": sa.array([BIG, None]),
    "chunked array": sa.ChunkedArray([sa.array([1, None])]),
    "pyarrow": pa.array([BIG, None]),
    "pandas": pd.Series([BIG, None], dtype="Int64"),
    "pandas over pyarrow": pd.array([1, None], dtype="int64[pyarrow]"),
}


@pytest.mark.parametrize("name", WITH_NULLS)
def test_nulls_become_no_tensor(store: sa.Store, name: str, tmp_path: Path) -> None:
    value = WITH_NULLS[name]
    with pytest.raises(sa.CopyRequired, match="tensor 'a': a tensor cannot hold nulls, and the column has 1"):
        store.put("x", {"a": value})
    with pytest.raises(sa.CopyRequired, match="tensor 'a': a tensor cannot hold nulls, and the column has 1"):
        sa.save_tensors({"a": value}, tmp_path / "bundle")
    with pytest.raises(sa.CopyRequired, match="a tensor cannot hold nulls, and the column has 1"):
        sa.Tensor.from_numpy(value)
    with pytest.raises(sa.CopyRequired, match="a tensor cannot hold nulls, and the column has 1"):
        sa.SparseCOOTensor.from_numpy(value, [[0], [1]], (2,))
    assert store.names() == []
    assert list(tmp_path.glob("bundle*")) == []


def test_columns_without_nulls_are_tensors(store: sa.Store) -> None:
    columns = {
        "array": sa.array([BIG]),
        "pyarrow": pa.array([BIG]),
        "pandas": pd.Series([BIG]),
        "nullable": pd.Series([BIG], dtype="Int64"),
        "truth values": pd.Series([True]),
    }
    found = there_and_back(store, columns)
    assert {name: found[name].to_numpy().tolist() for name in columns} == {
        "array": [BIG], "pyarrow": [BIG], "pandas": [BIG], "nullable": [BIG], "truth values": [True],
    }  # fmt: skip


def test_frames_are_no_tensors(store: sa.Store) -> None:
    """numpy would make floats of all columns of one that has floats."""
    for frame in (pd.DataFrame({"a": [BIG], "b": [0.5]}), sa.record_batch({"a": [BIG], "b": [0.5]})):
        with pytest.raises(sa.InvalidType, match=r"tensor 'x': a \w+\.\w+ is not a tensor"):
            store.put("x", {"x": frame})
