"""Files read by ranges: what is read of a seekable object that cannot be mapped, counted; row counts in the footer."""

from __future__ import annotations

import io
import struct

import numpy as np
import pyarrow as pa
import pytest
from environment import needs_pyarrow
from forms import WRITABLE, file_of, numbers, peers_file, together, write
from remote import Counted
from wire import batch_header, message, messages, stream_from

import shmarrow as sa
from shmarrow.memory.ranges import MERGED_BYTES, RangeBody, open_ranges

COLUMNS, BATCHES, ROWS = 100, 100, 500


@pytest.fixture(scope="module")
def wide() -> bytes:
    """A file of 100 batches of 100 columns, 40 MB."""
    sink = io.BytesIO()
    first = sa.record_batch({f"c{i}": np.full(ROWS, i) for i in range(COLUMNS)})
    with sa.ipc.new_file(sink, first.schema) as writer:
        for number in range(BATCHES):
            writer.write(sa.record_batch({f"c{i}": np.full(ROWS, number * 1000 + i) for i in range(COLUMNS)}))
    return sink.getvalue()


def metadata_bytes(data: bytes) -> int:
    """The size of the footer, and of the metadata of one batch."""
    return int.from_bytes(data[-10:-6], "little") + messages(data, 8)[1].body - messages(data, 8)[1].start


def test_one_column_of_one_batch(wide: bytes) -> None:
    source = Counted(wide)
    reader = sa.ipc.open_file(source)
    assert reader.num_record_batches == BATCHES
    assert reader.num_rows == BATCHES * ROWS
    opening = source.total
    assert len(source.reads) <= 2
    batch = reader.get_batch(57)
    assert batch.num_rows == ROWS
    assert batch.column("c41").to_pylist() == [57041] * ROWS
    assert source.total - opening < len(wide) // 1000 + metadata_bytes(wide)
    assert opening < (1 << 15) + metadata_bytes(wide)


def test_included_fields_decide_what_is_read(wide: bytes) -> None:
    source = Counted(wide)
    table = sa.ipc.open_file(source, included_fields=["c7"]).read_all()
    assert table.column("c7").to_pylist() == [number * 1000 + 7 for number in range(BATCHES) for _ in range(ROWS)]
    assert source.total < len(wide) // 30
    whole = Counted(wide)
    assert sa.ipc.open_file(whole).read_all().equals(sa.ipc.open_file(wide).read_all())
    assert len(whole.reads) < BATCHES


def test_all_types_by_ranges() -> None:
    for batch in together(WRITABLE, 20):
        for form in ("file-plain", "file-zstd", "file-big-endian"):
            data = write(form, [batch, batch], batch.schema)
            reader = sa.ipc.open_file(Counted(data))
            assert [got.equals(batch) for got in reader] == [True, True]
            assert reader.read_all().num_rows == 2 * batch.num_rows


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_a_column_is_read_in_one_go_and_nothing_else(codec: str | None) -> None:
    """Its buffers and those of its children; several columns when they are asked for, and no sooner."""
    rows = range(20_000)
    batch = pa.record_batch(
        {
            "a": pa.array(rows),
            "b": pa.array([str(i) if i % 7 else None for i in rows]),
            "c": pa.array([[i, i + 1] for i in rows]),
            "v": pa.array([f"{i} is longer than twelve bytes" for i in rows], pa.string_view()),
            "w": pa.array([[str(i)] for i in rows], pa.list_(pa.string_view())),
        }
    )
    data = peers_file(batch, compression=codec)
    for i, expected in enumerate(batch.columns):
        source = Counted(data)
        read = sa.ipc.open_file(source).get_batch(0)
        before, total = len(source.reads), source.total
        assert read.column(i).to_pylist() == expected.to_pylist()
        assert len(source.reads) - before <= 1
        sizes = [len(part) + 64 for part in read.column(i).buffers() if part is not None]  # with what pads them
        assert codec or source.total - total <= sum(sizes)
    source = Counted(data)
    selected = sa.ipc.open_file(source).get_batch(0).select([4, 0]).slice(1, 3)
    before = len(source.reads)
    assert [column.to_pylist() for column in selected.columns] == [batch.column(i).to_pylist()[1:4] for i in (4, 0)]
    assert 0 < len(source.reads) - before <= 2


def test_dictionaries_are_read_for_the_columns_that_need_them() -> None:
    words = sa.array([f"word {i}" for i in range(20_000)]).dictionary_encode()
    batch = sa.record_batch([sa.array(np.arange(20_000)), words], names=["i", "d"])
    data = file_of(batch)
    (dictionary,) = [part for part in messages(data, 8) if part.message.kind == "DictionaryBatch"]
    body = dictionary.body, dictionary.body + dictionary.message.body_length
    source = Counted(data)
    got = sa.ipc.open_file(source).get_batch(0)
    assert got.column("i").to_pylist() == list(range(20_000))
    assert not source.touched(*body)
    assert got.column("d").to_pylist() == words.to_pylist()
    assert source.touched(*body)


