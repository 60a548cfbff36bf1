"""Objects of other libraries, and our own, where another kind is expected: taken where that is exact, or explained."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import file_of, stream_of

import shmarrow

pa, pd, pl = map(pytest.importorskip, ("pyarrow", "pandas", "polars"))
dataset = pytest.importorskip("pyarrow.dataset")
sa: Any = shmarrow  # untyped, as many calls here are wrong on purpose

BATCH = sa.record_batch({"s": ["a", "bc", None], "n": [1, 2, 3]})
VALUES = {"s": ["a", "bc", None], "n": [1, 2, 3]}
OBJECTS = pl.DataFrame({"o": pl.Series([{1}, None], dtype=pl.Object)})
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def written(schema: Any, data: Any, make: Any = None) -> Any:
    sink = io.BytesIO()
    with (make or sa.ipc.new_stream)(sink, sa.schema(schema)) as writer:
        writer.write(data)
    return sink.getvalue()


# --- writing frames under a schema ------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("text", ["string", "large_string", "string_view"])
def test_text_of_any_layout_is_written_in_the_writers(library: str, text: str) -> None:
    for make, read in ((sa.ipc.new_file, pa.ipc.open_file), (sa.ipc.new_stream, pa.ipc.open_stream)):
        data = written({"s": text, "n": "int64"}, FRAMES[library](VALUES), make)
        back = read(data).read_all()
        assert str(back.schema.field("s").type) == text
        assert back.to_pydict() == VALUES


def test_bytes_lists_and_structs_are_written_in_the_writers_layout() -> None:
    frame = pl.DataFrame({"b": [b"x"], "l": [["a"]], "r": [{"t": "z"}]})
    schema = {"b": "binary", "l": sa.list_("string"), "r": sa.struct({"t": "string"})}
    back = pa.ipc.open_stream(written(schema, frame)).read_all()
    assert back.schema.types == [pa.binary(), pa.list_(pa.field("item", pa.string())), pa.struct([("t", pa.string())])]
    assert back.to_pylist() == [{"b": b"x", "l": ["a"], "r": {"t": "z"}}]


def test_fields_without_nulls_are_written_as_not_nullable() -> None:
    schema = [sa.field("s", "string", nullable=False)]
    assert pa.ipc.open_stream(written(schema, pl.DataFrame({"s": ["a"]}))).read_all().to_pydict() == {"s": ["a"]}
    with pytest.raises(sa.InvalidData, match="column 's' holds nulls"):
        written(schema, pl.DataFrame({"s": ["a", None]}))


FITS = "the batch does not fit the writer's schema: "
WIDE = {f"c{i}": "int8" for i in range(300)}
DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "type": ({"s": "string", "n": "int32"}, pa.table(VALUES), "column 'n' is int64, expected int32; shmarrow.table("),
    "not of text in another layout, which is cast": (
        {"s": "string", "n": "int32"},
        pl.DataFrame(VALUES),
        "column 'n' is int64, expected int32",
    ),
    "own layout": (
        {"s": "large_string", "n": "int64"},
        BATCH,
        "column 's' is string, expected large_string; shmarrow.table(data).cast(schema) converts it",
    ),
    "order": (
        {"n": "int64", "s": "string"},
        pl.DataFrame(VALUES),
        "column 0 is 's', expected 'n'; shmarrow.table(data).select(schema.names) puts them in order",
    ),
    "names": ({"s": "string", "m": "int64"}, BATCH, "missing: column 'm'; not expected: column 'n'"),
    "one of 300": (
        WIDE,
        sa.record_batch({name: sa.array([1], "int16" if name == "c250" else "int8") for name in WIDE}),
        "column 'c250' is int16, expected int8",
    ),
    "nullable": (
        [sa.field("x", "int8", nullable=False)],
        sa.record_batch({"x": sa.array([1], "int8")}),
        "column 'x' is nullable, expected not nullable",
    ),
    "twice": ([("a", "int8")] * 2, sa.record_batch({"a": [1]}), "found 1 column, expected 2: a name occurs more than"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_message_names_the_column_that_differs(case: str) -> None:
    schema, data, message = DIFFERENT[case]
    with pytest.raises(sa.InvalidType) as caught:
        written(schema, data)
    assert str(caught.value).startswith(FITS + message)
    assert len(str(caught.value)) < 250


# --- what holds no rows ------------------------------------------------------------------------------------------


class Promise:
    """Stands for dask's frames, which compute for seconds when they are iterated."""

    __module__ = "dask.dataframe.dask_expr"
    __qualname__ = "DataFrame"

    def __iter__(self) -> Any:
        raise AssertionError("iterated")


