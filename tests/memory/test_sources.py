"""Sources: what is mapped, what is read, from where, and what misbehaving file objects lead to."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import mmap
import os
import socket
import threading
import tracemalloc
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from forms import peers_file, peers_stream
from processes import ended, forked
from remote import Counted

import shmarrow as sa
from shmarrow.memory import open_source
from shmarrow.memory.ranges import MERGED_BYTES, MERGED_GAP, RangeBody, RangeSource

PEER_BATCH = pa.record_batch({"x": pa.array([3, 1, 2], pa.int64()), "s": ["a", None, "ccc"]})
VALUES = PEER_BATCH.to_pydict()


FILE, STREAM = peers_file(PEER_BATCH), peers_stream(PEER_BATCH)
BYTES = bytes(range(256)) * 400


def first_of(source: Any, **options: Any) -> dict[str, list[Any]]:
    with sa.ipc.open_file(source, **options) as reader:
        return reader.get_batch(0).to_pydict()


# --- mapped or read ---


def test_what_is_mapped(tmp_path: Path, shm_name: str) -> None:
    path, shm = tmp_path / "a", Path("/dev/shm") / shm_name.removeprefix("shm:")
    for where in (path, shm):
        where.write_bytes(FILE)
    for source, options, mapped in (
        (path, {}, 1),
        (path, {"memory_map": False}, 0),
        (shm_name, {}, 1),
        (shm_name, {"memory_map": False}, 0),
        (path.open("rb"), {}, 1),
        (path.open("rb", buffering=0), {}, 1),
        (path.open("r+b"), {}, 1),
        (path.open("rb"), {"memory_map": False}, 0),
        (io.BufferedReader(io.BytesIO(FILE)), {}, 0),  # type: ignore[arg-type]
    ):
        gc.collect()
        with sa.ipc.open_file(source, **options) as reader:
            assert reader.get_batch(0).to_pydict() == VALUES
            maps = Path("/proc/self/maps").read_text()
            assert maps.count(f" {path}\n") + maps.count(f" {shm}\n") == mapped, (source, options)
        if not isinstance(source, (Path, str)):
            source.close()


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["path", "file object", "shm"])
def test_what_was_read_survives_truncation(kind: str, tmp_path: Path, shm_name: str) -> None:
    """A mapping would end the process with SIGBUS."""
    path = Path("/dev/shm") / shm_name.removeprefix("shm:") if kind == "shm" else tmp_path / "a"
    path.write_bytes(FILE)
    where: Any = {"path": path, "shm": shm_name, "file object": open(path, "rb")}[kind]  # noqa: SIM115

    def read() -> None:
        with sa.ipc.open_file(where, memory_map=False) as reader:
            os.truncate(path, 0)
            assert reader.get_batch(0).to_pydict() == VALUES

    assert ended(forked(read)) == 0


def test_a_file_that_becomes_smaller_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(BYTES)
    with path.open("rb") as file:
        from shmarrow.memory.attached import read_whole

        with pytest.raises(sa.StorageError, match=f"truncated from {len(BYTES) + 1} bytes"):
            read_whole(file.fileno(), len(BYTES) + 1, "a")
        assert read_whole(file.fileno(), len(BYTES), "a").tobytes() == BYTES
        assert file.tell() == 0


def test_the_lock_of_a_file_object_stays_as_it_is(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "a"
    path.write_bytes(FILE)
    with path.open("rb") as file, path.open("rb") as other:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert first_of(file) == VALUES
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_what_was_written_through_the_same_file_object_counts(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w+b") as file:
        file.write(FILE)
        assert first_of(file) == VALUES


# --- positions ---


def test_a_file_is_read_as_a_whole_wherever_its_position_is(tmp_path: Path) -> None:
    """As pyarrow does."""
    path = tmp_path / "a"
    path.write_bytes(FILE)
    for make in (path.open, lambda mode: path.open(mode, buffering=0), lambda mode: io.BytesIO(FILE)):
        with make("rb") as source:
            source.seek(100)
            assert first_of(source) == pa.ipc.open_file(source).get_batch(0).to_pydict() == VALUES


POSITIONED: dict[str, Callable[[Path], Any]] = {
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "buffered": lambda path: path.open("rb"),
    "raw": lambda path: path.open("rb", buffering=0),
    "random": lambda path: path.open("r+b"),
    "gzip": lambda path: gzip.GzipFile(path.with_suffix(".gz")),
    "bz2": lambda path: bz2.BZ2File(path.with_suffix(".bz2")),
    "lzma": lambda path: lzma.LZMAFile(path.with_suffix(".xz")),  # noqa: SIM115
    "fsspec": lambda path: fsspec.open(str(path), "rb").open(),
}


@pytest.fixture
def positioned(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = tmp_path / "a"
    data = b"head" + 2 * STREAM + b"tail"
    path.write_bytes(data)
    for suffix, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
        with module.open(path.with_suffix(suffix), "wb") as file:  # type: ignore[attr-defined]
            file.write(data)
    with POSITIONED[request.param](path) as file:
        yield file


@pytest.mark.parametrize("positioned", POSITIONED, indirect=True)
def test_streams_in_one_file_object_are_read_in_turn(positioned: Any) -> None:
    assert positioned.read(4) == b"head"
    for number in (1, 2):
        (batch,) = sa.ipc.open_stream(positioned)
        assert batch.to_pydict() == VALUES
        assert positioned.tell() == 4 + number * len(STREAM)
    positioned.seek(4)
    assert pa.ipc.open_stream(positioned).read_all().to_pydict() == VALUES
    assert positioned.tell() == 4 + len(STREAM), "pyarrow leaves it there, too"
    positioned.seek(4 + 2 * len(STREAM))
    assert positioned.read() == b"tail"


def test_tensors_in_one_mapping_are_read_in_turn(tmp_path: Path) -> None:
    first, second = (sa.Tensor.from_numpy(np.arange(n)) for n in (3, 5))
    with (tmp_path / "a").open("w+b") as file:
        for tensor in (first, second):
            sa.ipc.write_tensor(tensor, file)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    assert sa.ipc.read_tensor(mapped) == first
    assert sa.ipc.read_tensor(mapped) == second


def test_a_bytesio_is_shared_and_stays_usable() -> None:
    file = io.BytesIO(BYTES)
    source = open_source(file)
    assert np.shares_memory(source.read(0, 10), np.frombuffer(file.getvalue(), "u1"))
    file.seek(0)
    file.write(b"\xff" * 300_000)
    file.close()
    assert source.read(0, len(BYTES)).tobytes() == BYTES


# --- files that decompress ---


def test_a_file_that_is_compressed(tmp_path: Path) -> None:
    """Streams in such files are read above."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(FILE))
    with gzip.open(tmp_path / "a.gz") as file:
        assert first_of(file) == VALUES
    with fsspec.open(str(tmp_path / "a.gz"), "rb", compression="gzip") as file:
        assert first_of(file) == VALUES


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
@pytest.mark.parametrize("cut", [True, False])
def test_broken_compressed_files(module: Any, cut: bool, tmp_path: Path) -> None:
    for data, read in ((FILE, sa.ipc.open_file), (STREAM, sa.ipc.open_stream)):
        packed = bytearray(module.compress(data))
        if cut:
            del packed[len(packed) // 2 :]
        else:
            packed[12:] = bytes(200)
        with module.open(io.BytesIO(packed)) as file, pytest.raises(sa.ShmarrowError):
            read(file).read_all()


def test_a_member_of_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.arrow", FILE)
        with archive.open("a.arrow") as file:
            assert first_of(file) == VALUES


# --- ranges ---


def body_of(file: Any) -> RangeBody:
    """All of a file as the body of a message."""
    source = open_source(file)
    assert isinstance(source, RangeSource)
    return RangeBody(source, 0, len(BYTES))


def test_only_what_is_asked_for_is_read() -> None:
    file = Counted(BYTES)
    source = open_source(file)
    assert (source.size, source.data, source.mapped) == (len(BYTES), None, False)
    assert file.reads == []
    assert source.read(1000, 1010).tobytes() == BYTES[1000:1010]
    assert source.read(1002, 1005).tobytes() == BYTES[1002:1005]
    assert len(source.read(7, 7)) == 0
    assert file.reads == [(1000, 1010)]


def test_neighbours_are_read_together() -> None:
    file = Counted(BYTES)
    body = body_of(file)
    far = 1500 + MERGED_GAP
    ranges = [(1000, 1500), (10, 20), (20, 30), (1500 + MERGED_GAP, far + 8), (1200, 1300), (60_000, 60_001)]
    data = body.have(ranges)
    assert file.reads == [(10, 1500), (far, far + 8), (60_000, 60_001)]
    for start, stop in ranges:
        assert data[start:stop].tobytes() == BYTES[start:stop]
    body.have(ranges)
    assert len(file.reads) == 3
    assert body.have([(5, 20), (1490, 1510)])[5:1510].tobytes() == BYTES[5:1510]
    assert file.reads[3:] == [(5, 10), (1500, 1510)]


def test_reads_that_give_a_part_are_repeated() -> None:
    source = open_source(Counted(BYTES, most=7))
    assert source.read(100, 200).tobytes() == BYTES[100:200]


def test_reads_in_order_become_larger_and_are_not_kept() -> None:
    data = bytes(range(256)) * (96 << 10)
    file = Counted(data)
    source = open_source(file)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for start in range(0, len(data), 1 << 14):
        assert source.read(start, start + (1 << 14)).tobytes() == data[start : start + (1 << 14)]
        assert tracemalloc.get_traced_memory()[0] - before < 2 * MERGED_BYTES + (1 << 20)
    assert len(file.reads) < 16
    source.read(0, len(data))
    assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
    source.close()
    tracemalloc.stop()
    with pytest.raises(sa.Closed):
        source.read(0, 1)


def test_a_body_takes_the_memory_of_what_was_read() -> None:
    class Zeros(Counted):
        """A terabyte of zeros."""

        def seek(self, offset: int, whence: int = 0) -> int:
            return offset

        def tell(self) -> int:
            return 1 << 40

        def readinto(self, target: Any) -> int:
            target[:] = bytes(len(target))
            return len(target)

    source = open_source(Zeros(b""))
    assert isinstance(source, RangeSource)
    middle = 1 << 39
    data = RangeBody(source, 0, 1 << 40).have([(middle, middle + 100)])
    assert len(data) == 1 << 40
    assert not data[middle : middle + 100].any()
    with pytest.raises(sa.LimitExceeded, match="not enough memory"):
        RangeBody(source, 0, 1 << 62)


def test_ranges_outside_of_the_file() -> None:
    for source in (open_source(Counted(BYTES)), open_source(BYTES)):
        for start, stop in ((0, len(BYTES) + 1), (-1, 5), (5, 4)):
            with pytest.raises(sa.InvalidData, match=f"found {len(BYTES)} bytes"):
                source.read(start, stop)
    with pytest.raises(sa.InvalidData):
        body_of(Counted(BYTES)).have([(0, len(BYTES) + 1)])


def test_a_file_that_lost_its_end() -> None:
    file = Counted(BYTES)
    source = open_source(file)
    file.data = file.data[:1000]
    with pytest.raises(sa.StorageError, match=r"expected the bytes \[900, 1100\), found 100"):
        source.read(900, 1100)


def test_every_range_read_may_fail_once() -> None:
    """An error leaves nothing behind: the next try gives the right bytes."""

    class Failing(Counted):
        fails = False

        def readinto(self, target: Any) -> int:
            if self.fails:
                self.fails = False
                raise TimeoutError("too slow")
            return super().readinto(target[:10])

    for call in range(5):
        file = Failing(BYTES)
        body = body_of(file)
        file.fails = True
        ranges = [(i * 20_000, i * 20_000 + 10) for i in range(call + 1)]
        with pytest.raises(sa.StorageError, match="too slow"):
            body.have(ranges)
        data = body.have(ranges)
        for start, stop in ranges:
            assert data[start:stop].tobytes() == BYTES[start:stop]


def test_threads_read_their_ranges() -> None:
    source = open_source(Counted(BYTES))

    def read(seed: int) -> None:
        for i in range(300):
            start = (seed * 7919 + i * 6007) % (len(BYTES) - 50)
            assert source.read(start, start + 50).tobytes() == BYTES[start : start + 50]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))


