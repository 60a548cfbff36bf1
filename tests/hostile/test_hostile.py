"""Hostile bytes: mutations of every layout in every form, of tensors, cuts at every byte, and bombs.

Invariants: whatever comes in, nothing but our errors comes out, within 2 seconds and 256 MiB; the numbers of the
mutations are fixed, and ``make fuzz`` takes others.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forms
import fuzz_tensors
import hostile
import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import wire
import zstandard
from covering import covered

import shmarrow as sa
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.layout import make_array, nulls

HUGE = 1 << 62
MANY = 1 << 17
LONG = "x" * (1 << 18)


def _hand_to_pyarrow(data: bytes, is_file: bool) -> str:
    """Columns that nobody validated, used by code that trusts what it is given."""
    outcome = "refused"
    try:
        for batch in sa.ipc.open_file(data) if is_file else sa.ipc.open_stream(data):
            for i in range(batch.num_columns):
                theirs = batch.column(i).to_pyarrow()
                outcome = "handed over"
                for use in (theirs.to_pylist, theirs.__str__, lambda it=theirs: pa.concat_arrays([it, it[1:]])):
                    with contextlib.suppress(Exception):
                        use()
    except sa.ShmarrowError:
        pass
    return outcome


def _walk(data: bytes, _: bool) -> str:
    """What :mod:`shmarrow.xray` says of each byte."""
    try:
        return "findings" if covered(data)[1] else "clean"
    except sa.InvalidData:
        return "refused"


CUT = [
    ("dictionary-int8-nulls", "file-plain"),
    ("dictionary-int8-nulls", "stream-plain"),
    ("string-view", "stream-lz4"),
]
_cases = [case.name for case in hostile.CASES]


def _whole(number: int) -> tuple[bytes, bool]:
    case, form = CUT[number]
    return hostile.seed_input(_cases.index(case), hostile.FORMS.index(form)), forms.FORMS[form][0]


def _cut(name: tuple[int, int]) -> tuple[bytes, bool]:
    data, is_file = _whole(name[0])
    return data[: name[1]], is_file


def _cut_tensors(name: tuple[int, int]) -> tuple[bytes, bool]:
    data, is_bundle = TENSORS[name[0]]
    return data[: name[1]], is_bundle


def _file(name: tuple[str, bool]) -> tuple[bytes, bool]:
    return Path(name[0]).read_bytes(), name[1]


def _bomb(name: str) -> tuple[bytes, bool]:
    return BOMBS[name][1](), False


TENSORS = [fuzz_tensors.SEEDS[i] for i in (0, -2)]  # a message and a bundle


def _ends(wholes: list[tuple[bytes, bool]]) -> list[Any]:
    """The names of all beginnings of some inputs, whole ones first: what is known of those may mislead."""
    return [(i, end) for i, (data, _) in enumerate(wholes) for end in range(len(data), -1, -1)]


CORPORA: dict[str, tuple[hostile.Inputs, list[Any], hostile.Use, dict[str, tuple[int, int]]]] = {
    # Most are refused, but if nearly all were, the others would not be looked at deeply. ``make fuzz`` tries more.
    "mutations": (hostile.mutation, [*range(600)], hostile.exercise, {"valid": (61, 600), "invalid": (61, 600)}),
    "tensors": (fuzz_tensors.mutation, [*range(400)], fuzz_tensors.exercise, {"read": (9, 400), "refused": (9, 400)}),
    "whole tensors": (
        fuzz_tensors.SEEDS.__getitem__,
        [*range(len(fuzz_tensors.SEEDS))],
        fuzz_tensors.exercise,
        {"read": (len(fuzz_tensors.SEEDS),) * 2},
    ),
    "native code": (hostile.mutation, [*range(20_000, 20_500)], _hand_to_pyarrow, {"handed over": (126, 500)}),
    "xray": (hostile.mutation, [*range(600, 800)], _walk, {"findings": (100, 199), "clean": (1, 100)}),
    # Whole inputs are valid, and so are streams that are cut between two messages or within the end mark's place.
    "cuts": (_cut, _ends([_whole(i) for i in range(len(CUT))]), hostile.exercise, {"valid": (len(CUT), 39)}),
    "cuts of tensors": (_cut_tensors, _ends(TENSORS), fuzz_tensors.exercise, {"read": (3, 3)}),  # nothing is no tensor
}
"""What makes the inputs, their names, what is done with them, and how often an outcome comes at least and at most."""


def _run(inputs: hostile.Inputs, names: list[Any], use: hostile.Use) -> dict[str, int]:
    counts, findings = hostile.run(inputs, names, 300, use)
    assert not findings
    assert sum(counts.values()) == len(names)
    return counts


@pytest.mark.parametrize("corpus", CORPORA)
def test_whatever_comes_in_gives_data_or_our_error(corpus: str) -> None:
    inputs, names, use, expected = CORPORA[corpus]
    counts = _run(inputs, names, use)
    for outcome, (least, most) in expected.items():
        assert least <= counts[outcome] <= most, counts


def test_the_inputs_that_fuzzing_found_to_break_other_readers(arrow_testing: Path) -> None:
    paths = sorted(path for path in (arrow_testing / "fuzz").rglob("*") if path.is_file())
    assert len(paths) >= 32
    counts = _run(_file, [(str(path), is_file) for path in paths for is_file in (True, False)], hostile.exercise)
    assert counts["refused"] > counts.get("valid", 0) > 0


# --- inputs that mean more than they hold --------------------------------------------------------------------------


def _bytes(values: Any) -> Any:
    return np.ascontiguousarray(values).reshape(-1).view("u1")


def ours(array: Any) -> bytes:
    batch = sa.record_batch([array], names=["c"])
    return forms.write("stream-plain", [batch], batch.schema)


def theirs(array: Any) -> bytes:
    return forms.peers_stream(pa.record_batch([array], names=["c"]))


def _runs(values: Any, length: int) -> Any:
    type = sa.run_end_encoded(sa.int64(), values.type)
    return make_array(type, length, [], 0, 0, [sa.array([length], sa.int64()), values])


def _list_of(values: Any) -> Any:
    return make_array(sa.list_(values.type), 1, [None, _bytes(np.array([0, len(values)], "<i4"))], 0, 0, [values])


def _nested_lists(depth: int) -> Any:
    array = sa.array([], sa.int8())
    for _ in range(depth):
        array = make_array(sa.list_(array.type), 0, [None, _bytes(np.zeros(1, "<i4"))], 0, 0, [array])
    return array


def _all_views(count: int, values: Any) -> Any:
    """Views that each cover all values."""
    return pa.ListViewArray.from_arrays(pa.array([0] * count, "i4"), pa.array([len(values)] * count, "i4"), values)


def _views_of_views(depth: int) -> Any:
    array = pa.array([1, 2], "i1")
    for _ in range(depth):
        array = _all_views(2, array)
    return array


def _overlapping_text(count: int, step: int) -> Any:
    views = np.zeros((count, 4), "<i4")
    views[:, 0] = len(LONG) - step * np.arange(count)
    views[:, 1] = struct.unpack("<i", b"xxxx")
    buffers = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(LONG.encode())]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


def _all_same(values: Any) -> Any:
    """A dictionary of which all indices mean the first value."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(MANY, "i1")), values)


