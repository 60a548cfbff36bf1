"""Codecs beside the packages that they come from, on bytes that are right and wrong; and memory that is used again."""

from __future__ import annotations

import gc
import io
import random
import threading
from collections.abc import Callable
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard

import shmarrow as sa
from shmarrow.errors import InvalidData
from shmarrow.ipc.batch import codecs as compression
from shmarrow.ipc.batch import memory
from shmarrow.ipc.batch.codecs import decompress

SQUEEZE: dict[str, Callable[[bytes], bytes]] = {
    "LZ4_FRAME": lz4.frame.compress,
    "ZSTD": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.fixture(params=["whole", "pieces", "zstd"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A codec; LZ4 with and without the C library behind its package."""
    if request.param == "zstd":
        return "ZSTD"
    if request.param == "pieces":
        monkeypatch.setattr(compression, "_lz4_library", lambda: None)
    elif compression._lz4_library() is None:
        pytest.skip("this build of lz4 does not let others call its library")
    monkeypatch.setattr(compression, "_WORTH_CALLING", 0)
    return "LZ4_FRAME"


def contents() -> list[bytes]:
    chooser = random.Random(3)
    return [
        b"a",
        b"ab" * 1000,
        bytes(3 << 20),
        chooser.randbytes(100_000),
        np.arange(500_000).tobytes(),
        chooser.randbytes(1000) * 3000,
    ]


def opened(codec: str, packed: bytes, size: int) -> bytes:
    return decompress(codec, np.frombuffer(packed, np.uint8), size, "test").tobytes()


def test_what_was_compressed_comes_back(codec: str) -> None:
    for data in contents():
        assert opened(codec, SQUEEZE[codec](data), len(data)) == data


@pytest.mark.parametrize("codec", ["whole", "pieces"], indirect=True)
def test_lz4_frames_of_every_kind(codec: str) -> None:
    data = np.arange(300_000).tobytes()
    for options in (
        {"content_checksum": True},
        {"block_checksum": True},
        {"block_linked": False},
        {"store_size": False},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
        {"compression_level": 9},
    ):
        packed = lz4.frame.compress(data, **options)
        assert opened(codec, packed, len(data)) == data
        if "checksum" in str(options):
            wrong = bytearray(packed)
            wrong[-1] ^= 1
            with pytest.raises(InvalidData, match="invalid LZ4_FRAME frame"):
                opened(codec, bytes(wrong), len(data))


@pytest.mark.parametrize("by", [-1, 1, -70_000, 70_000])
def test_a_size_that_lies_is_found(codec: str, by: int) -> None:
    data = np.arange(100_000).tobytes()
    packed = SQUEEZE[codec](data)
    with pytest.raises(InvalidData, match=r"expected \d+ decompressed bytes, found|frame of"):
        opened(codec, packed, len(data) + by)


def test_cut_and_changed_frames_are_our_errors_or_data(codec: str) -> None:
    data = (np.arange(20_000) % 300).tobytes()
    packed = SQUEEZE[codec](data)
    chooser = random.Random(4)
    for cut in [*range(20), *chooser.sample(range(len(packed)), 50)]:
        with pytest.raises(InvalidData):
            opened(codec, packed[:cut] if cut < len(packed) - 8 else packed[: len(packed) // 2], len(data))
    refused = 0
    for _ in range(500):
        changed = bytearray(packed)
        changed[chooser.randrange(len(changed))] ^= 1 << chooser.randrange(8)
        try:
            assert len(opened(codec, bytes(changed), len(data))) == len(data)
        except InvalidData:
            refused += 1
    assert refused > 50


# --- memory -----------------------------------------------------------------------------------------------------------


def batch(seed: int) -> tuple[Any, np.ndarray]:
    """A batch of four compressed columns of 1 MiB, opened, and what is in them."""
    values = np.random.default_rng(seed).integers(0, 99, (4, 1 << 17))
    place = io.BytesIO()
    made = sa.record_batch({f"c{i}": column for i, column in enumerate(values)})
    with sa.ipc.new_file(place, made.schema, sa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write(made)
    return sa.ipc.open_file(place.getvalue()).get_batch(0), values


def test_memory_is_used_again_when_nothing_points_to_it() -> None:
    opened, values = batch(1)
    column = opened.columns[2].to_numpy()
    del opened
    gc.collect()
    address = column.ctypes.data
    others = [batch(seed) for seed in range(2, 6)]
    for other, expected in others:
        for i, each in enumerate(other.columns):
            assert not np.shares_memory(each.to_numpy(), column)
            np.testing.assert_array_equal(each.to_numpy(), expected[i])
    np.testing.assert_array_equal(column, values[2])
    del others, other, each
    free = len(memory._free)
    del column
    assert len(memory._free) == free + 1
    places = {np.frombuffer(piece, np.uint8).ctypes.data for piece in memory._free}
    assert address in places
    again, _ = batch(7)
    assert again.columns[0].to_numpy().ctypes.data in places
    assert sum(map(len, memory._free)) <= memory._UNUSED


def test_threads_do_not_get_the_same_memory() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for turn in range(20):
            opened, values = batch(1000 * seed + turn)
            columns = [column.to_numpy() for column in opened.columns]
            if not all((mine == theirs).all() for mine, theirs in zip(columns, values, strict=True)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_column_that_is_kept_keeps_no_other() -> None:
    opened, values = batch(11)
    column = opened.columns[1].to_numpy()
    held = len(memory._free)
    del opened
    gc.collect()
    assert len(memory._free) == held + 3
    free = [np.frombuffer(piece, np.uint8) for piece in memory._free]
    assert not any(np.may_share_memory(column, piece) for piece in free)
    np.testing.assert_array_equal(column, values[1])


def test_a_column_that_is_broken_leaves_the_limit_to_the_others() -> None:
    values = np.zeros((2, 100_000), "i8")
    place = io.BytesIO()
    made = sa.record_batch({"a": values[0], "b": values[1]})
    with sa.ipc.new_file(place, made.schema, sa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write(made)
    data = bytearray(place.getvalue())
    data[data.index(b"\x04\x22\x4d\x18")] ^= 1  # the first frame's magic number
    opened = sa.ipc.open_file(bytes(data), limits=sa.ipc.Limits(decompressed_bytes=1_000_000)).get_batch(0)
    for _ in range(2):
        with pytest.raises(InvalidData, match="invalid LZ4_FRAME frame"):
            opened.column(0)
    assert len(opened.column(1)) == 100_000