SINGLE = "is a single column; give its name, as in {'name': values}"
SCHEMA = "a schema has no rows; pass shmarrow.Table.from_batches([], schema)"
READ_FILE = "; shmarrow.ipc.open_file(path).read_all() reads an Arrow file"
CONCAT = "; shmarrow.concat_tables([shmarrow.table(item) for item in items]) makes one table"
Promise.__name__ = "DataFrame"
FILE = file_of(BATCH)
T, A = sa.InvalidType, sa.InvalidArgument
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "dask": (lambda: sa.table(Promise()), T, "found dask.DataFrame; call .compute() first"),
    "frames": (lambda: sa.table([pl.DataFrame(VALUES)]), T, f"found polars.DataFrame in a list{CONCAT}"),
    "tables": (lambda: sa.record_batch([sa.table(BATCH)]), T, f"found shmarrow.Table in a list{CONCAT}"),
    "groups": (lambda: sa.table(pd.DataFrame(VALUES).groupby("n")), T, "pandas.DataFrameGroupBy; call .agg(...) first"),
    "array": (lambda: sa.table(BATCH["n"]), T, f"a shmarrow.PrimitiveArray {SINGLE}"),
    "chunks": (lambda: sa.record_batch(sa.chunked_array([[1]])), T, f"a shmarrow.ChunkedArray {SINGLE}"),
    "series": (lambda: sa.table(pd.Series([1], name="a")), T, f"a pandas.Series {SINGLE}"),
    "tensor": (lambda: sa.table(sa.Tensor.from_numpy(np.eye(2))), T, f"a shmarrow.Tensor {SINGLE}"),
    "pyarrow schema": (lambda: sa.table(BATCH.schema.to_pyarrow()), T, f"found pyarrow.Schema; {SCHEMA}"),
    "schema": (lambda: sa.table(BATCH.schema), T, f"found shmarrow.Schema; {SCHEMA}"),
    "name of a file": (lambda: sa.table("a.arrow"), T, f"found str{READ_FILE}"),
    "path": (lambda: sa.record_batch(Path("a.arrow")), T, f"found pathlib.PosixPath{READ_FILE}"),
    "file object": (lambda: sa.table(io.BytesIO()), T, "; shmarrow.ipc.open_file(file).read_all() reads an Arrow file"),
    "schema of rows": (lambda: sa.schema(BATCH), T, "found shmarrow.RecordBatch; pass its .schema"),
    "schema of a frame": (lambda: sa.schema(pd.DataFrame(VALUES)), T, "; pass shmarrow.table(data).schema"),
    "writer for rows": (
        lambda: sa.ipc.new_file(io.BytesIO(), BATCH),
        T,
        "found shmarrow.RecordBatch; pass its .schema",
    ),
    "Array": (lambda: sa.Array([1]), T, "use shmarrow.array() for values"),
    "RecordBatch": (lambda: sa.RecordBatch({"x": [1]}), T, "shmarrow.record_batch() takes values"),
    "Tensor": (lambda: sa.Tensor(np.zeros(3)), T, "for arrays use shmarrow.Tensor.from_numpy()"),
    "reader": (lambda: sa.ipc.open_file(sa.ipc.open_file(FILE)), T, "RecordBatchFileReader; it is a reader already"),
    "directory to write": (lambda: sa.ipc.new_file("..", BATCH.schema), A, "'..' is a directory"),
    "name of a dtype": (lambda: sa.array([1], "i8"), A, "no type is named 'i8'; numpy's 'i8' is 'int64' here"),
    "Int128": (
        lambda: sa.table(pl.DataFrame({"x": pl.Series([1], dtype=pl.Int128)}))["x"],
        sa.Unsupported,
        "b'_pli128' is polars' own: cast Int128 to Int64 or Decimal in polars",
    ),
    "objects of a frame": (
        lambda: sa.table(OBJECTS),
        sa.Unsupported,
        "column 'o' of polars.DataFrame holds Python objects",
    ),
    "objects of a series": (lambda: sa.array(OBJECTS["o"]), sa.Unsupported, "convert or drop it in polars"),
    "objects in a batch": (lambda: sa.record_batch(OBJECTS), sa.Unsupported, "column 'o' of polars.DataFrame"),
    "dtype": (lambda: sa.array([1], np.complex64), T, "no Arrow type for the numpy dtype <class 'numpy.complex64'>"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_mistake_says_what_to_do(case: str) -> None:
    call, kind, message = CALLS[case]
    with pytest.raises(sa.ShmarrowError) as caught:
        call()
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert len(str(caught.value)) < 250


# --- what is taken -----------------------------------------------------------------------------------------------


def test_generators_and_structs_are_rows() -> None:
    for batch in (BATCH, pa.record_batch(VALUES)):
        assert sa.table(each for each in (batch, batch)).to_pydict() == {key: 2 * each for key, each in VALUES.items()}
    structs = BATCH.to_struct_array()
    assert sa.table(structs).to_pydict() == VALUES
    assert sa.record_batch(sa.chunked_array([structs])).to_pydict() == VALUES


def test_dtypes_and_mappings_are_types_and_schemas() -> None:
    assert sa.schema({"x": np.int8, "t": np.dtype("M8[ms]")}).types == [sa.int8(), sa.timestamp("ms")]
    assert sa.array([1], np.float32).type == sa.float32()
    assert sa.table(BATCH).cast({"s": "large_string", "n": "int8"}).schema.types == [sa.large_string(), sa.int8()]
    assert sa.record_batch({"x": [1]}, schema={"x": "int8"}).schema.types == [sa.int8()]


def test_a_store_takes_what_gives_a_stream(tmp_path: Path) -> None:
    with sa.Store(tmp_path / "store") as store:
        stream = stream_of(BATCH)
        for data in (sa.ipc.open_file(FILE), sa.ipc.open_stream(stream), sa.ipc.open_stream(io.BytesIO(stream))):
            store.put("rows", data, overwrite=True)
            assert store["rows"].to_pydict() == VALUES
        for data, message in {
            Promise(): "found dask.DataFrame; call .compute() first",
            dataset.dataset(pa.table(VALUES)): "found pyarrow.InMemoryDataset; pass .to_table(), or .scanner()",
            BATCH.schema: f"found shmarrow.Schema; {SCHEMA}",
            io.BytesIO(): "found _io.BytesIO; put_file(name, path) stores an Arrow file",
            (each for each in [BATCH]): "found generator; put shmarrow.table(batches)",
        }.items():
            with pytest.raises(sa.InvalidType) as caught:
                store.put("x", data)
            assert message in str(caught.value)
            assert "expected a tensor" not in str(caught.value)
