"""Input and places that are bad: each ends in one of our errors, that says where, what was expected and what was found.

Invariants: a message is held to its numbers; after a failure to write nothing is left at the place or beside it.
"""

from __future__ import annotations

import errno
import io
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pytest
import wire

import shmarrow as sa
from shmarrow.ipc import IpcWriteOptions

BATCH = sa.record_batch({"i": np.arange(100), "s": ["word"] * 100})
FILE = forms.write("file-plain", [BATCH, BATCH], BATCH.schema)
STREAM = forms.write("stream-plain", [BATCH, BATCH], BATCH.schema)
FOOTER = len(FILE) - 10 - struct.unpack("<i", FILE[-10:-6])[0]


def changed(data: bytes, at: int, format: str, value: Any) -> bytes:
    """The bytes with a number in another value."""
    result = bytearray(data)
    struct.pack_into(format, result, at, value)
    return bytes(result)


def block_at(number: int, field: int) -> int:
    """Where a field of a record batch's block stands in FILE."""
    blocks = wire.blocks_of(FILE)["recordBatches"]
    at = FILE.index(struct.pack("<qi4xq", *blocks[number]), FOOTER)
    return at + field


# --- files that are none, or not whole ------------------------------------------------------------------------------

BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", r"expected an Arrow file, found an empty file"),
    "short": (b"ARROW1\0\0ARROW1", r"an Arrow file has at least 18 bytes, found 14"),
    "text": (b"what is this" * 10, r"expected an Arrow file, found text$"),
    "a stream": (STREAM, r"expected an Arrow file, found an Arrow stream; ipc\.open_stream reads it"),
    "parquet": (b"PAR1" + bytes(100) + b"PAR1", r"expected an Arrow file, found a Parquet file; pyarrow\.parquet"),
    "cut": (
        FILE[:-1],
        rf"the file is truncated, .*: expected b'ARROW1' at its end, \[{len(FILE) - 7}, {len(FILE) - 1}\), found b'",
    ),
    "cut in the middle": (FILE[: len(FILE) // 2], r"the file is truncated, .*: expected b'ARROW1' at its end"),
    "a footer size of 0": (changed(FILE, len(FILE) - 10, "<i", 0), r"the footer declares 0 bytes, but only \d+ are"),
    "a negative footer size": (
        changed(FILE, len(FILE) - 10, "<i", -5),
        rf"the footer declares -5 bytes, but only {len(FILE) - 18} are available",
    ),
    "a footer size beyond the file": (
        changed(FILE, len(FILE) - 10, "<i", len(FILE)),
        rf"the footer declares {len(FILE)} bytes, but only {len(FILE) - 18} are available",
    ),
    "a footer that points outside": (
        changed(FILE, FOOTER, "<I", 1 << 30),
        rf"footer: table Footer needs \[{1 << 30}, {(1 << 30) + 4}\) but the metadata has \d+ bytes",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_none(name: str, tmp_path: Path) -> None:
    data, message = BAD_FILES[name]
    path = tmp_path / "bad.arrow"
    path.write_bytes(data)
    for source in (data, path, io.BytesIO(data), open(path, "rb")):  # noqa: SIM115
        with pytest.raises(sa.InvalidData, match=message) as caught:
            sa.ipc.open_file(source)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(sa.InvalidData) as caught:
        sa.ipc.open_file(path)
    assert str(path) in str(caught.value)


BAD_BLOCKS: dict[str, tuple[int, str, Any, str]] = {
    "behind the footer": (0, "<q", FOOTER, rf"batch 1 needs \[{FOOTER}, \d+\), .* but the footer starts at {FOOTER}"),
    "far behind": (0, "<q", 1 << 62, r"batch 1 needs \[4611686018427387904, "),
    "negative": (0, "<q", -8, r"batch 1 needs \[-8, "),
    "in the middle of a message": (0, "<q", 16, r"batch 1"),
    "a negative body": (16, "<q", -64, r"batch 1 needs"),
    "a body that is too long": (16, "<q", 1 << 40, r"batch 1 needs .* but the footer starts at"),
    "another body": (16, "<q", 64, r"the footer declares 64 bytes of body, the message \d+"),
    "other metadata": (8, "<i", 8, r"the footer declares 8 bytes of metadata, the message \d+"),
    "negative metadata": (8, "<i", -8, r"batch 1 needs \[\d+, \d+\), -8 bytes of it metadata"),
}


@pytest.mark.parametrize("name", BAD_BLOCKS)
def test_blocks_that_lie(name: str) -> None:
    field, format, value, message = BAD_BLOCKS[name]
    reader = sa.ipc.open_file(changed(FILE, block_at(1, field), format, value))
    assert reader.get_batch(0).equals(BATCH)
    with pytest.raises(sa.InvalidData, match=message):
        reader.get_batch(1)


def test_buffers_that_lie() -> None:
    """Offsets and lengths in a record batch that lead out of its body."""
    schema, first, _ = wire.messages(STREAM)
    size = first.message.body_length
    at = first.data.index(first.message.header["buffers"].tobytes())
    for field, value, message in (
        (16, -8, rf"column 0 'i': buffer 1 needs \[-8, 792\) but the body has {size} bytes"),
        (16, size, rf"column 0 'i': buffer 1 needs \[{size}, {size + 800}\) but the body has {size} bytes"),
        (24, 1 << 40, rf"column 0 'i': buffer 1 needs \[0, {1 << 40}\) but the body has {size} bytes"),
        (24, -1, r"column 0 'i': buffer 1 needs"),
        (
            24,
            792,
            r"column 0 'i': .*100 slots need 800 bytes of values, found 792",
        ),
    ):
        data = wire.stream_from([schema, changed(first.data, at + field, "<q", value)])
        (batch,) = sa.ipc.open_stream(data)
        with pytest.raises(sa.InvalidData, match=message):
            batch.column("i")
        assert batch.column("s").to_pylist() == ["word"] * 100


def test_nodes_that_lie() -> None:
    schema, first, _ = wire.messages(STREAM)
    at = first.data.index(first.message.header["nodes"].tobytes())
    for field, value, message in (
        (0, 99, r"column 0 'i': 99 values in a batch of 100 rows"),
        (0, -1, r"column 0 'i': int64: length -1 and null count 0"),
        (0, 1 << 62, r"column 0 'i'"),
        (8, 101, r"column 0 'i': int64: length 100 and null count 101"),
        (8, -1, r"column 0 'i': int64: length 100 and null count -1"),
        (8, 1, r"column 0 'i': int64: 100 slots need 13 bytes of validity, found 0"),
    ):
        (batch,) = sa.ipc.open_stream(wire.stream_from([schema, changed(first.data, at + field, "<q", value)]))
        with pytest.raises(sa.InvalidData, match=message):
            batch.column("i")


def test_counts_of_variadic_buffers_that_lie() -> None:
    """However often the columns are asked for, also in turns."""
    batch = sa.record_batch({"v": sa.array(["x" * 20], "string_view"), "w": sa.array(["y" * 20], "string_view")})
    schema, first = wire.messages(forms.stream_of(batch))
    at = first.data.index(first.message.header["variadicBufferCounts"].tobytes())
    for number, value in ((0, -1), (0, -(1 << 34)), (1, 7), (0, 1 << 62)):
        (got,) = sa.ipc.open_stream(wire.stream_from([schema, changed(first.data, at + 8 * number, "<q", value)]))
        for name in ("v", "w", "v", "w"):
            with pytest.raises(sa.InvalidData, match=r"variadic buffer counts \[.*\] do not match 6 buffers"):
                got.column(name)
    (got,) = sa.ipc.open_stream(wire.stream_from([schema, changed(first.data, at, "<q", 0)]))
    with pytest.raises(sa.InvalidData, match="of buffer 0 of 0"):
        got.column("v").validate(full=True)


# --- streams --------------------------------------------------------------------------------------------------------


class OnlyRead:
    """A file object that can only be read."""

    def __init__(self, data: bytes) -> None:
        self.read = io.BytesIO(data).read


SOURCES: list[Callable[[bytes], Any]] = [bytes, io.BytesIO, OnlyRead]
_SCHEMA, _FIRST, _SECOND = wire.messages(STREAM)

BAD_STREAMS: dict[str, tuple[bytes, type[Exception], str]] = {
    "nothing": (b"", sa.InvalidData, r"the stream ends before its schema"),
    "only an end": (STREAM[-8:], sa.InvalidData, r"the stream ends before its schema"),
    "text": (b"this is no stream of Arrow's", sa.InvalidData, r"expected an Arrow message at 0, found text$"),
    "a file": (FILE, sa.InvalidData, r"expected an Arrow message at 0, found an Arrow file; ipc\.open_file reads it"),
    "no schema": (wire.stream_from([_FIRST]), sa.InvalidData, r"begins with a RecordBatch, expected a Schema"),
    "two schemas": (wire.stream_from([_SCHEMA, _SCHEMA, _FIRST]), sa.InvalidData, r"a second schema in one stream"),
    "cut metadata": (
        STREAM[:100],
        sa.InvalidData,
        r"the metadata at 0 needs .* there are 100 bytes|92 of 184 bytes are",
    ),
    "cut body": (STREAM[: _FIRST.body + 10], sa.InvalidData, r"there are 458 bytes|1718 of 1728 bytes are missing"),
    "a negative size": (
        b"\xff\xff\xff\xff" + struct.pack("<i", -8),
        sa.InvalidData,
        r"the message at 0 declares -8 bytes of metadata",
    ),
    "a negative body": (
        wire.stream_from(
            [_SCHEMA, changed(_FIRST.data, _FIRST.data.index(struct.pack("<q", _FIRST.message.body_length)), "<q", -64)]
        ),
        sa.InvalidData,
        r"the message declares a body of -64 bytes",
    ),
    "a tensor": (
        wire.stream_from([_SCHEMA, wire.message("Tensor", {"type": ("Bool", {}), "shape": []})]),
        sa.Unsupported,
        r"a Tensor message in a stream of record batches",
    ),
    "V3": (
        wire.message("Schema", {"fields": []}, version=2),
        sa.Unsupported,
        r"metadata version V3; versions V4 and V5",
    ),
    "V1": (
        wire.message("Schema", {"fields": []}, version=0),
        sa.Unsupported,
        r"metadata version V1; versions V4 and V5",
    ),
    "V6": (
        wire.message("Schema", {"fields": []}, version=5),
        sa.Unsupported,
        r"metadata version number 5, later than V5",
    ),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
@pytest.mark.parametrize("source", SOURCES)
def test_streams_that_are_none(name: str, source: Callable[[bytes], Any]) -> None:
    data, kind, message = BAD_STREAMS[name]
    with pytest.raises(kind, match=message):
        sa.ipc.open_stream(source(data)).read_all()


def test_a_body_that_claims_much_takes_no_memory() -> None:
    """A file object has to be read to know how much there is, so a claim costs no more than what comes."""
    at = _FIRST.data.index(struct.pack("<q", _FIRST.message.body_length))
    data = wire.stream_from([_SCHEMA, changed(_FIRST.data, at, "<q", 1 << 50)])
    for source in SOURCES:
        with pytest.raises(sa.InvalidData, match=rf"{(1 << 50) + _FIRST.body}|{1 << 50} bytes are missing"):
            sa.ipc.open_stream(source(data)).read_all()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("bad", [_SCHEMA.data, wire.message("Tensor", {"type": ("Bool", {}), "shape": []})])
def test_what_is_refused_once_is_refused_again(source: Callable[[bytes], Any], bad: bytes) -> None:
    """A reader that is asked again does not go on behind the message that it refused."""
    reader = sa.ipc.open_stream(source(wire.stream_from([_SCHEMA, _FIRST, bad, _SECOND])))
    assert next(reader).equals(BATCH)
    said = []
    for _ in range(3):
        with pytest.raises(sa.ShmarrowError) as caught:
            next(reader)
        said.append(str(caught.value))
    assert all(said[0] in text for text in said)


# --- names ----------------------------------------------------------------------------------------------------------


def test_names_that_are_not_there(tmp_path: Path, shm_name: str) -> None:
    for open_it in (sa.ipc.open_file, sa.ipc.open_stream):
        for place in (tmp_path / "none", str(tmp_path / "no" / "where"), shm_name):
            with pytest.raises(sa.ObjectNotFound) as caught:
                open_it(place)
            assert isinstance(caught.value, FileNotFoundError)
            assert str(place).removeprefix("shm:") in str(caught.value)
            assert caught.value.errno == errno.ENOENT
    with pytest.raises(sa.ObjectNotFound, match="no/where"):
        sa.ipc.new_file(tmp_path / "no" / "where", BATCH.schema)


def test_names_that_are_taken(tmp_path: Path, shm_name: str) -> None:
    for place in (tmp_path / "taken", shm_name):
        with sa.ipc.new_stream(place, BATCH.schema):
            pass
        for make in (sa.ipc.new_file, sa.ipc.new_stream):
            with pytest.raises(sa.ObjectExists, match=r"taken|sa-test") as caught:
                make(place, BATCH.schema, overwrite=False)
            assert isinstance(caught.value, FileExistsError)
            assert caught.value.errno == errno.EEXIST


@pytest.mark.parametrize("name", ["shm:", "shm:a/b", "shm:../a", "shm:.", "shm:..", "shm:" + "x" * 300, "shm:a\0b"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(sa.ShmarrowError):
        sa.ipc.open_file(name)
    with pytest.raises(sa.ShmarrowError):
        sa.ipc.new_file(name, BATCH.schema)


def test_places_that_are_no_files(tmp_path: Path) -> None:
    for place in (tmp_path, "/dev/null", "/dev/zero"):
        with pytest.raises(sa.ShmarrowError):
            sa.ipc.open_file(place)
    with pytest.raises(sa.ShmarrowError):
        sa.ipc.new_file(tmp_path, BATCH.schema)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(sa.ShmarrowError):
        sa.ipc.open_file(tmp_path / "fifo")


@pytest.mark.parametrize("source", [None, 5, 1.5, ["a"], object()])
def test_sources_and_sinks_that_are_none(source: Any) -> None:
    for use in (sa.ipc.open_file, sa.ipc.open_stream, lambda it: sa.ipc.new_file(it, BATCH.schema)):
        with pytest.raises(sa.InvalidType):
            use(source)
    for sink in (b"bytes", bytearray(10)):
        with pytest.raises(sa.ShmarrowError):
            sa.ipc.new_file(sink, BATCH.schema)


@pytest.mark.processes
def test_a_directory_without_permission(tmp_path: Path) -> None:
    """As somebody who is not root, whom permissions do not hold."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    secret = tmp_path / "secret"
    secret.write_bytes(FILE)
    secret.chmod(0)
    script = """
import io, os, sys
import shmarrow as sa
with sa.ipc.new_file(io.BytesIO(), sa.schema([])):
    pass  # loads what may not be allowed to be loaded afterwards
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
closed, secret = sys.argv[1:]
for use in (lambda: sa.ipc.new_file(closed + "/a", sa.schema([])), lambda: sa.ipc.open_file(secret)):
    try:
        use()
    except sa.StorageError as error:
        print(type(error).__name__, error.errno, error)
"""
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(path.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", script, str(closed), str(secret)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line, place in zip(lines, (closed, secret), strict=True):
        assert line.startswith(f"StorageError {errno.EACCES} ")
        assert str(place) in line
        assert "ermission" in line
    assert not list(closed.iterdir())


# --- no space -------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    place = tmp_path / "full"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting a small file system needs root: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.processes
@pytest.mark.parametrize("make", [sa.ipc.new_file, sa.ipc.new_stream])
def test_no_space_left(make: Any, full_disk: Path) -> None:
    batch = sa.record_batch({"i": np.arange(1 << 16)})
    free = os.statvfs(full_disk).f_bavail
    with pytest.raises(sa.StoreFull) as caught, make(full_disk / "a", batch.schema) as writer:  # noqa: PT012
        for _ in range(10):
            writer.write(batch)
    assert caught.value.errno == errno.ENOSPC
    assert str(full_disk) in str(caught.value)
    assert "1048576 bytes (1 MiB)" in str(caught.value)
    assert not list(full_disk.iterdir())
    assert os.statvfs(full_disk).f_bavail == free
    with make(full_disk / "a", batch.schema) as writer:
        writer.write(batch)
    assert [entry.name for entry in full_disk.iterdir()] == ["a"]


# --- columns and batches ----------------------------------------------------------------------------------------------


def test_columns_that_are_not_there_or_twice() -> None:
    schema = sa.schema([("a", sa.int8()), ("b", sa.int8()), ("a", sa.int8())])
    batch = sa.record_batch([[1], [2], [3]], schema=schema)
    (got,) = sa.ipc.open_stream(forms.write("stream-plain", [batch], schema))
    for data in (batch, got, sa.Table.from_batches([got])):
        with pytest.raises(sa.FieldNotFound, match="'none'") as caught:
            data.column("none")
        assert isinstance(caught.value, KeyError)
        with pytest.raises(sa.FieldNotFound, match="'a'"):
            data.column("a")
        for wrong in (3, -4):
            with pytest.raises(sa.IndexOutOfRange, match="3"):
                data.column(wrong)


def test_batches_of_other_fields() -> None:
    sink = io.BytesIO()
    writer = sa.ipc.new_stream(sink, BATCH.schema)
    before = sink.tell()
    for wrong in (
        sa.record_batch({"i": np.arange(3)}),
        sa.record_batch({"i": np.arange(3), "s": [1, 2, 3]}),
        sa.record_batch({"i": np.arange(3), "other": ["a"] * 3}),
    ):
        with pytest.raises(sa.InvalidType, match="the batch does not fit the writer's schema: "):
            writer.write(wrong)
    for none in (None, 5, {"i": [1]}, "batch"):
        with pytest.raises(sa.InvalidType, match="expected a"):
            writer.write(none)
    assert sink.tell() == before
    writer.write(BATCH)
    writer.close()
    assert sa.ipc.open_stream(sink.getvalue()).read_all().num_rows == 100
    with pytest.raises(sa.InvalidType, match="Schema"):
        sa.ipc.new_stream(sink, ["i"])


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"alignment": 0},
        {"alignment": 24},
        {"alignment": 4},
        {"metadata_version": "V3"},
        {"endianness": "middle"},
        {"min_space_savings": 2.0},
        {"compression": "zstd", "metadata_version": "V4"},
        {"compression_level": 3},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(sa.InvalidArgument):
        IpcWriteOptions(**options)


@pytest.mark.parametrize(("codec", "level"), [("zstd", 23), ("zstd", -(1 << 20)), ("lz4", 17), ("lz4", 1 << 40)])
def test_compression_levels_that_do_not_exist(codec: str, level: Any) -> None:
    with pytest.raises(sa.InvalidArgument, match=f"compression_level of {codec} must be from .* found {level}"):
        IpcWriteOptions(compression=codec, compression_level=level)


def test_a_file_that_shrinks_under_its_name(tmp_path: Path) -> None:
    """What is cut after it was published is refused when it is opened."""
    path = tmp_path / "a"
    with sa.ipc.new_file(path, BATCH.schema, mode=0o600) as writer:
        writer.write(BATCH)
    os.truncate(path, 200)
    with pytest.raises(sa.InvalidData, match="truncated"):
        sa.ipc.open_file(path)
    os.truncate(path, 0)
    with pytest.raises(sa.InvalidData, match="found an empty file"):
        sa.ipc.open_file(path)


def test_sinks_that_fail() -> None:
    class Failing(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            raise OSError(errno.EPIPE, "nobody reads")

    with pytest.raises(sa.StorageError, match="nobody reads") as caught:
        sa.ipc.new_stream(Failing(), BATCH.schema)
    assert caught.value.errno == errno.EPIPE


def test_sources_that_fail() -> None:
    class Failing(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, target: Any) -> int:
            raise OSError(errno.EIO, "the disk is broken")

    for use in (sa.ipc.open_stream, sa.ipc.open_file):
        with pytest.raises(sa.StorageError, match="the disk is broken") as caught:
            use(Failing())
        assert caught.value.errno == errno.EIO


def test_a_source_that_does_not_wait() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    with os.fdopen(read, "rb", buffering=0) as source, pytest.raises(sa.ShmarrowError, match="StreamDecoder"):
        sa.ipc.open_stream(source)
    os.close(write)
