"""Arrays that break one rule of the format each: validation names it, pyarrow agrees, and nothing else ever breaks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from broken_arrays import ONE_NULL, REQUIRED, STRUCTURE, VALUES, Broken, indices, strings
from cases.definition import Physical, pack, text
from parts import own_buffers

import shmarrow as sa

pa = pytest.importorskip("pyarrow")


def named(broken: list[Broken]) -> list[str]:
    return [item.name for item in broken]


@pytest.mark.parametrize("broken", VALUES, ids=named(VALUES))
def test_full_validation_names_the_broken_rule(broken: Broken) -> None:
    array = broken.physical.array(broken.type)
    with pytest.raises(sa.InvalidData, match=broken.message):
        array.validate(full=True)


def unchecked(array: Any) -> pa.Array:
    """pyarrow's array over the same buffers: to_pyarrow() refuses most of those that are broken."""
    type = array.type.to_pyarrow()
    if isinstance(array, sa.DictionaryArray):
        indices = unchecked(array.indices)
        return pa.DictionaryArray.from_arrays(indices, unchecked(array.dictionary), safe=False)
    buffers: list[Any] = [data if data is None else pa.py_buffer(data) for data in own_buffers(array)]
    children = [unchecked(child) for child in array.children]
    if pa.types.is_union(type) or not buffers:  # which there have a bitmap that is not there
        buffers.insert(0, None)
    return pa.Array.from_buffers(type, len(array), buffers, children=children)


@pytest.mark.parametrize("broken", [item for item in VALUES if item.peer], ids=lambda item: item.name)
def test_pyarrow_sees_it_too(broken: Broken) -> None:
    array = broken.physical.array(broken.type)
    theirs = unchecked(array)
    with pytest.raises(pa.ArrowException):
        theirs.validate(full=True)


HARMLESS = ("decimal", "time-", "date64-", "view-other-prefix", "view-padding")
"""Beginnings of the names of broken values that lead no code out of its buffers."""


@pytest.mark.parametrize(
    "broken",
    [item for item in VALUES + STRUCTURE if not item.name.startswith((*HARMLESS, "null-"))],
    ids=lambda item: item.name,
)
def test_pyarrow_is_given_nothing_that_leads_it_astray(broken: Broken) -> None:
    with pytest.raises(sa.InvalidData, match=broken.message):
        broken.physical.array(broken.type).to_pyarrow()


def test_pyarrow_counts_nulls_itself() -> None:
    lying = sa.PrimitiveArray(sa.int8(), 3, [sa.array([1, None, 3]).buffers()[0], np.zeros(3, "u1")], 2)
    assert lying.to_pyarrow().null_count == 1


@pytest.mark.parametrize("broken", STRUCTURE, ids=named(STRUCTURE))
def test_structural_validation_names_the_broken_rule(broken: Broken) -> None:
    array = broken.physical.array(broken.type)
    for full in (False, True):
        with pytest.raises(sa.InvalidData, match=broken.message):
            array.validate(full)


def test_a_dictionary_of_another_type() -> None:
    array = sa.DictionaryArray(
        sa.dictionary(sa.int8(), sa.string()), 1, [None, np.zeros(1, "u1")], dictionary=sa.array([1])
    )
    with pytest.raises(sa.InvalidData, match="a dictionary of string, found one of int64"):
        array.validate()


def test_children_that_are_missing() -> None:
    with pytest.raises(sa.InvalidData, match="1 children, found 0"):
        sa.StructArray(sa.struct({"a": sa.int8()}), 0, [None]).validate()


HIDDEN = [
    ("utf8", sa.string(), strings([0, 1, 2], text(b"a\xff"), "i", "01", 1), ["a", None]),
    (
        "utf8-view",
        sa.string_view(),
        Physical(2, ["01", pack("i", 1) + text("a") + "00" * 11 + pack("i", 1) + "ff" * 12], 1),
        ["a", None],
    ),
    ("view", sa.binary_view(), Physical(2, ["01", pack("i", 0) + "00" * 12 + "ff" * 16], 1), [b"", None]),
    ("index", sa.dictionary(sa.int8(), sa.string()), indices("b", 1, 99, validity="01", nulls=1), ["b", None]),
    ("decimal", sa.decimal32(2), Physical(2, ["01", pack("i", 1, 5000)], 1), [1, None]),
    ("time", sa.time32("s"), Physical(2, ["02", pack("i", -5, 0)], 1), [None, __import__("datetime").time(0)]),
    ("required-child-of-null", sa.struct([REQUIRED]), Physical(3, ["05"], 1, [ONE_NULL]), [{"n": 1}, None, {"n": 3}]),
]


