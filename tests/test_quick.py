"""The one-pass reader of plain record batch headers beside the generic reader: it gives the same, or nothing."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pytest
from cases import CASES, Case

import shmarrow as sa
from shmarrow.errors import ShmarrowError
from shmarrow.ipc.batch import header_of
from shmarrow.ipc.flatbuf import Reader
from shmarrow.ipc.message import read_message
from shmarrow.ipc.quick import Header, batch_header, footer_header


def written(case: Case, **options: object) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """A file with one batch of a case, and its blocks."""
    batch = sa.RecordBatch.from_arrays([case.array()], ["column"])
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, batch.schema, sa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(batch)
    data = np.frombuffer(sink.getvalue(), np.uint8)
    return data, [block.item() for block in sa.ipc.open_file(data)._blocks]


def generic(data: np.ndarray, offset: int, metadata_length: int, body_length: int) -> Header | None:
    """What the generic reader says of the same message; None where that is more than the header has."""
    found = read_message(data, offset, "test")
    assert found is not None
    message, start = found
    assert start == offset + metadata_length
    assert message.kind == "RecordBatch"
    assert message.body_length == body_length
    assert message.custom_metadata is None
    assert message.header["compression"] is None
    assert message.header["variadicBufferCounts"] is None
    return header_of(message.header, message.version, message.body_length, "test")


def same(quick: Header, slow: Header) -> bool:
    return (
        quick[:2] == slow[:2]
        and np.array_equal(quick.nodes, slow.nodes)
        and np.array_equal(quick.buffers, slow.buffers)
    )


WRITABLE = [case for case in CASES if not case.name.startswith("dictionary-dictionary")]


@pytest.mark.parametrize("case", WRITABLE, ids=lambda case: case.name)
def test_it_gives_what_the_generic_reader_gives(case: Case) -> None:
    data, blocks = written(case)
    for block in blocks:
        quick = batch_header(data, data.data, *block[:2])
        if quick is None:
            # Views have counts of their own, and numbers that are 0 are left out of the tables.
            assert "view" in str(case.type) or len(case.array()) == 0 or block[2] == 0
        else:
            assert same(quick, generic(data, *block))


def from_its_head(data: np.ndarray, offset: int, metadata_length: int, size: int = 512) -> Header | None:
    """The header from a copy of a message's first bytes, and the few others that are peeked at."""
    head = memoryview(data[offset : offset + size].tobytes())
    return batch_header(data, head, offset, metadata_length, lambda start, count: data[start : start + count].tobytes())


@pytest.mark.parametrize("columns", [1, 30, 700])
def test_the_head_of_a_message_is_enough(columns: int) -> None:
    batch = sa.record_batch({f"c{i}": [i, None, 3] for i in range(columns)})
    for writer, written_batch in ((sa.ipc.new_file, batch), (pa.ipc.new_file, batch.to_pyarrow())):
        sink = io.BytesIO()
        with writer(sink, written_batch.schema) as file:
            file.write(written_batch)
        data = np.frombuffer(sink.getvalue(), np.uint8)
        offset, metadata_length, body_length = sa.ipc.open_file(data)._blocks[0].item()
        found = from_its_head(data, offset, metadata_length)
        assert found is not None
        assert same(found, generic(data, offset, metadata_length, body_length))
        for size in range(16, 300):
            short = from_its_head(data, offset, metadata_length, size)
            assert short is None or same(short, found)


def test_what_is_more_than_plain_is_left_to_the_generic_reader() -> None:
    case = next(case for case in CASES if case.name == WRITABLE[0].name)
    for options in ({"compression": "lz4"}, {"use_legacy_format": True}):
        data, blocks = written(case, **options)
        assert [batch_header(data, data.data, *block[:2]) for block in blocks] == [None]
    batch = sa.record_batch({"a": [1]})
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch, {"key": "value"})
    reader = sa.ipc.open_file(sink.getvalue())
    assert reader.get_batch(0).metadata == {b"key": b"value"}


def test_mutations_give_the_same_or_nothing() -> None:
    chooser = random.Random(1)
    case = next(case for case in WRITABLE if case.type == sa.list_(sa.int64()) or "list" in case.name)
    data, blocks = written(case)
    offset, metadata_length, body_length = blocks[0]
    kept = 0
    for _ in range(30_000):
        changed = data.copy()
        for _ in range(chooser.choice((1, 1, 2, 4))):
            at = offset + chooser.randrange(metadata_length)
            changed[at] = chooser.choice((0, 1, 4, 8, 127, 128, 255, chooser.randrange(256)))
        quick = batch_header(changed, changed.data, offset, metadata_length)
        head = from_its_head(changed, offset, metadata_length)
        assert (head is None) == (quick is None)
        assert head is None or same(head, quick)
        if quick is None or quick.body_length != body_length:
            continue
        kept += 1
        try:
            slow = generic(changed, offset, metadata_length, body_length)
        except ShmarrowError as error:  # pragma: no cover - a finding
            pytest.fail(f"the generic reader refuses what the quick one takes: {error}")
        assert slow is not None
        assert same(quick, slow)
    assert kept > 1000


def footer_of(data: np.ndarray) -> np.ndarray:
    """The bytes of a file's footer."""
    size = int(data[-10:-6].view("<i4")[0])
    return data[len(data) - 10 - size : len(data) - 10]


def slow_footer(footer: np.ndarray) -> tuple[int, int, int, int]:
    """Version, place of the first block, number of blocks and place of the schema, by the generic reader."""
    reader = Reader(footer, "test")
    root = reader.root("Footer")
    blocks = root["recordBatches"]
    place = blocks.__array_interface__["data"][0] - footer.__array_interface__["data"][0]
    return root["version"], place, len(blocks), reader.follow(root.at(1, 4), "Footer", "schema")


@pytest.mark.parametrize("batches", [0, 1, 2, 100])
def test_footers(batches: int) -> None:
    batch = sa.record_batch({"a": [1, 2], "d": sa.array(["x", "y"], sa.dictionary("int8", "string"))})
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, batch.schema) as writer:
        for _ in range(batches):
            writer.write(batch)
    footer = footer_of(np.frombuffer(sink.getvalue(), np.uint8))
    found = footer_header(footer[:512].tobytes(), len(footer))
    assert found == slow_footer(footer)
    assert found is not None
    assert found[2] == batches
    assert footer_header(footer[:24].tobytes(), len(footer)) is None


def test_mutated_footers_give_the_same_or_nothing() -> None:
    data, _ = written(WRITABLE[0])
    footer = footer_of(data)
    chooser = random.Random(2)
    kept = 0
    for _ in range(30_000):
        changed = footer.copy()
        for _ in range(chooser.choice((1, 1, 2))):
            at = chooser.randrange(min(len(changed), 64))
            changed[at] = chooser.choice((0, 1, 4, 8, 255, chooser.randrange(256)))
        quick = footer_header(changed[:512].tobytes(), len(changed))
        if quick is None:
            continue
        kept += 1
        assert quick == slow_footer(changed)
    assert kept > 1000
