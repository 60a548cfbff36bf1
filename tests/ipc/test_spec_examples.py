"""The worked examples of the columnar specification, byte for byte, in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases.by_layout import SPECIFIED
from cases.definition import Case, Physical, to_bytes

import shmarrow as sa

BUILT = [case for case in SPECIFIED if case.from_values]


def matches(text: str | None, found: Any) -> bool:
    """Whether bytes are those of a physical buffer, wherever that specifies them."""
    if text is None or found is None:
        return text is None and found is None
    compact = text.replace(" ", "")
    pairs = [compact[i : i + 2] for i in range(0, len(compact), 2)]
    return len(pairs) == len(found) and all(
        pair in ("..", f"{byte:02x}") for pair, byte in zip(pairs, found.tolist(), strict=True)
    )


def check(array: Any, physical: Physical, where: str = "array") -> None:
    assert (len(array), array.null_count) == (physical.length, physical.null_count), where
    own = array.buffers()[: len(physical.buffers)]
    for i, (text, found) in enumerate(zip(physical.buffers, own, strict=True)):
        assert matches(text, found), f"{where}, buffer {i}: expected {text}, found {found.tobytes().hex(' ')}"
    assert len(array.children) == len(physical.children)
    for i, (child, expected) in enumerate(zip(array.children, physical.children, strict=True)):
        check(child, expected, f"{where}, child {i}")
    if physical.dictionary is not None:
        check(array.dictionary, physical.dictionary, f"{where}, dictionary")


@pytest.mark.parametrize("case", BUILT, ids=str)
def test_building_gives_the_bytes(case: Case) -> None:
    array = sa.array(case.values, case.type)
    assert case.physical is not None
    check(array, case.physical)


OTHER_ARRAYS = {
    "spec-dense-union": "from values alone, 5 is a float",
    "spec-dictionary-repeats-and-null": "the null of a dictionary is not the null of an index",
}
EQUAL = [case for case in SPECIFIED if case.name not in OTHER_ARRAYS]


@pytest.mark.parametrize("case", EQUAL, ids=str)
def test_other_forms_of_the_values_are_equal(case: Case) -> None:
    assert case.array() == sa.array(case.values, case.type)


def test_struct_and_children_have_validity_of_their_own() -> None:
    """ "Struct Validity": the child's 'alice' is hidden by the struct, and seen in the child."""
    array = next(case for case in SPECIFIED if case.name == "spec-struct").array()
    assert array.to_pylist()[2] is None
    assert array.field("name").to_pylist() == [b"joe", None, b"alice", b"mark"]
    assert array.field("age").to_pylist() == [1, 2, None, 4]


def test_bitmaps_are_least_significant_bit_first() -> None:
    """ "Validity bitmaps": ``is_valid[j] -> bitmap[j / 8] & (1 << (j % 8))``, values = [0, 1, null, 2, null, 3]."""
    array = sa.array([0, 1, None, 2, None, 3], sa.int8())
    assert array.buffers()[0].tolist() == [0b00101011]


def test_offsets_need_not_start_at_0_and_lengths_are_differences() -> None:
    """ "Variable-size Binary Layout": slot j is ``[offsets[j], offsets[j + 1])``."""
    data = to_bytes("78 78 6a 6f 65 6d 61 72 6b 78")
    array = sa.BinaryArray.from_arrays(np.array([2, 5, 5, 9], "i4"), data, sa.string())
    assert array.to_pylist() == ["joe", "", "mark"]
