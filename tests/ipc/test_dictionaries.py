"""Dictionaries in streams and files: shared, growing, replaced, late, nested, anywhere; as we and pyarrow write them.

Invariants: what no writer at hand can be made to write is put together from messages, by the footer's own tables.
"""

from __future__ import annotations

import io
import math
import struct
import time
from typing import Any

import forms
import pyarrow as pa
import pytest
import wire
from forms import coded, nested_dictionaries, peers_file, peers_stream
from forms import file_of as file
from forms import stream_of as stream
from wire import Part

import shmarrow as sa

TYPE = sa.dictionary("int8", "string")
SCHEMA = sa.schema([("d", TYPE)])
DELTAS: dict[str, Any] = {"emit_dictionary_deltas": True}
INDEX = {"bitWidth": 8, "is_signed": True}
FIELD = {"name": "d", "nullable": True, "type": ("Utf8", {}), "dictionary": {"id": 0, "indexType": INDEX}}


def batch(indices: list[int | None], words: list[Any]) -> sa.RecordBatch:
    return sa.record_batch([coded(indices, words)], schema=SCHEMA)


def kinds(data: bytes, start: int = 0) -> list[str]:
    """The kinds of a stream's messages, and whether dictionaries are deltas."""
    names = {"Schema": "schema", "RecordBatch": "batch"}
    return [
        names.get(part.message.kind) or ("delta" if part.message.header["isDelta"] else "dictionary")
        for part in wire.messages(data, start)
    ]


def values(data: bytes, peer: bool = True) -> list[list[Any]]:
    """The values of the first column, by batch; the same from memory, from a file object and by pyarrow."""
    ours = [got.column(0).to_pylist() for got in sa.ipc.open_stream(data)]
    for got in sa.ipc.open_stream(data):
        got.validate(full=True)
    piped = list(sa.ipc.open_stream(io.BufferedReader(io.BytesIO(data))))
    assert [got.column(0).to_pylist() for got in piped] == ours
    assert not peer or [got.column(0).to_pylist() for got in pa.ipc.open_stream(data)] == ours
    return ours


def values_of_file(data: bytes) -> list[list[Any]]:
    """The values of the first column of a file, by batch, in both orders of asking, as pyarrow has them too."""
    reader = sa.ipc.open_file(data)
    ours = [got.column(0).to_pylist() for got in reader]
    again = sa.ipc.open_file(data)
    count = again.num_record_batches
    assert [again.get_batch(i).column(0).to_pylist() for i in reversed(range(count))] == ours[::-1]
    theirs = pa.ipc.open_file(data)
    assert [theirs.get_batch(i).column(0).to_pylist() for i in range(count)] == ours
    return ours


# --- what is written ------------------------------------------------------------------------------------------------


def test_a_dictionary_is_written_once() -> None:
    first = batch([0, 1, None], ["a", "b"])
    same, equal = first.slice(1), batch([1, 1], ["a", "b"])
    data = stream(first, same, equal)
    assert kinds(data) == ["schema", "dictionary", "batch", "batch", "batch"]
    assert values(data) == [["a", "b", None], ["b", None], ["b", "b"]]
    data = file(first, same, equal)
    assert kinds(data, 8) == ["schema", "dictionary", "batch", "batch", "batch"]
    assert values_of_file(data) == [["a", "b", None], ["b", None], ["b", "b"]]


def test_a_dictionary_of_another_batch_replaces_it_in_a_stream() -> None:
    """Columns are made when they are asked for; what came in the meantime changes nothing."""
    data = stream(batch([0, 1], ["a", "b"]), batch([0, 1], ["c", "d"]), batch([0, 1], ["a", "b"]))
    assert kinds(data) == ["schema", *["dictionary", "batch"] * 3]
    assert values(data) == [["a", "b"], ["c", "d"], ["a", "b"]]
    for source in (data, io.BufferedReader(io.BytesIO(data))):
        got = list(sa.ipc.open_stream(source))
        assert [got[i].column(0).to_pylist() for i in (1, 0, 2)] == [["c", "d"], ["a", "b"], ["a", "b"]]


