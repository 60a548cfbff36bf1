"""Rows gathered from many chunks at once: the same as those that are taken from one."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmarrow as sa

pytest.importorskip("torch")
import torch

from shmarrow.torch import BatchDataset, IterableBatchDataset, Lists
from shmarrow.torch.gather import Gather, Numbers, is_gathered, numbers_of

ROWS = 600
RNG = np.random.default_rng(3)
NULLS = RNG.random(ROWS) < 0.2


def holed(values: Any) -> list[Any]:
    return [None if null else value for value, null in zip(list(values), NULLS.tolist(), strict=True)]


TEXT = ["é" * int(n) for n in RNG.integers(0, 9, ROWS)]
COLUMNS: dict[str, sa.Array] = {
    "int8": sa.array(RNG.integers(-9, 9, ROWS), sa.int8()),
    "float": sa.array(RNG.random(ROWS)),
    "float with nulls": sa.array(holed(RNG.random(ROWS).tolist()), sa.float32()),
    "bool": sa.array((RNG.random(ROWS) < 0.5).tolist()),
    "bool with nulls": sa.array(holed((RNG.random(ROWS) < 0.5).tolist())),
    "time": sa.array(RNG.integers(0, 1 << 40, ROWS).view("M8[us]")),
    "decimal": sa.array(holed(Decimal(n) for n in range(ROWS)), sa.decimal128(9, 2)),
    "3 bytes": sa.array(holed(bytes([n % 256] * 3) for n in range(ROWS)), sa.binary(3)),
    "1000 bytes": sa.array([bytes([n % 256] * 1000) for n in range(ROWS)], sa.binary(1000)),
    "text": sa.array(TEXT),
    "text with nulls": sa.array(holed(TEXT), sa.large_string()),
    "bytes": sa.array([text.encode() for text in TEXT]),
    "empty text": sa.array([""] * ROWS),
    "tensor": sa.array(RNG.random((ROWS, 3, 2), "f4"), sa.fixed_shape_tensor(sa.float32(), (3, 2))),
    "wide": sa.array(RNG.random((ROWS, 501), "f4"), sa.fixed_shape_tensor(sa.float32(), (501,))),
    "list": sa.array(holed([n, n + 1] for n in range(ROWS)), sa.list_(sa.int16(), 2)),
    "list of nulls": sa.array([[n, None] for n in range(ROWS)], sa.list_(sa.int16(), 2)),
    "list of lists": sa.array([[[n, 1], [2, n]] for n in range(ROWS)], sa.list_(sa.list_(sa.int32(), 2), 2)),
    "list of bools": sa.array([[n % 2 == 0, n % 3 == 0, None] for n in range(ROWS)], sa.list_(sa.bool_(), 3)),
}
SIZES = [1, 2, 100, 7, 64, 3, 200, 100, 50, 40, 33]


def in_chunks(column: sa.Array) -> list[sa.Array]:
    """In chunks of many sizes: slices of the whole, or copies of them elsewhere."""
    chunks, start = [], 0
    for number, size in enumerate(SIZES):
        part = column.slice(start, size)
        chunks.append(sa.concat_arrays([part, part.slice(0, 0)]) if number % 2 else part)
        start += size
    assert start == ROWS
    return chunks


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_many_chunks_are_those_of_one(name: str) -> None:
    column = COLUMNS[name]
    chunks = in_chunks(column)
    gather = Gather(column.type, chunks.__getitem__, len(chunks)) if is_gathered(column.type) else None
    form = numbers_of(column.type)
    plain = None if form is None else Numbers(*form, chunks.__getitem__, len(chunks))
    assert gather is not None or plain is not None or name == "list of bools"
    starts = np.cumsum([0, *SIZES])
    for rows in (RNG.integers(0, ROWS, 1000), np.arange(ROWS)[::-1], np.array([5]), np.array([], np.int64)):
        numbers = np.searchsorted(starts, rows, "right") - 1
        taken = column.take(rows)
        values = None if plain is None else plain.take(numbers, rows - starts[numbers])
        if values is not None:
            np.testing.assert_array_equal(values, taken.to_torch().numpy())
        assert plain is None or values is not None or "null" in name or name == "list"
        if gather is None:
            continue
        gathered = gather.take(numbers, rows - starts[numbers])
        gathered.validate(full=True)
        assert gathered.type == column.type
        assert gathered.to_pylist() == taken.to_pylist()


def test_a_data_set_of_files_in_batches(tmp_path: Path) -> None:
    """Columns of other types are taken chunk by chunk."""
    columns = COLUMNS | {"lists": sa.array([[n] * (n % 4) for n in range(ROWS)]), "none": sa.nulls(ROWS)}
    del columns["bool with nulls"], columns["list"], columns["list of nulls"], columns["list of bools"]
    table = sa.table(columns)
    for part in range(2):
        with sa.ipc.new_file(tmp_path / f"{part}.arrow", table.schema) as writer:
            for start in range(part * 300, part * 300 + 300, 25):
                writer.write(table.slice(start, 25))
    many, one = BatchDataset(f"{tmp_path}/*.arrow"), BatchDataset(table)
    rows = RNG.integers(0, ROWS, 256)
    for indices in (rows, rows[:1], np.sort(rows)):
        ours, expected = many[indices], one.table.take(indices)
        for name, values in ours.items():
            column = expected[name].combine_chunks()
            if isinstance(values, list):
                assert values == column.to_pylist()
            else:
                np.testing.assert_array_equal(values.numpy(), column.to_numpy(zero_copy_only=False))


def test_offsets_beyond_the_data_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "damaged.arrow"
    batch = sa.record_batch({"s": ["abcd", "efgh", "ijkl"]})
    with sa.ipc.new_file(path, batch.schema) as writer:
        for _ in range(3):
            writer.write(batch)
    data = bytearray(path.read_bytes())
    offsets = np.array([0, 4, 8, 12], "<i4").tobytes()
    at = data.index(offsets) + 8
    for offset in (-5, 3, 1 << 30):
        data[at : at + 4] = offset.to_bytes(4, "little", signed=True)
        path.unlink()
        path.write_bytes(data)
        with pytest.raises(sa.InvalidData):
            BatchDataset(path)[np.array([1, 0, 2, 5])]


# --- lists, decoding, states ---------------------------------------------------------------------------------------

LISTS = [[1.5, 2.5, 3.5], [], [4.5], [5.5, 6.5]]


@pytest.mark.parametrize("make", [sa.list_, sa.large_list])
def test_lists_of_different_lengths(make: Any) -> None:
    table = sa.table({"l": sa.array(LISTS, make(sa.float32())), "pairs": sa.array([[[1, 2]], [], [[3, 4], [5, 6]], []],
                     make(sa.list_(sa.int16(), 2)))})  # fmt: skip
    plain = BatchDataset(table)
    assert plain[:]["l"] == LISTS
    padded = BatchDataset(table, lists="padded", padding=-1)
    rows = np.array([3, 0, 0])
    assert padded[rows]["l"].tolist() == [[5.5, 6.5, -1], LISTS[0], LISTS[0]]
    assert padded[rows]["l"].dtype == torch.float32
    assert padded[:]["pairs"].tolist() == [[[1, 2], [-1, -1]], [[-1, -1]] * 2, [[3, 4], [5, 6]], [[-1, -1]] * 2]
    assert padded[1:2]["l"].shape == (1, 0)
    offsets = BatchDataset(table, lists="offsets")
    found = offsets[1:]["l"]
    assert isinstance(found, Lists)
    assert (found.values.tolist(), found.offsets.tolist()) == ([4.5, 5.5, 6.5], [0, 0, 1, 3])
    assert offsets[3]["l"].tolist() == [5.5, 6.5]
    assert [row["l"].tolist() for row in offsets.__getitems__([2, 0])] == [LISTS[2], LISTS[0]]
    (batch,) = IterableBatchDataset(table, 4, lists="padded")
    assert batch["l"].shape == (4, 3)


def test_nulls_are_no_lists() -> None:
    table = sa.table({"l": sa.array([[1], None])})
    assert BatchDataset(table)[:]["l"] == [[1], None]
    for lists in ("padded", "offsets"):
        with pytest.raises(sa.CopyRequired, match="'l' has nulls"):
            BatchDataset(table, lists=lists)[:]
    with pytest.raises(sa.InvalidArgument, match="lists must be one of"):
        BatchDataset(table, lists="ragged")


def test_values_are_decoded() -> None:
    table = sa.table({"b": [bytes([n] * 4) for n in range(5)], "n": [*range(5)]})
    data = BatchDataset(table, decode={"b": lambda value: np.frombuffer(value, "u1").reshape(2, 2).copy()})
    assert data[np.array([4, 1])]["b"].tolist() == [[[4, 4]] * 2, [[1, 1]] * 2]
    assert data[2]["b"].tolist() == [[2, 2]] * 2
    uneven = BatchDataset(table, decode={"b": lambda value: torch.zeros(value[0])})
    assert [len(each) for each in uneven[:]["b"]] == [0, 1, 2, 3, 4]
    assert BatchDataset(table, decode={"n": str})[1:3]["n"] == ["1", "2"]
    with pytest.raises(sa.FieldNotFound, match="'c', which is none"):
        BatchDataset(table, decode={"c": str})
    with pytest.raises(sa.InvalidType, match="mapping of columns to functions"):
        BatchDataset(table, decode={"b": 1})  # type: ignore[dict-item]
