"""``validate(full=True)`` and the checks of ``from_arrays``: child types, lengths, masks, nullability, map keys."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pytest
import wire
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import changed, own_buffers

import shmarrow as sa
from shmarrow.layout.validation import make_safe
from shmarrow.types import MapType

pa = pytest.importorskip("pyarrow")

REQUIRED = sa.field("n", sa.int8(), nullable=False)


def ints(*values: Any, type: str = "int8") -> Any:
    return sa.array(list(values), type)


# --- child types ------------------------------------------------------------------------------------------------

WRONG_CHILDREN: dict[str, Any] = {
    "struct": lambda: sa.StructArray(
        sa.struct({"s": sa.string()}), 1, [None], children=[sa.array(["a"], "large_string")]
    ),
    "list": lambda: sa.ListArray(
        sa.list_(sa.string()), 1, own_buffers(sa.array([["a"]])), children=[sa.array(["a"], "large_string")]
    ),
    "map": lambda: changed(
        sa.array([{"a": 1}], sa.map_(sa.string(), sa.int64())), children=[sa.array([{"key": "a", "value": "b"}])]
    ),
    "sparse-union": lambda: changed(sa.array([1], sa.sparse_union({"i": sa.int64()})), children=[ints(1)]),
    "run-ends": lambda: changed(
        sa.array([1], sa.run_end_encoded(sa.int32(), sa.int64())),
        children=[ints(1, type="int64"), ints(1, type="int64")],
    ),
    "runs": lambda: changed(
        sa.array([1], sa.run_end_encoded(sa.int32(), sa.int64())), children=[ints(1, type="int32"), ints(1)]
    ),
    "extension": lambda: changed(
        sa.array([[1.0, 2.0]], sa.fixed_shape_tensor(sa.float64(), (2,))), children=[ints(1, 2)]
    ),
    "deep": lambda: changed(
        sa.array([[[1]]], sa.list_(sa.list_(sa.int64()))), children=[sa.array([[1]], sa.list_(sa.int8()))]
    ),
}


@pytest.mark.parametrize("name", WRONG_CHILDREN)
@pytest.mark.parametrize("full", [False, True])
def test_a_child_of_another_type_is_named(name: str, full: bool) -> None:
    array = WRONG_CHILDREN[name]()
    with pytest.raises(sa.InvalidData, match=r"expected child .* of type .*, found one of"):
        array.validate(full=full)
    with pytest.raises(sa.InvalidData, match="expected child"):
        make_safe(array)
    with pytest.raises(sa.ShmarrowError):
        array.to_pyarrow()


def test_the_names_of_a_maps_entries_are_no_part_of_its_type() -> None:
    array = sa.array([{"a": 1}], sa.map_(sa.string(), sa.int64()))
    entries = sa.struct([sa.field("k", sa.string(), nullable=False), sa.field("v", sa.int64())])
    renamed = changed(array, children=[changed(array.children[0], type=entries)])
    renamed.validate(full=True)


# --- nullability ------------------------------------------------------------------------------------------------

OPTIONAL = REQUIRED.with_nullable(True)
"""Constructors refuse nulls in required fields, which arrays from files may have: the type is put in later."""
LIST = sa.list_(REQUIRED)
NULLED = ints(1, None, 3)


def lists(offsets: list[int], mask: list[bool] | None = None) -> Any:
    return changed(sa.ListArray.from_arrays(offsets, NULLED, sa.list_(OPTIONAL), mask=mask), type=LIST)


def views(starts: list[int], sizes: list[int], mask: list[bool] | None = None) -> Any:
    made: Any = sa.ListViewArray.from_arrays(starts, sizes, NULLED, sa.list_view(OPTIONAL), mask=mask)
    return changed(made, type=sa.list_view(REQUIRED))


def fixed(size: int, mask: list[bool] | None = None) -> Any:
    made: Any = sa.FixedSizeListArray.from_arrays(NULLED, type=sa.list_(OPTIONAL, size), mask=mask)
    return changed(made, type=sa.list_(REQUIRED, size))


def dense(offsets: list[int]) -> Any:
    return sa.UnionArray.from_dense([0] * len(offsets), offsets, [NULLED], type=sa.dense_union([REQUIRED]))


TWO = sa.sparse_union([REQUIRED, sa.field("o", sa.int8())])
RUNS = sa.run_end_encoded(sa.int32(), REQUIRED)
ENDS = ints(2, 4, 6, type="int32")
IN_DICTIONARY = sa.DictionaryArray.from_arrays(ints(0, 1, 0), ints(7, None))
IN_RUNS = sa.RunEndEncodedArray.from_arrays(ints(1, 3, type="int32"), ints(7, None))
IN_UNION = sa.UnionArray.from_dense([0, 0, 0], [0, 1, 1], [NULLED], type=sa.dense_union({"a": sa.int8()}))


def required(child: Any) -> Any:
    made: Any = sa.StructArray.from_arrays([child], ["n"])
    return changed(made, type=sa.struct([sa.field("n", child.type, nullable=False)]))


ALLOWED: dict[str, Any] = {
    "list-gap": lambda: lists([0, 1]),
    "list-slice": lambda: lists([0, 1, 2, 3]).slice(2),
    "list-under-null": lambda: lists([0, 1, 2, 3], [False, True, False]),
    "list-view-gap": lambda: views([0, 2], [1, 1]),
    "list-view-under-null": lambda: views([0, 1], [1, 2], [False, True]),
    "list-view-slice": lambda: views([0, 1], [1, 2]).slice(0, 1),
    "fixed-under-null": lambda: fixed(1, [False, True, False]),
    "fixed-slice": lambda: fixed(1).slice(2),
    "dense-union-unused": lambda: dense([0, 2]),
    "sparse-union-unused": lambda: sa.UnionArray.from_sparse([0, 1, 0], [NULLED, NULLED], type=TWO),
    "runs-slice": lambda: sa.RunEndEncodedArray.from_arrays(ENDS, NULLED, RUNS).slice(4),
    "struct-slice": lambda: required(NULLED).slice(2),
    "dictionary-unused": lambda: required(IN_DICTIONARY.slice(2)),
    "dictionary-of-structs-unused": lambda: sa.DictionaryArray.from_arrays(ints(0, 2), required(NULLED)),
    "runs-in-slice": lambda: required(IN_RUNS).slice(0, 1),
    "list-of-structs-under-null": lambda: sa.ListArray.from_arrays(
        [0, 1, 2, 3], required(NULLED), sa.list_(required(NULLED).type), mask=[False, True, False]
    ),
    "runs-of-structs-under-null": lambda: sa.StructArray.from_arrays(
        [sa.RunEndEncodedArray.from_arrays(ints(1, 2, 3, type="int32"), required(NULLED))],
        type=sa.struct({"r": sa.run_end_encoded(sa.int32(), required(NULLED).type)}),
        mask=[False, True, False],
    ),
    "required-null-type": lambda: required(sa.nulls(3, sa.null())),
}

REFUSED: dict[str, Any] = {
    "list": lambda: lists([0, 1, 2]),
    "list-beside-null": lambda: lists([0, 1, 3], [True, False]),
    "list-view": lambda: views([0, 1], [1, 1]),
    "list-view-beside-null": lambda: views([0, 0], [1, 2], [True, False]),
    "fixed-beside-null": lambda: fixed(1, [True, False, False]),
    "fixed": lambda: fixed(3),
    "dense-union": lambda: dense([0, 1]),
    "sparse-union": lambda: sa.UnionArray.from_sparse([1, 0, 0], [NULLED, NULLED], type=TWO),
    "runs": lambda: sa.RunEndEncodedArray.from_arrays(ENDS, NULLED, RUNS),
    "runs-slice": lambda: sa.RunEndEncodedArray.from_arrays(ENDS, NULLED, RUNS).slice(3, 1),
    "struct": lambda: required(NULLED),
    "dictionary": lambda: required(IN_DICTIONARY),
    "dictionary-nulls": lambda: required(sa.array(["a", None]).dictionary_encode()),
    "dictionary-of-structs": lambda: sa.DictionaryArray.from_arrays(ints(1), required(NULLED)),
    "runs-in-struct": lambda: required(IN_RUNS),
    "union-in-struct": lambda: required(IN_UNION),
    "list-of-structs": lambda: sa.ListArray(
        sa.list_(required(NULLED).type), 1, [None, np.array([1, 2], "<i4").view("u1")], 0, 0, [required(NULLED)]
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_nulls_that_no_valid_slot_refers_to_are_allowed(name: str) -> None:
    array = ALLOWED[name]()
    array.validate(full=True)
    sa.struct([("a", array.type)])
    sa.StructArray.from_arrays([array], type=sa.struct({"a": array.type})).validate(full=True)


@pytest.mark.parametrize("name", REFUSED)
def test_nulls_in_required_fields_are_named(name: str) -> None:
    array = REFUSED[name]()
    array.validate()
    with pytest.raises(sa.InvalidData, match=r"'n' is not nullable but has (1 null|2 nulls)"):
        array.validate(full=True)
    outer = sa.StructArray(sa.struct({"a": array.type}), len(array), [None], 0, 0, [array])
    with pytest.raises(sa.InvalidData, match=r"child 'a': .*'n' is not nullable"):
        outer.validate(full=True)
    hidden = sa.StructArray.from_arrays([array], type=sa.struct({"a": array.type}), mask=np.ones(len(array), bool))
    hidden.validate(full=True)


def test_keys_are_never_null_where_a_map_is_valid() -> None:
    names = sa.struct([sa.field("key", sa.string()), sa.field("value", sa.int8())])
    type = MapType(sa.field("entries", names))
    entries = sa.StructArray.from_arrays([sa.array(["a", None, "c"]), ints(1, 2, 3)], type=names)

    def maps(offsets: list[int], valid: int) -> Any:
        buffers = [np.array([valid], np.uint8), np.array(offsets, "<i4").view(np.uint8)]
        return sa.MapArray(type, len(offsets) - 1, buffers, -1, 0, [entries])

    maps([0, 1, 2, 3], 0b101).validate(full=True)
    maps([2, 3], 1).validate(full=True)
    with pytest.raises(sa.InvalidData, match="keys of a map must not be null"):
        maps([0, 1, 2, 3], 0b110).validate(full=True)


def test_virtual_slots_take_no_memory_to_check() -> None:
    """Children whose slots take no bytes may be longer than memory."""
    size = 1 << 40
    runs = sa.RunEndEncodedArray.from_arrays(sa.array([size]), ints(None))
    struct = sa.StructArray(sa.struct([sa.field("n", runs.type, nullable=False)]), size, [None], 0, 0, [runs])
    with pytest.raises(sa.LimitExceeded, match="expanded at once"):
        struct.validate(full=True)
    lists = sa.ListArray(
        sa.large_list(sa.field("n", runs.type, nullable=False)), 1,
        [np.zeros(1, "u1"), np.array([0, size]).view("u1")], 1, 0, [runs],
    )  # fmt: skip
    with pytest.raises(sa.LimitExceeded, match="expanded at once"):
        lists.validate(full=True)


# --- sorted keys ------------------------------------------------------------------------------------------------

DAY = dt.date(2020, 1, 1)
KEYS: list[tuple[Any, list[Any]]] = [
    (sa.int8(), [-3, 0, 0, 9]),
    (sa.uint64(), [0, 1, (1 << 64) - 1]),
    (sa.float32(), [-1.5, 0.0, 2.5]),
    (sa.bool_(), [False, True]),
    (sa.string(), ["", "B", "a", "é", "\uffff", "\U0001f600"]),
    (sa.string_view(), ["", "a long string, longer than 12", "a longer string"]),
    (sa.large_binary(), [b"", b"\x00", b"\x7f", b"\xff"]),
    (sa.binary(2), [b"ab", b"ac", b"\xff\x00"]),
    (sa.date32(), [DAY, DAY + dt.timedelta(1)]),
    (sa.timestamp("us"), [dt.datetime(1969, 1, 1), dt.datetime(2020, 1, 1)]),
    (sa.decimal32(3, 1), [decimal.Decimal("-1.5"), decimal.Decimal("2.5")]),
    (sa.decimal128(30, 1), [decimal.Decimal("-1e20"), decimal.Decimal("-1.5"), decimal.Decimal("1e20")]),
    (sa.dictionary(sa.int8(), sa.string()), ["a", "b"]),
    (sa.uuid(), [b"\x00" * 16, b"\xff" * 16]),
]


@pytest.mark.parametrize(("key", "values"), KEYS, ids=[str(key) for key, _ in KEYS])
def test_sorted_keys_are_sorted(key: Any, values: list[Any]) -> None:
    type = sa.map_(key, sa.int8(), keys_sorted=True)
    rising = [(value, 1) for value in values]
    rows = [rising, rising, None, [], rising]
    sa.array(rows, type).validate(full=True)
    sa.array([rising[::-1]], sa.map_(key, sa.int8())).validate(full=True)
    broken = sa.array([rising, None, rising[::-1]], type)
    with pytest.raises(sa.InvalidData, match=r"row 2: .*the key .* keys_sorted"):
        broken.validate(full=True)
    broken.validate()
    broken.slice(0, 2).validate(full=True)
    masked = sa.MapArray.from_arrays(broken.offsets, broken.keys, broken.items, type, [False, False, True])
    masked.validate(full=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.text(max_size=3), max_size=4), max_size=4))
def test_any_text_keys(rows: list[list[str]]) -> None:
    """UTF-8 text is in the order of its bytes."""
    array = sa.array([[(key, 1) for key in row] for row in rows], sa.map_(sa.string(), sa.int8(), keys_sorted=True))
    if all(sorted(row, key=str.encode) == row for row in rows):
        array.validate(full=True)
    else:
        with pytest.raises(sa.InvalidData, match="sorted"):
            array.validate(full=True)


# --- record batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        sa.DictionaryArray.from_arrays([0, 1], ["a", None]),
        sa.RunEndEncodedArray.from_arrays([1, 3], [1, None]),
    ],
    ids=lambda column: column.type.layout,
)
def test_values_that_are_null_elsewhere_are_null(column: Any) -> None:
    batch = sa.record_batch([column], schema=sa.schema([sa.field("x", column.type)]))
    batch.validate(full=True)
    batch = sa.RecordBatch(sa.schema([sa.field("x", column.type, nullable=False)]), len(column), [column])
    batch.validate()
    with pytest.raises(sa.InvalidData, match=r"column 0 'x': the field is not nullable but has (1 null|2 nulls)"):
        batch.validate(full=True)
    if column.type.layout == "dictionary":
        unused = sa.DictionaryArray.from_arrays([0, 0], ["a", None])
        sa.RecordBatch(batch.schema, 2, [unused]).validate(full=True)


INT32 = {"name": "x", "type": ("Int", {"bitWidth": 32, "is_signed": True}), "nullable": True}
NULLS = {"name": "n", "type": ("Null", {}), "nullable": True}


def message_of(start: int, null_count: int) -> Any:
    """A batch of a struct of two numbers that begin at an offset of the body, and of nulls."""
    fields = [{"name": "s", "type": ("Struct_", {}), "nullable": True, "children": [INT32, NULLS]}, INT32]
    nodes = [(2, 0), (2, 0), (2, null_count), (2, 0)]
    header = wire.batch_header(2, nodes, [(0, 0), (0, 0), (start, 8), (0, 0), (16, 8)])
    data = wire.message("Schema", {"fields": fields}) + wire.message("RecordBatch", header, bytes(24))
    (batch,) = sa.ipc.open_stream(data)
    return batch


def test_what_only_the_message_says_is_checked_too() -> None:
    message_of(8, 2).validate(full=True)
    for batch in (message_of(4, 2), message_of(4, 2).slice(1), message_of(4, 2).select([1, 0])):
        batch.validate()
        with pytest.raises(sa.InvalidData, match=r"'s': buffer 2 starts at 4 of the body, expected a multiple of 8"):
            batch.validate(full=True)
        batch.select(["x"]).validate(full=True)
    for count in (0, 1):
        with pytest.raises(sa.InvalidData, match=rf"'s': node 2 has 2 slots of type null, but a null count of {count}"):
            message_of(8, count).validate(full=True)
        assert message_of(8, count).to_pylist() == [{"s": {"x": 0, "n": None}, "x": 0}] * 2
