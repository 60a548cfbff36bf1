"""Sinks: what counts as written, what a failure leaves, and how a path is replaced."""

from __future__ import annotations

import errno
import gzip
import io
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from processes import python

import shmarrow as sa
from shmarrow.integration.json import write_json
from shmarrow.memory import open_sink

TABLE = sa.table({"x": np.arange(1000), "s": [str(i) for i in range(1000)]})
ROWS = TABLE.to_pydict()
PIECES = [b"abc", b"", np.frombuffer(b"defg" * 30_000, "u1"), memoryview(b"h" * 70_000), b"i"]
WRITTEN = b"abc" + b"defg" * 30_000 + b"h" * 70_000 + b"i"


class Taking(io.RawIOBase):
    """A raw sink that says what it was told to say, and keeps as much as that."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.answer = answer
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> Any:
        given = self.answer(len(data))
        if isinstance(given, int):
            self.taken += bytes(data[: max(given, 0)])
        return given


class Wrapper:
    """A file object of a user, which can do nothing but write."""

    def __init__(self, answer: Callable[[int], Any] = lambda size: None) -> None:
        self.answer = answer
        self.taken = bytearray()

    def write(self, data: Any) -> Any:
        self.taken += bytes(data)
        return self.answer(len(data))


@pytest.mark.parametrize("make", [io.BytesIO, Wrapper, lambda: Wrapper(lambda size: size)])
def test_everything_is_accepted(make: Callable[[], Any]) -> None:
    file = make()
    sink = open_sink(file)
    sink.write(PIECES)
    sink.write([b"!"])
    sink.publish()
    assert (file.getvalue() if isinstance(file, io.BytesIO) else bytes(file.taken)) == WRITTEN + b"!"
    assert sink.size == len(WRITTEN) + 1


@pytest.mark.parametrize("most", [1, 7, 65_536])
def test_what_is_accepted_in_parts(most: int) -> None:
    file = Taking(lambda size: min(size, most))
    sink = open_sink(file)
    data = WRITTEN[:5000]
    sink.write([data])
    assert (bytes(file.taken), sink.size) == (data, len(data))


@pytest.mark.parametrize("nothing", [0, None])
def test_nothing_is_accepted(nothing: Any) -> None:
    """Neither a loss that nobody hears of nor a loop without an end."""
    file = Taking(lambda size: nothing if len(file.taken) >= 200 else min(size, 100))
    sink = open_sink(file)
    sink.write([b"x" * 50])
    with pytest.raises(sa.StorageError, match="after 50 bytes, it accepted 220 more and then none") as caught:
        sink.write([b"y" * 120, b"z" * 70_000])
    assert caught.value.errno == errno.EAGAIN
    assert (len(file.taken), sink.size) == (270, 50)


def test_a_pipe_that_is_full() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with os.fdopen(write, "wb", buffering=0) as raw:
        writer = sa.ipc.new_stream(raw, TABLE.schema)
        with pytest.raises(sa.StorageError, match="blocking mode"):
            writer.write(sa.table({"x": np.arange(1_000_000), "s": [""] * 1_000_000}))
        with pytest.raises(sa.ShmarrowError, match="blocking mode"):
            writer.write(TABLE)
        writer.abort()
    os.close(read)


def test_a_buffered_pipe_that_is_full() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    buffered = os.fdopen(write, "wb", 8192)
    sink = open_sink(buffered)
    with pytest.raises(sa.StorageError, match=r"accepted [1-9]\d+ more"):
        sink.write([bytes(1 << 20)])
    with pytest.raises(BlockingIOError):
        buffered.flush()
    os.set_blocking(write, True)
    os.read(read, 1 << 20)
    buffered.close()
    os.close(read)


@pytest.mark.parametrize("answer", [-1, True, False, "7", 7.0, 1 << 40, b""])
def test_counts_that_make_no_sense(answer: Any) -> None:
    for file in (Taking(lambda size: answer), Wrapper(lambda size: answer)):
        sink = open_sink(file)
        with pytest.raises(sa.InvalidType, match="found"):
            sink.write([b"x" * 100])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EPIPE, "nobody reads"), sa.StorageError),
        (OSError(errno.ENOSPC, "full"), sa.StoreFull),
        (TimeoutError("slow"), sa.StorageError),
        (ValueError("write to closed file"), sa.Closed),
        (RuntimeError("odd"), sa.StorageError),
    ],
)
def test_errors_of_a_sink(error: Exception, kind: type[Exception]) -> None:
    def fail(size: int) -> None:
        raise error

    sink = open_sink(Wrapper(fail))
    with pytest.raises(kind) as caught:
        sink.write([b"x"])
    assert caught.value.__cause__ is error


def test_a_flush_that_fails() -> None:
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "full")

    sink = open_sink(Full())
    sink.write([b"x"])
    with pytest.raises(sa.StoreFull):
        sink.publish()


@pytest.mark.parametrize("kind", ["socket", "makefile"])
def test_sockets(kind: str) -> None:
    near, far = socket.socketpair()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(sa.ipc.open_stream(far).read_all()))
    thread.start()
    with near, far:
        with near.makefile("wb") as made, sa.ipc.new_stream(near if kind == "socket" else made, TABLE.schema) as writer:
            writer.write(TABLE)
        thread.join()
    assert found[0].to_pydict() == ROWS


def test_compressing_file_objects(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a", "wb") as file, sa.ipc.new_file(file, TABLE.schema) as writer:
        writer.write(TABLE)
    assert pa.ipc.open_file(gzip.decompress((tmp_path / "a").read_bytes())).read_all().to_pydict() == ROWS


def test_what_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    closed = io.BytesIO()
    closed.close()
    with (tmp_path / "a").open("r+") as text, (tmp_path / "a").open("rb") as reading, io.StringIO() as string:
        for sink, kind, message in (
            (text, sa.InvalidType, "text file"),
            (string, sa.InvalidType, "text file"),
            (reading, sa.InvalidType, "for reading only"),
            (closed, sa.Closed, "closed"),
            (b"bytes", sa.InvalidType, "found bytes"),
            (5, sa.InvalidType, "found int"),
            (tmp_path, sa.StorageError, "directory"),
        ):
            with pytest.raises(kind, match=message):
                sa.ipc.new_file(sink, TABLE.schema)


# --- paths and names ---


def _file(where: Any, **options: Any) -> None:
    with sa.ipc.new_file(where, TABLE.schema, **options) as writer:
        writer.write(TABLE)


def _stream(where: Any, **options: Any) -> None:
    with sa.ipc.new_stream(where, TABLE.schema, **options) as writer:
        writer.write(TABLE)


def _new_tensor(where: Any, **options: Any) -> None:
    with sa.ipc.new_tensor(where, (3,), "int64", **options) as writer:
        writer.array[:] = 1


WRITERS: dict[str, Callable[..., object]] = {
    "file": _file,
    "stream": _stream,
    "tensor": lambda where, **options: sa.ipc.write_tensor(sa.Tensor.from_numpy(np.arange(3)), where, **options),
    "new tensor": _new_tensor,
    "bundle": lambda where, **options: sa.save_tensors({"a": np.arange(3)}, where, **options),
    "json": lambda where, **options: write_json(where, TABLE, **options),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_paths_are_replaced_and_names_are_not(write: Callable[..., object], tmp_path: Path, shm_name: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with path.open("rb") as before:
        write(path)
        assert before.read() == b"old"
    assert path.read_bytes() != b"old"
    with pytest.raises(sa.ObjectExists):
        write(path, overwrite=False)
    write(shm_name)
    with pytest.raises(sa.ObjectExists):
        write(shm_name)
    write(shm_name, overwrite=True)
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_permissions_that_nobody_asked_for(write: Callable[..., object], tmp_path: Path, shm_name: str) -> None:
    """Those that ``open(path, "wb")`` gives a new file, and leaves an old one; the owner's alone in shared memory."""
    before = os.umask(0o027)
    try:
        write(tmp_path / "new")
        (tmp_path / "old").write_bytes(b"")
        (tmp_path / "old").chmod(0o604)
        write(tmp_path / "old")
        write(tmp_path / "asked", mode=0o444)
        write(shm_name)
    finally:
        os.umask(before)
    found = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "old", "asked")]
    assert found == [0o640, 0o604, 0o444]
    assert stat.S_IMODE(os.stat(f"/dev/shm/{shm_name.removeprefix('shm:')}").st_mode) == 0o400


