"""Slots that take no bytes: a few hundred bytes may claim any number of them, and nothing grows with that number."""

from __future__ import annotations

import pytest

import shmarrow as sa


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