@pytest.mark.parametrize(("type", "physical", "values"), [row[1:] for row in HIDDEN], ids=[row[0] for row in HIDDEN])
def test_null_slots_may_hold_anything(type: Any, physical: Physical, values: list[Any]) -> None:
    array = physical.array(type)
    array.validate(full=True)
    assert array.to_pylist() == values
    assert array.take(np.arange(len(array))[::-1]).to_pylist() == values[::-1]
    assert sa.concat_arrays([array, array]).to_pylist() == values * 2
    assert array.trim().to_pylist() == values
    array.to_pyarrow().validate(full=True)


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "to_pylist": lambda array: array.to_pylist(),
    "items": lambda array: [array[i] for i in range(len(array))],
    "slice": lambda array: array.slice(1).to_pylist(),
    "take": lambda array: array.take(np.arange(len(array))[::-1]),
    "take-masked": lambda array: array.take([i if i % 2 else None for i in range(len(array))]),
    "drop_null": lambda array: array.drop_null(),
    "trim": lambda array: array.trim(),
    "concat": lambda array: sa.concat_arrays([array, array.slice(1)]),
    "equals": lambda array: array.equals(array.slice(0)),
    "repr": repr,
    "to_numpy": lambda array: array.to_numpy(zero_copy_only=False),
    "dictionary_encode": lambda array: array.dictionary_encode().to_pylist(),
    "run_end_encode": lambda array: array.run_end_encode().to_pylist(),
    "decode": lambda array: array.decode() if hasattr(array, "decode") else None,
    "flatten": lambda array: array.flatten() if hasattr(array, "flatten") else None,
    "pickle": lambda array: pickle.loads(pickle.dumps(array)).to_pylist(),
    "cast-view": lambda array: array.cast(sa.binary_view()).to_pylist(),
    "cast-text": lambda array: array.cast(sa.large_string()).to_pylist(),
    "cast-list": lambda array: array.cast(sa.large_list(array.type.fields[0].type)) if array.type.fields else None,
    "cast-fixed": lambda array: array.cast(sa.list_(array.type.fields[0].type, 2)) if array.type.fields else None,
    "cast-views": lambda array: array.cast(sa.list_view(array.type.fields[0].type)) if array.type.fields else None,
    "null_count": lambda array: array.is_valid(),
}


@pytest.mark.parametrize("broken", VALUES, ids=named(VALUES))
def test_broken_values_end_in_data_or_our_errors(broken: Broken) -> None:
    for name, operation in OPERATIONS.items():
        array = broken.physical.array(broken.type)
        try:
            array.validate()
            operation(array)
        except sa.ShmarrowError:
            pass
        except Exception as error:
            pytest.fail(f"{name}: {error!r}")


def test_validation_in_pieces() -> None:
    """Mistakes at the ends of the pieces that long arrays are checked in, and in the last slot."""
    piece = 1 << 20
    length = piece + 10
    offsets = np.arange(length + 1, dtype="<i4")
    data = np.full(length, ord("a"), "u1")
    times = np.zeros(length, "<i4")
    for slot in (piece - 1, piece, length - 1):
        data[slot], times[slot] = 0xFF, -1
        with pytest.raises(sa.InvalidData, match=rf"row {slot}: .*not UTF-8"):
            sa.BinaryArray.from_arrays(offsets, data, sa.string()).validate(full=True)
        with pytest.raises(sa.InvalidData, match=rf"row {slot}: .*cannot hold -1"):
            sa.PrimitiveArray.from_numpy(sa.time32("s"), times).validate(full=True)
        data[slot], times[slot] = ord("a"), 0
        offsets[slot] += 2
        with pytest.raises(sa.InvalidData, match=f"offset {slot + 1} decreases"):
            sa.BinaryArray.from_arrays(offsets, data, sa.binary()).validate(full=True)
        offsets[slot] -= 2


def test_slices_are_validated_by_what_they_show() -> None:
    broken = strings([0, 1, 2, 3], text(b"a\xffc")).array(sa.string())
    broken.slice(2).validate(full=True)
    broken.slice(0, 1).validate(full=True)
    with pytest.raises(sa.InvalidData, match=r"row 0: .*not UTF-8"):
        broken.slice(1).validate(full=True)


def test_a_dictionary_array_without_its_dictionary() -> None:
    """The class takes what it is given; whatever needs the values says what is missing, and how to pass it."""
    array = sa.DictionaryArray(sa.dictionary("int32", "string"), 3, [None, np.arange(3, dtype="i4").view("u1")], 0)
    for use in (array.to_pylist, array.to_pyarrow, array.decode):
        with pytest.raises(sa.InvalidData, match=r"the dictionary is missing.*DictionaryArray\.from_arrays"):
            use()
