"""Slots that take no bytes: a few hundred bytes may claim any number of them, and nothing grows with that number."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forms import stream_of

import shmarrow as sa
from shmarrow.layout.making import make_array


@pytest.mark.parametrize("lengths", [(1 << 62, 1 << 62), ((1 << 63) - 1, 1)])
def test_rows_that_cannot_be_counted(lengths: tuple[int, ...]) -> None:
    """Nulls take no bytes, so a few bytes may claim any number of them; their sum fits 64 bits or is refused."""
    one = sa.array([None])
    parts = [type(one)(one.type, length, [], length) for length in lengths]
    batches = [sa.record_batch({"x": part}) for part in parts]
    wanted = r"2 (chunks|batches) have 9223372036854775808 rows, more than the 9223372036854775807"
    for make in (lambda: sa.ChunkedArray(parts), lambda: sa.Table(batches[0].schema, batches)):
        with pytest.raises(sa.LimitExceeded, match=wanted):
            make()
    fewer = sa.Table(batches[0].schema, [batches[0], batches[0].slice(0, (1 << 63) - 1 - lengths[0])])
    assert fewer.num_rows == len(fewer["x"]) == (1 << 63) - 1


ROWS = 12345
TYPES = {
    "null": (sa.null(), None),
    "fixed_size_binary[0]": (sa.binary(0), b""),
    "fixed_size_list[0]": (sa.list_(sa.int8(), 0), []),
    "struct<>": (sa.struct([]), {}),
    "runs": (sa.run_end_encoded(sa.int64(), sa.int8()), 7),
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "is_valid": lambda array: array.is_valid(),
    "is_null": lambda array: array.is_null(),
    "dictionary_encode": lambda array: array.dictionary_encode(),
    "run_end_encode": lambda array: array.run_end_encode(),
    "to_pylist": lambda array: array.to_pylist(),
}


def claimed(name: str, rows: int) -> Any:
    """A column of a stream of a few hundred bytes that says that it has so many rows."""
    type, value = TYPES[name]
    data = stream_of(sa.record_batch([sa.array([value] * ROWS, type)], names=["x"]))
    data = data.replace(struct.pack("<q", ROWS), struct.pack("<q", rows))
    assert len(data) < 1000
    (batch,) = sa.ipc.open_stream(data)
    array = batch.column(0)
    assert len(array) == rows
    return array


@pytest.mark.parametrize("rows", [1 << 31, 1 << 62])
@pytest.mark.parametrize("name", TYPES)
def test_claimed_rows_cost_no_memory(name: str, rows: int) -> None:
    array = claimed(name, rows)
    calls = dict(CALLS)
    if name == "null":  # of which zeros are made, that take memory when they are written to
        del calls["dictionary_encode"]
    if name == "runs":
        del calls["run_end_encode"]  # they are runs already
        assert array.run_end_encode() is array
    for call in calls.values():
        with pytest.raises(sa.LimitExceeded, match=f"slots that occupy no memory would expand to {rows} values"):
            call(array)
        assert len(call(array[:100])) == 100
    assert array[:3].is_valid().tolist() == [name != "null"] * 3


@pytest.mark.parametrize(
    "call", [lambda array: array.cast(sa.int64()), CALLS["dictionary_encode"]], ids=["cast", "encode"]
)
def test_claimed_nulls_take_what_the_result_takes(call: Callable[[Any], Any]) -> None:
    array = claimed("null", 1 << 62)
    with pytest.raises(sa.LimitExceeded, match="no memory for 4611686018427387904 nulls"):
        call(array)
    assert call(array[:100]).to_pylist() == [None] * 100


def test_slots_with_bytes_are_never_too_many() -> None:
    """A bit a slot is enough: more than 2**24 booleans and their nulls are counted as ever."""
    rows = (1 << 24) + 9
    type = sa.bool_()
    array = make_array(type, rows, [None, np.zeros((rows + 7) // 8, np.uint8)], 0)
    assert int(np.asarray(array.is_valid()).sum()) == rows
