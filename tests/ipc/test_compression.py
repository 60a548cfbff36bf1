"""Codecs beside the packages that they come from, on bytes that are right and wrong; and the memory of columns."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import lz4.frame
import nanoarrow
import numpy as np
import pyarrow as pa
import pytest
import wire
import zstandard
from forms import file_of, stream_of
from processes import python

import shmarrow as sa
from shmarrow.errors import InvalidData
from shmarrow.ipc import compression
from shmarrow.ipc.batch.codecs import decompress
from shmarrow.ipc.compression import CODECS

SQUEEZE: dict[str, Callable[[bytes], bytes]] = {
    "lz4": lz4.frame.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
STANDARD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


@pytest.fixture(params=["zstandard", STANDARD])
def zstd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both modules that ZSTD comes from, whatever the version of Python."""
    module = pytest.importorskip(request.param)
    monkeypatch.setattr(compression, "_zstd", lambda: module)


@pytest.fixture(params=["lz4", "zstd"])
def codec(request: pytest.FixtureRequest, zstd: None) -> str:
    return str(request.param)


def contents() -> list[bytes]:
    chooser = random.Random(3)
    return [
        b"a",
        b"ab" * 1000,
        bytes(3 << 20),
        chooser.randbytes(100_000),
        np.arange(200_000).tobytes(),
        chooser.randbytes(1000) * 1200,
    ]


def opened(codec: str, packed: bytes, size: int) -> bytes:
    return decompress(CODECS[codec], np.frombuffer(packed, np.uint8), size, "test").tobytes()


def test_lz4_frames_of_every_kind() -> None:
    codec = "lz4"
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


FRAMES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "lz4": ("lz4", lz4.frame.compress),
    "lz4 with a checksum": ("lz4", lambda data: lz4.frame.compress(data, content_checksum=True)),
    "lz4 of unknown size": ("lz4", lambda data: lz4.frame.compress(data, store_size=False)),
    "zstd": ("zstd", lambda data: zstandard.ZstdCompressor().compress(data)),
    "zstd with a checksum": ("zstd", lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)),
    "zstd of unknown size": ("zstd", lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data)),
}


@pytest.mark.parametrize("form", FRAMES)
def test_frames_are_complete_and_nothing_follows_them(form: str, zstd: None) -> None:
    """Without the end mark or checksum, or with bytes after it, pyarrow refuses a frame, and so do we."""
    codec, squeeze = FRAMES[form]
    peer = pa.Codec(codec)
    for data in contents():
        packed = squeeze(data)
        assert peer.decompress(packed, len(data)).to_pybytes() == opened(codec, packed, len(data)) == data
        wrong = [packed[:-cut] for cut in (1, 2, 3, 4, 5, 8)] + [packed + extra for extra in (b"\0", bytes(4), b"x")]
        for each in wrong:
            with pytest.raises((pa.ArrowInvalid, OSError)):
                peer.decompress(each, len(data))
            with pytest.raises(InvalidData, match=rf"test: invalid {CODECS[codec].member} frame: "):
                opened(codec, each, len(data))
        with pytest.raises(InvalidData, match=rf"invalid {CODECS[codec].member} frame: {len(packed)} bytes follow it"):
            opened(codec, packed * 2, len(data))


def test_blocks_of_a_zstd_frame(zstd: None) -> None:
    """Raw, repeated and compressed blocks, each with its size in the frame, and many small ones."""
    squeezer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    pieces = [b"a" * 100_000, random.Random(5).randbytes(300_000), b"ab" * 70_000, *[b"%d" % i for i in range(500)]]
    packed = b"".join([squeezer.compress(piece) + squeezer.flush(1) for piece in pieces])
    packed += squeezer.flush()
    data = b"".join(pieces)
    assert opened("zstd", packed, len(data)) == data
    for cut in range(1, 40):
        with pytest.raises(InvalidData, match="it is cut before its end mark or checksum"):
            opened("zstd", packed[:-cut], len(data))


