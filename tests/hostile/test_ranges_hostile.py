"""Ranges that a hostile file names: overlapping buffers are read once, buffers that nobody uses not at all."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import wire
from forms import file_of
from remote import Counted
from wire import messages

import shmarrow as sa
from shmarrow.memory.ranges import MERGED_BYTES, RangeBody, open_ranges

SIZE = 9 << 20
assert MERGED_BYTES < SIZE


@pytest.mark.parametrize("step", [1, 1 << 14])
def test_overlapping_ranges_are_read_once(step: int) -> None:
    """300 buffers of almost 9 MiB in a file of 9 MiB cost 9 MiB, whatever small ranges between them were read."""
    file = Counted(bytes(range(256)) * (SIZE >> 8))
    source = open_ranges(file)
    assert source is not None
    body = RangeBody(source, 0, SIZE)
    starts = [step * i for i in range(300)]
    body.have([(start, start + 9) for start in starts])
    ranges = [(start, start + SIZE - 300 * step) for start in starts]
    data = body.have(ranges)
    assert file.total <= SIZE + 300 * 9
    for start, stop in ranges:
        assert data[start : start + 9].tobytes() == file.data[start : start + 9]
        assert data[stop - 9 : stop].tobytes() == file.data[stop - 9 : stop]
    body.have(ranges)
    assert file.total <= SIZE + 300 * 9


def unused_validity(compression: str | None) -> bytes:
    """A file of a column without nulls whose validity buffer, which nobody needs, lies far behind the body."""
    values = np.arange(1000)
    batch = sa.record_batch([sa.array(values), sa.array([[1], [2, 3]] * 500)], names=["x", "l"])
    data = file_of(batch, compression=compression)
    part = messages(data, 8)[1]
    buffers = part.message.header["buffers"].view("<i8").reshape(-1, 2)
    assert buffers[[0, 2, 4], 1].tolist() == [0, 0, 0]
    changed = buffers.copy()
    changed[[0, 2, 4]] = [(0, 1 << 40), (-8, 8), (0, 4)]  # the last is too short to be a compressed buffer
    assert data.count(buffers.tobytes()) == 1
    return data.replace(buffers.tobytes(), changed.tobytes())


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_buffers_that_are_not_used_are_not_looked_at(compression: str | None) -> None:
    """A mapped, a ranged and a compressed file are read alike: what no value needs is neither checked nor fetched."""
    data = unused_validity(compression)
    expected = {"x": list(range(1000)), "l": [[1], [2, 3]] * 500}
    for source in (data, Counted(data)):
        reader = sa.ipc.open_file(source)
        batch = reader.get_batch(0)
        assert {name: batch.column(name).to_pylist() for name in expected} == expected
        assert reader.read_all().to_pydict() == expected


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_buffers_that_are_used_are_checked(compression: str | None) -> None:
    data = file_of(sa.record_batch({"x": np.arange(1000)}), compression=compression)
    place = messages(data, 8)[1].message.header["buffers"][1].tobytes()
    data = data.replace(place, struct.pack("<qq", 0, 1 << 40))
    for source in (data, Counted(data)):
        with pytest.raises(sa.InvalidData, match=r"column 0 'x': buffer 1 needs \[0, 1099511627776\)"):
            sa.ipc.open_file(source).get_batch(0).column("x")


def test_a_column_that_is_refused_leaves_the_others() -> None:
    """A type that does not exist is an error of its own column, however many columns were asked for before."""
    good = {"name": "g", "nullable": True, "type": ("Int", {"bitWidth": 64, "is_signed": True}), "children": []}
    bad = {**good, "name": "b", "type": ("Int", {"bitWidth": 63, "is_signed": True})}
    schema = wire.message("Schema", {"fields": [good, bad, good, good, good, good]})
    header = wire.batch_header(1, [(1, 0)] * 6, [(0, 0), (0, 8)] * 6)
    data = wire.stream_from([schema, wire.message("RecordBatch", header, struct.pack("<q", 7))])
    (batch,) = sa.ipc.open_stream(data)
    for _ in range(2):
        for i in (0, 2, 3, 4, 5):
            assert batch.column(i).to_pylist() == [7]
        with pytest.raises(sa.ShmarrowError, match="63"):
            batch.column(1)
