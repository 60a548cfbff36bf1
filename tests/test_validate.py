"""Arrays that break one rule of the format each: validation names it, pyarrow agrees, and nothing else ever breaks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from parts import own_buffers

import shmarrow as sa
from shmarrow.testing.definition import Physical, pack, text
from shmarrow.testing.table import CASES
from shmarrow.testing.table import case as by_name
from shmarrow.types import MapType

pa = pytest.importorskip("pyarrow")


@dataclass(frozen=True)
class Broken:
    """One broken rule: what the message of validation says, and whether pyarrow's own validation sees it too."""

    name: str
    type: Any
    physical: Physical
    message: str
    peer: bool = True


INT8S = Physical(3, [None, "01 02 03"])
NAMES = sa.struct([sa.field("k", sa.int8(), nullable=False), sa.field("v", sa.int8())])
MAP = MapType(sa.field("entries", NAMES, nullable=False))
UNION = [sa.field("a", sa.int8()), sa.field("b", sa.int8())]
SPARSE, DENSE = sa.sparse_union(UNION, [3, 7]), sa.dense_union(UNION, [3, 7])
REQUIRED = sa.field("n", sa.int8(), nullable=False)
ONE_NULL = Physical(3, ["05", "01 00 03"], 1)


def strings(offsets: list[int], data: str, format: str = "i", validity: str | None = None, nulls: int = 0) -> Physical:
    return Physical(len(offsets) - 1, [validity, pack(format, *offsets), data], nulls)


def view(length: int, rest: str, *data: str) -> Physical:
    return Physical(1, [None, pack("i", length) + rest, *data])


def long_view(length: int, prefix: str, index: int, offset: int) -> Physical:
    return view(length, text(prefix) + pack("i", index, offset), text("a value of 24 characters"))


def list_view(offsets: list[int], sizes: list[int], format: str = "i", validity: str | None = None) -> Physical:
    nulls = 0 if validity is None else len(offsets) - int(validity, 16).bit_count()
    return Physical(len(offsets), [validity, pack(format, *offsets), pack(format, *sizes)], nulls, [INT8S])


def union(ids: str, offsets: list[int] | None = None) -> Physical:
    buffers = [ids] if offsets is None else [ids, pack("i", *offsets)]
    return Physical(3, buffers, 0, [INT8S, INT8S])


def runs(ends: list[int], length: int, values: int = 3) -> Physical:
    children = [Physical(len(ends), [None, pack("h", *ends)]), Physical(values, [None, "01 02 03"])]
    return Physical(length, [], 0, children)


def indices(format: str, *numbers: int, validity: str | None = None, nulls: int = 0) -> Physical:
    return Physical(len(numbers), [validity, pack(format, *numbers)], nulls, dictionary=strings([0, 1, 2], text("ab")))


def wide(number: int, size: int) -> Physical:
    return Physical(2, [None, text((0).to_bytes(size)) + text(number.to_bytes(size, "little", signed=True))])


