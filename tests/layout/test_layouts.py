"""Every layout: what arrays do with the values of every case. Broken rules are in test_validate.py."""

from __future__ import annotations

import io
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.by_type import LONG
from cases.definition import Case
from cases.table import CASES
from cases.table import case as by_name
from every import every
from wire import batch_header, message, messages, stream_from

import shmarrow as sa

PIECES = [(0, 0), (1, 3), (3, None), (8, 9), (13, 20)]
"""Offsets and lengths that cut within bytes of bitmaps, at their ends, and nothing at all."""


def pieces(case: Case) -> list[tuple[Any, list[Any]]]:
    """Slices of a case's repeated array, and their values."""
    array, values = case.repeated()
    found = [(array, values)]
    for offset, length in PIECES:
        if offset <= len(values):
            end = None if length is None else offset + length
            found.append((array.slice(offset, length), values[offset:end]))
    return found


def shows_nulls(case: Case) -> bool:
    """Whether an array tells of its nulls: unions and runs leave theirs to their children, one case to a dictionary."""
    hidden = ("dense_union", "sparse_union", "run_end_encoded")
    return case.type.layout not in hidden and case.name != "spec-dictionary-repeats-and-null"


every_case = every(CASES)


@every_case
def test_values(case: Case) -> None:
    array = case.array()
    values = case.values
    array.validate(full=True)
    assert array.type == case.type
    assert len(array) == len(values)
    assert array.to_pylist() == values
    assert list(array) == values
    assert [array[i] for i in range(len(values))] == values
    assert [array[i] for i in range(-len(values), 0)] == values
    assert array[::-1].to_pylist() == values[::-1]
    assert array[1:4].to_pylist() == values[1:4]
    for beyond in (len(values), -len(values) - 1):
        with pytest.raises(sa.IndexOutOfRange, match=f"index {beyond} is out of range"):
            array[beyond]


