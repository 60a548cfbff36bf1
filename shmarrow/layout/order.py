# SPDX-License-Identifier: Apache-2.0
"""The order of values: arrays compared with one value, and their least and greatest values.

Numbers, bools, times and decimals are ordered as numbers, text and binary values by their bytes, which for UTF-8 is the
order of code points. Dictionaries and runs are ordered by their values. Invariants:

* comparisons are exact: floats of fewer bits are compared as 64-bit floats, everything else in its own type;
* NaN is unequal to everything, and neither less nor greater; a null matches nothing;
* text is compared eight bytes at a time, for all slots that are still equal to the value; nothing is built per slot.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes, Indices, Mask, NDArray
from shmarrow.errors import InvalidType
from shmarrow.layout.runs import LOW_BYTES, load_words
from shmarrow.types import DataType, EncodedType, FloatType, float64

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip

_WORD = 8
_NUMBERS = {"integer", "float", "bool", "decimal", "date", "time", "timestamp", "timedelta"}


def plain_type(type: DataType) -> DataType:
    """Return the type of the values of dictionaries and runs; other types as they are."""
    while isinstance(type, EncodedType):
        type = type.value_type
    return type


def ordered_type(type: DataType) -> DataType:
    """Return the type in which values are compared: that of a dictionary's values; 64-bit floats for all floats.

    Raises
    ------
    InvalidType
        If the type has no order: lists, structs, unions, intervals, nulls, extension types.
    """
    plain = plain_type(type)
    if plain.descriptor.values not in _NUMBERS | {"bytes"} and not hasattr(plain, "text"):
        raise InvalidType(f"expected numbers, bools, times, decimals, text or binary, found {type}, which has no order")
    return float64() if isinstance(plain, FloatType) else plain


def compare(array: Any, op: str, value: Any) -> Mask:
    """Compare each slot with a value: a mask of shape (length,), False where null.

    Parameters
    ----------
    array : Array
        An array of a type that has an order.
    op : str
        One of :data:`OPERATORS`.
    value : Array
        One slot, not null, of the type that :func:`ordered_type` returns.
    """
    if isinstance(array.type, EncodedType):
        return _through(array, lambda values: compare(values, op, value))
    mask = array._mask()
    if array.type.layout == "binary_view" and array._find_repeats(array._sizes(mask)):
        distinct, places = array._distinct(mask)
        again = compare(distinct, op, value)[places]
        return again if mask is None else again & mask
    fits: Mask = OPERATORS[op](*_sides(array, value, op in ("=", "!=")))
    return fits if mask is None else fits & mask


def is_in(array: Any, values: Any) -> Mask:
    """Return which slots equal one of several values, none of them null; NaN equals NaN here, as in pyarrow."""
    if isinstance(array.type, EncodedType):
        return _through(array, lambda inner: is_in(inner, values))
    if array.type.descriptor.values in _NUMBERS and array.values.ndim == 1:
        numbers = values.values
        fits: Mask = np.isin(_numbers(array), numbers)
        if numbers.dtype.kind == "f" and np.isnan(numbers).any():
            fits |= np.isnan(array.values)
        mask = array._mask()
        return fits if mask is None else fits & mask
    fits = np.zeros(len(array), np.bool_)
    for i in range(len(values)):
        fits |= compare(array, "=", values.slice(i, 1))
    return fits


def _through(array: Any, ask: Callable[[Any], Mask]) -> Mask:
    """Ask the values of a dictionary, each once, or those of runs."""
    if array.type.layout != "dictionary":
        return ask(array.cast(array.type.value_type))
    mask = array._mask()
    fits = np.append(ask(array.dictionary), False)  # an index of 0 into no values belongs to a null
    result: Mask = fits[array._checked(mask)]
    return result if mask is None else result & mask


def _sides(array: Any, value: Any, equality: bool) -> tuple[Any, Any]:
    """Return two sides to compare: numbers and a number, or for other values their sign and 0."""
    if hasattr(array.type, "text") or array.type.descriptor.values == "bytes":
        signs = [_signs(*run, _bytes_of(value), equality) for run in _runs(array)]
        return np.concatenate([np.zeros(0, np.int8), *signs]), 0
    if array.values.ndim == 2:
        return _wide_signs(array.values, value.values[0]), 0
    return _numbers(array), value.values[0]


def _numbers(array: Any) -> NDArray:
    numbers: NDArray = array.values
    return numbers.astype(np.float64, copy=False) if numbers.dtype.kind == "f" else numbers


def _wide_signs(values: NDArray, literal: NDArray) -> NDArray:
    """The signs of differences between integers of several words, least significant first, and one such integer."""
    result = np.zeros(len(values), np.int8)
    for i in range(values.shape[1]):
        kind = "<i8" if i == values.shape[1] - 1 else "<u8"
        word, other = np.ascontiguousarray(values[:, i]).view(kind), literal[i : i + 1].view(kind)[0]
        result = np.where(word == other, result, np.where(word < other, -1, 1)).astype(np.int8)
    return result


# --- text and bytes -----------------------------------------------------------------------------------------------


def _runs(array: Any) -> Iterator[tuple[Bytes, Indices, Indices]]:
    """The bytes of all slots, in pieces: data, and for each slot its start in them and its length, checked."""
    if array.type.layout == "binary_view":
        for piece in array._pieces(array._sizes(array._mask())):
            yield piece.source, piece.starts, piece.sizes.astype(np.int64)
    elif array.type.layout == "primitive":
        width = array.type.byte_width
        data = array.values.view(np.uint8).reshape(-1) if width else np.zeros(0, np.uint8)
        yield data, np.arange(len(array)) * width, np.full(len(array), width)
    else:
        offsets, data = array._contiguous()
        starts = offsets[:-1].astype(np.int64, copy=False)
        yield data, starts, np.diff(offsets).astype(np.int64, copy=False)


def _bytes_of(value: Any) -> bytes:
    """The bytes of an array's only slot."""
    data, starts, lengths = next(_runs(value))
    return data[starts[0] : starts[0] + lengths[0]].tobytes()


