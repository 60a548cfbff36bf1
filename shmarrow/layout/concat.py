"""Concatenation of arrays of any library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shmarrow import capsules
from shmarrow.errors import InvalidArgument, not_expected
from shmarrow.layout.array import Array
from shmarrow.layout.making import items_of, join_arrays

AnyArray = TypeVar("AnyArray", bound=Array)


def concat_arrays(arrays: Sequence[AnyArray]) -> AnyArray:
    """Arrays of one type, of any library, as one, a copy; a single one is not copied.

    Raises
    ------
    InvalidArgument
        If there are no arrays.
    InvalidType
        If their types differ, or one is not an array.
    """
    own: list[AnyArray] = items_of(arrays, "arrays")
    if not own:
        raise InvalidArgument("nothing to concatenate: expected at least one array")
    for i, item in enumerate(own):
        if not isinstance(item, Array):
            if not capsules.has_data(item):
                raise not_expected("a list of shmarrow.Array", item)
            from shmarrow.layout.c_stream import read_array

            own[i] = read_array(item)
    return join_arrays(own)
