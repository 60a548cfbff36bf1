"""Casts give the same values as pyarrow's or a reason; encodings tell values apart by their bits."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from environment import has_pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st
from measures import seconds
from parts import changed, own_buffers

import shmarrow as sa
from shmarrow.errors import EXPANDED_VALUES

pa = pytest.importorskip("pyarrow")

import casts  # noqa: E402 - needs pyarrow
from casts import SAMPLES, compare, pairs, peer_type  # noqa: E402

MODES = pytest.mark.parametrize("safe", [True, False], ids=["safe", "unsafe"])

# --- all types to all types -----------------------------------------------------------------------------------


@MODES
def test_same_values_as_pyarrow_or_a_reason(safe: bool) -> None:
    found = pairs(safe)
    assert len(found) == len(SAMPLES) * (len(SAMPLES) - 1)
    for (source, _), pair in found.items():
        if has_pyarrow(21) or not source.startswith("struct"):  # older ones know no fields in another order
            assert pair.unexplained == []
    used = set().union(*[pair.used for pair in found.values()])
    assert [each for each in casts.DEVIATIONS if safe in each.safe and each not in used] == []


def test_the_page_is_up_to_date() -> None:
    assert casts.page() == casts.PAGE.read_text(encoding="utf-8"), "run make docs"


FIXED = [name for name, (type, _) in SAMPLES.items() if casts.kind(type) in (*casts.NUMBERS, *casts.TIMES)]
FIXED = [name for name in FIXED if casts.kind(SAMPLES[name][0]) != "interval"]


def _values(type: Any) -> st.SearchStrategy[Any]:
    kind = casts.kind(type)
    if kind == "bool":
        return st.booleans()
    if kind == "float":
        return st.floats(width=type.bit_width).map(np.float16 if type.bit_width == 16 else float)
    if kind == "decimal":
        most = 10**type.precision - 1
        digits = st.integers(-most, most) | st.integers(-1000, 1000)
        return digits.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -type.scale)))
    bits = type.bit_width
    signed = not str(type).startswith("uint")
    most = (1 << (bits - signed)) - 1
    low = -most - 1 if signed else 0
    if kind == "time":
        low, most = 0, 86400 * casts.UNITS[type.unit] - 1
    whole = st.integers(low, most) | st.integers(max(low, -1000), min(most, 10**5))
    if str(type).startswith("date64"):
        return st.integers(-(1 << 33), 1 << 33).map(lambda day: 86_400_000 * day)
    if kind in ("timestamp", "duration"):
        each = casts.UNITS[type.unit]
        return whole | st.integers(-(1 << 36) // 1000, (1 << 36) // 1000).map(lambda second: second * min(each, 10**6))
    return whole


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_numbers_and_times_against_pyarrow(data: st.DataObject) -> None:
    source = SAMPLES[data.draw(st.sampled_from(FIXED))][0]
    name = data.draw(st.sampled_from(FIXED))
    values = data.draw(st.lists(st.none() | _values(source), min_size=1, max_size=6))
    pair = compare(source, values, SAMPLES[name][0], peer_type(name), data.draw(st.booleans()))
    assert pair.unexplained == []


def test_view_takes_the_bits() -> None:
    array = sa.array([1.5, None, -0.0])
    for start in (0, 1):
        made = array.slice(start).view("int64")
        assert made.to_pyarrow().equals(array.slice(start).to_pyarrow().view(pa.int64()))
    assert sa.array([1 << 32], sa.timestamp("s")).view(sa.binary(8)).to_pylist() == [b"\0\0\0\0\1\0\0\0"]
    for target in ("int32", "string", "bool"):
        with pytest.raises(sa.InvalidType, match="cannot view double as"):
            array.view(target)


# --- structs ----------------------------------------------------------------------------------------------------

POINT = sa.struct({"lat": sa.int64(), "lon": sa.int64()})
POINTS = [{"lat": 1, "lon": 2}, None, {"lat": None, "lon": 4}]


def test_struct_fields_go_by_name_where_a_schema_is_given() -> None:
    turned = sa.struct({"lon": sa.int64(), "lat": sa.int64()})
    schema = sa.schema([("at", turned)])
    for made in (
        sa.record_batch({"at": sa.array(POINTS, POINT)}, schema=schema),
        sa.table({"at": sa.array(POINTS, POINT)}, schema=schema),
        sa.table({"at": sa.ChunkedArray([sa.array(POINTS, POINT)])}, schema=schema),
    ):
        assert made.schema == schema
        assert made["at"].to_pylist() == POINTS


def test_struct_fields_that_are_missing_and_too_many() -> None:
    array = sa.array(POINTS, POINT)
    wider = sa.struct({"lon": sa.int64(), "height": sa.list_(sa.int8()), "lat": sa.int64()})
    assert array.cast(wider).to_pylist() == [row and {**row, "height": None} for row in POINTS]
    required = sa.struct([*POINT.fields, sa.field("height", sa.int8(), nullable=False)])
    with pytest.raises(sa.InvalidType, match="height: int8 not null is missing and not nullable"):
        array.cast(required)
    lon = sa.struct({"lon": sa.int64()})
    with pytest.raises(sa.InvalidType, match=r"the fields \['lat'\] would be lost"):
        array.cast(lon)
    assert array.cast(lon, safe=False).to_pylist() == [row and {"lon": row["lon"]} for row in POINTS]


def test_struct_fields_of_one_name_go_in_their_order() -> None:
    twice = sa.struct([("a", sa.int8()), ("b", sa.int8()), ("a", sa.int16())])
    array = sa.array([(1, 2, 3)], twice)
    made = array.cast(sa.struct([("a", sa.int32()), ("a", sa.int64()), ("b", sa.int8())]))
    assert made.to_pylist() == [[("a", 1), ("a", 3), ("b", 2)]]


def test_nulls_under_required_fields_are_refused() -> None:
    required = sa.struct([sa.field("lat", sa.int64(), nullable=False), sa.field("lon", sa.int64())])
    with pytest.raises(sa.InvalidData, match="field 'lat' is not nullable but has 1 null"):
        sa.array(POINTS, POINT).cast(required)
    made = sa.array(POINTS[:2], POINT).cast(required)  # the null struct needs no latitude
    made.validate(full=True)
    assert made.to_pylist() == POINTS[:2]
    with pytest.raises(sa.InvalidData, match="not nullable"):
        sa.array([[1, None]]).cast(sa.list_(sa.field("item", sa.int64(), nullable=False)))


# --- what nothing refers to -----------------------------------------------------------------------------------

WIDE = sa.array([300, 1, 2, 3], "int16")
NULL = np.array([True, False])
SPANS = np.array([0, 2, 4], "i4")
HIDDEN: dict[str, tuple[Any, Any, list[Any]]] = {
    "list": (sa.ListArray.from_arrays(SPANS, WIDE, mask=NULL), sa.list_("int8"), [None, [2, 3]]),
    "list-view": (sa.ListArray.from_arrays(SPANS, WIDE, mask=NULL), sa.list_view("int8"), [None, [2, 3]]),
    "list-fixed": (sa.ListArray.from_arrays(SPANS, WIDE, mask=NULL), sa.list_("int8", 2), [None, [2, 3]]),
    "fixed": (sa.FixedSizeListArray.from_arrays(WIDE, 2, mask=NULL), sa.list_("int8", 2), [None, [2, 3]]),
    "struct": (
        sa.StructArray.from_arrays([WIDE[:2]], ["a"], mask=NULL), sa.struct({"a": sa.int8()}), [None, {"a": 1}],
    ),
    "dictionary": (
        sa.DictionaryArray.from_arrays(sa.array([1, None, 3], "int8"), WIDE),
        sa.dictionary("int8", "int8"), [1, None, 3],
    ),
    "dictionary-values": (sa.DictionaryArray.from_arrays(sa.array([3, 1], "int8"), WIDE), sa.int8(), [3, 1]),
    "runs": (sa.RunEndEncodedArray.from_arrays(sa.array([1, 2, 5, 6], "int32"), WIDE)[2:4], sa.int8(), [2, 2]),
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_values_that_no_slot_refers_to_need_not_fit(name: str) -> None:
    array, target, values = HIDDEN[name]
    made = array.cast(target)
    made.validate(full=True)
    assert (made.type, made.to_pylist()) == (target, values)


@pytest.mark.parametrize(
    ("values", "type", "target", "message"),
    [
        (
            [1, 300],
            sa.dense_union({"i": sa.int16()}),
            sa.dense_union({"i": sa.int8()}),
            "child 'i': row 1: int8 cannot hold 300",
        ),
        ([[1, 2], [3]], sa.list_("int8"), sa.list_("int8", 2), r"row 1: .*expected 2 items, found 1"),
        ([b"abc", b"ab"], sa.binary(), sa.binary(3), r"row 1: .*expected 3 bytes, found 2"),
    ],
    ids=["union", "fixed", "bytes"],
)
def test_errors_say_where(values: list[Any], type: Any, target: Any, message: str) -> None:
    with pytest.raises((sa.InvalidData, sa.InvalidType), match=message):
        sa.array(values, type).cast(target)


@pytest.mark.parametrize("type", [sa.null(), sa.binary(0), sa.list_(sa.int8(), 0), sa.struct([])], ids=str)
def test_slots_without_bytes_are_not_cast_by_the_billion(type: Any) -> None:
    """A few bytes may claim any number of them; what would make values of them refuses."""
    few = sa.nulls(2, type) if type == sa.null() else sa.array([b"" if type == sa.binary(0) else []] * 2, type)
    many = changed(few, length=1 << 62, buffers=[None] * len(own_buffers(few)), null_count=0)
    for array in (many, sa.StructArray.from_arrays([many], ["x"]), sa.LargeListArray.from_arrays([0, 1 << 62], many)):
        for name in SAMPLES:
            target = peer_type(name)
            for wanted in (target, sa.struct({"x": target}), sa.list_view(target), sa.dictionary("int8", array.type)):
                try:
                    made = array.cast(wanted)
                except sa.ShmarrowError:
                    continue
                assert made.nbytes < 1000


# --- unions, maps, bytes ----------------------------------------------------------------------------------------

MIXED = [1, "a", None, 3]
MEMBERS = {"i": sa.int16(), "s": sa.string()}


@pytest.mark.parametrize("make", [sa.dense_union, sa.sparse_union])
@pytest.mark.parametrize("target", [sa.dense_union, sa.sparse_union])
@pytest.mark.parametrize("start", [0, 1])
def test_union_children_go_by_name(make: Any, target: Any, start: int) -> None:
    array = sa.array(MIXED, make(MEMBERS)).slice(start)
    wanted = target({"s": sa.large_string(), "x": sa.float64(), "i": sa.int8()}, [7, 3, 5])
    made = array.cast(wanted)
    made.validate(full=True)
    assert (made.type, made.to_pylist()) == (wanted, MIXED[start:])
    assert made.cast(target({"i": sa.int16(), "s": sa.string(), "x": sa.float64()})).to_pylist() == MIXED[start:]
    with pytest.raises(sa.InvalidType, match=r"it has no children named \['s'\]"):
        array.cast(target({"i": sa.int8()}))


def test_maps_and_lists_of_structs() -> None:
    rows = [[("b", 1), ("a", None)], None, []]
    array = sa.array(rows, sa.map_("string", "int16"))
    entries = sa.struct({"word": sa.string_view(), "count": sa.int8()})
    for make in (sa.list_, sa.large_list, sa.list_view):
        lists = array.cast(make(entries))
        assert lists.to_pylist() == [row and [{"word": k, "count": v} for k, v in row] for row in rows]
        assert lists.cast(sa.map_("string", "int16")) == array
    ordered = sa.map_("string", "int16", keys_sorted=True)
    with pytest.raises(sa.InvalidData, match=r"row 0: .*the key 'a' comes after 'b'"):
        array.cast(ordered)
    assert array.slice(1).cast(ordered).to_pylist() == rows[1:]
    missing = sa.array([[{"k": None, "v": 1}]])
    with pytest.raises(sa.InvalidData, match="keys of a map must not be null"):
        missing.cast(sa.map_("string", "int64"))


@pytest.mark.parametrize("target", ["binary", "large_binary", "binary_view", "string", "large_string", "string_view"])
def test_bytes_of_one_length(target: str) -> None:
    array = sa.array([b"abc", None, b"xyz"], sa.binary(3)).slice(1)
    made = array.cast(target)
    assert made.to_pylist() == ([None, "xyz"] if "string" in target else [None, b"xyz"])
    assert made.cast(sa.binary(3)) == array
    assert sa.array([], sa.binary(3)).cast(target).to_pylist() == []


def test_extensions_keep_their_parameters() -> None:
    tensors = sa.array([[1, 2, 3, 4, 5, 6]], sa.fixed_shape_tensor("int16", (2, 3)))
    with pytest.raises(sa.InvalidType, match="no cast from"):
        tensors.cast(sa.fixed_shape_tensor("int16", (3, 2)))
    assert tensors.cast(sa.list_("int8", 6)).to_pylist() == [[1, 2, 3, 4, 5, 6]]


# --- encodings and distinct values ------------------------------------------------------------------------------


def bits(*numbers: int) -> Any:
    """Doubles of these bits."""
    return sa.array(np.array(numbers, "u8").view("f8"))


NAN, OTHER_NAN = 0x7FF8000000000000, 0x7FF8000000000001
ODD_UNION = sa.dense_union({"b": sa.bool_(), "i": sa.int64(), "f": sa.float64()})
DISTINCT: dict[str, Any] = {
    "zeros": bits(0, 1 << 63),
    "nans": bits(NAN, OTHER_NAN),
    "union": sa.array([True, 1, 1.0, 0.0, -0.0, False, 0], ODD_UNION),
    "union-sparse": sa.array([True, 1, 1.0], sa.sparse_union(ODD_UNION.fields)),
    "union-nulls": sa.UnionArray.from_dense(
        sa.array([0, 1], "int8"), sa.array([0, 0], "int32"), [sa.nulls(1, "int8"), sa.nulls(1, "string")]
    ),
    "list-of-unions": sa.array([[True], [1], [1.0]], sa.list_(ODD_UNION)),
    "struct-of-zeros": sa.StructArray.from_arrays([bits(0, 1 << 63)], ["x"]),
    "lists": sa.array([[], [None], [None, None], [0], [0, None]]),
    "nested-nulls": sa.array([{"a": None}, {"a": 0}]),
    "words": sa.array(["", "\0", "\0\0", "a", "a\0", "x" * 2000 + "a", "x" * 2000 + "b", "x" * 1999]),
    "views": sa.array(["", "\0", "a" * 12, "a" * 13, "a" * 14], sa.string_view()),
    "decimals": sa.array([Decimal(1), Decimal(1 << 64), Decimal((1 << 64) + 1)], sa.decimal128(38, 0)),
    "maps": sa.array([[("a", 1)], [("a", 2)], []], sa.map_("string", "int8")),
    "fixed": sa.array([[1, None], [None, 1], [1, 1]], sa.list_("int8", 2)),
    "days": sa.array([sa.DayTime(1, 2), sa.DayTime(2, 1)]),
    "uuids": sa.array([b"1" * 16, b"1" * 15 + b"2"], sa.binary(16)).cast(sa.uuid()),
}


@pytest.mark.parametrize("name", DISTINCT)
def test_values_of_other_bits_stay_apart(name: str) -> None:
    """The same values twice, mixed: each is found, none is taken for another, and decoding gives the same bits."""
    array = DISTINCT[name]
    count = len(array)
    order = np.random.default_rng(7).permutation(np.repeat(np.arange(count), 2))
    mixed = array.take(order)
    firsts = list(dict.fromkeys(order.tolist()))
    encoded = mixed.dictionary_encode()
    encoded.validate(full=True)
    assert encoded.indices.to_pylist() == [firsts.index(i) for i in order.tolist()]
    assert storage(encoded.dictionary) == storage(array.take(firsts)) == storage(mixed.unique())
    assert storage(encoded.dictionary_decode()) == storage(mixed)
    runs = mixed.run_end_encode()
    ends = [i for i in range(1, len(order) + 1) if i == len(order) or order[i - 1] != order[i]]
    assert runs.run_ends.to_pylist() == ends
    assert storage(runs.decode()) == storage(mixed)
    again = encoded.cast(sa.run_end_encoded("int16", array.type)).cast(sa.dictionary("uint8", array.type))
    assert storage(again.decode()) == storage(mixed)


def storage(array: Any) -> list[Any]:
    """The values of an array by their bits, with the children of unions that they come from."""
    if isinstance(array.type, sa.ExtensionType):
        array = array.storage
    if array.type.layout.endswith("union"):
        children = [storage(child) for child in array.children]
        rows = zip(array.type_ids.tolist(), np.asarray(array.offsets).tolist(), strict=True)
        return [(number, children[number][at]) for number, at in rows]
    if array.type.layout == "struct":
        return list(zip(*[storage(child) for child in array.flatten()], strict=True))
    if array.type.fields:
        return [None if row is None else storage(row) for row in rows_of(array)]
    return [
        struct.pack("<d", value) if isinstance(value, float) else (type(value), value) for value in array.to_pylist()
    ]


def rows_of(array: Any) -> list[Any]:
    """Each list of an array as an array."""
    return [None if value is None else array.slice(i, 1).flatten() for i, value in enumerate(array.to_pylist())]


def test_nulls_in_dictionaries_and_distinct_values() -> None:
    array = sa.array([None, "b", None, "a", "b"])
    masked, encoded = array.dictionary_encode(), array.dictionary_encode("encode")
    peer = array.to_pyarrow()
    assert masked.to_pyarrow().equals(peer.dictionary_encode())
    assert encoded.to_pyarrow().equals(peer.dictionary_encode("encode"))
    assert array.unique().to_pyarrow().equals(peer.unique())
    assert array.slice(1, 1).unique().to_pylist() == ["b"]
    assert array.dictionary_encode(index_type="uint8").type == sa.dictionary("uint8", "string")
    assert masked.dictionary_encode() is masked
    assert masked.dictionary_encode(index_type="int8").type == sa.dictionary("int8", "string")
    assert sa.nulls(3).unique().to_pylist() == [None]
    assert masked.unique().to_pylist() == array.run_end_encode().unique().to_pylist() == [None, "b", "a"]
    with pytest.raises(sa.InvalidArgument, match="null_encoding must be 'mask' or 'encode', found 'int8'"):
        array.dictionary_encode("int8")


def test_joined_dictionaries_hold_each_value_once() -> None:
    type = sa.dictionary("int8", "string")
    values = [f"w{i}" for i in range(100)]
    parts = [sa.array([*values[start:], None, *values[:start]], type) for start in (0, 7, 50)]
    blank = sa.nulls(2, type)
    joined = sa.concat_arrays([parts[0], blank, parts[1].slice(90), parts[2]])
    joined.validate(full=True)
    assert joined.type == type
    assert joined.dictionary.to_pylist() == values
    assert joined.to_pylist() == [*values, None, None, None, *parts[1].to_pylist()[90:], *parts[2].to_pylist()]
    with pytest.raises(sa.InvalidData, match="200 distinct values exceed the 128 that the index type can address"):
        sa.concat_arrays([parts[0], sa.array([f"v{i}" for i in range(100)], type)])
    encoded = sa.array(["a", None]).dictionary_encode("encode")
    assert sa.concat_arrays([encoded, sa.array([None, "b"]).dictionary_encode()]).to_pylist() == ["a", None, None, "b"]


def test_building_dictionaries_and_runs_keeps_values_apart() -> None:
    """Zeros of both signs, and arrays that look alike when they are shown."""
    for type in (sa.dictionary("int8", "float64"), sa.run_end_encoded("int32", "float64")):
        made = sa.array([0.0, -0.0, None, 0.0], type).decode()
        assert [value is not None and np.signbit(value) for value in made.to_pylist()] == [False, True, False, False]
    long = np.arange(5000)
    other = long.copy()
    other[2500] = 0
    made = sa.array([long, other], sa.dictionary("int8", sa.list_("int64")))
    assert made.to_pylist() == [long.tolist(), other.tolist()]


WORDS = st.text(alphabet="ab\0é", max_size=20) | st.text(max_size=3)
ROWS = st.lists(
    st.none() | st.lists(st.none() | st.tuples(st.none() | WORDS, st.integers(-2, 2)), max_size=3), max_size=30
)


@settings(max_examples=80, deadline=None)
@given(ROWS)
def test_codes_of_nested_values(rows: list[Any]) -> None:
    type = sa.list_(sa.struct({"w": sa.string(), "n": sa.int8()}))
    values = [None if row is None else [pair and {"w": pair[0], "n": pair[1]} for pair in row] for row in rows]
    array = sa.array(values, type)
    keys = [None if row is None else tuple(row) for row in rows]
    distinct = list(dict.fromkeys(key for key in keys if key is not None))
    encoded = array.dictionary_encode()
    assert encoded.indices.to_pylist() == [None if key is None else distinct.index(key) for key in keys]
    assert encoded.to_pylist() == values
    firsts = list(dict.fromkeys(keys))
    assert array.unique().to_pylist() == [values[keys.index(key)] for key in firsts]


def test_keys_with_the_same_hash_are_found_by_comparing() -> None:
    """The hash of a long key is that of its first 128 and last 8 bytes."""
    words = [f"{'x' * 128}{i % 100:03}{'y' * 8}" for i in range(1000)]
    assert sa.array(words).dictionary_encode().indices.to_pylist() == [i % 100 for i in range(1000)]


BIG = "x" * 1_000_000
N = EXPANDED_VALUES + 100
"""More slots than are made of nothing."""


@pytest.mark.parametrize("target", ["large_string", "string_view"])
@pytest.mark.parametrize("runs", [False, True], ids=["dictionary", "runs"])
def test_cast_of_repeated_values_goes_through_the_target(target: str, runs: bool) -> None:
    text, count = ("y" * 100_000, 22_000) if target == "string_view" else ("y" * 1_000, 22_000)
    array: Any
    if runs:
        array = sa.RunEndEncodedArray.from_arrays(sa.array([count], sa.int32()), [text])
    else:
        array = sa.DictionaryArray.from_arrays(np.zeros(count, "i4"), [text])
    made = array.cast(target)
    assert made.type == (sa.large_string() if target == "large_string" else sa.string_view())
    assert len(made) == count
    assert made[0] == made[count - 1] == text


def test_cast_of_repeated_values_to_int32_offsets_is_refused() -> None:
    indices = np.zeros(2200, "i4")
    wanted = (
        "string: the result would have 2200000000 bytes; int32 offsets reach 2147483647; cast to large_string first"
    )
    with pytest.raises(sa.InvalidData, match=wanted):
        sa.array([BIG]).take(indices)
    with pytest.raises(sa.InvalidData, match=wanted):
        sa.array([BIG], sa.string_view()).take(indices).cast("string")
    assert sa.DictionaryArray.from_arrays(indices, [BIG]).cast("string_view")[2199] == BIG


def test_cast_of_a_dictionary_whose_values_repeat_to_shorter_indices() -> None:
    array = sa.DictionaryArray.from_arrays(np.arange(200), sa.array([i % 100 for i in range(200)]))
    made = array.cast(sa.dictionary("int8", "int16"))
    assert made.to_pylist() == [i % 100 for i in range(200)]
    made.validate(full=True)


def test_a_rolling_window_of_dictionaries_keeps_what_it_refers_to() -> None:
    window: Any = sa.array(["v0", "v1", "v2", "v3"], sa.dictionary("int8", "string"))
    for i in range(4, 400):
        window = sa.concat_arrays([window, sa.array([f"v{i}"], window.type)]).slice(1)
    assert window.to_pylist() == ["v396", "v397", "v398", "v399"]
    assert len(window.dictionary) < 20


def test_a_window_as_long_as_its_dictionary_drops_values_that_do_not_fit() -> None:
    window: Any = sa.array([f"v{i}" for i in range(100)], sa.dictionary("int8", "string"))
    for i in range(100, 400):
        window = sa.concat_arrays([window, sa.array([f"v{i}"], window.type)]).slice(1)
    assert window.to_pylist() == [f"v{i}" for i in range(300, 400)]


LONG = sa.array([f"value {i}" for i in range(300_000)])


FEW = sa.DictionaryArray.from_arrays(sa.array([7, None, 7, 299_999, 5], sa.int32()), LONG)


def test_a_few_slots_of_a_long_dictionary() -> None:
    assert FEW.unique().to_pylist() == ["value 7", None, "value 299999", "value 5"]
    assert FEW.run_end_encode().to_pylist() == FEW.to_pylist()
    assert FEW.fill_null("value 5").to_pylist() == ["value 7", "value 5", "value 7", "value 299999", "value 5"]
    assert FEW.fill_null("new").to_pylist() == ["value 7", "new", "value 7", "value 299999", "value 5"]
    assert FEW.cast("large_string").to_pylist() == FEW.to_pylist()
    assert FEW.equals(sa.array(FEW.to_pylist(), FEW.type))


@pytest.mark.parametrize("name", ["unique", "run_end_encode", "fill_null", "cast"])
def test_a_few_slots_of_a_long_dictionary_take_little_time(name: str) -> None:
    calls = {
        "unique": FEW.unique,
        "run_end_encode": FEW.run_end_encode,
        "fill_null": lambda: FEW.fill_null("new"),
        "cast": lambda: FEW.cast("large_string"),
    }
    assert seconds(calls[name]) < seconds(LONG.unique) / 10


def test_dictionaries_of_null_columns() -> None:
    for count in (0, 3, N):
        masked = sa.nulls(count).dictionary_encode()
        assert (len(masked), masked.null_count, len(masked.dictionary)) == (count, count, 0)
        encoded = sa.nulls(count).dictionary_encode("encode", "int8")
        expected = pa.nulls(count).dictionary_encode("encode")
        assert (len(encoded), encoded.null_count) == (len(expected), expected.null_count)
        assert encoded.dictionary.to_pylist() == expected.dictionary.to_pylist()
        assert encoded.indices.type == sa.int8()
        masked.validate(full=True)
        encoded.validate(full=True)


def test_distinct_values_of_long_runs() -> None:
    runs = sa.RunEndEncodedArray.from_arrays([2, 3, 5, N], ["a", None, "a", "b"])
    assert runs.unique().to_pylist() == ["a", None, "b"]
    assert runs.slice(2, 3).unique().to_pylist() == [None, "a"]
    assert runs.slice(4, 0).unique().to_pylist() == []


def test_too_many_values_for_an_index_type_are_counted_as_a_whole() -> None:
    with pytest.raises(sa.InvalidData, match="300 distinct values exceed the 128 that the index type can address"):
        sa.array([str(i) for i in range(300)], sa.dictionary(sa.int8(), sa.string()))
    with pytest.raises(sa.InvalidType, match="row 250: "):
        sa.array([str(i) if i != 250 else 1.5 for i in range(300)], sa.dictionary(sa.int8(), sa.string()))


def test_distinct_values_of_a_few_slots_of_a_union() -> None:
    texts = sa.array([f"value {i}" for i in range(300_000)])
    numbers = sa.array(np.arange(300_000))
    union = sa.UnionArray.from_dense(
        sa.array([0, 1, 0, 0, 1], sa.int8()), sa.array([7, 299_999, 7, 5, 299_999], sa.int32()), [texts, numbers]
    )
    assert union.unique().to_pylist() == ["value 7", 299_999, "value 5"]
    assert union.dictionary_encode().indices.to_pylist() == [0, 1, 0, 2, 1]
    assert seconds(union.unique) < seconds(texts.unique) / 10