def test_a_file_takes_no_replacement(tmp_path: Any) -> None:
    writer = sa.ipc.new_file(tmp_path / "a", SCHEMA)
    writer.write(batch([0, 1], ["a", "b"]))
    with pytest.raises(sa.InvalidData, match="dictionary 0 differs"):
        writer.write(batch([0, 1], ["c", "d"]))
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_deltas() -> None:
    growing = [
        batch([0], ["a"]),
        batch([0, 1], ["a", "b"]),
        batch([2, 0], ["a", "b", "c"]),
        batch([1], ["a", "b", "c"]),
    ]
    expected = [["a"], ["a", "b"], ["c", "a"], ["b"]]
    data = stream(*growing, **DELTAS)
    assert kinds(data) == ["schema", "dictionary", "batch", "delta", "batch", "delta", "batch", "batch"]
    assert values(data) == expected
    data = file(*growing, **DELTAS)
    assert kinds(data, 8) == ["schema", "dictionary", "batch", "delta", "batch", "delta", "batch", "batch"]
    assert values_of_file(data) == expected
    assert [len(got.column(0).dictionary) for got in sa.ipc.open_file(data)] == [3, 3, 3, 3]


def test_deltas_of_every_form() -> None:
    growing = [batch([0, None], ["a", "b"]), batch([2, 0], ["a", "b", None]), batch([3], ["a", "b", None, "x" * 99])]
    for name, (is_file, options) in forms.FORMS.items():
        asked = {field: getattr(options, field) for field in ("compression", "endianness", "metadata_version")}
        data = (file if is_file else stream)(*growing, **DELTAS, **asked)
        opened = sa.ipc.open_file(data) if is_file else sa.ipc.open_stream(data)
        assert [got.column(0).to_pylist() for got in opened] == [["a", None], [None, "a"], ["x" * 99]], name


def test_pyarrow_writes_deltas_and_replacements() -> None:
    schema = pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))])
    words = [["a"], ["a", "b"], ["c"], ["c", "d", "e"]]
    batches = [
        pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([len(w) - 1], pa.int8()), pa.array(w))], schema=schema)
        for w in words
    ]
    data = peers_stream(*batches, emit_dictionary_deltas=True)
    assert kinds(data) == ["schema", "dictionary", "batch", "delta", "batch", "dictionary", "batch", "delta", "batch"]
    assert values(data) == [["a"], ["b"], ["c"], ["e"]]
    assert values_of_file(peers_file(*batches[:2], emit_dictionary_deltas=True)) == [["a"], ["b"]]


def test_dictionaries_of_floats_that_are_no_number() -> None:
    """NaN equals nothing, but the bytes of a dictionary are the same when they are the same."""
    rows = [sa.record_batch([coded([0, 1], [math.nan, 1.5], "float64")], names=["d"]) for _ in range(2)]
    data = file(*rows)
    assert kinds(data, 8) == ["schema", "dictionary", "batch", "batch"]
    first, second = [got.column(0).to_pylist() for got in sa.ipc.open_file(data)]
    assert math.isnan(first[0])
    assert math.isnan(second[0])
    assert first[1] == second[1] == 1.5


def test_columns_that_begin_all_null() -> None:
    rows = [sa.record_batch([sa.array([None, None], TYPE)], schema=SCHEMA), batch([0, 1], ["a", "b"])]
    assert values(stream(*rows)) == [[None, None], ["a", "b"]]
    data = file(*rows)
    assert kinds(data, 8) == ["schema", "batch", "dictionary", "batch"]
    assert values_of_file(data) == [[None, None], ["a", "b"]]
    data = file(rows[0], rows[0])
    assert kinds(data, 8) == ["schema", "batch", "batch", "dictionary"]
    assert values_of_file(data) == [[None, None], [None, None]]
    nested = nested_dictionaries(["a"], [[0]], [0])
    nothing = sa.record_batch([sa.array([None], nested.column(0).type)], names=["d"])
    assert values_of_file(file(nothing, nested, nothing)) == [[None], [["a"]], [None]]