def _all_slots(values: Any) -> Any:
    """A dense union all slots of which lead to the first value."""
    return pa.UnionArray.from_dense(pa.array(np.zeros(MANY, "i1")), pa.array(np.zeros(MANY, "i4")), [values])


def _squeezed(codec: str, claimed: int, data: bytes) -> bytes:
    """A column of bytes in one compressed buffer that says how many there are."""
    squeeze = lz4.frame.compress if codec == "lz4" else zstandard.ZstdCompressor().compress
    packed = struct.pack("<q", claimed) + squeeze(data)
    compression = {"codec": 0 if codec == "lz4" else 1}
    header = wire.batch_header(claimed, [(claimed, 0)], [(0, 0), (0, len(packed))], compression=compression)
    field = {"name": "c", "type": ("Int", {"bitWidth": 8, "is_signed": False}), "nullable": True}
    body = packed + bytes(-len(packed) % 8)
    return wire.message("Schema", {"fields": [field]}) + wire.message("RecordBatch", header, body)


def _shared_children(depth: int) -> bytes:
    """A schema whose structs have the same child twice at every level: 2 to the power of ``depth`` fields."""
    builder = flatbuf_writer.new_builder()
    leaf: Any = flatbuf_writer.Built(flatbuf_writer.add_table(builder, "Field", {"name": "x", "type": ("Null", {})}))
    for _ in range(depth):
        children = flatbuf_writer.Built(flatbuf_writer.add_offsets(builder, [leaf.offset, leaf.offset]))
        values = {"name": "x", "type": ("Struct_", {}), "children": children}
        leaf = flatbuf_writer.Built(flatbuf_writer.add_table(builder, "Field", values))
    fields = flatbuf_writer.Built(flatbuf_writer.add_offsets(builder, [leaf.offset]))
    root = flatbuf_writer.add_table(builder, "Message", {"version": 4, "header": ("Schema", {"fields": fields})})
    return wire.framed(flatbuf_writer.finish(builder, root))


