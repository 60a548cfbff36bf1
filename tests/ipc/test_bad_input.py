"""Input and places that are bad: each ends in one of our errors, that says where, what was expected and what was found.

Invariants: a message is held to its numbers; after a failure to write nothing is left at the place or beside it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pytest
import wire

import shmarrow as sa

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
    """Return the offset in FILE of a field of a record batch's block."""
    blocks = wire.blocks_of(FILE)["recordBatches"]
    at = FILE.index(struct.pack("<qi4xq", *blocks[number]), FOOTER)
    return at + field


# --- files that are none, or not whole ------------------------------------------------------------------------------

BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", r"expected an Arrow file, found an empty file"),
    "short": (b"ARROW1\0\0ARROW1", r"an Arrow file has at least 18 bytes, found 14"),
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