def test_time_grows_with_the_number_of_dictionaries_and_no_faster() -> None:
    """Ten thousand dictionaries were once copied from set to set, which took seconds of the processor."""
    count = 10_000
    rows = sa.record_batch([batch([0], ["a"]).column(0)] * count, names=[f"c{i}" for i in range(count)])
    data = stream(rows)
    started = time.thread_time()
    (got,) = sa.ipc.open_stream(data)
    assert got.column(count - 1).to_pylist() == ["a"]
    assert time.thread_time() - started < 2


def test_time_does_not_depend_on_the_order_of_asking() -> None:
    """A thousand versions of a growing dictionary, the latest first: those before it are the beginning of it."""
    words = [f"word {i}" for i in range(127)]
    growing = [batch([i], words[: i + 1]) for i in range(127)]
    got = list(sa.ipc.open_stream(stream(*growing, **DELTAS)))
    assert [item.column(0).to_pylist() for item in reversed(got)] == [[word] for word in reversed(words)]
    assert [len(item.column(0).dictionary) for item in got] == list(range(1, 128))
    for item in got:
        item.validate(full=True)
    many = wire.messages(stream(*growing[:2], **DELTAS))
    got = list(sa.ipc.open_stream(wire.stream_from([*many[:3], *many[3:] * 5000])))
    started = time.thread_time()
    assert sum(len(item.column(0)) for item in reversed(got)) == 5001
    assert time.thread_time() - started < 2


def test_blocks_that_overlap_are_refused() -> None:
    """Three thousand blocks of one message would be a dictionary of three thousand times its size."""
    schema, dictionary, first, delta, _ = wire.messages(
        stream(batch([0], ["a"]), batch([1], ["a", "b" * 9999]), **DELTAS)
    )
    parts = [schema, dictionary, first, delta]
    assert sa.ipc.open_file(wire.file_from(parts, {"fields": [FIELD]}, [1, 3], [2])).get_batch(0).column(0)[0] == "a"
    data = wire.file_from(parts, {"fields": [FIELD]}, [1, *[3] * 3000], [2])
    with pytest.raises(sa.InvalidData, match="the blocks overlap"):
        sa.ipc.open_file(data).get_batch(0).column(0)


def test_fields_that_disagree_about_a_dictionary() -> None:
    """Values of nested dictionaries are decoded as they arrive, and must have one type."""
    item = {"name": "item", "nullable": True, "type": ("Utf8", {}), "dictionary": {"id": 1, "indexType": INDEX}}
    nested = {**FIELD, "type": ("List", {}), "children": [item]}
    other = {**FIELD, "type": ("LargeUtf8", {}), "dictionary": {"id": 1, "indexType": INDEX}}
    inner = wire.messages(stream(nested_dictionaries(["a"], [[0]], [0])))[1]
    with pytest.raises(sa.InvalidData, match="dictionary 1 has values of type"):
        list(sa.ipc.open_stream(wire.stream_from([wire.message("Schema", {"fields": [nested, other]}), inner])))


# --- one after another in any order -----------------------------------------------------------------------------------


def test_all_null_columns_before_their_dictionary() -> None:
    words = ["a", "b"]
    schema, dictionary, nothing, something = wire.messages(stream(batch([None, None], words), batch([0, None], words)))
    data = wire.stream_from([schema, nothing, dictionary, something])
    assert values(data, peer=False) == [[None, None], ["a", None]]  # pyarrow wants dictionaries first
    with pytest.raises(sa.InvalidData, match="its dictionary, id 0, does not precede it"):
        next(sa.ipc.open_stream(wire.stream_from([schema, something, dictionary]))).column(0)
    with pytest.raises(sa.InvalidData, match="its dictionary, id 0, does not precede it"):
        next(sa.ipc.open_stream(wire.stream_from([schema, something]))).column(0)