def test_files_of_others_by_ranges() -> None:
    theirs = pa.record_batch({"x": list(range(1000)), "s": [f"{i}" for i in range(1000)]})
    source = Counted(peers_file(theirs, theirs.slice(0, 10), theirs.slice(5, 1)))
    reader = sa.ipc.open_file(source)
    assert reader.num_rows == 1011
    assert reader.read_all().to_pylist() == (
        theirs.to_pylist() + theirs.slice(0, 10).to_pylist() + [{"x": 5, "s": "5"}]
    )


def test_after_closing_nothing_is_read() -> None:
    source = Counted(file_of(sa.record_batch({"x": np.arange(100_000), "y": np.arange(100_000)})))
    reader = sa.ipc.open_file(source)
    batch = reader.get_batch(0)
    have = batch.column("x")
    reader.close()
    reads = len(source.reads)
    assert have.to_pylist() == list(range(100_000))
    with pytest.raises(sa.Closed, match=r"the reader of .* is closed, and this column was not read before; .*read_all"):
        batch.column("y")
    assert len(source.reads) == reads
    assert not source.closed


def test_hostile_blocks_by_ranges() -> None:
    data = file_of(numbers(), numbers())
    for at in range(len(data) - 10 - int.from_bytes(data[-10:-6], "little"), len(data), 3):
        changed = bytearray(data)
        changed[at] ^= 0x81
        outcomes = []
        for source in (bytes(changed), Counted(bytes(changed))):
            try:
                outcomes.append(sa.ipc.open_file(source).read_all().to_pylist())
            except sa.ShmarrowError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]


# --- rows in the footer ---------------------------------------------------------------------------------------------


def test_row_counts_are_in_the_footer_and_not_in_the_metadata() -> None:
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, numbers().schema, metadata={"user": "value"}) as writer:
        for rows in (10, 10, 0, 7):
            writer.write(numbers(rows))
    data = sink.getvalue()
    reader = sa.ipc.open_file(data)
    assert reader.num_rows == 27
    assert dict(reader.metadata or {}) == {b"user": b"value"}
    assert sa.ipc.open_file(file_of(numbers())).metadata is None
    theirs = pa.ipc.open_file(data)
    assert theirs.read_all().num_rows == 27
    needs_pyarrow(21)  # older ones have no attribute for the footer's metadata
    assert theirs.metadata == {b"user": b"value", b"shmarrow:row_counts": b"2*10,0,7"}


@pytest.mark.parametrize(
    "hint",
    ["", "30", "11*10", "10,10,-10", "10,10,10,10", "3*10x", "0*5,10,10,10x", "1e1,10,10", "4*10", "10,,10",
     " 10,10,10", "9" * 5000, "99999999999999999999*10", "\u0661\u0660,10,10"],
)  # fmt: skip
def test_a_hint_that_cannot_be_right_is_passed_over(hint: str) -> None:
    needs_pyarrow(21)  # older ones write no metadata into the footer
    schema = pa.schema([("x", pa.int64())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, metadata={"shmarrow:row_counts": hint}) as writer:
        for _ in range(3):
            writer.write(pa.record_batch({"x": range(10)}, schema=schema))
    reader = sa.ipc.open_file(sink.getvalue().to_pybytes())
    assert reader.num_rows == 30
    assert [batch.num_rows for batch in reader] == [10, 10, 10]


def test_a_hint_that_lies_changes_no_data() -> None:
    needs_pyarrow(21)  # older ones write no metadata into the footer
    schema = pa.schema([("x", pa.int64())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, metadata={"shmarrow:row_counts": "9223372036854775807,1"}) as writer:
        for _ in range(2):
            writer.write(pa.record_batch({"x": range(10)}, schema=schema))
    reader = sa.ipc.open_file(sink.getvalue().to_pybytes())
    assert reader.num_rows == 1 << 63
    assert reader.read_all().num_rows == 20


# --- ranges that a hostile file names ---------------------------------------------------------------------------------

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
    schema = message("Schema", {"fields": [good, bad, good, good, good, good]})
    header = batch_header(1, [(1, 0)] * 6, [(0, 0), (0, 8)] * 6)
    data = stream_from([schema, message("RecordBatch", header, struct.pack("<q", 7))])
    (batch,) = sa.ipc.open_stream(data)
    for _ in range(2):
        for i in (0, 2, 3, 4, 5):
            assert batch.column(i).to_pylist() == [7]
        with pytest.raises(sa.ShmarrowError, match="63"):
            batch.column(1)