def _shared_names() -> bytes:
    """A schema of 20,000 fields that share one name of 100,000 bytes: 2 GB of names."""
    builder = flatbuf_writer.new_builder()
    name = flatbuf_writer.Built(builder.CreateString("n" * 100_000))
    type = flatbuf_writer.Built(flatbuf_writer.add_table(builder, "Null", {}))
    fields = [flatbuf_writer.add_table(builder, "Field", {"name": name, "type": ("Null", type)}) for _ in range(20_000)]
    vector = flatbuf_writer.Built(flatbuf_writer.add_offsets(builder, fields))
    root = flatbuf_writer.add_table(builder, "Message", {"version": 4, "header": ("Schema", {"fields": vector})})
    return wire.framed(flatbuf_writer.finish(builder, root))


def _deep_schema(depth: int) -> bytes:
    field: dict[str, Any] = {"name": "x", "type": ("Null", {})}
    for _ in range(depth):
        field = {"name": "x", "type": ("List", {}), "children": [field]}
    return wire.message("Schema", {"fields": [field]})


def _dictionaries_of_dictionaries(depth: int) -> bytes:
    """A schema of lists in dictionaries of lists in dictionaries."""
    field: dict[str, Any] = {"name": "x", "type": ("Null", {})}
    for id in range(depth):
        encoding = {"id": id, "indexType": {"bitWidth": 8, "is_signed": True}}
        field = {"name": "x", "type": ("List", {}), "children": [field], "dictionary": encoding}
    return wire.message("Schema", {"fields": [field]})


def _dictionary_of_itself() -> bytes:
    """A dictionary that has the values of a list of itself."""
    inner = {
        "name": "i",
        "type": ("Utf8", {}),
        "dictionary": {"id": 0, "indexType": {"bitWidth": 8, "is_signed": True}},
    }
    outer = {
        "name": "o",
        "type": ("List", {}),
        "children": [inner],
        "dictionary": {"id": 0, "indexType": {"bitWidth": 8, "is_signed": True}},
    }
    values = wire.batch_header(1, [(1, 0), (1, 0)], [(0, 0), (0, 8), (0, 0), (8, 1)])
    dictionary = wire.message("DictionaryBatch", {"id": 0, "data": values}, struct.pack("<iibxxxxxxx", 0, 1, 0))
    rows = wire.message("RecordBatch", wire.batch_header(1, [(1, 0)], [(0, 0), (0, 1)]), bytes(8))
    return b"".join([wire.message("Schema", {"fields": [outer]}), dictionary, dictionary, rows])


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nulls": ("valid", lambda: ours(nulls(HUGE, sa.null()))),
    "structs without fields": ("valid", lambda: ours(make_array(sa.struct([]), HUGE, [None], 0))),
    "structs of nulls": (
        "valid",
        lambda: ours(make_array(sa.struct({"a": sa.null()}), HUGE, [None], 0, 0, [nulls(HUGE, sa.null())])),
    ),
    "lists of size 0": (
        "valid",
        lambda: ours(make_array(sa.list_(sa.int8(), 0), HUGE, [None], 0, 0, [sa.array([], sa.int8())])),
    ),
    "lists of nulls of a large size": (
        "valid",
        lambda: ours(
            make_array(sa.list_(sa.null(), 2**31 - 1), MANY, [None], 0, 0, [nulls((2**31 - 1) * MANY, sa.null())])
        ),
    ),
    "binary of width 0": ("valid", lambda: ours(make_array(sa.binary(0), HUGE, [None, _bytes(b"")], 0))),
    "one run": ("valid", lambda: ours(_runs(sa.array([1]), HUGE))),
    "one run of a long string": ("valid", lambda: ours(_runs(sa.array([LONG], sa.large_string()), MANY))),
    "one run of a long list": ("valid", lambda: ours(_runs(sa.array([[1] * len(LONG)], sa.large_list("int8")), MANY))),
    "a list of nulls": ("valid", lambda: ours(_list_of(nulls(2**31 - 1, sa.null())))),
    "a list of a run": ("valid", lambda: ours(_list_of(_runs(nulls(1, sa.null()), 2**31 - 1)))),
    "views of all": ("valid", lambda: theirs(_all_views(30_000, pa.array(np.zeros(30_000, "i1"))))),
    "views of all nulls": ("valid", lambda: theirs(_all_views(30_000, pa.nulls(30_000)))),
    "views of views": ("valid", lambda: theirs(_views_of_views(40))),
    # ASCII text is known by its buffers; views need not be joined to be checked, however much they overlap.
    "text that is the same": ("valid", lambda: theirs(_overlapping_text(MANY, 0))),
    "text that overlaps": ("valid", lambda: theirs(_overlapping_text(MANY, 1))),
    "a dictionary of a long string": ("valid", lambda: theirs(_all_same(pa.array([LONG])))),
    "a dictionary of a long view": ("valid", lambda: theirs(_all_same(pa.array([LONG], pa.string_view())))),
    "a dictionary of a large string": ("valid", lambda: theirs(_all_same(pa.array([LONG], pa.large_string())))),
    "a dictionary of a long list": (
        "valid",
        lambda: theirs(_all_same(pa.array([[1] * len(LONG)], pa.large_list(pa.int8())))),
    ),
    "a dictionary of a fixed-size list": (
        "valid",
        lambda: theirs(_all_same(pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1 << 18, "i1")), 1 << 18))),
    ),
    "a dictionary of nulls": ("valid", lambda: theirs(_all_same(pa.nulls(1 << 20)))),
    "a union of a long string": ("valid", lambda: theirs(_all_slots(pa.array([LONG])))),
    "a union of a long list": ("valid", lambda: theirs(_all_slots(pa.array([[1] * len(LONG)], pa.list_(pa.int8()))))),
    "lists 60 deep": ("valid", lambda: ours(_nested_lists(60))),
    "lists 90 deep": ("refused", lambda: ours(_nested_lists(90))),
    "types 200 deep": ("refused", lambda: _deep_schema(200)),
    "dictionaries 30 deep": ("valid", lambda: _dictionaries_of_dictionaries(30)),
    "dictionaries 60 deep": ("invalid", lambda: _dictionaries_of_dictionaries(60)),
    "a schema without fields": ("refused", lambda: wire.message("Schema", {})),
    "children that are shared": ("refused", lambda: _shared_children(60)),
    "names that are shared": ("invalid", _shared_names),
    "a dictionary of itself": ("refused", _dictionary_of_itself),
    "lz4 that says too much": ("invalid", lambda: _squeezed("lz4", 1 << 35, bytes(1 << 20))),
    "zstd that says too much": ("invalid", lambda: _squeezed("zstd", 1 << 35, bytes(1 << 20))),
    "lz4 that says too little": ("invalid", lambda: _squeezed("lz4", 64, bytes(1 << 28))),
    "zstd that says too little": ("invalid", lambda: _squeezed("zstd", 64, bytes(1 << 28))),
    "zstd that says more than 1 GiB": ("invalid", lambda: _squeezed("zstd", (1 << 30) + 8, os.urandom(1 << 15))),
    "lz4 that is right": ("valid", lambda: _squeezed("lz4", 1 << 18, bytes(1 << 18))),
    "zstd that is right": ("valid", lambda: _squeezed("zstd", 1 << 18, bytes(1 << 18))),
}
"""The expected outcome of each, and the function that makes it."""


