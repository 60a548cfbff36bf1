"""Objects and arguments that do not behave: each is taken for what it holds, or refused with one of our errors."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa

# --- masked ndarrays as arguments -------------------------------------------------------------------------------


def _masked(values: Any, mask: Any) -> Any:
    return np.ma.array(values, mask=mask)


def test_masked_indices_give_nulls() -> None:
    indices = _masked([0, 1], [True, False])
    expected = pa.array([10, 20, 30]).take(pa.array(indices)).to_pylist()
    assert expected == [None, 20]
    for held in (sa.array([10, 20, 30]), sa.chunked_array([[10], [20, 30]])):
        assert held.take(indices).to_pylist() == expected
        assert held.take(_masked([99, 2], [True, False])).to_pylist() == [None, 30]
        assert held.take(_masked([2, 0], False)).to_pylist() == [30, 10]


def test_a_masked_mask_is_null_where_it_is_masked() -> None:
    mask = _masked([True, True, False], [True, False, False])
    for held in (sa.array([10, 20, 30]), sa.chunked_array([[10], [20, 30]])):
        assert held.filter(mask).to_pylist() == [20]
        assert held.filter(mask, "emit_null").to_pylist() == [None, 20]
        assert held.filter(_masked([True, False, True], False)).to_pylist() == [10, 30]


def test_rows_at_masked_indices_and_masks() -> None:
    batch = sa.record_batch({"a": [1, 2]})
    for rows in (batch, sa.Table.from_batches([batch])):
        assert rows.take(_masked([0, 1], [True, False])).to_pydict() == {"a": [None, 2]}
        assert rows.filter(_masked([True, True], [True, False])).to_pydict() == {"a": [2]}


def test_masked_offsets_are_null_lists() -> None:
    offsets = _masked([0, 1, 2], [False, True, False])
    expected = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array([1, 2])).to_pylist()
    assert expected == [[1, 2], None]
    assert sa.ListArray.from_arrays(offsets, [1, 2]).to_pylist() == expected


def test_masked_where_no_null_has_a_meaning() -> None:
    mask = _masked([True, False], [True, False])
    with pytest.raises(sa.InvalidType, match="a mask must not have nulls, found 1 null"):
        sa.array([1, 2], mask=mask)
    with pytest.raises(sa.InvalidType, match="sizes must be integers without nulls"):
        sa.ListViewArray.from_arrays([0, 1], _masked([1, 1], [True, False]), [1, 2])
    with pytest.raises(sa.InvalidType, match="type ids must be integers without nulls"):
        sa.UnionArray.from_sparse(_masked([0, 0], [True, False]), [[1, 2]])
    assert sa.array([1, 2], mask=_masked([True, False], False)).to_pylist() == [None, 2]


# --- classes that lie about their length ------------------------------------------------------------------------

LENGTHS = (7, 0, -1, 10**12)


def _lying(base: Any, length: int) -> Any:
    return type(f"Lying{base.__name__}", (base,), {"__len__": lambda self: length})


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    "type", ["string", "large_string", "string_view", "dictionary", "struct", "list", "run_end_encoded"]
)
def test_text_is_as_long_as_it_is(type: str, length: int) -> None:
    text = [_lying(str, length)("abc"), None, "z", _lying(str, -length)("a text of more than twelve bytes")]
    forms: dict[str, Any] = {
        "dictionary": (sa.dictionary(sa.int8(), sa.string()), text),
        "struct": (sa.struct({"a": sa.string()}), [{"a": value} for value in text]),
        "list": (sa.list_(sa.string()), [text]),
        "run_end_encoded": (sa.run_end_encoded(sa.int32(), sa.string()), text),
    }
    wanted, values = forms.get(type, (type, text))
    expected = ["abc", None, "z", "a text of more than twelve bytes"]
    made = sa.array(values, wanted)
    made.validate(full=True)
    found = made.to_pylist()
    plain = {"struct": lambda: [row["a"] for row in found], "list": lambda: found[0]}.get(type, lambda: found)()
    assert plain == expected
    assert {value.__class__ for value in plain} == {str, None.__class__}
    assert sa.array(text).to_pylist() == expected


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("base", [bytes, bytearray])
@pytest.mark.parametrize("type", ["binary", "large_binary", "binary_view", "fixed"])
def test_bytes_are_as_long_as_they_are(type: str, base: Any, length: int) -> None:
    values = [_lying(base, length)(b"abc"), None, b"xyz"]
    made = sa.array(values, sa.binary(3) if type == "fixed" else type)
    made.validate(full=True)
    assert made.to_pylist() == [b"abc", None, b"xyz"]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("base", [list, tuple])
def test_lists_are_as_long_as_they_are(base: Any, length: int) -> None:
    kind = _lying(base, length)
    assert sa.array(kind([1, 2, 3])).to_pylist() == [1, 2, 3]
    assert sa.array(kind([1, 2, 3]), "int8", mask=[True, False, False]).to_pylist() == [None, 2, 3]
    lists = [kind([1, 2, 3]), [4], None]
    assert sa.array(lists).to_pylist() == [[1, 2, 3], [4], None]
    for type in (sa.list_(sa.int64()), sa.large_list(sa.int64()), sa.list_view(sa.int64())):
        assert sa.array(lists, type).to_pylist() == [[1, 2, 3], [4], None]
    with pytest.raises(sa.InvalidData, match="expected 2 items, found 3"):
        sa.array([kind([1, 2, 3]), [5, 6]], sa.list_(sa.int64(), 2))
    pair = sa.struct({"a": sa.int64(), "b": sa.int64()})
    assert sa.array([kind([1, 2])], pair).to_pylist() == [{"a": 1, "b": 2}]
    with pytest.raises(sa.InvalidType, match="expected a dict or a tuple of 2"):
        sa.array([kind([1, 2, 3])], pair)
    union = sa.sparse_union([sa.field("p", pair), sa.field("n", sa.int64())])
    assert sa.array([kind([1, 2]), 3], union).to_pylist() == [{"a": 1, "b": 2}, 3]
    assert sa.array([kind([kind(["k", 1])])], sa.map_(sa.string(), sa.int64())).to_pylist() == [[("k", 1)]]
    assert sa.array([5, 6, 7]).take(kind([2, 0])).to_pylist() == [7, 5]


# --- values that cannot be shown --------------------------------------------------------------------------------

HUGE = 10**5000


class Unshowable:
    def __repr__(self) -> str:
        raise KeyError("no repr")

    __str__ = __repr__

    def __neg__(self) -> Any:
        return self


class Shouting(int):
    __repr__ = __str__ = Unshowable.__repr__  # type: ignore[assignment]

    def __neg__(self) -> int:
        return Shouting(-int(self))


PAIRS = sa.record_batch({"a": [1, 2]})
CALLS: dict[str, tuple[Any, type[Exception]]] = {
    "array": (lambda value: sa.array([value]), sa.InvalidData),
    "array-decimal": (lambda value: sa.array([value], sa.decimal128(5, 1)), sa.InvalidData),
    "array-struct": (lambda value: sa.array([{value: 1}], sa.struct({"a": sa.int8()})), sa.InvalidType),
    "array-key": (lambda value: sa.array([{value: 1}]), sa.InvalidType),
    "fill_null": (lambda value: sa.array([None], "int8").fill_null(value), sa.InvalidData),
    "item": (lambda value: sa.array([1])[value], sa.IndexOutOfRange),
    "take": (lambda value: sa.array([1]).take([value]), sa.IndexOutOfRange),
    "slice": (lambda value: sa.array([1]).slice(-value), sa.IndexOutOfRange),
    "nulls": (lambda value: sa.nulls(value), sa.LimitExceeded),
    "precision": (lambda value: sa.decimal128(value, 1), sa.InvalidArgument),
    "unit": (lambda value: sa.timestamp(value), sa.InvalidArgument),
    "name": (lambda value: sa.field(value, sa.int8()), sa.InvalidType),
    "type_codes": (lambda value: sa.dense_union([sa.field("a", sa.int8())], [value]), sa.InvalidArgument),
    "column": (lambda value: PAIRS.column(value), sa.IndexOutOfRange),
    "field": (lambda value: sa.struct({"a": sa.int8()}).field(value), sa.FieldNotFound),
    "to_batches": (lambda value: PAIRS.to_batches(-value), sa.InvalidArgument),
}


@pytest.mark.parametrize("call", CALLS)
def test_numbers_of_many_digits_are_refused_as_all_others(call: str) -> None:
    function, expected = CALLS[call]
    with pytest.raises(expected) as caught:
        function(HUGE)
    assert 10 < len(str(caught.value)) < 400
    assert HUGE.bit_length() == 16610


@pytest.mark.parametrize("call", CALLS)
def test_objects_without_a_repr_are_refused_as_all_others(call: str) -> None:
    function = CALLS[call][0]
    for value in (Unshowable(), Shouting(2**70)):
        with pytest.raises(sa.ShmarrowError) as caught:
            function(value)
        assert 10 < len(str(caught.value)) < 400


def test_the_number_is_told_by_its_size() -> None:
    with pytest.raises(sa.IndexOutOfRange, match="index <int of 16610 bits> is out of range"):
        sa.array([1])[HUGE]
    with pytest.raises(sa.InvalidType, match="cannot convert <Unshowable object>"):
        sa.array([Unshowable()], "int8")


def test_as_many_nulls_as_can_be_counted() -> None:
    assert len(sa.nulls(2**63 - 1)) == 2**63 - 1
    for size in (2**63, 2**70):
        with pytest.raises(sa.LimitExceeded, match=f"at most 2\\*\\*63 - 1, found {size}"):
            sa.nulls(size)


# --- types at the edge ------------------------------------------------------------------------------------------


def test_unions_without_children_are_joined() -> None:
    for union in (sa.UnionArray.from_dense([], [], []), sa.UnionArray.from_sparse([], [])):
        joined = sa.concat_arrays([union, union])
        joined.validate(full=True)
        assert joined.type == union.type
        assert joined.to_pylist() == []


# --- time zones -------------------------------------------------------------------------------------------------


class Zone(dt.tzinfo):
    """A time zone whose offset is what it was made with, or raises it."""

    def __init__(self, offset: Any) -> None:
        self.offset = offset

    def utcoffset(self, moment: Any) -> Any:
        if isinstance(self.offset, Exception):
            raise self.offset
        return self.offset

    def dst(self, moment: Any) -> Any:
        return None

    def __repr__(self) -> str:
        return "Zone()"


NOON = dt.datetime(2020, 1, 1, 12)
STAMP = sa.timestamp("s", "UTC")


def test_a_time_zone_without_an_offset_is_none() -> None:
    unzoned = NOON.replace(tzinfo=Zone(None))
    assert sa.array([unzoned, None, NOON], sa.timestamp("us")).to_pylist() == [NOON, None, NOON]
    with pytest.raises(sa.InvalidType, match="which has no time zone"):
        sa.array([NOON.replace(tzinfo=dt.UTC), unzoned], STAMP)
    with pytest.raises(sa.InvalidType, match="expected datetimes with a time zone"):
        sa.array([unzoned], sa.timestamp_with_offset("s"))


@pytest.mark.parametrize(
    "offset", [dt.timedelta(days=5), RuntimeError("lost"), 7, KeyError("x")], ids=["days", "raises", "int", "key"]
)
def test_a_time_zone_with_no_possible_offset_is_refused(offset: Any) -> None:
    moment = NOON.replace(tzinfo=Zone(offset))
    for type in (STAMP, sa.timestamp("ns"), sa.timestamp_with_offset("s")):
        zone = None if type == sa.timestamp("ns") else dt.UTC
        for values in ([moment], [NOON.replace(tzinfo=zone), None, moment]):
            with pytest.raises(sa.InvalidData, match=r"Zone.*has no offset"):
                sa.array(values, type)
    with pytest.raises(sa.InvalidType, match="no Arrow name"):
        sa.array([moment])
    with pytest.raises(sa.InvalidType, match="no Arrow name"):
        sa.timestamp("s", Zone(offset))


# --- extension types that raise ---------------------------------------------------------------------------------


class Picky(sa.ExtensionType):
    extension_name = "test.picky"

    def __init__(self) -> None:
        super().__init__(sa.int64())

    @classmethod
    def deserialize(cls, storage_type: sa.DataType, serialized: bytes) -> sa.ExtensionType:
        raise KeyError("lost")

    def to_python(self, value: Any) -> Any:
        return {1: "one"}[value]

    def from_python(self, value: Any) -> Any:
        return {"one": 1, "two": 2}[value]


def test_conversions_of_extension_types_that_raise() -> None:
    held = sa.array(["one", None, "two"], Picky())
    assert held[:2].to_pylist() == ["one", None]
    found = r"row 2: extension<test.picky>: to_python\(2\) raised KeyError\(2\)"
    for read in (held.to_pylist, lambda: held[2], lambda: sa.array([held[2]])):
        with pytest.raises(sa.InvalidData, match=found) as caught:
            read()
        assert isinstance(caught.value.__cause__, KeyError)
    assert "one" in repr(held)
    assert "2" in repr(held)
    found = r"row 1: .*from_python\('ten'\) raised KeyError\('ten'\)"
    with pytest.raises(sa.InvalidData, match=found) as caught:
        sa.array(["one", "ten"], Picky())
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(sa.InvalidData, match=r"from_python\('ten'\) raised"):
        held.fill_null("ten")
    with pytest.raises(sa.InvalidData, match=r"test.picky over int64: deserialize\(b''\) raised KeyError\('lost'\)"):
        pickle.loads(pickle.dumps(Picky()))


NESTS = {
    "list": sa.list_,
    "struct": lambda type: sa.struct({"a": type}),
    "map": lambda type: sa.map_(sa.int8(), type),
}


def _nested(nest: str, levels: int) -> Any:
    type: Any = sa.int8()
    for _ in range(levels):
        type = NESTS[nest](type)
    return type


@pytest.mark.parametrize("nest", NESTS)
def test_types_nest_to_a_depth(nest: str) -> None:
    with pytest.raises(sa.InvalidArgument, match="types nest up to 96 levels deep, found 97"):
        _nested(nest, 3000)
    type = _nested(nest, 48 if nest == "map" else 96)
    assert "int8" in str(type)
    assert hash(type) == hash(_nested(nest, 48 if nest == "map" else 96))
    assert sa.schema({"a": type}).field("a").type == type


@pytest.mark.parametrize("nest", NESTS)
def test_nulls_of_deep_types_take_no_more_than_one_array_a_level(nest: str) -> None:
    type = _nested(nest, 40)
    made = sa.nulls(2, type)
    made.validate(full=True)
    assert (made.to_pylist(), made.null_count) == ([None, None], 2)
