"""Ranges that a hostile file names: overlapping buffers are read once, buffers that nobody uses not at all."""

from __future__ import annotations

import pytest
from test_ranges import Counted

from shmarrow.sources.ranges import CACHE_BYTES, MERGED_BYTES, open_ranges

SIZE = 9 << 20
assert MERGED_BYTES < SIZE < CACHE_BYTES


@pytest.mark.parametrize("step", [1, 1 << 14])
def test_overlapping_ranges_are_read_once(step: int) -> None:
    """300 buffers of almost 9 MiB in a file of 9 MiB cost 9 MiB, whatever small ranges between them are cached."""
    file = Counted(bytes(range(256)) * (SIZE >> 8))
    source = open_ranges(file)
    assert source is not None
    starts = [step * i for i in range(300)]
    source.fetch([(start, start + 9) for start in starts])
    before = file.total
    ranges = [(start, start + SIZE - 300 * step) for start in starts]
    source.fetch(ranges)
    assert file.total - before <= SIZE
    for start, stop in ranges:
        found = source.read(start, stop)
        assert len(found) == stop - start
        assert found[:9].tobytes() == file.data[start : start + 9]
    assert file.total - before <= SIZE


def test_ranges_that_were_found_stay_while_others_are_read() -> None:
    """What a fetch finds in the cache is still there after it, also where it reads more than the cache holds."""
    file = Counted(bytes(SIZE + 2 * CACHE_BYTES))
    source = open_ranges(file)
    assert source is not None
    source.fetch([(0, SIZE)])
    ranges = [*[(i, i + SIZE - 300) for i in range(300)], (SIZE + (1 << 20), len(file.data))]
    source.fetch(ranges)
    for start, stop in ranges:
        assert len(source.read(start, stop)) == stop - start
    assert file.total <= len(file.data)