def test_what_is_written_is_the_same(codec: str) -> None:
    """Frames say their size, levels from end to end are taken, and pyarrow reads what is written."""
    data = np.arange(20_000).tobytes()
    for level in (None, *CODECS[codec].levels):
        packed = CODECS[codec].compress(memoryview(data), level)
        assert pa.Codec(codec).decompress(packed, len(data)).to_pybytes() == opened(codec, packed, len(data)) == data
        if codec == "zstd":
            assert zstandard.get_frame_parameters(packed).content_size == len(data)


def test_frames_that_need_too_much_memory_are_refused(zstd: None) -> None:
    """A frame that names a window of 1 GiB."""
    packed = bytearray(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000)))
    assert not packed[4] & 0x20  # a window follows
    packed[5] = 20 << 3
    with pytest.raises(InvalidData, match="invalid ZSTD frame"):
        opened("zstd", bytes(packed), 1000)


MISSING = """
import sys
sys.modules[sys.argv[1]] = None
import io, numpy as np, shmarrow as sa
batch = sa.record_batch({"x": np.zeros(1000)})
def written(compression):
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, batch.schema, sa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write(batch)
    return sink.getvalue()
def read(data):
    return sa.ipc.open_file(data).get_batch(0)["x"].to_numpy().sum()
assert read(written(None)) == read(written(sys.argv[3])) == 0
for call in (lambda: written(sys.argv[2]), lambda: read(bytes.fromhex(sys.stdin.read()))):
    try:
        call()
    except sa.MissingExtra as error:
        print(error)
"""


@pytest.mark.processes
@pytest.mark.parametrize(("package", "codec", "other"), [("lz4", "lz4", "zstd"), ("zstandard", "zstd", "lz4")])
def test_files_without_a_codec_need_no_package_for_it(package: str, codec: str, other: str) -> None:
    if package == "zstandard" and STANDARD == "compression.zstd":
        pytest.skip("ZSTD comes from the standard library")
    data = file_of(sa.record_batch({"x": np.zeros(1000)}), compression=codec)
    found = python(MISSING, package, codec, other, input=data.hex())
    assert found.count(f"pip install 'shmarrow[{codec}]'") == 2


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_the_schema_declares_no_feature(codec: str) -> None:
    """nanoarrow, which reads compressed bodies, refuses every stream that declares COMPRESSED_BODY."""
    made = sa.record_batch({"a": np.arange(1000)})
    data = stream_of(made, compression=codec)
    assert wire.messages(data)[0].message.header["features"] is None
    pytest.importorskip("nanoarrow", minversion="0.7", reason="older ones decompress nothing")
    assert nanoarrow.ArrayStream.from_readable(data).read_all().to_pylist() == made.to_pylist()


# --- no memory --------------------------------------------------------------------------------------------------------

EXHAUSTED = """
import atexit, concurrent.futures.thread  # an import that finds no memory may raise Python's own SystemError
import io, os, resource, signal, sys
import numpy as np
import shmarrow as sa
from processes import die

codec = sys.argv[1]
batch = sa.record_batch({f"c{i}": np.random.default_rng(i).integers(0, 1000, 1 << 19) for i in range(8)})
options = sa.ipc.IpcWriteOptions(compression=codec)
alone = options.replace(use_threads=False)
small = sa.record_batch({f"c{i}": np.arange(1000) for i in range(8)})

def written(batch):
    place = io.BytesIO()
    with sa.ipc.new_stream(place, batch.schema, alone) as writer:
        writer.write(batch)
    return place.getvalue()

class Sink(io.RawIOBase):
    def writable(self):
        return True
    def write(self, data):
        return len(data)

data = written(small)
read = sa.ipc.open_stream(data).read_all()  # imports everything, and starts no thread
exec(sys.argv[2])
mib = [*range(1, 16, 2), 20, 24, 32, 48, 64, 128, 256, 1024]
for kib in [0, 64, 128, 256, 512, *(1024 * each for each in mib)]:
    child = os.fork()
    if not child:
        pages = int(open("/proc/self/statm").read().split()[0])
        room = pages * 4096 + kib * 1024
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        signal.alarm(60)  # one that hangs is killed
        try:
            work()
        except sa.ShmarrowError:
            die(1)
        except MemoryError:  # before or behind the codecs
            die(2)
        except BaseException as error:
            print(type(error), error, file=sys.stderr, flush=True)
            die(3)
        die()
    print(kib, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
WORK = {
    "write": """
