"""An index of rows by their keys, made once for each host and frame.

=================  =======================================================================================
keys               an index has
=================  =======================================================================================
integers, dense    the row of each integer from the least to the largest
one integer        the rows ordered by a hash of their keys, and where each range of hashes begins
all others         the same, and the keys in this order: hashes select the rows whose keys are compared
=================  =======================================================================================

Invariants:

* an index is a mapping of names to arrays, so it is an object of a store, which all processes map;
* a hash that two keys have in common costs time, and never gives a wrong row. That of one integer is unique;
* the last row of an index is -1, for keys that are not in it;
* null is no key: rows with a null key are not in an index, and find nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes, Indices, Mask, NDArray, Words
from shmarrow.errors import InvalidData, shown
from shmarrow.layout.codes import hashes_of_runs, mixed
from shmarrow.layout.runs import gather_bytes, offsets_from, unequal_runs

SPARSE = 4
"""Integers are dense if their range is at most so many times their number."""


class Runs(NamedTuple):
    """Byte strings in a buffer."""

    data: Bytes
    starts: Indices
    lengths: Indices

    def take(self, rows: Indices) -> Runs:
        """Return those of some rows; copies no bytes."""
        return Runs(self.data, self.starts[rows], self.lengths[rows])

    def differ(self, other: Runs) -> Mask:
        """Return which differ, pairwise."""
        found: Mask = self.lengths != other.lengths
        rows = np.flatnonzero(~found)
        mine, theirs = self.take(rows), other.take(rows)
        for unequal in unequal_runs(mine.data, mine.starts, theirs.data, theirs.starts, mine.lengths):
            found[rows[unequal]] = True
        return found


class Keys(NamedTuple):
    """The keys of rows, in one or several columns.

    Attributes
    ----------
    columns : list of uint64 ndarray or Runs
        The keys as numbers of 64 bits, or as byte strings.
    valid : bool ndarray or None
        Which rows have no null among their keys; None if all.
    """

    columns: list[Words | Runs]
    valid: Mask | None

    @property
    def is_integer(self) -> bool:
        """Whether each key is one number."""
        return len(self.columns) == 1 and not isinstance(self.columns[0], Runs)

    def take(self, rows: Indices) -> Keys:
        """Return the keys of some valid rows."""
        return Keys([column.take(rows) for column in self.columns], None)

    def hashes(self) -> Words:
        """Return a hash for each row, different for different numbers; those of null keys mean nothing."""
        found: Any = np.uint64(0)
        for column in self.columns:
            found = mixed(found, hashes_of_runs(*column) if isinstance(column, Runs) else column)
        hashes: Words = found
        return hashes

    def differ(self, other: Keys) -> Mask:
        """Return which keys differ, pairwise."""
        found: Any = False
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            found = found | (
                mine.differ(theirs) if isinstance(mine, Runs) and isinstance(theirs, Runs) else mine != theirs
            )
        different: Mask = found
        return different


def keys_of(arrays: Sequence[Any]) -> Keys:
    """Return the keys in arrays of integers, bools, times, decimals, text or binary; copies little."""
    columns: list[Words | Runs] = []
    valid: Mask | None = None
    for array in arrays:
        mask = array._mask()
        valid = mask if valid is None else valid if mask is None else valid & mask
        if array.type.layout in ("binary", "large_binary"):
            offsets, data = array._contiguous()
            columns.append(Runs(data, offsets[:-1].astype(np.int64, copy=False), np.diff(offsets).astype(np.int64)))
        elif array.type.layout == "bool":
            columns.append(array.values.astype(np.uint64))
        elif array.values.ndim == 2:  # decimals
            columns += [np.ascontiguousarray(words).view(np.uint64) for words in array.values.T]
        else:
            columns.append(array.values.astype(np.int64).view(np.uint64))
    return Keys(columns, valid)


# --- making an index ----------------------------------------------------------------------------------------------


def index_of(arrays: Sequence[Any]) -> dict[str, NDArray]:
    """Index rows by their keys, one array for each column of keys.

    Raises
    ------
    InvalidData
        If two rows have the same keys; names them.
    """
    keys = keys_of(arrays)
    rows = np.arange(len(arrays[0])) if keys.valid is None else np.flatnonzero(keys.valid)
    if keys.is_integer and len(rows):
        numbers: Any = keys.columns[0][rows].view(np.int64)
        least, largest = int(numbers.min()), int(numbers.max())
        if largest - least < SPARSE * len(rows):
            dense = np.full(largest - least + 2, -1, np.int64)
            dense[numbers - least] = rows
            _check_unique(arrays, rows, dense[numbers - least])
            return {"dense": dense, "least": np.array([least])}
    keys = keys.take(rows)
    hashes = keys.hashes()
    order = np.argsort(hashes, kind="stable")
    keys, hashes, rows = keys.take(order), hashes[order], rows[order]
    bits = max(len(rows).bit_length(), 1)
    counts = np.bincount((hashes >> np.uint64(64 - bits)).view(np.int64), minlength=1 << bits)
    index: dict[str, NDArray] = {"rows": np.append(rows, -1), "hashes": hashes, "starts": offsets_from(counts)}
    if not keys.is_integer:
        for i, column in enumerate(keys.columns):
            if isinstance(column, Runs):
                index[f"data{i}"], index[f"lengths{i}"] = gather_bytes(*column), column.lengths
                index[f"starts{i}"] = offsets_from(column.lengths)[:-1]
            else:
                index[f"words{i}"] = column
    # Each row finds itself, unless another row with its keys comes first.
    at = _places(index, keys, hashes)
    _check_unique(arrays, rows, rows[at])
    return index


def _check_unique(arrays: Sequence[Any], rows: Indices, found: Indices) -> None:
    other = np.flatnonzero(found != rows)
    if len(other):
        first, second = sorted((int(rows[other[0]]), int(found[other[0]])))
        key = ", ".join(shown(array.slice(first, 1).to_pylist()[0]) for array in arrays)
        raise InvalidData(
            f"rows {first} and {second} have the same key ({key}), expected each key once",
            hint="drop the duplicates before you share it",
        )


# --- finding rows -------------------------------------------------------------------------------------------------


def find(index: Mapping[str, NDArray], keys: Keys) -> Indices:
    """Return the row of each key, -1 if there is none; shape (n,)."""
    if "dense" in index:
        numbers: Any = keys.columns[0]
        dense, least = index["dense"], int(index["least"][0])
        at = numbers - np.uint64(least & (1 << 64) - 1)  # modulo 2**64, so what is less than the least is large
        rows = dense[np.minimum(at, np.uint64(len(dense) - 1)).view(np.int64)]
    else:
        rows = index["rows"][_places(index, keys, keys.hashes())]
    return rows if keys.valid is None else np.where(keys.valid, rows, -1)


def _places(index: Mapping[str, NDArray], keys: Keys, hashes: Words) -> Indices:
    """Return the place of each key in the order of an index, -1 if it is not there.

    In each round, all rows look at the next place that may have their key, until they find it, or there is none.
    """
    starts, ordered = index["starts"], index["hashes"]
    bucket = (hashes >> np.uint64(64 - (len(starts) - 1).bit_length() + 1)).view(np.int64)
    at, ends = starts[bucket], starts[bucket + 1]
    found = np.full(len(hashes), -1, np.int64)
    theirs = None if keys.is_integer else _indexed(index, len(keys.columns))
    rest = np.flatnonzero(at < ends)
    while len(rest):
        place = at[rest]
        same = ordered[place] == hashes[rest]
        if theirs is not None and same.any():
            hit = np.flatnonzero(same)
            same[hit[theirs.take(place[hit]).differ(keys.take(rest[hit]))]] = False
        found[rest[same]] = place[same]
        rest = rest[~same]
        at[rest] += 1
        rest = rest[at[rest] < ends[rest]]
    return found


def _indexed(index: Mapping[str, NDArray], count: int) -> Keys:
    """Return the keys in an index."""
    columns: list[Words | Runs] = []
    for i in range(count):
        words = index.get(f"words{i}")
        parts = [index[f"{part}{i}"] for part in Runs._fields] if words is None else []
        columns.append(Runs(*parts) if words is None else words)
    return Keys(columns, None)
