"""Data are checked once before other libraries get them; null slots are made harmless, in a copy."""

from __future__ import annotations

import io
import mmap
import pickle
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.definition import Physical, pack, text
from forms import file_of, stream_of
from parts import changed

import shmarrow as sa
from shmarrow.layout.validation import EXPORTED_SLOTS, make_safe

pa = pytest.importorskip("pyarrow")


def utf8(lengths: list[int], data: bytes, type: Any = None) -> Any:
    """Text that is not checked."""
    offsets = np.cumsum([0, *lengths], dtype="<i4").view("u1")
    return sa.BinaryArray(type or sa.string(), len(lengths), [None, offsets, np.frombuffer(data, "u1")], 0)


def views(places: list[tuple[int, int, int]], buffers: list[bytes], type: Any = None, validity: Any = None) -> Any:
    """Views of (buffer, start, length), not checked."""
    words = b"".join(
        length.to_bytes(4, "little")
        + (
            buffers[number][start : start + length].ljust(12, b"\0")
            if length <= 12
            else buffers[number][start : start + 4] + np.array([number, start], "<i4").tobytes()
        )
        for number, start, length in places
    )
    data = [np.frombuffer(buffer, "u1") for buffer in buffers]
    parts = [validity, np.frombuffer(words, "u1"), *data]
    return sa.BinaryViewArray(type or sa.string_view(), len(places), parts, 0 if validity is None else -1)


BAD = utf8([1, 1, 1], b"a\xffb")


# --- what is remembered ----------------------------------------------------------------------------------------


def test_a_checked_array_and_its_slices_are_not_checked_again() -> None:
    data = np.array([97, 195, 169], "u1")
    array = utf8([1, 0, 2], data)
    assert make_safe(array) is array
    data[:] = [97, 255, 255]
    assert make_safe(array) is array
    assert pa.array(make_safe(array.slice(1)).slice(1)).null_count == 0, "it is exported unchecked"
    with pytest.raises(sa.InvalidData, match="UTF-8"):
        make_safe(changed(array))


def test_a_dictionary_that_batches_share_is_checked_once() -> None:
    data = np.array([97, 98], "u1")
    first = sa.DictionaryArray.from_arrays([0, 1], utf8([1, 1], data))
    other = changed(first)
    make_safe(first)
    data[:] = 255
    assert make_safe(other) is other


def test_only_what_is_handed_out_is_checked() -> None:
    assert make_safe(BAD.slice(0, 1)).to_pylist() == ["a"]
    with pytest.raises(sa.InvalidData, match="row 1: string: not UTF-8"):
        make_safe(BAD)
    struct = sa.StructArray(sa.struct([sa.field("s", sa.string())]), 3, [None], 0, 0, [BAD])
    assert make_safe(struct.slice(2)).to_pylist() == [{"s": "b"}]
    with pytest.raises(sa.InvalidData, match="child 's': row 1: string: not UTF-8"):
        make_safe(struct)
    fixed = sa.FixedSizeListArray(sa.list_(sa.string(), 1), 3, [None], 0, 0, [BAD])
    assert make_safe(fixed.slice(2)).to_pylist() == [["b"]]
    # The items of lists go out whole: consumers convert all of them, whatever the lists show.
    lists = sa.ListArray(sa.list_(sa.string()), 1, [None, np.array([2, 3], "<i4").view("u1")], 0, 0, [BAD])
    with pytest.raises(sa.InvalidData, match="child 'item': row 1: string: "):
        make_safe(lists)