@every_case
def test_slices(case: Case) -> None:
    cut = pieces(case)
    whole = cut[0][0]
    for array, values in cut:
        array.validate(full=True)
        assert array.to_pylist() == values
        assert [array[i] for i in range(0, len(values), 7)] == values[::7]
        if not shows_nulls(case):
            assert array.null_count == 0
        else:
            assert array.null_count == values.count(None)
            assert array.is_valid().tolist() == [value is not None for value in values]
            assert array.is_null().tolist() == [value is None for value in values]
        assert array.drop_null().to_pylist() == [value for value in values if value is not None]
        inner = array.slice(len(values) // 3, 4)
        assert inner.to_pylist() == values[len(values) // 3 :][:4]
        mine = [None if data is None else data.address for data in array.buffers()]
        assert mine == [None if data is None else data.address for data in whole.buffers()]
    assert len(whole.slice(len(whole) + 1)) == 0
    with pytest.raises(sa.IndexOutOfRange, match="the offset of a slice"):
        whole.slice(-1)
    with pytest.raises(sa.InvalidArgument, match="length of a slice"):
        whole.slice(0, -1)


@every_case
def test_take(case: Case) -> None:
    for array, values in pieces(case):
        picks = [i * 7 % len(values) for i in range(20)] if values else []
        taken = array.take(np.array(picks, np.int64))
        taken.validate(full=True)
        assert taken.to_pylist() == [values[i] for i in picks]
        mask = np.array([i % 3 > 0 for i in picks], bool)
        masked = array.take([pick if keep else None for pick, keep in zip(picks, mask, strict=True)])
        masked.validate(full=True)
        assert masked.to_pylist() == [values[i] if keep else None for i, keep in zip(picks, mask, strict=True)]
        for wrong in (len(values), -1):
            with pytest.raises(sa.IndexOutOfRange, match="is out of range"):
                array.take([*picks, wrong])


@every_case
def test_concat(case: Case) -> None:
    parts = pieces(case)
    joined = sa.concat_arrays([array for array, _ in parts])
    joined.validate(full=True)
    assert joined.to_pylist() == [value for _, values in parts for value in values]
    assert joined.type == case.type


def lengths(array: Any) -> list[int]:
    """Bytes of each buffer, children included."""
    return [0 if data is None else len(data) for data in array.buffers()]


INEXACT = ("view", "union", "dictionary", "run_end")
"""Layouts that keep values between those that they need, and shared ones."""


@every_case
def test_trim(case: Case) -> None:
    """Trimmed arrays start at slot 0, and hold what an array built from their values holds, no byte more."""
    for array, values in pieces(case):
        trimmed = array.trim()
        trimmed.validate(full=True)
        assert trimmed.offset == 0
        assert all(child.offset == 0 for child in trimmed.children)
        assert trimmed.to_pylist() == values
        assert trimmed == array
        if case.physical is None and not any(part in str(case.type) for part in INEXACT):
            assert lengths(trimmed) == lengths(sa.array(values, case.type))
        elif "no-offsets" not in case.name:
            assert sum(lengths(trimmed)) <= sum(lengths(array))


TYPES = list({str(case.type): case.type for case in CASES}.values())
every_type = pytest.mark.parametrize("type", TYPES, ids=str)


@every_type
def test_nulls(type: Any) -> None:
    for length in (0, 1, 17):
        array = sa.nulls(length, type)
        array.validate(full=True)
        assert array.type == type
        assert array.to_pylist() == [None] * length
        assert array == sa.array([None] * length, type)


@every_case
def test_pickling(case: Case) -> None:
    for array, values in pieces(case):
        back = pickle.loads(pickle.dumps(array, 5))
        back.validate(full=True)
        assert back.to_pylist() == values
        assert back == array
        assert back.type == array.type


def test_a_pickled_slice_takes_no_more_than_it_needs() -> None:
    array = sa.array(["x" * 100] * 10_000)
    assert len(pickle.dumps(array.slice(5, 2))) < 2_000


def test_repr_of_much() -> None:
    assert len(repr(sa.array(np.arange(1_000_000)))) < 1_000
    assert len(repr(sa.array(["x" * 1_000_000] * 3))) < 2_000
    assert len(repr(sa.array([[["y" * 100] * 100] * 100] * 10))) < 30_000
    wide = sa.struct({f"column{i}": sa.int8() for i in range(5_000)})
    assert len(repr(sa.nulls(100, wide))) < 30_000
    assert len(repr(sa.array([{f"column{i}": 1 for i in range(5_000)}] * 3, wide))) < 30_000


# --- encodings --------------------------------------------------------------------------------------------------

ENCODED = [case for case in CASES if case.type.layout not in ("dictionary", "run_end_encoded")]


@every(ENCODED)
def test_dictionary_encode(case: Case) -> None:
    for array, values in pieces(case):
        encoded = array.dictionary_encode(index_type="int8")
        encoded.validate(full=True)
        assert encoded.type == sa.dictionary(sa.int8(), case.type)
        assert encoded.to_pylist() == values
        distinct: list[Any] = []
        for value in values:
            if not any(value == other and type(value) is type(other) for other in distinct):
                distinct.append(value)
        if shows_nulls(case) and None in values:
            distinct.remove(None)
        assert encoded.dictionary.to_pylist() == distinct
        assert encoded.decode() == array


@every(ENCODED)
def test_run_end_encode(case: Case) -> None:
    for i, (array, values) in enumerate(pieces(case)):
        run_ends = ("int16", "int32", "int64")[i % 3]
        encoded = array.run_end_encode(run_ends)
        encoded.validate(full=True)
        assert encoded.type == sa.run_end_encoded(run_ends, case.type)
        assert encoded.to_pylist() == values
        ends = [i for i in range(1, len(values) + 1) if i == len(values) or not same(values[i - 1], values[i])]
        assert encoded.run_ends.to_pylist() == ends
        assert encoded.decode() == array


def same(left: Any, right: Any) -> bool:
    return left == right and type(left) is type(right)


@every(case for case in CASES if case.type.layout in ("dictionary", "run_end_encoded"))
def test_decode(case: Case) -> None:
    for array, values in pieces(case):
        decoded = array.decode()
        decoded.validate(full=True)
        assert decoded.type == case.type.value_type
        assert decoded.to_pylist() == values


def test_too_many_for_the_index_or_run_ends() -> None:
    with pytest.raises(sa.InvalidData, match="200 distinct values"):
        sa.array(range(200)).dictionary_encode(index_type="int8")
    with pytest.raises(sa.InvalidData, match="40000 slots"):
        sa.array(np.zeros(40_000)).run_end_encode("int16")


# --- casts --------------------------------------------------------------------------------------------------------


TEXTS = [sa.string(), sa.large_string(), sa.string_view()]


BLOBS = [sa.binary(), sa.large_binary(), sa.binary_view()]


@pytest.mark.parametrize("source", TEXTS + BLOBS, ids=str)
@pytest.mark.parametrize("target", TEXTS + BLOBS, ids=str)
def test_cast_text_and_bytes(source: Any, target: Any) -> None:
    words = ["", "a", None, "twelve bytes", LONG, None, "日本語", LONG]
    blobs = [None if word is None else word.encode() for word in words]
    array = sa.array(words if source.text else blobs, source)
    for offset in (0, 1, 3, 8):
        cast = array.slice(offset).cast(target)
        cast.validate(full=True)
        assert cast.type == target
        assert cast.to_pylist() == (words if target.text else blobs)[offset:]


LISTS = [sa.list_, sa.large_list, sa.list_view, sa.large_list_view, lambda type: sa.list_(type, 2)]


@pytest.mark.parametrize("source", LISTS, ids=lambda make: str(make(sa.int8())))
@pytest.mark.parametrize("target", LISTS, ids=lambda make: str(make(sa.int8())))
def test_cast_lists(source: Any, target: Any) -> None:
    values = [["a", None], None, [LONG, "b"], ["c", "d"], None, ["e", "f"]]
    array = sa.array(values, source(sa.string()))
    for offset in (0, 1, 3, 6):
        cast = array.slice(offset).cast(target(sa.string_view()))
        cast.validate(full=True)
        assert cast.type == target(sa.string_view())
        assert cast.to_pylist() == values[offset:]


@pytest.mark.parametrize("name", ["spec-list-view-int8-shared", "odd-list-view-overlapping-large"])
def test_cast_lists_in_any_order(name: str) -> None:
    case = by_name(name)
    target = sa.large_list(case.type.value_type)
    assert case.array().cast(target).to_pylist() == case.values
    assert case.array().slice(1).cast(target).to_pylist() == case.values[1:]


# --- numpy --------------------------------------------------------------------------------------------------------

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "M8[s]", "M8[ms]", "M8[us]", "M8[ns]"]
DTYPES += ["m8[s]", "m8[ms]", "m8[us]", "m8[ns]", "V5"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_without_copying(dtype: str) -> None:
    source = np.arange(50).astype("u1").view("V5") if dtype == "V5" else np.arange(50).astype(dtype)
    array = sa.array(source)
    assert array.buffers()[1].address == source.ctypes.data
    found = array.to_numpy()
    assert found.dtype == source.dtype
    assert found.ctypes.data == source.ctypes.data
    assert not found.flags.writeable
    assert found.tobytes() == source.tobytes()
    part = array.slice(3, 5).to_numpy()
    assert part.ctypes.data == source.ctypes.data + 3 * source.itemsize
    assert part.tobytes() == source[3:8].tobytes()
    assert source.flags.writeable
    assert np.shares_memory(sa.array(source, mask=np.arange(len(source)) > 3).buffers()[1], source)


COPIES = ["bool", "date32", "decimal128", "time32-s", "string", "string-view", "list", "struct", "map", "ree-16"]
COPIES += ["dictionary-int8", "dense-union", "int32-nulls", "timestamp-s-nulls", "interval-day-time-nulls"]


@pytest.mark.parametrize("name", COPIES)
def test_to_numpy_says_when_a_copy_is_needed(name: str) -> None:
    case = by_name(name)
    array = case.array()
    with pytest.raises(sa.CopyRequired, match=r"zero-copy|zero_copy_only=False"):
        array.to_numpy()
    found = array.to_numpy(zero_copy_only=False)
    assert len(found) == len(case.values)
    with pytest.raises((sa.CopyRequired, ValueError)):
        np.array(array, copy=False)
    assert len(np.asarray(array)) == len(case.values)
    if found.dtype == object:
        assert found.tolist() == case.values


# --- what Python values may be -----------------------------------------------------------------------------------


def test_numpy_form_of_bool_dates_and_times() -> None:
    assert by_name("bool").array().to_numpy(False).tolist() == by_name("bool").values
    dates = by_name("date32").array().to_numpy(False)
    assert dates.dtype == "M8[D]"
    assert dates.tolist() == by_name("date32").values
    assert by_name("timestamp-ns").array().to_numpy().dtype == "M8[ns]"
    assert by_name("date64").array().to_numpy().astype("M8[D]").tolist() == by_name("date64").values


@pytest.mark.parametrize("type", [sa.int8(), sa.uint8(), sa.int32(), sa.uint32(), sa.int64(), sa.uint64()], ids=str)
def test_the_ends_of_integers_among_nulls(type: Any) -> None:
    info = np.iinfo(type.numpy_dtype)
    ends = [None, int(info.min), int(info.max)]
    assert sa.array(ends, type).to_pylist() == ends
    for beyond in (int(info.min) - 1, int(info.max) + 1):
        with pytest.raises(sa.InvalidData, match=str(beyond)):
            sa.array([None, beyond], type)


@pytest.mark.parametrize("type", [sa.string(), sa.large_string(), sa.binary()], ids=str)
def test_many_short_values_come_back(type: Any) -> None:
    """More than one block of them; with NULs, with text that is not ASCII, with long ones among them, sliced."""
    generator = np.random.default_rng(4)
    plain = [f"value {i}" for i in generator.integers(0, 10_000, 40_000)]
    for change in ({}, {20_000: "with \0 in it"}, {39_999: "é" * 7, 3: "\U0001f600"}, {17: "long " * 100_000}, {0: ""}):
        values: list[Any] = [change.get(i, value) for i, value in enumerate(plain)]
        values[5] = values[16_384] = None
        if not type.text:
            values = [value if value is None else value.encode() for value in values]
        made = sa.array(values, type)
        assert made.to_pylist() == values
        assert made.slice(16_000, 1000).to_pylist() == values[16_000:17_000]


def test_text_that_is_wrong_far_behind_is_named() -> None:
    raw = b"ok" * 30_000
    offsets = np.arange(0, 60_001, 2, dtype=np.int32)
    wrong = raw[:40_002] + b"\xff\xff" + raw[40_004:]
    made = sa.BinaryArray.from_arrays(offsets, wrong, sa.string())
    with pytest.raises(sa.InvalidData, match=r"row 20001: .*not UTF-8"):
        made.to_pylist()
    valid = np.ones(30_000, np.bool_)
    valid[20_001] = False
    masked = sa.BinaryArray.from_arrays(offsets, wrong, sa.string(), mask=~valid)
    assert masked.to_pylist() == ["ok"] * 20_001 + [None] + ["ok"] * 9_998


@pytest.mark.parametrize("make", [sa.sparse_union, sa.dense_union])
def test_a_union_without_children_has_no_nulls(make: Any) -> None:
    """As a message of version 4 may claim, whose unions have validity bitmaps."""
    type = make([])
    sink = io.BytesIO()
    with sa.ipc.new_stream(sink, sa.schema({"u": type})):
        pass
    buffers = [(0, 1), (8, 2)] + ([(16, 8)] if make is sa.dense_union else [])
    batch = message("RecordBatch", batch_header(2, [(2, 1)], buffers), bytes([1] + [0] * 23), version=3)
    with pytest.raises(sa.InvalidData, match="without children cannot have nulls, found 1"):
        sa.ipc.open_stream(stream_from([messages(sink.getvalue())[0], batch])).read_next_batch().column(0)


def test_offsets_that_change_while_they_are_read(tmp_path: Path) -> None:
    """In a file that somebody writes to, against all advice: text or our error comes of it."""
    path = tmp_path / "file"
    batch = sa.record_batch({"s": ["abc"] * 1000})
    with sa.ipc.new_file(path, batch.schema, mode=0o600) as writer:
        writer.write(batch)
    reader = sa.ipc.open_file(path)
    column = reader.get_batch(0).column(0)
    at = path.read_bytes().index(np.arange(0, 3003, 3, "<i4").tobytes()) + 4 * 500
    done = threading.Event()

    def flip() -> None:
        with path.open("r+b", buffering=0) as file:
            while not done.is_set():
                for value in (1_000_000, 1500, 1):
                    file.seek(at)
                    file.write(value.to_bytes(4, "little"))

    thread = threading.Thread(target=flip)
    thread.start()
    outcomes = set()
    try:
        for _ in range(3000):
            try:
                outcomes.add(len(column.to_pylist()))
            except sa.InvalidData:
                outcomes.add(-1)
    finally:
        done.set()
        thread.join()
    assert outcomes <= {-1, 1000}


@pytest.mark.parametrize("wrapped", [False, True], ids=["array", "child"])
def test_a_pickled_slice_has_the_dictionary_that_it_refers_to(wrapped: bool) -> None:
    values = [f"value {i}" for i in range(100_000)]
    array: Any = sa.DictionaryArray.from_arrays(np.arange(100_000), values).slice(50_000, 5)
    if wrapped:
        array = sa.StructArray.from_arrays([array], ["a"])
    data = pickle.dumps(array)
    assert len(data) < 5_000
    found = pickle.loads(data)
    assert found.equals(array)
    found.validate(full=True)


def test_files_keep_one_dictionary_for_all_batches() -> None:
    values = [f"value {i}" for i in range(1000)]
    array = sa.DictionaryArray.from_arrays(np.arange(1000), values)
    assert array.slice(5, 5).trim().dictionary is array.dictionary


def test_a_rolling_window_of_views_keeps_the_buffers_that_it_refers_to() -> None:
    window: Any = sa.array([f"a value of some length {i}" for i in range(4)], sa.string_view())
    for i in range(4, 200):
        new = sa.array([f"a value of some length {i}", None, "short"], sa.string_view()).slice(0, 1)
        window = sa.concat_arrays([window, new]).slice(1)
    assert window.to_pylist() == [f"a value of some length {i}" for i in range(196, 200)]
    assert len(window.data_buffers) <= 21
    window.validate(full=True)


def test_unions_without_children_are_joined() -> None:
    for union in (sa.UnionArray.from_dense([], [], []), sa.UnionArray.from_sparse([], [])):
        joined = sa.concat_arrays([union, union])
        joined.validate(full=True)
        assert joined.type == union.type
        assert joined.to_pylist() == []