VALUES = [
    Broken("offset-goes-back", sa.string(), strings([0, 3, 1, 4], text("abcd")), "offset 2 decreases from 3 to 1"),
    Broken("offset-goes-back-large", sa.large_binary(), strings([0, 3, 1, 4], text("abcd"), "q"), "from 3 to 1"),
    Broken("offset-beyond-the-data", sa.binary(), strings([0, 9, 4], text("abcd")), "decreases from 9 to 4"),
    Broken("offset-negative-inside", sa.binary(), strings([0, -1, 3], text("abcd")), "decreases from 0 to -1"),
    Broken("utf8-no-character", sa.string(), strings([0, 2, 3], text(b"ab\xff")), r"row 1: .*not UTF-8"),
    Broken("utf8-split-character", sa.string(), strings([0, 1, 2], text("é")), r"row 0: .*not UTF-8"),
    Broken("utf8-starts-within", sa.string(), strings([0, 2, 3], text("aé")), r"row 0: .*not UTF-8"),
    Broken("utf8-overlong", sa.large_string(), strings([0, 2], text(b"\xc0\x80"), "q"), r"row 0: .*not UTF-8"),
    Broken("utf8-surrogate", sa.string(), strings([0, 3], text(b"\xed\xa0\x80")), r"row 0: .*not UTF-8"),
    Broken("utf8-beyond-unicode", sa.string(), strings([0, 4], text(b"\xf4\x90\x80\x80")), r"row 0: .*not UTF-8"),
    Broken("utf8-cut-off", sa.string(), strings([0, 1, 4], text(b"a\xf0\x9f\xa6")), r"row 1: .*not UTF-8"),
    Broken(
        "utf8-after-a-null", sa.string(), strings([0, 1, 2, 3], text(b"a\xff\xff"), "i", "05", 1), r"row 2: .*not UTF-8"
    ),
    Broken("utf8-in-view", sa.string_view(), view(2, text(b"a\xff") + "00" * 10), r"row 0: .*not UTF-8"),
    Broken(
        "utf8-in-long-view",
        sa.string_view(),
        view(13, text("xxxx") + pack("i", 0, 0), text(b"x" * 12 + b"\xff")),
        r"row 0: .*not UTF-8",
    ),
    Broken("view-negative-length", sa.binary_view(), view(-1, "00" * 12), r"row 0: .*the view"),
    Broken("view-negative-offset", sa.binary_view(), long_view(13, "a va", 0, -1), r"row 0: .*the view"),
    Broken(
        "view-beyond-its-buffer", sa.binary_view(), long_view(20, "ue o", 0, 5), r"\[5, 25\) of buffer 0, which has 24"
    ),
    Broken("view-of-no-buffer", sa.binary_view(), long_view(13, "a va", 1, 0), "of buffer 1 of 1"),
    Broken("view-of-negative-buffer", sa.binary_view(), long_view(13, "a va", -1, 0), "of buffer -1 of 1"),
    Broken(
        "view-other-prefix", sa.binary_view(), long_view(13, "a vo", 0, 0), r"row 0: .*the view has a prefix other than"
    ),
    Broken("view-padding", sa.binary_view(), view(3, text("abc") + "00" * 8 + "01"), "non-zero padding"),
    Broken(
        "list-offset-goes-back",
        sa.list_(sa.int8()),
        Physical(2, [None, pack("i", 0, 2, 1)], 0, [INT8S]),
        "offset 2 decreases from 2 to 1",
    ),
    Broken(
        "list-offset-beyond",
        sa.large_list(sa.int8()),
        Physical(2, [None, pack("q", 0, 1 << 62, 3)], 0, [INT8S]),
        "decreases from 4611686018427387904 to 3",
    ),
    Broken(
        "map-offset-goes-back",
        MAP,
        Physical(2, [None, pack("i", 0, 2, 1)], 0, [Physical(3, [None], 0, [INT8S, INT8S])]),
        "offset 2 decreases from 2 to 1",
    ),
    Broken("list-view-beyond", sa.list_view(sa.int8()), list_view([0, 2], [1, 2]), r"row 1: .*2 values at 2, of 3"),
    Broken("list-view-negative-size", sa.list_view(sa.int8()), list_view([1], [-1]), r"row 0: .*-1 values at 1"),
    Broken("list-view-negative-offset", sa.list_view(sa.int8()), list_view([-1], [2]), r"row 0: .*2 values at -1"),
    Broken(
        "list-view-overflow", sa.large_list_view(sa.int8()), list_view([(1 << 63) - 1], [(1 << 63) - 1], "q"), "row 0: "
    ),
    Broken(
        "list-view-null-slot",
        sa.list_view(sa.int8()),
        list_view([0, 9], [1, 9], "i", "01"),
        r"row 1: .*9 values",
    ),
    Broken("list-view-empty-slot", sa.list_view(sa.int8()), list_view([0, 9], [1, 0]), r"row 1: .*0 values at 9"),
    Broken("type-id-unknown", SPARSE, union("03 07 05"), r"row 2: .*expected one of the type ids \[3, 7\], found 5"),
    Broken("type-id-negative", SPARSE, union("03 ff 07"), r"row 1: .*type ids .*, found -1"),
    Broken("type-id-unknown-dense", DENSE, union("03 07 00", [0, 0, 1]), r"row 2: .*type ids .*, found 0"),
    Broken("union-offset-beyond", DENSE, union("03 07 07", [0, 0, 3]), r"row 2: .*row 3 of child 1, which has 3"),
    Broken("union-offset-negative", DENSE, union("03 07 07", [0, -1, 0]), r"row 1: .*row -1 of child 1"),
    Broken("union-offset-goes-back", DENSE, union("03 07 07", [0, 1, 0]), "decrease from 1 to 0"),
    Broken("run-end-0", sa.run_end_encoded(sa.int16(), sa.int8()), runs([0, 2, 3], 3), "the first run ends at 0"),
    Broken(
        "run-end-negative", sa.run_end_encoded(sa.int16(), sa.int8()), runs([-5, 2, 3], 3), "the first run ends at -5"
    ),
    Broken(
        "run-end-repeats", sa.run_end_encoded(sa.int16(), sa.int8()), runs([1, 1, 3], 3), "does not increase: 1, then 1"
    ),
    Broken(
        "run-end-goes-back",
        sa.run_end_encoded(sa.int16(), sa.int8()),
        runs([2, 1, 3], 3),
        "does not increase: 2, then 1",
    ),
    Broken(
        "index-beyond",
        sa.dictionary(sa.int8(), sa.string()),
        indices("b", 0, 1, 2),
        r"row 2: .*index 2 of a dictionary of 2",
    ),
    Broken("index-negative", sa.dictionary(sa.int16(), sa.string()), indices("h", 0, -1), r"row 1: .*index -1"),
    Broken("index-beyond-unsigned", sa.dictionary(sa.uint8(), sa.string()), indices("B", 255), r"row 0: .*index 255"),
    Broken(
        "index-beyond-wide", sa.dictionary(sa.uint64(), sa.string()), indices("Q", (1 << 64) - 1), r"row 0: .*index"
    ),
    Broken(
        "dictionary-value",
        sa.dictionary(sa.int8(), sa.string()),
        Physical(1, [None, "00"], dictionary=strings([0, 1], text(b"\xff"))),
        r"row 0: .*not UTF-8",
    ),
    *[
        Broken(
            f"decimal{bits}-digits{sign}",
            getattr(sa, f"decimal{bits}")(digits, 1),
            wide(sign * 10**digits, bits // 8),
            rf"row 1: .*{digits} digits, found",
        )
        for bits, digits in ((32, 5), (64, 12), (128, 20), (128, 38), (256, 50), (256, 76))
        for sign in (1, -1)
    ],
    Broken(
        "time-end-of-day", sa.time32("s"), Physical(2, [None, pack("i", 86_399, 86_400)]), r"row 1: .*, found 86400"
    ),
    Broken("time-negative", sa.time32("ms"), Physical(1, [None, pack("i", -1)]), r"row 0: .*, found -1"),
    Broken(
        "time-end-of-day-us",
        sa.time64("us"),
        Physical(1, [None, pack("q", 86_400_000_000)]),
        r"row 0: .*, found 86400000000",
    ),
    Broken("time-negative-ns", sa.time64("ns"), Physical(1, [None, pack("q", -1)]), r"row 0: .*, found -1"),
    Broken(
        "date64-part-of-day",
        sa.date64(),
        Physical(2, [None, pack("q", 86_400_000, 1)]),
        r"row 1: .* whole .*, found 1970-01-01T00:00:00.001",
    ),
    Broken("null-count-too-low", sa.int8(), Physical(3, ["05", "01 02 03"], 0), "null count is 0, .* 1 nulls", False),
    Broken("null-count-too-high", sa.int8(), Physical(3, ["05", "01 02 03"], 2), "null count is 2, .* 1 nulls", False),
    Broken(
        "null-in-required-child",
        sa.struct([REQUIRED]),
        Physical(3, [None], 0, [ONE_NULL]),
        "'n' is not nullable",
        False,
    ),
    Broken(
        "null-in-required-item",
        sa.list_(REQUIRED),
        Physical(1, [None, pack("i", 0, 3)], 0, [ONE_NULL]),
        "'n' is not nullable",
        False,
    ),
    Broken(
        "null-in-required-items",
        sa.list_(REQUIRED, 3),
        Physical(1, [None], 0, [ONE_NULL]),
        "'n' is not nullable",
        False,
    ),
    Broken(
        "null-key",
        MAP,
        Physical(1, [None, pack("i", 0, 3)], 0, [Physical(3, [None], 0, [ONE_NULL, INT8S])]),
        "null",
        False,
    ),
    Broken(
        "null-entries",
        MAP,
        Physical(1, [None, pack("i", 0, 3)], 0, [Physical(3, ["03"], 1, [INT8S, INT8S])]),
        "null",
        False,
    ),
    Broken(
        "deep-inside",
        sa.list_(sa.struct({"s": sa.string()})),
        Physical(1, [None, pack("i", 0, 1)], 0, [Physical(1, [None], 0, [strings([0, 1], "ff")])]),
        "child 'item': child 's': row 0: string: not UTF-8",
    ),
]
"""Rules that values promise, and that ``validate(full=True)`` holds them to."""

PRIMITIVE = sa.int32()
STRUCTURE = [
    Broken("values-short", PRIMITIVE, Physical(3, [None, pack("i", 1, 2) + "00 00 00"]), "12 bytes.* 11"),
    Broken("values-short-by-offset", PRIMITIVE, Physical(2, [None, pack("i", 1, 2)], offset=1), "12 bytes.* 8"),
    Broken("bits-short", sa.bool_(), Physical(9, [None, "ff"]), "2 bytes.* 1"),
    Broken("validity-short", PRIMITIVE, Physical(9, ["ff", pack("i", *range(9))], -1), "2 bytes.* 1"),
    Broken("validity-missing", PRIMITIVE, Physical(1, [None, pack("i", 1)], 1), "1 bytes.* 0|null"),
    Broken("offsets-short", sa.string(), Physical(2, [None, pack("i", 0, 1), text("ab")]), "12 bytes.* 8"),
    Broken("offsets-missing", sa.string(), Physical(1, [None, "", ""]), "8 bytes.* 0"),
    Broken("views-short", sa.string_view(), Physical(2, [None, "00" * 31]), "32 bytes.* 31"),
    Broken(
        "sizes-short", sa.list_view(sa.int8()), Physical(2, [None, pack("i", 0, 0), pack("i", 0)], 0, [INT8S]), "8.* 4"
    ),
    Broken("ids-short", SPARSE, Physical(3, ["03 03"], 0, [INT8S, INT8S]), "3 bytes.* 2"),
    Broken("union-offsets-short", DENSE, Physical(2, ["03 03", pack("i", 0)], 0, [INT8S, INT8S]), "8 bytes.* 4"),
    Broken(
        "indices-short",
        sa.dictionary(sa.int32(), sa.string()),
        Physical(2, [None, pack("i", 0)], dictionary=strings([0], "")),
        "8 bytes.* 4",
    ),
    Broken("negative-length", PRIMITIVE, Physical(-1, [None, ""]), "length -1"),
    Broken("negative-offset", PRIMITIVE, Physical(1, [None, pack("i", 1)], offset=-1), "offset -1"),
    Broken("null-count-beyond", PRIMITIVE, Physical(1, ["00", pack("i", 1)], 2), "null count 2"),
    Broken("null-count-below", PRIMITIVE, Physical(1, ["00", pack("i", 1)], -2), "null count -2"),
    Broken("buffer-missing", PRIMITIVE, Physical(1, [None]), "2 buffers, found 1"),
    Broken("buffer-too-many", PRIMITIVE, Physical(1, [None, pack("i", 1), ""]), "2 buffers, found 3"),
    Broken("first-offset-negative", sa.string(), strings([-1, 1], text("a")), "from -1 to 1"),
    Broken("last-offset-beyond", sa.string(), strings([0, 2], text("a")), "from 0 to 2 .* 1 bytes"),
    Broken("offsets-all-back", sa.large_string(), strings([2, 1], text("abc"), "q"), "from 2 to 1"),
    Broken(
        "list-last-offset-beyond", sa.list_(sa.int8()), Physical(1, [None, pack("i", 0, 4)], 0, [INT8S]), "0 to 4 .* 3"
    ),
    Broken(
        "map-last-offset-beyond",
        MAP,
        Physical(1, [None, pack("i", 0, 4)], 0, [Physical(3, [None], 0, [INT8S, INT8S])]),
        "0 to 4 .* 3",
    ),
    Broken("fixed-list-child-short", sa.list_(sa.int8(), 2), Physical(2, [None], 0, [INT8S]), "4 values, found 3"),
    Broken(
        "fixed-list-child-short-by-offset", sa.list_(sa.int8(), 2), Physical(1, [None], 0, [INT8S], offset=1), "4.* 3"
    ),
    Broken(
        "struct-child-short", sa.struct({"c": sa.int8()}), Physical(4, [None], 0, [INT8S]), "child 'c' needs 4 .* 3"
    ),
    Broken(
        "sparse-child-short", SPARSE, Physical(4, ["03 03 03 03"], 0, [INT8S, INT8S]), "child 'a' needs 4 slots .* 3"
    ),
    Broken("runs-end-early", sa.run_end_encoded(sa.int16(), sa.int8()), runs([1, 2, 3], 4), "4 slots but .* ends at 3"),
    Broken(
        "runs-end-early-by-offset",
        sa.run_end_encoded(sa.int16(), sa.int8()),
        Physical(3, [], 0, runs([1, 2, 3], 3).children, offset=1),
        "4 slots but .* ends at 3",
    ),
    Broken("no-runs", sa.run_end_encoded(sa.int16(), sa.int8()), runs([], 1), "1 slots but .* ends at 0"),
    Broken(
        "runs-without-values", sa.run_end_encoded(sa.int16(), sa.int8()), runs([1, 2, 3], 3, 2), "3 runs but 2 values"
    ),
    Broken(
        "null-run-ends",
        sa.run_end_encoded(sa.int16(), sa.int8()),
        Physical(2, [], 0, [Physical(2, ["01", pack("h", 1, 2)], 1), Physical(2, [None, "01 02"])]),
        "found 1 null$",
    ),
    Broken("no-dictionary", sa.dictionary(sa.int8(), sa.string()), Physical(1, [None, "00"]), "found none"),
]
"""Rules that the structure promises, and that ``validate()`` holds it to, in a time without regard to the length."""


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
    [item for item in VALUES if not item.name.startswith((*HARMLESS, "null-"))],
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
    for slot in (0, piece - 1, piece, length - 1):
        data[slot], times[slot] = 0xFF, -1
        with pytest.raises(sa.InvalidData, match=rf"row {slot}: .*not UTF-8"):
            sa.BinaryArray.from_arrays(offsets, data, sa.string()).validate(full=True)
        with pytest.raises(sa.InvalidData, match=rf"row {slot}: .*cannot hold -1"):
            sa.PrimitiveArray.from_numpy(sa.time32("s"), times).validate(full=True)
        data[slot], times[slot] = ord("a"), 0
        if slot:
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


def test_all_cases_are_valid_for_pyarrow_too() -> None:
    for case in CASES:
        if "interval-month" in case.name or "day-time" in case.name:
            continue
        case.array().to_pyarrow().validate(full=True)
    assert by_name("string").array().null_count == 0
