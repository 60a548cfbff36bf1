"""Factorization: which slots hold the same value, for dictionaries, run-end encoding and distinct values.

Invariants:

* values are compared bitwise: 0.0 and -0.0 differ, as do NaNs with different bits. Values of different children of a
  union always differ;
* the code of a row is the position of the first row with the same key, -1 for null, computed for whole arrays; the
  codes of children are the keys of their parents;
* keys are 64-bit numbers or byte strings; the key of a list is the sequence of the codes of its elements;
* hashes only select the rows to compare: collisions cost time but never affect the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.layout.making import check_slots
from shmarrow.layout.memory import Indices
from shmarrow.layout.runs import LOW_BYTES, PIECE, load_words

if TYPE_CHECKING:
    import numpy.typing as npt

    Keys = npt.NDArray[np.uint64]


def codes_of(array: Any, with_null: bool = False) -> tuple[Indices, Indices]:
    """Number the distinct values of an array in order of first appearance.

    Parameters
    ----------
    array : Array
        Any array.
    with_null : bool
        Whether null counts as a value.

    Returns
    -------
    codes : int64 ndarray
        Shape (length,), the number of each slot's value; -1 for null unless ``with_null``.
    first : int64 ndarray
        Slot of the first occurrence of each value, ascending.

    Raises
    ------
    LimitExceeded
        If more than 2**24 slots occupy no memory.
    """
    codes = slot_codes(array)
    if with_null:
        missing = np.flatnonzero(codes < 0)
        if len(missing):
            codes = codes.copy()
            codes[missing] = missing[0]
    first = np.flatnonzero(codes == np.arange(len(codes)))
    numbers = np.empty(len(codes) + 1, np.int64)
    numbers[first] = np.arange(len(first))
    numbers[-1] = -1  # for code -1
    return numbers[codes], first


# --- codes of slots -----------------------------------------------------------------------------------------------


def slot_codes(array: Any) -> Indices:
    """Return for each slot the first slot with the same value, -1 for null; shape (length,)."""
    check_slots(array)
    codes: Indices = array._codes()
    return codes


def of_keys(keys: npt.NDArray[Any], mask: Mask | None) -> Indices:
    """Return the codes of keys of up to 64 bits; slots where ``mask`` is False are null."""
    words = keys.view(f"<u{keys.dtype.itemsize}")
    if words.dtype.itemsize <= 2:
        numbers = words.astype(np.int64)
        return first_slots(numbers if mask is None else np.where(mask, numbers, -1))
    words = words.astype(np.uint64, copy=False)
    if mask is None:
        return _first_key(words)
    rows = np.flatnonzero(mask)
    codes = np.full(len(mask), -1, np.int64)
    codes[rows] = rows[_first_key(words[rows])]
    return codes


def of_runs(data: npt.NDArray[np.uint8], starts: Indices, lengths: Indices, mask: Mask | None) -> Indices:
    """Return the codes of byte-string keys, all within the data."""
    if mask is None:
        return _first_run(data, starts, lengths)
    rows = np.flatnonzero(mask)
    codes = np.full(len(mask), -1, np.int64)
    codes[rows] = rows[_first_run(data, starts[rows], lengths[rows])]
    return codes


def starts_of_runs(data: npt.NDArray[np.uint8], starts: Indices, lengths: Indices, mask: Mask | None) -> Indices:
    """Return the slots whose byte string differs from the previous slot's; adjacent nulls are the same."""
    if not len(starts):
        return starts
    differ = np.empty(len(starts) - 1, np.bool_)
    for first in range(0, len(differ), PIECE):
        at, sizes = starts[first : first + PIECE + 1], lengths[first : first + PIECE + 1]
        heads = load_words(data, at)
        heads &= LOW_BYTES[np.minimum(sizes, 8)]
        part = differ[first : first + PIECE]
        np.not_equal(heads[1:], heads[:-1], out=part)
        part |= sizes[1:] != sizes[:-1]
        long = np.flatnonzero(~part & (sizes[1:] > 8))
        ends = at[long] + sizes[long] - 8, at[long + 1] + sizes[long] - 8
        part[long] = load_words(data, ends[0]) != load_words(data, ends[1])
        long = long[~part[long] & (sizes[long] > 16)]
        part[long] = ~_same_runs(data, at[long + 1], sizes[long], at[long], sizes[long])
    if mask is not None:
        differ = np.where(mask[1:] & mask[:-1], differ, mask[1:] != mask[:-1])
    return np.flatnonzero(np.concatenate(([True], differ)))


def of_lists(items: Any, starts: Indices, lengths: Indices, mask: Mask | None) -> Indices:
    """Return the codes of lists, whose keys are ranges of slots of ``items``."""
    data = slot_codes(items).view(np.uint8)
    return of_runs(data, starts * 8, lengths * 8, mask)


def of_parts(parts: Sequence[Indices], length: int, mask: Mask | None) -> Indices:
    """Return the codes of composite keys of several codes, all less than ``length``."""
    keys = np.zeros(length, np.int64)
    for i, part in enumerate(parts):
        keys = part if not i else _first_key(pairs(keys, part, length))
    return of_keys(keys + 1, mask)


def pairs(left: Indices, right: Indices, bound: int) -> Keys:
    """Combine two codes each into one key; those on the right are less than ``bound``."""
    result: Keys = (left + 1).view(np.uint64) * np.uint64(bound + 1) + (right + 1).view(np.uint64)
    return result


