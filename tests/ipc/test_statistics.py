"""Statistics of batches: what writers record in the footer, what readers skip by it, and what is wrong with it."""

from __future__ import annotations

import base64
import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa
from shmarrow import xray

NAN = float("nan")


def written(batches: list[Any], statistics: Any = True, **options: Any) -> bytes:
    made = [batch if isinstance(batch, sa.RecordBatch) else sa.record_batch(batch) for batch in batches]
    buffer = io.BytesIO()
    with sa.ipc.new_file(buffer, made[0].schema, statistics=statistics, **options) as writer:
        for batch in made:
            writer.write(batch)
    return buffer.getvalue()


def recorded(batches: list[Any], statistics: Any = True) -> dict[str, Any]:
    found = sa.ipc.open_file(written(batches, statistics)).statistics
    assert found is not None
    found.validate(full=True)
    return found.to_pydict()


def x(nulls: int, least: Any, greatest: Any, **more: Any) -> dict[str, Any]:
    return {"nulls": nulls, "least": least, "greatest": greatest, **more}


LONG = "é" * 40
"""80 bytes of UTF-8, of which 64 are kept."""

CASES: list[tuple[Any, Any]] = [
    ([3, None, -1], x(1, -1, 3)),
    (np.array([1, (1 << 64) - 1], np.uint64), x(0, 1, (1 << 64) - 1)),
    ([0.5, NAN, None, -0.5], x(1, -0.5, 0.5, nan=True)),
    (np.array([1, 2], np.float32), x(0, 1.0, 2.0, nan=False)),
    ([NAN], x(0, None, None, nan=True)),
    ([True, False], x(0, False, True)),
    (sa.array([None, None], "int8"), x(2, None, None)),
    ([dt.date(2024, 1, 2), dt.date(1960, 1, 1)], x(0, dt.date(1960, 1, 1), dt.date(2024, 1, 2))),
    (sa.array([Decimal(-(10**30)), Decimal(10**30)], sa.decimal128(38, 0)), x(0, Decimal(-(10**30)), Decimal(10**30))),
    (sa.array([Decimal(2), Decimal(10**60), Decimal(1)], sa.decimal256(70, 0)), x(0, Decimal(1), Decimal(10**60))),
    (["b", "ab", "a", None, "bb"], x(1, "a", "bb")),
    (["a\0", "a"], x(0, "a", "a\0")),
    (sa.array(["b", "a" * 20, "a" * 19], sa.string_view()), x(0, "a" * 19, "b")),
    (sa.array(["b", "c", "a"]).dictionary_encode().take([0, 1]), x(0, "b", "c")),
    (sa.array([5, 5, None, 7]).run_end_encode(), x(1, 5, 7)),
    ([b"\xff\0", b"\xff"], x(0, b"\xff", b"\xff\0")),
    (sa.array([b"ab", b"aa"], sa.binary(2)), x(0, b"aa", b"ab")),
    ([LONG, LONG + "x"], x(0, "é" * 32, "é" * 31 + "ê")),
    (["x" * 63 + "é" + "x" * 9], x(0, "x" * 63, "x" * 62 + "y")),
    (["\U0010ffff" * 20], x(0, "\U0010ffff" * 16, None)),
    (["a" + "\U0010ffff" * 20], x(0, "a" + "\U0010ffff" * 15, "b")),
    ([b"\xff" * 65], x(0, b"\xff" * 64, None)),
    ([b"a\xff" + b"\xff" * 65], x(0, b"a" + b"\xff" * 63, b"b")),
]  # fmt: skip


@pytest.mark.parametrize(("values", "expected"), CASES)
def test_what_is_recorded(values: Any, expected: dict[str, Any]) -> None:
    assert recorded([{"x": values}]) == {"x": [expected]}


def test_a_row_for_each_batch_and_columns_by_name() -> None:
    batches = [{"x": [1, 2], "y": ["a", "b"], "z": [[1], [2]]}, {"x": [None, 9], "y": ["c", "c"], "z": [[], None]}]
    batches = [sa.record_batch(batch, schema=sa.schema({"x": "int64", "y": "string", "z": sa.list_(sa.int8())}))
               for batch in batches]  # fmt: skip
    assert recorded(batches) == {"x": [x(0, 1, 2), x(1, 9, 9)], "y": [x(0, "a", "b"), x(0, "c", "c")]}
    assert recorded(batches, ["y"]) == {"y": [x(0, "a", "b"), x(0, "c", "c")]}
    with pytest.raises(sa.InvalidType, match=r"statistics of column 'z': .*no order"):
        written(batches, ["z"])
    with pytest.raises(sa.FieldNotFound):
        written(batches, ["none"])


def test_only_who_asks_for_them_has_them() -> None:
    data = written([{"x": [1]}], False)
    assert sa.ipc.open_file(data).statistics is None
    assert data == written([{"x": [1]}], False)


def test_other_readers_ignore_them() -> None:
    data = written([{"x": [1]}, {"x": [2]}], metadata={"mine": "1"})
    reader = sa.ipc.open_file(data)
    assert reader.metadata == {b"mine": b"1"}
    theirs = pa.ipc.open_file(data)
    assert theirs.read_all().to_pydict() == {"x": [1, 2]}
    if not hasattr(theirs, "metadata"):
        pytest.skip("this version of pyarrow does not give the metadata of a footer")
    value = base64.b64decode(theirs.metadata[b"shmarrow:statistics"])
    assert pa.ipc.open_stream(value).read_all().to_pylist() == [{"x": x(0, 1, 1)}, {"x": x(0, 2, 2)}]


# --- skipping -----------------------------------------------------------------------------------------------------