def _in_lists(child: Any, bits: Any) -> Any:
    return sa.FixedSizeListArray(sa.list_(child.type, 2), len(child) // 2, [bits], -1, 0, [child])


def _in_structs(child: Any, bits: Any) -> Any:
    type = sa.struct([sa.field("s", child.type), sa.field("i", sa.int8())])
    numbers = sa.array(np.arange(len(child) + 3, dtype="i1"))
    return sa.StructArray(type, len(child), [bits], -1, 0, [child, numbers])


def _in_a_union(child: Any, bits: Any) -> Any:
    type = sa.sparse_union([sa.field("s", child.type), sa.field("i", sa.int8())], [3, 5])
    ids = np.where(np.arange(len(child)) % 3, 3, 5).astype("u1")
    return sa.UnionArray(type, len(child), [ids], 0, 0, [child, sa.array(np.arange(len(child), dtype="i1"))])


@pytest.mark.parametrize("parent", [_in_lists, _in_structs, _in_a_union])
@pytest.mark.parametrize("first", [16, 19])
def test_a_slice_does_not_hand_out_the_children_before_it(parent: Callable[[Any, Any], Any], first: int) -> None:
    """Consumers can get at whole children: by pyarrow's ``values`` and nanoarrow's ``children``."""
    na = pytest.importorskip("nanoarrow")
    good = sa.array([f"a text of more than 12 bytes, {i}" for i in range(80)], sa.string_view())
    places = good.buffers()[1].copy()
    places[:256].view("<i4")[3::4] = 1 << 30
    wild = changed(good, buffers=[None, places, *good.buffers()[2:]])
    bits = np.array([0b10110111, 0b11011110, 0b10111011, *[0b11110110] * 7], "u1")
    expected = parent(good, bits).slice(first, 7).to_pylist()
    with pytest.raises(sa.InvalidData, match=r"row 0: .*the view refers to"):
        make_safe(parent(wild, bits))
    cut = parent(wild, bits).slice(3).slice(first - 3, 7)
    made = make_safe(cut)
    assert make_safe(cut) is made
    assert made.to_pylist() == expected
    assert {len(child) for child in made.children} == {14 if parent is _in_lists else 7}
    assert np.shares_memory(made.children[0].buffers()[1], places)
    theirs = pa.array(cut)
    theirs.validate(full=True)
    assert theirs.to_pylist() == expected
    assert [child.length for child in na.c_array(cut).children] == [len(child) for child in made.children]
    make_safe(good)
    known = parent(good, bits).slice(first, 7)  # no more of the children is to be checked
    assert make_safe(known) is known


# --- null slots ------------------------------------------------------------------------------------------------

WILD_VIEW = pack("i", 1000) + text("aaaa") + pack("i", 7, 1 << 30)
NULLS: dict[str, tuple[Any, list[Any]]] = {
    "text": (
        Physical(3, ["05", pack("i", 0, 3, 6, 8), text("abc") + "ff fe e2 c3 a9"], 1).array(sa.string()),
        ["abc", None, "é"],
    ),
    "views": (
        Physical(2, ["01", pack("i", 3) + text("abc") + "00" * 9 + WILD_VIEW, "78" * 20], 1).array(sa.string_view()),
        ["abc", None],
    ),
    "binary-views": (
        Physical(2, ["02", WILD_VIEW + pack("i", 3) + text("abc") + "00" * 9], 1).array(sa.binary_view()),
        [None, b"abc"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NULLS)
def test_null_slots_are_made_harmless_in_a_copy(name: str) -> None:
    array, values = NULLS[name]
    made = make_safe(array)
    assert made is not array
    assert made is make_safe(array)
    assert made.to_pylist() == array.to_pylist() == values
    assert make_safe(array.slice(1)).to_pylist() == values[1:]
    assert make_safe(made) is made
    theirs = pa.array(array)
    theirs.validate(full=True)
    assert theirs.to_pylist() == values
    nested = sa.StructArray(sa.struct([sa.field("x", array.type)]), len(array), [None], 0, 0, [array])
    assert pa.array(nested.slice(1)).to_pylist() == [{"x": value} for value in values[1:]]
    assert array.to_pylist() == values  # as it was


def test_indices_of_null_slots_may_be_anything() -> None:
    wild = np.array([0, -(1 << 31), 1], "<i4").view("u1")
    array = sa.DictionaryArray(
        sa.dictionary("int32", "string"), 3, [np.array([5], "u1"), wild], 1, 0, (), BAD.slice(0, 1)
    )
    with pytest.raises(sa.InvalidData, match=r"row 2: .*index 1 of a dictionary of 1 values"):
        make_safe(array)
    assert make_safe(array.slice(0, 2)).to_pylist() == ["a", None]


# --- UTF-8 -----------------------------------------------------------------------------------------------------

PIECES = ["a", "bcdefgh", "é", "€", "🙂", "ßü", "x" * 20, "€" * 9, ""]
GARBAGE = [b"\xff", b"\x80", b"\xe2\x82", b"\xc3", b"\xf0\x9f\x99", b"\xed\xa0\x80", b"\xc0\xaf"]


def is_text(values: list[bytes]) -> bool:
    """Whether Python decodes them all."""
    try:
        [value.decode() for value in values]
    except UnicodeDecodeError:
        return False
    return True


def accepted(array: Any) -> bool:
    try:
        make_safe(array)
    except sa.InvalidData:
        return False
    return True


def test_text_is_accepted_where_python_decodes_it() -> None:
    chance = random.Random(1)
    outcomes = [0, 0]
    for _ in range(400):
        pieces = [chance.choice(PIECES).encode() for _ in range(chance.randrange(1, 12))]
        if chance.random() < 0.4:
            pieces.insert(chance.randrange(len(pieces)), chance.choice(GARBAGE))
        data = b"".join(pieces)
        lengths = [len(piece) for piece in pieces]
        if chance.random() < 0.3:  # cut elsewhere, mostly within a character
            cuts = sorted(chance.randrange(len(data) + 1) for _ in range(3))
            lengths = np.diff([0, *cuts, len(data)]).tolist()
        ends = np.cumsum(lengths).tolist()
        expected = is_text([data[end - length : end] for end, length in zip(ends, lengths, strict=True)])
        assert accepted(utf8(lengths, data)) is expected, (data, lengths)
        outcomes[expected] += 1
    assert min(outcomes) > 50


def test_views_into_little_of_a_large_buffer() -> None:
    large = b"\xff" * (1 << 22) + "€".encode() * 10 + b"\xff" * (1 << 22)
    assert accepted(views([(0, 1 << 22, 30), (0, (1 << 22) + 3, 15)], [large]))
    assert not accepted(views([(0, 1 << 22, 29)], [large]))
    assert not accepted(views([(0, (1 << 22) + 1, 29)], [large]))


# --- unions ----------------------------------------------------------------------------------------------------


def test_unions_of_many_blocks() -> None:
    """The order of offsets holds from one block of slots to the next."""
    count = (1 << 20) + 10
    type = sa.dense_union([sa.field("a", sa.int8())], [5])
    child = sa.array(np.zeros(count, np.int8))
    ids, offsets = np.full(count, 5, "u1"), np.arange(count, dtype="<i4")
    assert accepted(sa.UnionArray(type, count, [ids, offsets.view("u1")], 0, 0, [child]))
    for at, message in (((1 << 20), "decrease from 1048575 to 0"), (count - 1, "decrease from 1048584 to 0")):
        wrong = offsets.copy()
        wrong[at] = 0
        with pytest.raises(sa.InvalidData, match=message):
            make_safe(sa.UnionArray(type, count, [ids, wrong.view("u1")], 0, 0, [child]))
    strange = ids.copy()
    strange[count - 3] = 200
    with pytest.raises(sa.InvalidData, match=rf"row {count - 3}: .*type ids .*, found -56"):
        make_safe(sa.UnionArray(type, count, [strange, offsets.view("u1")], 0, 0, [child]))


# --- memory ----------------------------------------------------------------------------------------------------


def test_slots_that_occupy_no_memory() -> None:
    assert accepted(sa.nulls(EXPORTED_SLOTS))
    endless = sa.nulls(EXPORTED_SLOTS + 1)
    with pytest.raises(
        sa.LimitExceeded, match="134217729 slots that occupy no memory; at most 134,217,728 are exported"
    ):
        pa.array(endless)
    assert pa.array(endless.slice(0, 10)).null_count == 10
    with pytest.raises(sa.LimitExceeded, match="overlapping lists of 200000000 elements"):
        make_safe(sa.ListViewArray.from_arrays([0] * 2000, [100_000] * 2000, sa.array(np.zeros(100_000, np.int8))))


LARGE: dict[str, Callable[[], Any]] = {
    "ascii": lambda: sa.array(np.full(1 << 18, "x" * 64).astype("U64")),
    "text": lambda: utf8([64] * (1 << 18), "é".encode() * (1 << 23)),
    "views": lambda: sa.array(["é" * 32] * (1 << 16), sa.string_view()),
    "indices": lambda: sa.DictionaryArray(
        sa.dictionary("int32", "int8"), 1 << 22, [None, np.zeros(1 << 24, "u1")], 0, 0, (), sa.array([1], "int8")
    ),
    "sparse-union": lambda: _numbers_in_a_union(1 << 24),
}  # fmt: skip


def _numbers_in_a_union(count: int) -> Any:
    type = sa.sparse_union([sa.field("a", sa.int8())], [0])
    return sa.UnionArray(type, count, [np.zeros(count, "u1")], 0, 0, [sa.array(np.zeros(count, "i1"))])


@pytest.mark.parametrize("name", LARGE)
def test_checks_take_little_memory(name: str) -> None:
    array = LARGE[name]()
    size = array.get_total_buffer_size()
    assert size >= 1 << 22
    tracemalloc.start()
    make_safe(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (16 << 20)


# --- trust -----------------------------------------------------------------------------------------------------


def test_trusted_data_are_not_checked(tmp_path: Path) -> None:
    batch = sa.record_batch([BAD, sa.nulls(3)], names=["s", "n"])
    file, stream = file_of(batch), stream_of(batch)
    for opener, data in ((sa.ipc.open_file, file), (sa.ipc.open_stream, stream)):
        with pytest.raises(sa.InvalidData, match="not UTF-8"):
            pa.record_batch(opener(data).get_batch(0))
        trusted = opener(data, unchecked=True).get_batch(0)
        assert pa.record_batch(trusted).num_rows == 3
        assert pa.array(trusted.slice(1).column(0)).offset == 1
        with pytest.raises(sa.InvalidType, match="unchecked must be True or False, found 1"):
            opener(data, unchecked=1)
    through_pipe = sa.ipc.open_stream(io.BufferedReader(io.BytesIO(stream)), unchecked=True)
    assert pa.record_batch(through_pipe.read_next_batch()).num_rows == 3
    path = tmp_path / "bad.arrow"
    path.write_bytes(file)
    again = pickle.loads(pickle.dumps(sa.ipc.open_file(path, unchecked=True)))
    assert pa.record_batch(again.get_batch(0)).num_rows == 3
    with sa.Store(tmp_path / "store") as store:
        store.put("x", batch)
        with pytest.raises(sa.InvalidData, match="not UTF-8"):
            pa.record_batch(store.get("x"))
        assert pa.record_batch(store.get("x", unchecked=True)).num_rows == 3


def test_trusted_dictionaries_and_children() -> None:
    lists = sa.ListArray(sa.list_(sa.string()), 1, [None, np.array([0, 3], "<i4").view("u1")], 0, 0, [BAD])
    nested = sa.StructArray.from_arrays([lists], ["l"])
    encoded = changed(sa.array(["?"]).dictionary_encode(), dictionary=BAD)
    batch = sa.RecordBatch(sa.schema([("n", nested.type), ("d", encoded.type)]), 1, [nested, encoded])
    file = file_of(batch)
    found = sa.ipc.open_file(file, unchecked=True).get_batch(0)
    (of_lists,) = found.column(0).children
    for array in (found.column(0), of_lists, *of_lists.children, found.column(1), found.column(1).dictionary):
        assert len(pa.array(array)) == len(array)
    checked = sa.ipc.open_file(file).get_batch(0)
    for array in (*checked.columns, *checked.column(0).children, checked.column(1).dictionary):
        with pytest.raises(sa.InvalidData, match="not UTF-8"):
            pa.array(array)


# --- the ways out ----------------------------------------------------------------------------------------------

_SCHEMA = sa.schema([sa.field("x", sa.string())])


def _batch() -> Any:
    return sa.RecordBatch(_SCHEMA, 3, [utf8([1, 1, 1], b"a\xffb")])


MADE: dict[str, Callable[[], Any]] = {
    "BinaryArray": lambda: _batch().column(0),
    "ChunkedArray": lambda: sa.chunked_array([_batch().column(0)]),
    "RecordBatch": _batch,
    "Table": lambda: sa.Table(_SCHEMA, [_batch()]),
    "RecordBatchReader": lambda: sa.RecordBatchReader.from_batches(_SCHEMA, [_batch()]),
    "RecordBatchFileReader": lambda: sa.ipc.open_file(file_of(_batch())),
    "MappedStreamReader": lambda: sa.ipc.open_stream(stream_of(_batch())),
    "Scan": lambda: sa.scan(sa.ipc.open_file(file_of(_batch()))),
}


def _read_all(value: Any) -> Any:
    """All that the stream of an object gives."""
    if isinstance(value, sa.ChunkedArray):
        return pa.chunked_array(value)
    return pa.RecordBatchReader.from_stream(value).read_all()


EXPORTS: dict[str, Callable[[Any], Any]] = {
    "__arrow_c_array__": lambda value: value.__arrow_c_array__(),
    "__arrow_c_stream__": _read_all,
    "to_pyarrow": lambda value: value.to_pyarrow(),
    "to_pandas": lambda value: value.to_pandas(),
}
"""The methods that hand buffers to other libraries' native code; those of tensors and ndarrays have no offsets."""


@pytest.mark.parametrize("name", MADE)
def test_every_way_out_checks(name: str) -> None:
    exports = [export for export in EXPORTS if hasattr(MADE[name](), export)]
    assert exports
    for export in exports:
        with pytest.raises(Exception, match=r"row 1: .*not UTF-8"):
            EXPORTS[export](MADE[name]())


def test_no_class_is_left_out() -> None:
    """Each public class that has a capsule of data is above."""
    kinds = {value for value in (getattr(sa, name) for name in dir(sa)) if isinstance(value, type)}
    kinds |= {getattr(sa.ipc, name) for name in sa.ipc.__all__ if isinstance(getattr(sa.ipc, name), type)}
    with_capsules = {
        kind for kind in kinds if hasattr(kind, "__arrow_c_array__") or hasattr(kind, "__arrow_c_stream__")
    }
    left = {kind.__name__ for kind in with_capsules if not issubclass(kind, sa.Array)} - set(MADE)
    assert left <= {"RecordBatchStreamReader"}  # which needs a pipe, and shares its method with the other readers


# --- readers of one file ----------------------------------------------------------------------------------------

TEXT = "a text of many bytes"
TYPES = [sa.string(), sa.string_view(), sa.dictionary(sa.int8(), sa.string()), sa.list_(sa.large_string())]


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("form", ["file", "stream"])
def test_each_reader_checks_a_file_anew(shm_name: str, type: Any, form: str) -> None:
    path = "/dev/shm/" + shm_name.removeprefix("shm:")
    value = [TEXT] if type.layout == "list" else TEXT
    batch = sa.record_batch({"n": sa.array([1, None]), "s": sa.array([value, value], type)})
    with getattr(sa.ipc, f"new_{form}")(path, batch.schema) as writer:
        writer.write(batch)
    with open(path, "r+b") as file:
        pages = mmap.mmap(file.fileno(), 0)
    pages[pages.rfind(TEXT.encode())] = ord("b")
    open_it = getattr(sa.ipc, f"open_{form}")
    with open_it(path) as reader:
        assert pa.table(reader.read_all()).num_rows == 2
    pages[pages.rfind(TEXT[1:].encode())] = 0xFF  # through a mapping, which leaves the times of the file as they are
    for _ in range(2):
        with open_it(path) as reader, pytest.raises(sa.InvalidData, match="UTF-8"):
            pa.table(reader.read_all())
