"""``shmarrow.xray``: every byte of every kind of object has one region; what deviates is found; hostile bytes end.

Invariants: what a region says is compared with the bytes, unpacked by ``struct``, or with where pyarrow finds the
same buffers; coverage is checked by :func:`covering.covered` alone.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forms
import golden
import numpy as np
import pyarrow as pa
import pytest
import wire
from covering import changed, covered, find, kinds, said

import shmarrow as sa
from shmarrow import xray
from shmarrow.ipc.flatbuffers import builder

# --- golden files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", golden.CONTENTS)
def test_every_byte_of_every_golden_file(arrow_testing: Path, release: str) -> None:
    for name in [name for name in golden.NAMES if name.startswith(f"{release}/")]:
        for form, read in (("arrow_file", pa.ipc.open_file), ("stream", pa.ipc.open_stream)):
            path = golden.path(arrow_testing, name, form)
            regions, findings = covered(path)
            assert findings == [], path
            assert not set(kinds(regions)) & {"gap", "unknown", "overlap"}, path
            found, whole = xray.overview(path), read(Path(path).read_bytes()).read_all()
            assert found.schema is not None
            assert (found.rows().sum(), found.schema.names, found.findings) == (whole.num_rows, whole.schema.names, ())
            assert found.endianness == ("big" if "bigendian" in name else "little")
            assert found.version == ("V4" if name.startswith("0.14.1") else "V5"), name


def test_all_golden_files_are_looked_at(arrow_testing: Path) -> None:
    folder = arrow_testing / "integration"
    found = {path for form in ("arrow_file", "stream") for path in folder.glob(f"*/*.{form}")}
    known = [golden.path(arrow_testing, name, form) for name in golden.NAMES for form in ("arrow_file", "stream")]
    assert found == set(map(Path, known))


PLACED = [
    "0.14.1/dictionary", "0.14.1/primitive", "1.0.0-littleendian/nested", "1.0.0-littleendian/recursive_nested",
    "1.0.0-littleendian/map", "cpp-21.0.0/binary_view", "cpp-21.0.0/list_view", "cpp-21.0.0/run_end_encoded",
    "cpp-21.0.0/union", "cpp-21.0.0/null", "cpp-21.0.0/extension", "cpp-21.0.0/decimal32",
]  # fmt: skip
"""Uncompressed contents in this machine's byte order, of which pyarrow copies nothing."""


@pytest.mark.parametrize("name", PLACED)
def test_buffers_are_where_pyarrow_finds_them(arrow_testing: Path, name: str) -> None:
    data = Path(golden.path(arrow_testing, name, "stream")).read_bytes()
    memory = pa.py_buffer(data)
    theirs = set()
    rows = []
    for batch in pa.ipc.open_stream(memory):
        rows.append(batch.num_rows)
        for column in batch.columns:
            arrays = [column]
            while arrays:
                array = arrays.pop()
                if isinstance(array, pa.ExtensionArray):
                    array = array.storage
                if isinstance(array, pa.DictionaryArray):
                    arrays.append(array.dictionary)
                    array = array.indices
                for each in array.buffers():
                    if each is not None and each.size:
                        theirs.add((each.address - memory.address, each.size))
    regions = covered(data)[0]
    ours = {(each.start, each.end - each.start) for each in find(regions, "buffer")}
    validity = {(each.start, each.end - each.start) for each in find(regions, "buffer", "validity")}
    theirs = {each for each in theirs if 0 <= each[0] < len(data)}  # what pyarrow made itself is elsewhere
    assert theirs <= ours
    assert ours - theirs <= validity  # pyarrow drops bitmaps of columns without nulls
    assert xray.overview(data).rows().tolist() == rows


# --- what regions say -------------------------------------------------------------------------------------------