def test_small_inputs_that_mean_much() -> None:
    assert _run(_bomb, [*BOMBS], hostile.exercise) == Counter(outcome for outcome, _ in BOMBS.values())


def test_limits_hold_before_memory_is_taken() -> None:
    with pytest.raises(sa.LimitExceeded, match=r"Limits\.depth = 3"):
        sa.ipc.open_stream(ours(_nested_lists(3)), limits=sa.ipc.Limits(depth=3)).read_all().validate()
    assert sa.ipc.open_stream(ours(_nested_lists(2)), limits=sa.ipc.Limits(depth=3)).read_all().num_rows == 0
    with pytest.raises(sa.LimitExceeded, match=r"Limits\.metadata_bytes = 64"):
        sa.ipc.open_stream(ours(sa.array([1])), limits=sa.ipc.Limits(metadata_bytes=64))
    with pytest.raises(sa.LimitExceeded, match=r"Limits\.buffers = 1"):
        next(sa.ipc.open_stream(ours(sa.array([1])), limits=sa.ipc.Limits(buffers=1)))


def test_rows_whose_size_overflows_are_refused_before_they_reach_other_libraries() -> None:
    """The bytes of so many rows wrap around to four in 64 bits, which the buffer has."""
    rows = (1 << 62) + 1
    sink = io.BytesIO()
    sa.ipc.new_stream(sink, sa.schema([("x", sa.float32())])).close()
    header = wire.batch_header(rows, [(rows, 0)], [(0, 0), (0, 8)])
    batch = sa.ipc.open_stream(sink.getvalue()[:-8] + wire.message("RecordBatch", header, bytes(8))).read_next_batch()
    with pytest.raises(sa.InvalidData):
        batch.__arrow_c_array__()
    with pytest.raises(sa.InvalidData):
        batch.column(0)