sa.ipc.new_stream(Sink(), batch.schema).close()
def work():
    sa.ipc.new_stream(Sink(), batch.schema, options).write(batch)
""",
    "read": """
large = written(batch)
def work(opened=sa.ipc.open_stream(large)):
    for column in opened.get_batch(0).columns:
        column.to_numpy()
""",
}


@pytest.mark.processes
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("what", WORK)
def test_there_is_no_memory(what: str, codec: str) -> None:
    """With the address space exhausted to any degree, threads included, there is an answer or one of our errors."""
    # Python itself prints what ends a thread that finds no memory to begin with: that is shown, and no failure.
    found = python(EXHAUSTED, codec, WORK[what], timeout=600, stderr=None)
    answers = [line.split() for line in found.splitlines()]
    assert {code for _, code in answers} == {"0", "1"}, answers
    assert answers[-1][1] == "0"


# --- memory -----------------------------------------------------------------------------------------------------------


def batch(seed: int) -> tuple[Any, np.ndarray]:
    """A batch of four compressed columns of 8 bytes per row, opened, and what is in them."""
    values = np.random.default_rng(seed).integers(0, 99, (4, 1 << 17))
    made = sa.record_batch({f"c{i}": column for i, column in enumerate(values)})
    return sa.ipc.open_file(file_of(made, compression="zstd")).get_batch(0), values


def test_a_column_keeps_its_memory_when_its_batch_is_gone() -> None:
    opened, values = batch(1)
    column = opened.columns[2].to_numpy()
    del opened
    gc.collect()
    other, expected = batch(2)
    for i, each in enumerate(other.columns):
        assert not np.shares_memory(each.to_numpy(), column)
        np.testing.assert_array_equal(each.to_numpy(), expected[i])
    np.testing.assert_array_equal(column, values[2])


def test_a_column_that_is_broken_leaves_the_limit_to_the_others() -> None:
    values = np.zeros((2, 100_000), "i8")
    data = bytearray(file_of(sa.record_batch({"a": values[0], "b": values[1]}), compression="lz4"))
    data[data.index(b"\x04\x22\x4d\x18")] ^= 1  # the first frame's magic number
    opened = sa.ipc.open_file(bytes(data), limits=sa.ipc.Limits(decompressed_bytes=1_000_000)).get_batch(0)
    for _ in range(2):
        with pytest.raises(InvalidData, match="invalid LZ4_FRAME frame"):
            opened.column(0)
    assert len(opened.column(1)) == 100_000


def test_what_readers_refuse_by_default_is_not_written(shm_name: str) -> None:
    """Zeros of more than 1 GiB in a column; the memory is the kernel's page of zeros."""
    half = np.zeros(70_000_000)
    options = sa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    both = sa.record_batch({"x": half, "y": sa.StructArray.from_arrays([half, half], names=["a", "b"])})
    with sa.Store(shm_name) as store:
        with pytest.raises(sa.LimitExceeded, match=r"column 1: its 1120000000 bytes shrink to \d+, which"):
            store.put("x", both, options=options)
        assert store.names() == []
        store.put("x", sa.record_batch({"a": half, "b": half}), options=options)
        assert store.get("x", kind=sa.RecordBatch).num_rows == len(half)
        store.destroy()