def test_a_file_byte_by_byte() -> None:
    data = forms.file_of(forms.numbers(3))
    regions, _ = covered(data)
    by_start = {each.start: each for each in regions}
    size = struct.unpack_from("<i", data, 12)[0]
    assert by_start[0][:5] == (0, 6, "magic", "magic string 'ARROW1'", "file")
    assert by_start[8][:3] + by_start[8][6:] == (8, 16, "prefix", size)
    root = struct.unpack_from("<I", data, 16)[0]
    assert by_start[16].value == root
    vtable = 16 + root - struct.unpack_from("<i", data, 16 + root)[0]
    assert by_start[vtable].kind == "vtable"
    assert by_start[vtable].end - vtable == struct.unpack_from("<H", data, vtable)[0]
    assert by_start[vtable].value["table_size"] == struct.unpack_from("<H", data, vtable + 2)[0]
    assert by_start[16 + root].value["version"] == "V5"
    footer = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    assert by_start[footer].what == "offset of the root table Footer"
    assert by_start[len(data) - 10][2:3] + by_start[len(data) - 10][6:] == ("size", len(data) - 10 - footer)
    (nodes,) = find(regions, "vector", "RecordBatch.nodes")
    assert nodes.value == [{"length": 3, "null_count": 0}] * 2
    names = [data[each.start + 4 : each.end - 1].decode() for each in find(regions, "string", "string Field.name")]
    assert names == [each.value for each in find(regions, "string", "string Field.name")]
    assert sorted(names) == ["f", "f", "i", "i"]  # in the first message and in the footer
    (blocks,) = find(regions, "block", "recordBatches")
    assert [tuple(each.values()) for each in blocks.value] == wire.blocks_of(data)["recordBatches"]
    (i,) = find(regions, "buffer", "column 'i'")
    (f,) = find(regions, "buffer", "column 'f'")
    assert np.frombuffer(data[i.start : i.end], "<i8").tolist() == [0, 1, 2]
    assert np.frombuffer(data[f.start : f.end], "<f8").tolist() == [0, 0.25, 0.5]
    assert i.what == "values of column 'i': 3 × int64"
    assert (i.path, i.chapter) == ("record batch 0 / i / values", "Columnar.rst, Fixed-size Primitive Layout")
    (end,) = find(regions, "end")
    assert data[end.start : end.end] == b"\xff\xff\xff\xff\0\0\0\0"


def test_compressed_buffers_begin_with_their_length() -> None:
    batch = sa.record_batch({"x": np.zeros(1000, "i8"), "s": ["abc"] * 1000})
    data = forms.write("file-lz4", [batch], batch.schema)
    regions, findings = covered(data)
    assert findings == []
    lengths = find(regions, "length")
    assert [each.value for each in lengths] == [8000, -1, 3000]  # offsets do not get smaller
    assert [struct.unpack_from("<q", data, each.start)[0] for each in lengths] == [8000, -1, 3000]
    assert len(find(regions, "buffer", "lz4 frame")) == 2
    assert xray.overview(data).compression == "lz4"


def test_shared_vtables_say_so() -> None:
    batch = sa.record_batch({name: [1] for name in "abcde"})
    (found, *_) = find(covered(forms.file_of(batch))[0], "vtable", "vtable of Field")
    assert found.what == "vtable of Field (shared by 5)"


def test_ranges_and_batches_are_parts_of_the_whole() -> None:
    data = forms.file_of(*[forms.numbers(n) for n in (3, 5, 8)])
    whole, _ = covered(data)
    for start, stop in ((0, 10), (100, 101), (400, 900), (len(data) - 1, len(data)), (300, 300)):
        expected = [each for each in whole if each.end > start and each.start < stop]
        assert list(xray.walk(data, start=start, stop=stop)) == expected
    second = [each for each in whole if each.path.startswith("record batch 1")]
    assert list(xray.walk(data, batches=1)) == second
    assert [each for each in whole if each.path.startswith("record batch")] == list(
        xray.walk(data, batches=slice(None))
    )
    with pytest.raises(sa.InvalidArgument, match="expected a batch from 0 to 2, found 3"):
        xray.walk(data, batches=3)
    with pytest.raises(sa.InvalidArgument, match="expected a range within"):
        xray.walk(data, start=5, stop=1)
    with pytest.raises(sa.InvalidData, match="found text"):
        xray.walk(b"some,text\n1,2")


# --- what we and others write -----------------------------------------------------------------------------------


WRITTEN = ("file-plain", "file-lz4", "stream-legacy", "stream-big-zstd")


@pytest.mark.parametrize("form", WRITTEN)
def test_what_our_writers_write(form: str) -> None:
    for batch in forms.together(forms.WRITABLE):
        regions, findings = covered(forms.write(form, [batch], batch.schema))
        assert [each for each in findings if each.severity != "note"] == []
        assert not set(kinds(regions)) & {"gap", "unknown"}


DENSE = np.where(np.arange(24).reshape(2, 3, 4) % 3 == 0, np.arange(24.0).reshape(2, 3, 4), 0)
TENSORS: dict[str, Any] = {
    "dense": lambda: sa.Tensor.from_numpy(DENSE, ["a", "b", "c"]),
    "coo": lambda: sa.SparseCOOTensor.from_dense(DENSE),
    "csr": lambda: sa.SparseCSRMatrix.from_dense(DENSE[1]),
    "csc": lambda: sa.SparseCSCMatrix.from_dense(DENSE[1]),
    "csf": lambda: sa.SparseCSFTensor.from_dense(DENSE),
}