def _words(data: Bytes, starts: Indices, lengths: Indices, at: int) -> NDArray:
    """Eight bytes of each run, from byte ``at`` on, as a number in their order; bytes beyond the run are 0."""
    words: NDArray = load_words(data, starts + at) & LOW_BYTES.take(lengths - at, mode="clip")
    return words.byteswap()


def _signs(data: Bytes, starts: Indices, lengths: Indices, literal: bytes, equality: bool) -> NDArray:
    """-1, 0 or 1 for each run that is less than, equal to or greater than a literal.

    With ``equality``, runs of other lengths are only known to differ.
    """
    result = np.sign(lengths - len(literal)).astype(np.int8)  # decides where the bytes of both are the same
    tied: Any = np.flatnonzero(result == 0) if equality else slice(None)
    for at in range(0, len(literal), _WORD):
        words = _words(data, starts[tied], lengths[tied], at)
        other = np.uint64(int.from_bytes(literal[at : at + _WORD].ljust(_WORD, b"\0"), "big"))
        same = words == other
        if not same.all():
            tied = np.arange(len(starts))[tied] if isinstance(tied, slice) else tied
            result[tied[~same]] = np.where(words[~same] < other, -1, 1)
            tied = tied[same]
        if not isinstance(tied, slice) and not len(tied):
            break
    return result


# --- the least and the greatest -----------------------------------------------------------------------------------


def extremes(array: Any, bound: int) -> tuple[Any, Any, bool]:
    """Find the least and the greatest value, each as an array of one slot without encoding.

    Parameters
    ----------
    array : Array
        An array of a type that has an order.
    bound : int
        Text and binary values are compared by as many leading bytes, a multiple of eight, and then by length.

    Returns
    -------
    least, greatest : Array
        Of shape (1,), or (0,) if all slots are null or NaN.
    nan : bool
        Whether NaN occurs.
    """
    if isinstance(array.type, EncodedType):
        is_dictionary = array.type.layout == "dictionary"
        return extremes(array._compact().dictionary if is_dictionary else array.cast(array.type.value_type), bound)
    array = array.drop_null()
    nans = array._nans()
    has_nan = nans is not None and bool(nans.any())
    if has_nan:
        array = array._take(np.flatnonzero(~nans))
    if not len(array):
        return array, array, has_nan
    least, greatest = [_extreme(array, choose, bound) for choose in (np.min, np.max)]
    return array._take(np.array([least])), array._take(np.array([greatest])), has_nan


def _extreme(array: Any, choose: Callable[[NDArray], Any], bound: int) -> int:
    """The slot of the value that is chosen by :func:`numpy.min` or :func:`numpy.max`; no slot is null."""
    if hasattr(array.type, "text") or array.type.descriptor.values == "bytes":
        best = [_extreme_run(*run, choose, bound) for run in _runs(array)]
        firsts = np.cumsum([0, *[len(run[1]) for run in _runs(array)]])[:-1]
        slots = firsts + best
        if len(slots) == 1:
            return int(slots[0])
        return int(slots[_extreme(array._take(slots), choose, bound)])
    values = array.values
    if values.ndim == 1:
        return int(values.argmin() if choose is np.min else values.argmax())
    tied = np.arange(len(values))
    for i in reversed(range(values.shape[1])):
        words = np.ascontiguousarray(values[tied, i]).view("<i8" if i == values.shape[1] - 1 else "<u8")
        tied = tied[words == choose(words)]
    return int(tied[0])


def _extreme_run(data: Bytes, starts: Indices, lengths: Indices, choose: Callable[[NDArray], Any], bound: int) -> int:
    """The position of the least or the greatest of several runs."""
    tied = np.arange(len(starts))
    for at in range(0, min(bound, int(lengths.max())), _WORD):
        words = _words(data, starts[tied], lengths[tied], at)
        tied = tied[words == choose(words)]
    return int(tied[lengths[tied] == choose(lengths[tied])][0])
