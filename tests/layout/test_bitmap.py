"""Bitmaps moved, joined and inverted; what is made of them beside pyarrow, and runs of text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import shmarrow as sa
from shmarrow import bitmap

LENGTHS = (0, 1, 7, 8, 9, 63, 64, 65, 1000, 5000)


def random_bits(size: int) -> np.ndarray:
    return np.random.default_rng(size).random(size) < 0.5


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("offset", [0, 1, 7, 8, 13])
def test_bits_from_any_offset(length: int, offset: int) -> None:
    bits = random_bits(offset + length + 5)
    packed = np.packbits(bits, bitorder="little")
    wanted = bits[offset : offset + length]
    moved = bitmap.realign(packed, offset, length)
    assert len(moved) == (length + 7) // 8
    assert np.unpackbits(moved, count=length, bitorder="little").tolist() == wanted.tolist()
    assert bitmap.inverted(moved, length).tobytes() == np.packbits(~wanted, bitorder="little").tobytes()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("first", [0, 3, 8, 2500])
def test_bits_one_after_another(length: int, first: int) -> None:
    parts, wanted = [], []
    for size, offset in ((first, 0), (length, 0), (length, 5), (length, 8), (3, 1)):
        bits = random_bits(size + offset + 9)
        parts.append((np.packbits(bits, bitorder="little"), offset, size))
        wanted.append(bits[offset : offset + size])
    parts.append((None, 4, length))
    wanted.append(np.ones(length, bool))
    joined = bitmap.join(parts)
    assert joined.tobytes() == np.packbits(np.concatenate(wanted), bitorder="little").tobytes()


EDGES = ["", "a", "abcdefgh", "abcdefgi", "abcdefghi", "abcdefghj", "abcdefghyabcdefgh", "abcdefghzabcdefgh", None]


@pytest.mark.parametrize("type", ["string", "large_string", "binary"])
@pytest.mark.parametrize("repeats", [1, 2, 5000])
def test_runs_of_text(type: str, repeats: int) -> None:
    long = [*EDGES, "q" * 1500, "q" * 1499 + "r"]
    text = [value for value in [*long, *reversed(long)] for _ in range(repeats if len(value or "") < 20 else 2)]
    values = [value.encode() for value in text if value is not None] if type == "binary" else text
    array = sa.array([values[-1], *values], type)[1:]
    theirs = pc.run_end_encode(array.to_pyarrow())
    found = array.run_end_encode()
    assert found.run_ends.to_pylist() == theirs.run_ends.to_pylist()
    assert found.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("type", ["string", "large_string"])
@pytest.mark.parametrize("fill", ["", "é", "some text", "long " * 40])
@pytest.mark.parametrize("offset", [0, 3])
def test_nulls_of_text_filled(type: str, fill: str, offset: int) -> None:
    array = sa.array([None, "a", None, "bcd", "", None], type).slice(offset)
    found = array.fill_null(fill)
    found.validate(full=True)
    assert found.null_count == 0
    assert found.to_pylist() == pc.fill_null(array.to_pyarrow(), fill).to_pylist()


def test_nulls_that_hold_bytes_filled() -> None:
    hidden = sa.array(["ab", "cd", "ef"]).to_pyarrow()
    bits = pa.py_buffer(bytes([0b101]))
    array = sa.array(pa.Array.from_buffers(pa.string(), 3, [bits, *hidden.buffers()[1:]]))
    assert array.fill_null("x").to_pylist() == ["ab", "x", "ef"]


def test_the_bitmap_of_valid_slots_is_shared() -> None:
    array = sa.array([1, None])
    found = np.asarray(array.is_valid().buffers()[1])
    assert np.shares_memory(found, np.asarray(array.buffers()[0]))
    assert not found.flags.writeable
