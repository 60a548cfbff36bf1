"""The one-pass reader of plain record batch headers beside the generic reader: it gives the same, or nothing."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from every import every
from wire import blocks_of

import shmarrow as sa
from shmarrow.errors import ShmarrowError
from shmarrow.ipc.batch.decode import header_of
from shmarrow.ipc.batch.header import Header, batch_header
from shmarrow.ipc.message.decode import read_message
from shmarrow.testing.definition import Case
from shmarrow.testing.table import CASES


def written(case: Case, **options: object) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """A file with one batch of a case, and its blocks."""
    batch = sa.RecordBatch.from_arrays([case.array()], ["column"])
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, batch.schema, sa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(batch)
    data = np.frombuffer(sink.getvalue(), np.uint8)
    return data, blocks_of(sink.getvalue())["recordBatches"]


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


@every(WRITABLE)
def test_it_gives_what_the_generic_reader_gives(case: Case) -> None:
    data, blocks = written(case)
    for block in blocks:
        quick = batch_header(data, data.data, *block[:2])
        if quick is None:
            # Views have counts of their own, and numbers that are 0 are left out of the tables.
            assert "view" in str(case.type) or len(case.array()) == 0 or block[2] == 0
        else:
            assert same(quick, generic(data, *block))


def test_what_is_more_than_plain_is_left_to_the_generic_reader() -> None:
    case = next(case for case in CASES if case.name == WRITABLE[0].name)
    data, blocks = written(case, compression="lz4")
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