def test_the_last_of_two_writers_counts(tmp_path: Path) -> None:
    first, second = (sa.ipc.new_file(tmp_path / "a", TABLE.schema) for _ in range(2))
    first.write(TABLE.slice(0, 1))
    second.write(TABLE.slice(0, 2))
    second.close()
    first.close()
    assert pa.ipc.open_file(str(tmp_path / "a")).read_all().num_rows == 1


@pytest.mark.processes
def test_replacing_does_not_list_the_directory(tmp_path: Path) -> None:
    _file(tmp_path / "a")
    code = (
        "import sys, shmarrow as sa\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, given: seen.append((event, given)))\n"
        "table = sa.ipc.open_file(sys.argv[1]).read_all()\n"
        "with sa.ipc.new_file(sys.argv[1], table.schema) as writer:\n"
        "    writer.write(table)\n"
        "listed = [given[0] for event, given in seen if event in ('os.listdir', 'os.scandir')]\n"
        "renamed = [given[1] for event, given in seen if event == 'os.rename']\n"
        "print(sum(not name.endswith('.pyc') for name in renamed), sys.argv[2] in listed)"  # bytecode is renamed, too
    )
    assert python(code, tmp_path / "a", tmp_path) == "1 False\n"


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user's file")
def test_a_file_placed_by_somebody_else_gives_nothing_to_its_replacement(tmp_path: Path) -> None:
    """In a directory that all may write, its owner would get what is written."""
    path = tmp_path / "a"
    before = os.umask(0o077)
    try:
        for bits, planted in ((0o1777, True), (0o755, False), (0o1755, False)):
            tmp_path.chmod(bits)
            _file(path)
            os.chown(path, 65534, 65534)
            path.chmod(0o666)
            _file(path)
            found = path.stat()
            expected = (0, 0, 0o600) if planted else (65534, 65534, 0o666)
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == expected
            path.unlink()
    finally:
        os.umask(before)