def test_a_delta_with_nothing_to_add_to() -> None:
    parts = wire.messages(stream(batch([0], ["a"]), batch([1], ["a", "b"]), **DELTAS))
    schema, _, _, delta, second = parts
    with pytest.raises(sa.InvalidData, match="a delta for dictionary 0, which does not precede it"):
        list(sa.ipc.open_stream(wire.stream_from([schema, delta, second])))
    data = wire.file_from(parts, {"fields": [FIELD]}, [3], [4])
    with pytest.raises(sa.InvalidData, match="a delta for dictionary 0, which does not precede it"):
        sa.ipc.open_file(data).get_batch(0).column(0)


def test_dictionaries_anywhere_in_a_file() -> None:
    parts = wire.messages(stream(batch([0], ["a"]), batch([1, 0], ["a", "b"]), **DELTAS))
    schema, dictionary, first, delta, second = parts
    expected = [["a"], ["b", "a"]]
    for order in ([schema, first, second, dictionary, delta], [delta, second, dictionary, first, schema], parts):
        where = order.index
        data = wire.file_from(
            order, {"fields": [FIELD]}, [where(dictionary), where(delta)], [where(first), where(second)]
        )
        assert values_of_file(data) == expected


def test_a_file_that_replaces_a_dictionary_is_refused() -> None:
    parts = wire.messages(stream(batch([0], ["a"]), batch([0], ["b"])))
    data = wire.file_from(parts, {"fields": [FIELD]}, [1, 3], [2, 4])
    reader = sa.ipc.open_file(data)
    with pytest.raises(sa.InvalidData, match="dictionary block 1 replaces dictionary 0"):
        reader.get_batch(0).column(0)
    with pytest.raises(pa.ArrowInvalid):
        pa.ipc.open_file(data).read_all()


def test_a_dictionary_block_that_is_none() -> None:
    parts = wire.messages(stream(batch([0], ["a"])))
    reader = sa.ipc.open_file(wire.file_from(parts, {"fields": [FIELD]}, [2], [2]))
    with pytest.raises(sa.InvalidData, match="dictionary block 0 is a RecordBatch message, expected a DictionaryBatch"):
        reader.get_batch(0).column(0)
    reader = sa.ipc.open_file(wire.file_from(parts, {"fields": [FIELD]}, [1], [1]))
    with pytest.raises(sa.InvalidData, match="batch 0 is a DictionaryBatch message, expected a RecordBatch"):
        reader.get_batch(0)


# --- shared ids -----------------------------------------------------------------------------------------------------


def _shared(id: int) -> tuple[dict[str, Any], list[bytes]]:
    """A schema of two fields with one dictionary, the second within a list, and the messages of a stream."""
    encoding = {"id": id, "indexType": INDEX}
    plain = {"name": "a", "nullable": True, "type": ("Utf8", {}), "dictionary": encoding}
    item = {"name": "item", "nullable": True, "type": ("Utf8", {}), "dictionary": encoding}
    listed = {"name": "b", "nullable": True, "type": ("List", {}), "children": [item]}
    words = struct.pack("<iii", 0, 1, 3).ljust(16, b"\0") + b"xyz".ljust(8, b"\0")
    data = wire.batch_header(2, [(2, 0)], [(0, 0), (0, 12), (16, 3)])
    rows = bytes([0, 1]).ljust(8, b"\0") + struct.pack("<iii", 0, 1, 2).ljust(16, b"\0") + bytes([1, 0]).ljust(8, b"\0")
    header = wire.batch_header(2, [(2, 0)] * 3, [(0, 0), (0, 2), (0, 0), (8, 12), (0, 0), (24, 2)])
    schema = {"fields": [plain, listed]}
    return schema, [
        wire.message("Schema", schema),
        wire.message("DictionaryBatch", {"id": id, "data": data, "isDelta": False}, words),
        wire.message("RecordBatch", header, rows),
    ]


@pytest.mark.parametrize("id", [0, 7, -5, (1 << 63) - 1])
def test_fields_that_share_a_dictionary(id: int) -> None:
    schema, parts = _shared(id)
    data = wire.stream_from(parts)
    (got,) = sa.ipc.open_stream(data)
    got.validate(full=True)
    assert got.to_pydict() == {"a": ["x", "yz"], "b": [["yz"], ["x"]]}
    assert pa.ipc.open_stream(data).read_all().to_pydict() == got.to_pydict()
    assert got.column("a").dictionary is got.column("b").values.dictionary
    found = wire.messages(data)
    held = wire.file_from(found, schema, [1], [2])
    assert sa.ipc.open_file(held).get_batch(0).to_pydict() == got.to_pydict()
    # What is written has an id for each field, and the same values.
    assert values(stream(got)) == [["x", "yz"]]


