"""docs/peers.md: each row about shmarrow is true. What it says of others was tried with the versions that it names.

Each row has cases: a call, and the value that it returns or the error that it raises. A row that is changed, added or
removed on the page without its cases here fails.
"""

from __future__ import annotations

import datetime as dt
import io
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environment import ROOT, needs_pyarrow

import shmarrow

pa, pl, sparse = map(pytest.importorskip, ("pyarrow", "polars", "sparse"))
coo_array = pytest.importorskip("scipy.sparse").coo_array
sa: Any = shmarrow

PAGE = (ROOT / "docs/peers.md").read_text(encoding="utf-8")
NAN = float("nan")
ZONED = dt.datetime(2024, 3, 31, 22, 30, tzinfo=dt.UTC)  # half past midnight in Berlin
Case = tuple[Callable[[Path], Any], Any]


def file_of(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, sa.table(table).schema, **options) as writer:
        writer.write_table(sa.table(table))
    return sink.getvalue()


def counts(values: Any, *filters: tuple[str, Any], **options: Any) -> Callable[[Path], list[int]]:
    """Return how many rows each filter leaves of a file with one column."""

    def scan(folder: Path) -> list[int]:
        path = folder / "x.arrow"
        path.write_bytes(file_of(pa.table({"x": values}), **options))
        return [sa.scan(path, filters=[("x", *filter)]).count_rows() for filter in filters]

    return scan


DOUBLES = pa.array([NAN, 1.0, None, 7.0, -0.0, 0.0])
RULES = [(">", 5.0), ("=", NAN), ("!=", 1.0), ("in", [NAN]), ("=", 0.0), ("in", [0.0])]
ROWS_OF_RULES = [1, 0, 4, 1, 2, 2]
BITS = pa.array([NAN, -NAN, NAN, 0.0, -0.0, None, None])
NULLS = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
DECIMALS = pa.array([Decimal("1.10"), Decimal("1.20")])
TYPES = (sa.decimal32, sa.decimal64, sa.decimal128, sa.decimal256)
WIDTHS = sa.table({type.__name__: sa.array(DECIMALS).cast(type(9, 2)) for type in TYPES})
UNITS = pa.array([0, 1], pa.timestamp("ms"))
LARGE = pa.array([2**53 + 1])
METADATA = pa.schema([pa.field("a", pa.int64(), nullable=False, metadata={"unit": "C"})], metadata={"of": "schema"})
EXTENSION = {b"ARROW:extension:name": b"example.celsius", b"ARROW:extension:metadata": b"v1"}
TENSORS = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0]),
    pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.int32(), 6)),
)
LETTERS = pl.DataFrame({"e": pl.Series(["b", "a", None], dtype=pl.Enum(["a", "b", "c"]))})
OBJECTS = pl.DataFrame({"o": pl.Series([{1}], dtype=pl.Object)})


def partitions(folder: Path) -> list[Any]:
    for key, value in ("1", 1), ("__HIVE_DEFAULT_PARTITION__", 2):
        (folder / f"k={key}").mkdir()
        (folder / f"k={key}/a.arrow").write_bytes(file_of(pa.table({"v": [value]})))
    rules = [("!=", 1), ("=", 1), ("not in", [1])]
    return [
        sa.scan(folder).to_table().to_pylist(),
        *(sa.scan(folder, filters=[("k", *rule)]).count_rows() for rule in rules),
    ]


def stored(folder: Path, data: Any) -> Any:
    store = sa.Store(folder / "store")
    store.put("x", data)
    return store


def metadata(folder: Path) -> Any:
    """Return the metadata of the field, the schema, a batch and the footer, as pyarrow reads and we convert them."""
    needs_pyarrow(21)  # older ones write no metadata into the footer
    source, target = folder / "a.arrow", folder / "b.arrow"
    with pa.ipc.new_file(source, METADATA, metadata={"of": "footer"}) as writer:
        writer.write_batch(pa.record_batch([[1]], schema=METADATA), custom_metadata={"of": "batch"})
    sa.convert(source, target)
    with pa.ipc.open_file(target) as reader:
        batch = reader.get_batch_with_custom_metadata(0).custom_metadata
        field = reader.schema.field("a")
        return field.metadata, field.nullable, reader.schema.metadata, dict(batch), dict(reader.metadata)