def first_slots(codes: Indices) -> Indices:
    """Return the first slot with each slot's value, from arbitrary codes of at least -1."""
    first = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    known = np.flatnonzero(codes >= 0)[::-1]
    first[codes[known]] = known  # the last write wins, which is the first slot
    slots = np.full(len(codes), -1, np.int64)
    slots[known] = first[codes[known]]
    return slots


# --- the first row with the same key ------------------------------------------------------------------------------

_MIX = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = [np.uint64((0x9E3779B97F4A7C15 * (2 * i + 1) ** 5 | 1) & ((1 << 64) - 1)) for i in range(8)]
"""Odd multipliers to mix hashes, one per round."""


def _first(
    hashes: Keys, same: Callable[[Indices, Indices | slice], Mask], exact: Callable[[Indices], Sequence[bytes]]
) -> Indices:
    """Find for each row the first row with the same key.

    In each round, the remaining rows are written into a table by hash, so that the first row per hash stays; rows equal
    to it are done. Rows left after all rounds, due to many collisions, go through a dict.

    Parameters
    ----------
    hashes : uint64 ndarray
        Shape (n,), equal for equal keys.
    same : callable
        Compares the keys of rows with those of other rows, elementwise.
    exact : callable
        Returns the keys of rows as bytes.
    """
    count = len(hashes)
    first = np.empty(count, np.int64)
    rest = np.arange(count)
    some: Indices | slice = slice(None)  # the rows in rest; a full slice at first, to avoid a gather
    for odd in _ROUNDS:
        if not len(rest):
            return first
        bits = max(len(rest).bit_length() + 1, 4)
        table = np.empty(1 << bits, np.int64)
        places = (hashes[some] * odd) >> np.uint64(64 - bits)
        table[places[::-1]] = rest[::-1]
        found: Indices = table[places]
        equal = same(found, some)
        if isinstance(some, slice) and equal.all():
            return found
        first[rest[equal]] = found[equal]
        rest = some = rest[~equal]
    seen: dict[bytes, int] = {}
    first[rest] = [seen.setdefault(key, row) for row, key in zip(rest.tolist(), exact(rest), strict=True)]
    return first


def _first_key(keys: npt.NDArray[Any]) -> Indices:
    words: Keys = keys.view(np.uint64)
    return _first(
        words, lambda left, right: words[left] == words[right], lambda rows: [key.tobytes() for key in words[rows]]
    )


_HEAD = 128
"""Number of leading bytes that are hashed; for longer strings also the last eight."""

_LONG = 1024
"""Longer byte strings are compared one by one."""


def _first_run(data: npt.NDArray[np.uint8], starts: Indices, lengths: Indices) -> Indices:
    if not len(lengths) or int(lengths.max()) < 8:  # the bytes and the length fit in one key
        words = load_words(data, starts) & LOW_BYTES[lengths]
        return _first_key(words | (lengths.astype(np.uint64) << np.uint64(56)))
    return _first(
        _hashes(data, starts, lengths),
        lambda left, right: _same_runs(data, starts[left], lengths[left], starts[right], lengths[right]),
        lambda rows: [data[start : start + size].tobytes() for start, size in _bounds(starts[rows], lengths[rows])],
    )


def _bounds(starts: Indices, lengths: Indices) -> Any:
    return zip(starts.tolist(), lengths.tolist(), strict=True)


def _mixed(hashes: Keys, words: Keys) -> Keys:
    hashes = (hashes ^ words) * _MIX
    return hashes ^ (hashes >> np.uint64(29))


def _hashes(data: npt.NDArray[np.uint8], starts: Indices, lengths: Indices) -> Keys:
    starts = np.where(lengths > 0, starts, 0)
    words = load_words(data, starts) & LOW_BYTES[np.minimum(lengths, 8)]
    hashes = _mixed(lengths.astype(np.uint64), words)
    more = np.flatnonzero(lengths > 8)
    position = 8
    while len(more):
        last = position >= _HEAD
        at = lengths[more] - 8 if last else np.minimum(position, lengths[more] - 8)
        hashes[more] = _mixed(hashes[more], load_words(data, starts[more] + at))
        position += 8
        more = more[:0] if last else more[lengths[more] > position]
    return hashes


def _same_runs(
    data: npt.NDArray[np.uint8], starts: Indices, lengths: Indices, other_starts: Indices, other_lengths: Indices
) -> Mask:
    """Compare byte strings elementwise."""
    same: Mask = lengths == other_lengths
    rows = np.flatnonzero(same & (lengths > 0) & (starts != other_starts))
    position = 0
    while len(rows):
        left, right, size = starts[rows], other_starts[rows], lengths[rows]
        if position >= _LONG:
            pairs = zip(left.tolist(), right.tolist(), size.tolist(), strict=True)
            same[rows] = [np.array_equal(data[a : a + n], data[b : b + n]) for a, b, n in pairs]
            return same
        at = np.minimum(position, np.maximum(size - 8, 0))
        differ = (load_words(data, left + at) ^ load_words(data, right + at)) & LOW_BYTES[np.minimum(size, 8)]
        same[rows[differ != 0]] = False
        position += 8
        rows = rows[(differ == 0) & (size > position)]
    return same
