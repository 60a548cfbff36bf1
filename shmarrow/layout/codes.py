# SPDX-License-Identifier: Apache-2.0
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
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes, Indices, Mask, NDArray, Words
from shmarrow.layout.construct import check_slots
from shmarrow.layout.runs import LOW_BYTES, PIECE, load_words, unequal_runs


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
    return array._codes()


def of_keys(keys: NDArray, mask: Mask | None) -> Indices:
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


def of_runs(data: Bytes, starts: Indices, lengths: Indices, mask: Mask | None) -> Indices:
    """Return the codes of byte-string keys, all within the data."""
    if mask is None:
        return _first_run(data, starts, lengths)
    rows = np.flatnonzero(mask)
    codes = np.full(len(mask), -1, np.int64)
    codes[rows] = rows[_first_run(data, starts[rows], lengths[rows])]
    return codes


def starts_of_runs(data: Bytes, starts: Indices, lengths: Indices, mask: Mask | None) -> Indices:
    """Return the slots whose byte string differs from the previous slot's; adjacent nulls are the same."""
    if not len(starts):
        return starts
    differ = lengths[1:] != lengths[:-1]
    same = np.flatnonzero(~differ)
    for unequal in unequal_runs(data, starts[1:][same], data, starts[:-1][same], lengths[1:][same]):
        differ[same[unequal]] = True
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


def pairs(left: Indices, right: Indices, bound: int) -> Words:
    """Combine two codes each into one key; those on the right are less than ``bound``."""
    return (left + 1).view(np.uint64) * np.uint64(bound + 1) + (right + 1).view(np.uint64)


def first_slots(codes: Indices) -> Indices:
    """Return the first slot with each slot's value, from arbitrary codes of at least -1."""
    first = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    coded: Any = np.flatnonzero(codes >= 0)[::-1]
    if len(coded) == len(codes):
        first[codes[::-1]] = coded
        return first.take(codes)
    first[codes[coded]] = coded  # the last write wins, which is the first slot
    slots = np.full(len(codes), -1, np.int64)
    slots[coded] = first[codes[coded]]
    return slots


# --- the first row with the same key ------------------------------------------------------------------------------

_MIX = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = [np.uint64((0x9E3779B97F4A7C15 * (2 * i + 1) ** 5 | 1) & ((1 << 64) - 1)) for i in range(8)]
"""Odd multipliers to mix hashes, one per round."""


def _first(
    hashes: Words, same: Callable[[Indices, Indices | slice], Mask], exact: Callable[[Indices], Sequence[bytes]]
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
        places = ((hashes[some] * odd) >> np.uint64(64 - bits)).view(np.int64)
        table[places[::-1]] = rest[::-1]
        slots: Indices = table.take(places)
        equal = same(slots, some)
        if isinstance(some, slice) and equal.all():
            return slots
        first[rest[equal]] = slots[equal]
        rest = some = rest[~equal]
    seen: dict[bytes, int] = {}
    first[rest] = [seen.setdefault(key, row) for row, key in zip(rest.tolist(), exact(rest), strict=True)]
    return first


def _first_key(keys: NDArray) -> Indices:
    numbers = keys.view(np.int64)
    least = int(numbers.min(initial=0))
    if int(numbers.max(initial=0)) - least < 2 * len(numbers):  # a table of all numbers in between needs no hashes
        return first_slots(numbers - least)
    words: Words = keys.view(np.uint64)
    return _first(
        words, lambda left, right: words[left] == words[right], lambda rows: [key.tobytes() for key in words[rows]]
    )


_HEAD = 128
"""Number of leading bytes that are hashed, besides the last eight."""


def _first_run(data: Bytes, starts: Indices, lengths: Indices) -> Indices:
    heads, tails, hashes = np.empty((3, len(starts)), np.uint64)
    for first in range(0, len(starts), PIECE):
        piece = slice(first, first + PIECE)
        heads[piece], tails[piece] = _ends(data, starts[piece], lengths[piece])
        hashes[piece] = _hashes(data, starts[piece], lengths[piece], heads[piece], tails[piece])

    def same(left: Indices, right: Indices | slice) -> Mask:
        sizes, at = lengths[right], starts[right]
        equal: Mask = lengths.take(left) == sizes
        equal &= heads.take(left) == heads[right]
        equal &= tails.take(left) == tails[right]
        longer = np.flatnonzero(equal & (sizes > 16) & (starts[left] != at))
        for unequal in unequal_runs(data, starts[left[longer]], data, at[longer], sizes[longer]):
            equal[longer[unequal]] = False
        return equal

    def exact(rows: Indices) -> list[bytes]:
        bounds = zip(starts[rows].tolist(), lengths[rows].tolist(), strict=True)
        return [data[start : start + size].tobytes() for start, size in bounds]

    return _first(hashes, same, exact)


def hashes_of_runs(data: Bytes, starts: Indices, lengths: Indices) -> Words:
    """Return a hash for each byte range, of its first and last bytes and its length."""
    hashes = np.empty(len(starts), np.uint64)
    for first in range(0, len(starts), PIECE):
        piece = slice(first, first + PIECE)
        ends = _ends(data, starts[piece], lengths[piece])
        hashes[piece] = _hashes(data, starts[piece], lengths[piece], *ends)
    return hashes


def _ends(data: Bytes, starts: Indices, lengths: Indices) -> tuple[Words, Words]:
    """The first and the last eight bytes, which overlap in up to 16 bytes, and are the same in up to eight."""
    low = LOW_BYTES.take(lengths, mode="clip")
    return load_words(data, starts) & low, load_words(data, starts + np.maximum(lengths - 8, 0)) & low


def mixed(hashes: Words, words: Words) -> Words:
    """Mix 64-bit numbers into hashes; for the same hash, different numbers give different results."""
    hashes = (hashes ^ words) * _MIX
    return hashes ^ (hashes >> np.uint64(29))


def _hashes(data: Bytes, starts: Indices, lengths: Indices, heads: Words, tails: Words) -> Words:
    hashes = mixed(mixed(lengths.astype(np.uint64), heads), tails)
    more = np.flatnonzero(lengths > 16)
    for position in range(8, _HEAD, 8):
        if not len(more):
            break
        at = np.minimum(position, lengths[more] - 8)
        hashes[more] = mixed(hashes[more], load_words(data, starts[more] + at))
        more = more[lengths[more] > position + 16]
    return hashes