def says_its_size(data: bytes) -> bool:
    """Return whether the first LZ4 frame of a file has the size of its content."""
    return bool(data[data.index(b"\x04\x22\x4d\x18") + 4] & 8)


def places(data: bytes) -> list[int]:
    """Return where the buffers of a file's batch are, from its start."""
    memory = pa.py_buffer(data)
    batch = pa.ipc.open_file(memory).get_batch(0)
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
    return [buffer.address - memory.address for buffer in buffers]


def private(values: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return what a consumer of DLPack wrote, and what is in the array then."""
    array = sa.ipc.open_file(file_of(pa.table({"x": values}))).get_batch(0)["x"]
    view = np.from_dlpack(array)
    view[0] = 0
    return view.tolist(), array.to_pylist()


ROWS: dict[str, list[Case]] = {
    "`>` and `=` leave NaN out, `!=` keeps it, `in` finds it; −0.0 is 0.0; with statistics the same": [
        (counts(DOUBLES, *RULES), ROWS_OF_RULES),
        (counts(DOUBLES, *RULES, statistics=True), ROWS_OF_RULES),
    ],
    "`unique` as pyarrow; `==` as numbers: NaN equals nothing, −0.0 equals 0.0": [
        (lambda _: len(sa.array(BITS).unique()), len(BITS.unique())),
        (lambda _: sa.array([NAN]) == sa.array([NAN]), False),
        (lambda _: sa.array([0.0]) == sa.array([-0.0]), True),
    ],
    "filters compare 2⁵³ + 1 with 2⁵³ exactly; `cast` refuses what does not fit, unless `safe=False`": [
        (counts(LARGE, ("=", 2.0**53), ("=", 2**53 + 1), (">", 2.0**53)), [0, 1, 1]),
        (lambda _: sa.array(LARGE).cast("float64"), sa.InvalidData),
        (lambda _: sa.array(LARGE).cast("float64", safe=False).to_pylist(), [2.0**53]),
        (lambda _: sa.array([2**63], "uint64").cast("int64"), sa.InvalidData),
    ],
    "keeps decimals of 32 to 256 bits; a filter by `Decimal` is exact, by a float refused": [
        (lambda folder: stored(folder, WIDTHS).get("x").equals(WIDTHS), True),
        (counts(DECIMALS, ("=", Decimal("1.1")), (">", Decimal("1.1"))), [1, 1]),
        (counts(DECIMALS, ("=", 1.1)), sa.InvalidType),
    ],
    "numpy's steps are multiplied; a literal finer than the unit is refused; a zoned time casts to the local date": [
        (lambda _: sa.array(np.array([25], "M8[100ns]")).cast("int64").to_pylist(), [2500]),
        (lambda _: sa.array(np.array([3], "M8[2D]")).to_pylist(), [dt.date(1970, 1, 7)]),
        (counts(UNITS, ("=", dt.datetime(1970, 1, 1, 0, 0, 0, 500))), sa.InvalidData),
        (
            lambda _: sa.array([ZONED], sa.timestamp("us", "Europe/Berlin")).cast("date32", safe=False).to_pylist(),
            [dt.date(2024, 4, 1)],
        ),
    ],
    "`is_null`, `drop_null` see both kinds of nulls, `null_count` as pyarrow; the default partition is null": [
        (lambda _: sa.array(NULLS).is_null().to_pylist(), [False, True, True]),
        (lambda _: sa.array(NULLS).drop_null().to_pylist(), ["a"]),
        (lambda _: sa.array(NULLS).null_count, NULLS.null_count),
        (partitions, [[{"v": 1, "k": 1}, {"v": 2, "k": None}], 0, 1, 0]),
    ],
    "an Enum of Polars is an Enum again after a store": [
        (lambda folder: pl.DataFrame(stored(folder, LETTERS).get("x")).equals(LETTERS), True),
        (lambda folder: pl.DataFrame(stored(folder, LETTERS).get("x")).schema, LETTERS.schema),
    ],
    "unknown extensions keep their metadata; permuted tensors are right; Polars' objects are refused": [
        (
            lambda folder: (
                stored(folder, pa.table([[1]], schema=pa.schema([pa.field("c", pa.int64(), metadata=EXTENSION)])))
                .get("x")
                .schema.field("c")
                .metadata
            ),
            EXTENSION,
        ),
        (lambda _: sa.array(TENSORS).to_numpy_ndarray().tolist(), [[[1, 4], [2, 5], [3, 6]]]),
        (lambda folder: stored(folder, OBJECTS), sa.Unsupported),
    ],
    "that row takes less than 4 kB in a store": [
        (
            lambda folder: (
                stored(
                    folder, pa.table({"x": pa.array([f"{n:01000}" for n in range(1000)], pa.string_view())}).slice(0, 1)
                )
                .info("x")
                .nbytes
                < 4000
            ),
            True,
        ),
    ],
    "keeps fields', the schema's, batches' and the footer's": [
        (metadata, ({b"unit": b"C"}, False, {b"of": b"schema"}, {b"of": b"batch"}, {b"of": b"footer"})),
    ],
    "buffers at multiples of 64; LZ4 frames say their content's size; big-endian arrays are swapped": [
        (lambda _: {place % 64 for place in places(file_of(pa.table({"n": [1, None], "s": ["a", "bcd"]})))}, {0}),
        (
            lambda _: says_its_size(
                file_of(pa.table({"n": [1] * 1000}), options=sa.ipc.IpcWriteOptions(compression="lz4"))
            ),
            True,
        ),
        (lambda _: sa.array(np.array([1, 2], ">i4")).to_pylist(), [1, 2]),
    ],
    "another fill value is refused; values at one place add up; DLPack's memory is private: writes reach no one else": [
        (
            lambda _: sa.SparseCOOTensor.from_pydata_sparse(
                sparse.COO(np.array([[0], [1]]), np.array([5.0]), shape=(2, 2), fill_value=7.0)
            ),
            sa.InvalidType,
        ),
        (
            lambda _: (
                sa.SparseCOOTensor.from_scipy(coo_array(([1.0, 2.0], ([1, 1], [0, 0])), shape=(2, 1)))
                .to_dense()
                .tolist()
            ),
            [[0.0], [3.0]],
        ),
        (lambda _: [private(values) for values in ([1, 2], [True, False])], [([0, 2], [1, 2]), ([0, 0], [1, 0])]),
    ],
}
"""Rows of the page, to their cases."""


def test_each_row_has_cases_and_the_page_keeps_its_size() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    others = [library for library, _ in rows if library not in ("library", "---", "shmarrow")]
    assert [text for library, text in rows if library == "shmarrow"] == list(ROWS)
    assert len(ROWS) == PAGE.count("\n## ")
    assert len(others) >= 60
    assert all(re.search(r"\d", library) for library in others if library != "Polars 2.1, `hive_partitioning`")
    assert len(re.findall(r"\S*\w\S*", PAGE)) <= 1800


@pytest.mark.parametrize(("row", "number"), [(row, number) for row in ROWS for number in range(len(ROWS[row]))])
def test_what_the_page_says_of_us(row: str, number: int, tmp_path: Path) -> None:
    call, expected = ROWS[row][number]
    if isinstance(expected, type):
        with pytest.raises(sa.ShmarrowError) as caught:
            call(tmp_path)
        assert type(caught.value) is expected
    else:
        assert call(tmp_path) == expected