@pytest.mark.processes
def test_a_forked_child_opens_its_own() -> None:
    """Parent and child share the position of a file: each would read where the other one is."""
    reading, go_on = threading.Event(), threading.Event()

    class Slow(Counted):
        def readinto(self, target: Any) -> int:
            reading.set()
            assert go_on.wait(60)
            return super().readinto(target)

    source = open_source(Slow(BYTES))
    assert isinstance(source, RangeSource)

    def child() -> None:
        for call in (lambda: source.read(0, 10), lambda: RangeBody(source, 0, 20).have([(0, 10)])):
            with pytest.raises(sa.Closed, match=f"process {os.getppid()}"):
                call()
        source.close()

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(source.read, 0, 10)
        assert reading.wait(60)
        try:
            assert ended(forked(child)) == 0
        finally:
            go_on.set()
        assert found.result().tobytes() == BYTES[:10]


class CountedFile(fsspec.spec.AbstractBufferedFile):  # type: ignore[misc]
    """An fsspec file as of an object store: each range is a request."""

    def __init__(self, data: bytes, **options: Any) -> None:
        self._bytes = data
        self.fetched = 0
        super().__init__(fsspec.filesystem("memory"), "/counted", size=len(data), **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.fetched += end - start
        return self._bytes[start:end]


def test_read_ahead_of_fsspec_is_passed_by() -> None:
    file = CountedFile(BYTES * 10)
    source = open_source(file)
    assert source.read(5, 105).tobytes() == (BYTES * 10)[5:105]
    assert (source.name, file.fetched) == ("/counted", 100)


# --- pipes and sockets ---


def test_sockets_as_they_are() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(STREAM + b"rest")
        assert next(sa.ipc.open_stream(near)).to_pydict() == VALUES


def test_a_pipe_that_holds_a_file() -> None:
    read, write = os.pipe()
    os.write(write, FILE)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert first_of(pipe) == VALUES


def test_sources_that_have_no_bytes_yet() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    near, far = socket.socketpair()
    near.setblocking(False)
    with os.fdopen(read, "rb", buffering=0) as raw, near, far, near.makefile("rb") as made:
        for source in (raw, near, made):
            with pytest.raises(sa.InvalidType, match=r"non-blocking.*StreamDecoder"):
                sa.ipc.open_stream(source)
    os.close(write)


# --- what is refused ---


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(FILE)
    closed = path.open("rb")
    closed.close()
    with path.open() as text, (tmp_path / "b").open("wb") as writing, io.StringIO("text") as string:
        for source, kind, message in (
            (text, sa.InvalidType, "binary file"),
            (string, sa.InvalidType, "binary file"),
            (writing, sa.InvalidType, "for writing only"),
            (closed, sa.Closed, "closed"),
        ):
            for read in (sa.ipc.open_file, sa.ipc.open_stream, sa.ipc.read_tensor):
                with pytest.raises(kind, match=message):
                    read(source)
    for read in (sa.ipc.open_file, sa.ipc.open_stream):
        with pytest.raises(sa.StorageError, match="directory"):
            read(tmp_path, memory_map=False)
        with pytest.raises(sa.ObjectNotFound):
            read(tmp_path / "none", memory_map=False)


class Answers:
    """A file object whose ``read`` gives what it was told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def read(self, size: int = -1) -> Any:
        return self.answer(size) if callable(self.answer) else self.answer


def raising(error: Exception) -> Callable[[int], bytes]:
    def read(size: int) -> bytes:
        raise error

    return read


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("text", sa.InvalidType),
        (5, sa.InvalidType),
        ([1, 2], sa.InvalidType),
        (lambda size: bytes(size + 1), sa.InvalidType),
        (None, sa.InvalidType),
        (raising(OSError(5, "broken")), sa.StorageError),
        (raising(EOFError("cut")), sa.StorageError),
        (raising(RuntimeError("odd")), sa.StorageError),
        (raising(ValueError("I/O operation on closed file")), sa.Closed),
        (raising(sa.InvalidArgument("ours")), sa.InvalidArgument),
    ],
)
def test_read_that_misbehaves(answer: Any, kind: type[Exception]) -> None:
    for read in (sa.ipc.open_file, sa.ipc.open_stream, sa.ipc.read_tensor):
        with pytest.raises(kind):
            read(Answers(answer))


@pytest.mark.parametrize("answer", [-1, 1 << 40, True, "7", 2.0])
def test_readinto_that_misbehaves(answer: Any) -> None:
    class Odd(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, target: Any) -> Any:
            return answer

    for read in (sa.ipc.open_file, sa.ipc.open_stream):
        with pytest.raises(sa.InvalidType, match="how many"):
            read(Odd())