# --- nested ---------------------------------------------------------------------------------------------------------


def test_inner_dictionaries_come_first_and_their_replacement_replaces_the_outer_ones() -> None:
    first = nested_dictionaries(["a", "b"], [[0, 1], [1]], [0, 1, 1])
    data = stream(
        first,
        first,
        nested_dictionaries(["c", "d"], [[0, 1], [1]], [0]),
        nested_dictionaries(["c", "d"], [[1], [0]], [0]),
    )
    ids = [part.message.header["id"] for part in wire.messages(data) if part.message.kind == "DictionaryBatch"]
    assert ids == [1, 0, 1, 0, 0]
    assert values(data) == [[["a", "b"], ["b"], ["b"]], [["a", "b"], ["b"], ["b"]], [["c", "d"]], [["d"]]]


def test_inner_dictionaries_that_say_the_same_in_another_order_replace_the_outer_ones() -> None:
    data = stream(nested_dictionaries(["a", "b"], [[0, 1]], [0]), nested_dictionaries(["b", "a"], [[1, 0]], [0]))
    assert values(data) == [[["a", "b"]], [["a", "b"]]]


def test_nested_dictionaries_may_grow() -> None:
    grown = [nested_dictionaries(["a"], [[0]], [0]), nested_dictionaries(["a", "b"], [[0], [1, 0]], [1, 0])]
    data = stream(*grown, **DELTAS)
    assert kinds(data) == ["schema", "dictionary", "dictionary", "batch", "delta", "dictionary", "batch"]
    assert values(data) == [[["a"]], [["b", "a"], ["a"]]]
    with pytest.raises(sa.InvalidData, match="dictionary 0 differs"):
        file(*grown, **DELTAS)


def test_inner_dictionaries_anywhere_in_a_file() -> None:
    parts = wire.messages(stream(nested_dictionaries(["a", "b"], [[0, 1], [1]], [0, 1])))
    schema, inner, outer, rows = parts
    item = {**FIELD, "name": "item", "dictionary": {"id": 1, "indexType": INDEX}}
    field = {**FIELD, "type": ("List", {}), "children": [item]}
    for order in ([inner, outer], [outer, inner]):
        placed: list[Part] = [schema, rows, *order]
        data = wire.file_from(placed, {"fields": [field]}, [2, 3], [1])
        assert sa.ipc.open_file(data).get_batch(0).column(0).to_pylist() == [["a", "b"], ["b"]]


def test_dictionaries_within_every_kind_of_parent() -> None:
    """Replaced and grown, where the walk of a schema finds them."""
    inner = sa.dictionary("int8", "string")
    type = sa.struct(
        {
            "list": sa.list_(inner),
            "view": sa.list_view(inner),
            "fixed": sa.list_(inner, 1),
            "map": sa.map_(sa.dictionary("int8", "int64"), inner),
            "union": sa.dense_union({"d": inner, "i": sa.int8()}),
            "runs": sa.run_end_encoded("int16", inner),
        }
    )

    def rows(word: str) -> sa.RecordBatch:
        row = {"list": [word], "view": [word, None], "fixed": [word], "map": [(1, word)], "union": word, "runs": word}
        return sa.record_batch([sa.array([row, row], type)], names=["s"])

    data = stream(rows("a"), rows("b"))
    assert [got.column(0)[1]["union"] for got in sa.ipc.open_stream(data)] == ["a", "b"]
    for word, got in zip("ab", sa.ipc.open_stream(data), strict=True):
        got.validate(full=True)
        assert got.equals(rows(word))
    theirs = pa.ipc.open_stream(data).read_all()
    theirs.validate(full=True)
    assert [row["s"]["map"] for row in theirs.to_pylist()] == [[(1, word)] for word in "aabb"]
