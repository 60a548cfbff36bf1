"""A value that goes in comes out the same, or an error names it: ``take``, unions and binary from Python values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shmarrow as sa

pa = pytest.importorskip("pyarrow")

NUMBERS = [10, 20, 30]


# --- take -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "indices",
    [[1.7], [1.0], np.array([0.5]), np.array([1.0], "f4"), ["1"], [dt.date(1970, 1, 2)], np.array([1], "m8[s]"), 1j],
    ids=repr,
)
def test_take_refuses_what_is_no_integer(indices: Any) -> None:
    with pytest.raises((sa.InvalidType, sa.InvalidArgument)):
        sa.array(NUMBERS).take(indices)


@pytest.mark.parametrize(
    "mask",
    [
        [True, False, True],
        (True, False, True),
        np.array([True, False, True]),
        [True, 0, 1],
        sa.array([True, False, True]),
    ],
    ids=lambda mask: type(mask).__name__,
)
def test_take_refuses_masks_and_says_what_to_do(mask: Any) -> None:
    with pytest.raises(sa.InvalidType, match=r"positions, found truth values; .* numpy.flatnonzero\(mask\)"):
        sa.array(NUMBERS).take(mask)


@pytest.mark.parametrize("indices", [[[0, 1]], np.zeros((2, 2), "i8"), np.array(1), 1, [[]]], ids=repr)
def test_take_refuses_other_shapes(indices: Any) -> None:
    with pytest.raises(sa.InvalidArgument, match="shape"):
        sa.array(NUMBERS).take(indices)


@pytest.mark.parametrize("index", [3, -1, 1 << 31, 1 << 63, 1 << 70, -(1 << 70), np.uint64((1 << 64) - 1)], ids=repr)
def test_take_names_an_index_out_of_range(index: Any) -> None:
    with pytest.raises(sa.IndexOutOfRange):
        sa.array(NUMBERS).take([0, index])
    with pytest.raises(sa.IndexOutOfRange):
        sa.array(NUMBERS).take([None, index])


TAKEN = [
    [2, 0], (2, 0), range(2), np.array([2, 0], "u1"), np.array([2, 0], "i2")[::-1], np.array([2, 0], ">i4"), [],
    np.array([2], "u8"), [np.int8(1)], [2, None, 0], [None], sa.array([1, None, 2]), sa.array([2, 0], "uint16"),
    pa.array([2, 0]), pa.array([2, None, 0]), pa.chunked_array([[2], [None, 0]]),
]  # fmt: skip


@pytest.mark.parametrize("indices", TAKEN, ids=repr)
@pytest.mark.parametrize(
    "values",
    [[10, 20, 30], [10, None, 30], ["a", None, "ccc"], [[1], [], None], [True, None, False]],
    ids=repr,
)
def test_take_gives_what_pyarrow_gives(values: list[Any], indices: Any) -> None:
    picks = indices.to_pylist() if hasattr(indices, "to_pylist") else [None if i is None else int(i) for i in indices]
    expected = pa.array(values).take(pa.array(picks, pa.int64())).to_pylist()
    assert sa.array(values).take(indices).to_pylist() == expected


def test_take_of_null_indices_in_types_without_validity() -> None:
    union = sa.array([1, "a"], sa.dense_union({"i": sa.int64(), "s": sa.string()}))
    assert union.take([1, None]).to_pylist() == ["a", None]
    assert sa.array([1, 1, 2], sa.run_end_encoded(sa.int32(), sa.int8())).take([None, 2]).to_pylist() == [None, 2]
    assert sa.array([], "int8").take([None, None]).to_pylist() == [None, None]
    assert sa.array([None], sa.null()).take([0, None]).to_pylist() == [None, None]


def test_null_indices_hold_anything() -> None:
    indices = sa.PrimitiveArray.from_numpy(sa.int64(), np.array([99, 1]), np.array([False, True]))
    assert sa.array(NUMBERS).take(indices).to_pylist() == [None, 20]


@pytest.mark.parametrize(
    ("mask", "error"),
    [([True], sa.InvalidArgument), (np.ones((2, 1), bool), sa.InvalidArgument), ([1, 0], sa.InvalidType)],
)
def test_the_mask_of_take_is_checked(mask: Any, error: Any) -> None:
    with pytest.raises(error, match="mask"):
        sa.array(NUMBERS).take([0, 1], mask)
    assert sa.array(NUMBERS).take([0, 1], [True, False]).to_pylist() == [10, None]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=6),
    st.lists(st.none() | st.integers(-2, 7), max_size=6),
)
def test_take_agrees_with_pyarrow(values: list[Any], indices: list[Any]) -> None:
    """Both give the same values, or both find an index out of range."""
    try:
        expected = pa.array(values, pa.int64()).take(pa.array(indices, pa.int64())).to_pylist()
    except pa.ArrowIndexError:
        with pytest.raises(sa.IndexOutOfRange):
            sa.array(values, "int64").take(indices)
    else:
        assert sa.array(values, "int64").take(indices).to_pylist() == expected
