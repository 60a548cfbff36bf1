"""Values that do not behave: each is taken for what it holds, or refused with one of our errors that can be shown."""

from __future__ import annotations

from typing import Any

import pytest

import shmarrow as sa

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
