"""Byte ranges, gathered and compared, beside slices of Python's bytes."""

from __future__ import annotations

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.layout import runs

SIZES = {
    "empty": np.zeros(50, np.int64),
    "short": np.arange(3000) % 9,
    "around a word": np.arange(3000) % 70,
    "some long": np.where(np.arange(3000) % 97 == 0, np.arange(3000), np.arange(3000) % 40),
    "all long": np.arange(1020, 1040),
    "of all lengths": np.arange(2000) * 37 % 1500,
    "more than a block": np.arange(2 * runs.PIECE + 3) % 5,
}


def ranges(sizes: np.ndarray, order: str) -> tuple[bytes, np.ndarray]:
    """Some bytes, with many zeros, and the starts of ranges of those sizes in them."""
    generator = np.random.default_rng(len(sizes))
    ends = np.cumsum(sizes)
    data = (generator.integers(0, 256, int(ends[-1])) * generator.integers(0, 2, int(ends[-1]))).astype("u1").tobytes()
    starts = ends - sizes
    if order == "random":
        starts = generator.integers(0, len(data) - sizes + 1)
    if order == "with gaps":
        sizes[::3] = np.maximum(sizes[::3] - 1, 0)
    return data, starts


@pytest.mark.parametrize("order", ["adjacent", "with gaps", "random"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_ranges_are_gathered_and_compared(sizes: np.ndarray, order: str) -> None:
    sizes = sizes.copy()
    data, starts = ranges(sizes, order)
    parts = [data[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
    source = np.frombuffer(data, "u1")
    found = runs.gather_bytes(source, starts, sizes)
    assert found.tobytes() == b"".join(parts)
    assert not found.flags.writeable
    assert not np.may_share_memory(found, source)
    ends = np.cumsum(sizes)
    assert runs.same_runs(source, starts, found, ends - sizes, sizes)
    changed = found.copy()
    places = [int(end) - 1 for end, size in zip(ends, sizes, strict=True) if size][::7]
    changed[places] ^= 1
    blocks = runs.unequal_runs(source, starts, changed, ends - sizes, sizes)
    assert [row for rows in blocks for row in rows.tolist()] == np.flatnonzero(sizes)[::7].tolist()
    assert runs.same_runs(source, starts, changed, ends - sizes, sizes) == (not places)


def test_words_beyond_the_data_are_padded_with_zeros() -> None:
    data = np.arange(1, 13, dtype="u1")
    for length in (0, 3, 12):
        words = runs.load_words(data[:length], np.arange(length + 3))
        padded = data[:length].tobytes() + bytes(16)
        assert words.tobytes() == b"".join([padded[i : i + 8] for i in range(length + 3)])


def test_views_that_cut_characters_are_refused() -> None:
    """Also where whole data buffers are UTF-8, so that only the ends of the values can be wrong."""
    text = "é" * 20
    for start, size, good in ((0, 40, True), (2, 38, True), (1, 38, False), (0, 37, False), (4, 14, True)):
        raw = text.encode()
        head = raw[start : start + 4]
        views = np.frombuffer(b"".join([
            np.int32(size).tobytes(), head, np.int32(0).tobytes(), np.int32(start).tobytes(),
        ]), "u1")  # fmt: skip
        array = sa.Array.from_buffers("string_view", 1, [None, views, np.frombuffer(raw, "u1")])
        if good:
            array.validate(full=True)
            assert array.to_pylist() == [raw[start : start + size].decode()]
        else:
            with pytest.raises(sa.InvalidData, match="UTF-8"):
                array.validate(full=True)