@pytest.mark.parametrize("form", TENSORS)
def test_tensors(form: str) -> None:
    data = forms.message_of(TENSORS[form]())
    regions, findings = covered(data)
    assert findings == []
    assert xray.overview(data).kind == ("tensor" if form == "dense" else "sparse tensor")
    (elements,) = find(regions, "buffer", "elements of the tensor")
    expected = DENSE if form == "dense" else DENSE[1] if form in ("csr", "csc") else DENSE
    values = np.frombuffer(data[elements.start : elements.end], "<f8")
    wanted = expected.reshape(-1) if form == "dense" else expected[expected != 0]
    assert sorted(values[: len(wanted)].tolist()) == sorted(wanted.tolist())
    names = {each.path.rpartition(" / ")[2] for each in find(regions, "buffer")} - {"elements"}
    assert (
        names
        == {
            "dense": set(),
            "coo": {"indices"},
            "csr": {"indices", "indptr"},
            "csc": {"indices", "indptr"},
            "csf": {*[f"indptr of level {i}" for i in (0, 1)], *[f"indices of level {i}" for i in (0, 1, 2)]},
        }[form]
    )


def test_bundles_name_their_tensors(tmp_path: Path) -> None:
    path = tmp_path / "layer.tensors"
    sa.save_tensors({"weight": np.eye(3), "bias": np.arange(2.0), "sparse": TENSORS["csf"]()}, path)
    regions, findings = covered(path)
    assert (findings, xray.overview(path).kind) == ([], "bundle")
    (bias,) = find([each for each in regions if each.path == "tensor 'bias' / elements"], "buffer")
    assert np.frombuffer(path.read_bytes()[bias.start : bias.end], "<f8").tolist() == [0, 1]
    assert any(each.path.startswith("sparse tensor 'sparse'") for each in regions)


NO_PREFIX = "the schema message has no prefix, so the file cannot be read as a stream"


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_what_polars_writes(compression: Any) -> None:
    pl = pytest.importorskip("polars", reason="the package polars is not installed")
    categories = pl.Series(["a", "b"], dtype=pl.Categorical)
    frame = pl.DataFrame({"a": [1, None], "s": ["x", "y" * 40], "l": [[1], [2, 3]], "c": categories})
    file, stream = io.BytesIO(), io.BytesIO()
    frame.write_ipc(file, compression=compression)
    frame.write_ipc_stream(stream, compression=compression)
    for data, expected in ((file.getvalue(), {("note", NO_PREFIX)}), (stream.getvalue(), set())):
        regions, findings = covered(data)
        assert set(said(findings)) <= expected
        assert not set(kinds(regions)) & {"gap", "unknown", "overlap"}
        read = pa.ipc.open_file if data is file.getvalue() else pa.ipc.open_stream
        assert xray.overview(data).rows().sum() == read(data).read_all().num_rows


# --- findings ---------------------------------------------------------------------------------------------------

TWO = forms.file_of(forms.numbers(3), forms.numbers(5))
BLOCKS = wire.blocks_of(TWO)["recordBatches"]


def in_footer(number: int, block: tuple[int, int, int]) -> bytes:
    """The file of two batches with another block in its footer."""
    (blocks,) = find(covered(TWO)[0], "block", "recordBatches")
    return changed(TWO, blocks.start + 4 + 24 * number, struct.pack("<qi4xq", *block))


def stream_of(*nodes_and_buffers: Any, body: bytes) -> bytes:
    """A stream of one int64 column whose only batch says what is given."""
    schema = forms.write("stream-plain", [], sa.schema([("x", sa.int64())]))[:-8]
    return schema + wire.message("RecordBatch", wire.batch_header(*nodes_and_buffers), body)