def damaged(batches: list[Any], *numbers: int) -> bytes:
    """A file whose batches of these numbers cannot be read."""
    data = bytearray(written(batches))
    blocks = xray.overview(bytes(data)).blocks.tolist()
    for number in numbers:
        start, metadata, _ = blocks[number]
        data[start : start + metadata] = bytes(metadata)
    return bytes(data)


@pytest.mark.parametrize(
    ("values", "condition", "needed"),
    [
        ([[1, 3], [4, None], [7, 9]], ("=", 4), [1]),
        ([[1, 3], [4, None], [7, 9]], (">", 4), [2]),
        ([[1, 3], [4, None], [7, 9]], ("<=", 4), [0, 1]),
        ([[1, 3], [4, None], [7, 9]], ("in", [2, 8]), [0, 2]),
        ([[1, 3], [4, 4]], ("!=", 4), [0, 1]),
        ([[1.0, NAN], [2.0, 3.0]], ("in", [NAN]), [0]),
        ([[1.0, NAN], [2.0, 3.0]], (">=", 2), [1]),
        ([[LONG + "b", LONG + "c"], ["ü"], ["a"]], (">", LONG), [0, 1]),
        ([["a" * 70], ["a" * 64], ["a" * 63]], ("=", "a" * 70), [0]),
        ([[None, None], [1, 2]], ("<", 9), [0, 1]),
    ],
)
def test_batches_that_cannot_match_are_not_read(values: Any, condition: Any, needed: list[int]) -> None:
    type = sa.infer_type([value for part in values for value in part])
    batches = [sa.record_batch({"x": sa.array(part, type), "y": [0] * len(part)}) for part in values]
    unneeded = [i for i in range(len(values)) if i not in needed]
    whole = sa.scan(sa.ipc.open_file(written(batches)), filters=[("x", *condition)])
    part = sa.scan(sa.ipc.open_file(damaged(batches, *unneeded)), filters=[("x", *condition)])
    assert repr(part.to_table().to_pylist()) == repr(whole.to_table().to_pylist())
    for number in needed:
        with pytest.raises(sa.InvalidData):
            sa.scan(sa.ipc.open_file(damaged(batches, number)), filters=[("x", *condition)]).to_table()


# --- wrong statistics ---------------------------------------------------------------------------------------------


def with_statistics(batches: list[Any], statistics: Any) -> sa.ipc.RecordBatchFileReader:
    """A file whose footer says something else about its batches."""
    if not isinstance(statistics, bytes):
        buffer = io.BytesIO()
        with sa.ipc.new_stream(buffer, statistics.schema) as writer:
            writer.write(statistics)
        statistics = base64.b64encode(buffer.getvalue())
    return sa.ipc.open_file(written(batches, False, metadata={b"shmarrow:statistics": statistics}))


BATCHES = [{"x": [1, 2, None]}, {"x": [5, 6, 7]}]


def struct_of(*names: str) -> sa.RecordBatch:
    """Statistics of two batches whose structs have these children, as no writer of ours makes them."""
    children = [pa.array([0, 0], pa.int64())] * len(names)
    return sa.record_batch(pa.record_batch([pa.StructArray.from_arrays(children, names)], ["x"]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([x(1, 1, 2), x(0, 5, 6)], "batch 1: column 'x': the statistics say that no value is greater than 6, found 7"),
        ([x(1, 2, 2), x(0, 5, 7)], "batch 0: column 'x': the statistics say that no value is less than 2, found 1"),
        ([x(0, 1, 2), x(0, 5, 7)], "batch 0: column 'x': the statistics say 0 nulls, found 1"),
    ],
)
def test_wrong_statistics_are_found_by_full_validation(rows: Any, message: str) -> None:
    with_statistics(BATCHES, sa.table({"x": [x(1, 1, 2), x(0, None, 9)]}).batches[0]).validate(full=True)
    reader = with_statistics(BATCHES, sa.table({"x": rows}).batches[0])
    reader.validate()
    with pytest.raises(sa.InvalidData, match=message):
        reader.validate(full=True)


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        (b"no base64!", "statistics: expected base64"),
        (base64.b64encode(b"no stream"), "statistics"),
        (sa.record_batch({"x": [x(0, 1, 2)]}), "expected a row for each of 2 batches, found 1"),
        (sa.record_batch({"x": [1, 2]}), "column 'x': expected a struct of nulls, least, greatest of int64"),
        (sa.record_batch({"x": [x(0, "1", "2")] * 2}), "column 'x': expected a struct"),
        (sa.record_batch({"none": [x(0, 1, 2)] * 2}), "none"),
        (struct_of("nulls", "greatest", "least"), "in this order"),
        (struct_of("nulls", "least", "greatest", "greatest"), "in this order"),
    ],
)
def test_invalid_statistics_are_an_error(statistics: Any, message: str) -> None:
    reader = with_statistics(BATCHES, statistics)
    assert reader.read_all().num_rows == 6
    with pytest.raises(sa.ShmarrowError, match=message):
        reader.validate(full=True)
    with pytest.raises(sa.ShmarrowError, match=message):
        sa.scan(reader, filters=[("x", ">", 1)]).to_table()


@pytest.mark.parametrize("statistics", [True, ()])
def test_a_file_without_columns_to_measure_has_none(tmp_path: Path, statistics: Any) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "x.arrow").write_bytes(written([{"x": [[1]]}, {"x": [[2], [3]]}], statistics))
    assert sa.ipc.open_file(tmp_path / "day=1" / "x.arrow").statistics is None
    assert sa.scan(tmp_path, filters=[("day", "=", 1)]).count_rows() == 3
    assert sa.scan(tmp_path, filters=[("day", "=", 1)]).to_table()["x"].to_pylist() == [[1], [2], [3]]
