"""The worked examples of the columnar specification, byte for byte, in both directions."""

from __future__ import annotations

from typing import Any

import pytest
from cases.by_layout import SPECIFIED
from cases.definition import Case, Physical

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