VALUES = np.arange(8).tobytes()
FINDINGS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "truncated file": (lambda: TWO[:-3], "error", "the file is truncated, or its writer was not closed"),
    "cut in a body": (lambda: TWO[: BLOCKS[1][0] + 300], "error", "truncated message: its body needs 128 bytes"),
    "padding that is not zero": (
        lambda: changed(TWO, 6, b"xy"), "warning", "file: 2 bytes that nothing refers to and that are not zero"
    ),
    "a block twice": (lambda: in_footer(0, BLOCKS[1]), "warning", "overlaps another one"),
    "a block outside": (lambda: in_footer(0, (1 << 40, 200, 0)), "error", "record batch 0: the block [1099511627776,"),
    "a negative block": (lambda: in_footer(1, (-8, 200, 0)), "error", "1: the block [-8, 192) is not within"),
    "a batch that is not listed": (lambda: in_footer(1, (1 << 40, 200, 0)), "note", "is not listed in the footer"),
    "another length of the body": (
        lambda: in_footer(1, (*BLOCKS[1][:2], BLOCKS[1][2] - 64)),
        "error",
        "the metadata declares a body of 128 bytes, but 64 are present"
    ),
    "junk between messages": (
        lambda: in_footer(1, (BLOCKS[1][0] + 64, BLOCKS[1][1], 0)), "warning", "bytes that nothing refers to"
    ),
    "bytes behind a stream": (
        lambda: forms.write("stream-plain", [], TWO_SCHEMA) + b"junk",
        "warning",
        "4 bytes that nothing refers to: they follow"
    ),
    "a buffer outside": (
        lambda: stream_of(8, [(8, 0)], [(0, 0), (64, 64)], body=VALUES), "error", "[64, 128) of 64 bytes of body"
    ),
    "a short buffer": (
        lambda: stream_of(9, [(9, 0)], [(0, 0), (0, 64)], body=VALUES), "error", "64 bytes, 9 slots need 72"
    ),
    "a missing buffer": (
        lambda: stream_of(8, [(8, 0)], [(0, 64)], body=VALUES),
        "error",
        "1 buffers, where the columns of the schema have 2"
    ),
    "not aligned": (
        lambda: stream_of(7, [(7, 0)], [(0, 0), (4, 56)], body=VALUES), "warning", "not aligned to 8 bytes"
    ),
    "the same bytes twice": (
        lambda: stream_of(8, [(8, 1)], [(0, 64), (0, 64)], body=VALUES), "note", "the same bytes as another buffer"
    ),
    "overlapping buffers": (
        lambda: stream_of(7, [(7, 1)], [(0, 16), (8, 56)], body=VALUES), "warning", "overlaps another buffer"
    ),
    "much padding": (
        lambda: stream_of(0, [(0, 0)], [(0, 0), (0, 0)], body=bytes(800)), "note", "0: 800 bytes of padding"
    ),
}  # fmt: skip
TWO_SCHEMA = forms.numbers(0).schema


@pytest.mark.parametrize("case", FINDINGS)
def test_findings(case: str) -> None:
    make, severity, message = FINDINGS[case]
    _, findings = covered(make())
    assert [each for each in findings if each.severity == severity and message in each.message], findings
    assert all(each.remedy for each in findings)
    assert said(list(xray.findings(make()))) == said(findings)


def test_footer_out_of_order_is_a_note() -> None:
    data = changed(
        in_footer(0, BLOCKS[1]),
        find(covered(TWO)[0], "block", "recordB")[0].start + 28,
        struct.pack("<qi4xq", *BLOCKS[0]),
    )
    _, findings = covered(data)
    assert said(findings) == [("note", "the footer lists record batch 1 after one that is behind it in the file")]
    assert [xray.overview(data).batch(i).rows for i in (0, 1)] == [5, 3]


def message_of_later() -> bytes:
    """A Message table of a schema without fields, with more slots than Schema.fbs knows, and a file identifier."""
    # root, identifier, vtable of Message (6 slots), Message, vtable of Schema, Schema
    vtable = struct.pack("<HH6H", 16, 20, 6, 5, 8, 0, 0, 12)
    table = struct.pack("<i", 16) + b"\0\1" + struct.pack("<h", 4) + struct.pack("<I", 16) + struct.pack("<q", -2)
    schema = struct.pack("<HH", 4, 4) + struct.pack("<i", 4)
    return struct.pack("<I", 24) + b"ARRW" + vtable + table + schema


def test_fields_of_later_versions_and_identifiers() -> None:
    metadata = message_of_later()
    data = wire.framed(metadata)
    regions, findings = covered(data)
    assert [finding.message for finding in findings] == ["schema message: the schema has no vector of fields"]
    assert [each.value for each in find(regions, "magic")] == ["ARRW"]
    (message,) = find(regions, "table", "table Message")
    assert message.value["field 5, of a later version"] == struct.pack("<q", -2).hex(" ")
    assert kinds(regions)["unknown"] == 0


def test_vtables_behind_their_tables() -> None:
    buffer = builder.encode("Message", {"version": 4, "header": ("Schema", {}), "bodyLength": 0})
    root = struct.unpack_from("<I", buffer)[0]
    at = root - struct.unpack_from("<i", buffer, root)[0]
    size = struct.unpack_from("<H", buffer, at)[0]
    moved = changed(buffer, root, struct.pack("<i", root - len(buffer))) + buffer[at : at + size]
    regions, _ = covered(wire.framed(changed(moved, at, bytes(size))))
    (vtable,) = find(regions, "vtable", "vtable of Message")
    assert vtable.start == 8 + len(buffer)
    assert find(regions, "table", "table Message")[0].start == 8 + root
