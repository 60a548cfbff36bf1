"""Other forms for numpy than plain ndarrays: masked and structured arrays, views of times, and its own strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shmarrow as sa

MASKED: dict[str, tuple[Any, Any, Any]] = {
    "integers": (sa.array([1, None, 3]), [1, 0, 3], [False, True, False]),
    "slice": (sa.array([None, 1, None, 3]).slice(1), [1, 0, 3], [False, True, False]),
    "no nulls": (sa.array([1.5, 2.5]), [1.5, 2.5], [False, False]),
    "bool": (sa.array([True, None]), [True, False], [False, True]),
    "lists": (
        sa.array([[1, 2], None, [3, None]], sa.list_(sa.int16(), 2)),
        [[1, 2], [0, 0], [3, 0]],
        [[False, False], [True, True], [False, True]],
    ),
    "dictionary": (sa.array([5, None, 5]).dictionary_encode(), [5, 0, 5], [False, True, False]),
    "none": (sa.array([], sa.int8()), [], []),
}


@pytest.mark.parametrize("case", MASKED)
def test_masked(case: str) -> None:
    array, values, mask = MASKED[case]
    made = array.to_masked_array()
    assert isinstance(made, np.ma.MaskedArray)
    assert np.ma.getmaskarray(made).tolist() == mask
    assert made.filled(0).tolist() == values
    assert sa.array(made).to_pylist() == array.to_pylist() if made.ndim == 1 else made.shape == (3, 2)


def test_masked_numbers_are_the_memory_itself() -> None:
    array = sa.array([1, None, 3])
    made = array.to_masked_array()
    assert np.shares_memory(made.data, array.values)
    assert not made.data.flags.writeable
    assert made.sum() == 4
    moments = np.array(["2020-01-01", "NaT"], "M8[us]")
    times = sa.array(moments)
    assert np.shares_memory(times.to_masked_array().data, times.values)
    assert times.to_masked_array()[0] == moments[0]
    days = sa.array(np.array(["2020-01-01", "NaT"], "M8[D]")).to_masked_array()
    assert (days.dtype, days[0], days.mask.tolist()) == (np.dtype("M8[D]"), np.datetime64("2020-01-01"), [False, True])
    chunks = sa.chunked_array([array, array.slice(1)])
    assert chunks.to_masked_array().filled(-1).tolist() == [1, -1, 3, -1, 3]
    assert np.shares_memory(sa.chunked_array([array]).to_masked_array().data, array.values)
    with pytest.raises(sa.CopyRequired, match="no dtype for string"):
        sa.array(["a"]).to_masked_array()


def test_structured_there_and_back() -> None:
    dtype = [("x", "<i4"), ("y", "<f8"), ("in", [("a", "u1"), ("b", "<M8[us]")]), ("v", "<f4", (3,))]
    records = np.zeros(4, dtype)
    records["x"] = range(4)
    records["in"]["b"] = np.arange(4).astype("M8[us]")
    records["v"] = np.arange(12).reshape(4, 3)
    batch = sa.record_batch(records)
    assert batch.schema.names == ["x", "y", "in", "v"]
    made = batch.to_structured_array()
    assert made.dtype == np.dtype(dtype)
    assert (made == records).all()
    assert (batch.slice(1, 2).to_structured_array() == records[1:3]).all()
    assert (sa.array(records).to_structured_array() == records).all()
    assert (sa.table(records).to_batches()[0].to_structured_array() == records).all()
    assert sa.record_batch(records[["x"]], schema=sa.schema([("z", sa.int64())])).to_pydict() == {"z": [0, 1, 2, 3]}


def test_structured_with_nulls_and_strings() -> None:
    made = sa.record_batch({"n": [1, None], "s": ["a", None]}).to_structured_array()
    assert made.dtype == np.dtype([("n", "f8"), ("s", "O")])
    assert made["s"].tolist() == ["a", None]
    assert made["n"][0] == 1
    assert np.isnan(made["n"][1])
    assert sa.record_batch({}).to_structured_array().shape == (0,)
    structs = sa.array([{"a": 1}, None]).to_structured_array()
    assert np.isnan(structs["a"][1])
    for names in (["a", "a"], ["a", ""]):
        batch = sa.record_batch([[1], [2]], names=names)
        with pytest.raises(sa.InvalidArgument, match="distinct, non-empty names"):
            batch.to_structured_array()


def test_strings_of_numpy() -> None:
    strings = np.dtypes.StringDType(na_object=None)
    words = sa.array(["a", "bü", None, "x" * 100])
    made = np.asarray(words, strings)
    assert made.dtype == strings
    assert made.tolist() == ["a", "bü", None, "x" * 100]
    assert sa.array(made).equals(words)
    missing = np.asarray(words, np.dtypes.StringDType(na_object=np.nan))
    assert np.isnan(missing).tolist() == [False, False, True, False]
    assert np.asarray(words.slice(0, 2), "U").tolist() == ["a", "bü"]
    for dtype in (np.dtypes.StringDType(), "U5", "S5"):
        with pytest.raises(sa.InvalidData, match=r"row 2: .* cannot hold null"):
            np.asarray(words, dtype)
