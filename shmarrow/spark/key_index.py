# SPDX-License-Identifier: Apache-2.0
"""Indexes of shared frames: rows by their keys, in any function of Python.

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
* null is no key: rows with a null key are not in an index, and find nothing;
* it is one of the frame's objects: all processes of a host map it, and it ends with the frame. The process that
  asks for it makes it, if it sees all rows; on other hosts the first worker that needs it does;
* its handle names that object, and has the frame's handles only where processes do not see it.
"""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes, Indices, Mask, NDArray, Words
from shmarrow.build import array
from shmarrow.columns import ChunkedArray, Table, several
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, ObjectNotFound, at, shown
from shmarrow.layout import Array
from shmarrow.layout.codes import hashes_of_runs, mixed
from shmarrow.layout.runs import gather_bytes, offsets_from, unequal_runs
from shmarrow.spark._pyspark import is_local
from shmarrow.spark.app_store import AppStore
from shmarrow.spark.delivery import explaining_limits
from shmarrow.spark.handle import seconds_left
from shmarrow.spark.jobs import on_workers
from shmarrow.spark.results import PIECE_BYTES
from shmarrow.spark.types import unwrapped
from shmarrow.spark.values import MISSING, cache, cached
from shmarrow.types import DataType, Field, int64, large_binary, large_string, timestamp, uint64
from shmarrow.types.consumers import kind_of
from shmarrow.types.for_consumer import casting_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS: Mapping[str, DataType | None] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), int64()),
    **dict.fromkeys(("string", "large_string"), large_string()),
    **dict.fromkeys(("binary", "large_binary"), large_binary()),
    **dict.fromkeys(("bool", "date32", "decimal128", "time64", "timestamp")),
}
"""For kinds of types that ``for_consumer("spark")`` gives, those in which keys are compared, if they are others."""
_WIDE = 2048
"""Bytes of the longest row from which rows are looked up in pieces."""
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
    for each in arrays:
        mask = each._mask()
        valid = mask if valid is None else valid if mask is None else valid & mask
        if each.type.layout in ("binary", "large_binary"):
            offsets, data = each._contiguous()
            columns.append(Runs(data, offsets[:-1].astype(np.int64, copy=False), np.diff(offsets).astype(np.int64)))
        elif each.type.layout == "bool":
            columns.append(each.values.astype(np.uint64))
        elif each.values.ndim == 2:  # decimals
            columns += [np.ascontiguousarray(words).view(np.uint64) for words in each.values.T]
        else:
            columns.append(each.values.astype(np.int64).view(np.uint64))
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


# --- the index of a frame -----------------------------------------------------------------------------------------


class _Recipe(NamedTuple):
    """What an index is made of: a shared frame, the positions of its keys, and the types in which they are compared."""

    frame: Any
    keys: tuple[int, ...]
    types: tuple[DataType, ...]

    def make(self) -> dict[str, NDArray]:
        """Return the arrays of the index, and with them this recipe, for processes that see the frame."""
        table = self.frame.read_all()
        arrays = []
        for position, type in zip(self.keys, self.types, strict=True):
            with at("column", table.schema.names[position]):
                arrays.append(_converted(table.column(position), type))
        made = index_of(arrays)
        widths = [sum([_widths(column) for column in batch.columns]) for batch in table.batches]
        if widths and max(each.max(initial=0) for each in widths) > _WIDE:
            made["widths"] = np.concatenate(widths)
        made["recipe"] = np.frombuffer(pickle.dumps(self._replace(frame=self.frame.without_ways())), np.uint8)
        return made


class _Opened(NamedTuple):
    """An index in this process; its arrays and the frame's rows map shared memory."""

    arrays: Mapping[str, NDArray]
    table: Table
    recipe: _Recipe


class FrameIndex:
    """Finds rows of a shared frame by their keys; returned by :meth:`SharedFrame.index`.

    Use it in any function that Spark runs in Python, and in any process that sees the frame: it is pickled in some
    hundred bytes, and all processes of a host map one index. It exists as long as the frame.

    Attributes
    ----------
    name : str
        The name of its object.
    """

    def __init__(self, store: AppStore, name: str, recipe: _Recipe | None) -> None:
        self.name = name
        self._store = store
        self._recipe = recipe
        """For processes that do not see the index, or the first one that needs it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return FrameIndex, (self._store, self.name, self._recipe)

    def find(self, *keys: Any) -> Indices:
        """Return the numbers of rows of the frame, counted over all partitions; -1 for keys that it does not have.

        Parameters
        ----------
        *keys : array-like of shape (n,)
            An array for each column of the key, of any library; nulls are in no row. Integers of any size are compared
            as numbers; other values are cast to the type of the frame's column, exactly.

        Returns
        -------
        int64 ndarray of shape (n,)

        Raises
        ------
        InvalidArgument
            If there are more or fewer arrays than columns of the key.
        InvalidType, InvalidData
            If values cannot be cast.
        ObjectNotFound
            If the frame was destroyed.
        """
        opened = self._open()
        recipe, names = opened.recipe, opened.table.schema.names
        if len(keys) != len(recipe.keys):
            key = ", ".join(repr(names[i]) for i in recipe.keys)
            raise InvalidArgument(f"the key is {key}: expected an array for each, found {len(keys)}")
        arrays = []
        for position, values, type in zip(recipe.keys, keys, recipe.types, strict=True):
            with at("key", names[position]):
                arrays.append(_converted(values, type))
        return find(opened.arrays, keys_of(arrays))

    def take(self, *keys: Any, columns: Iterable[int | str] | None = None) -> Table:
        """Return the frame's row of each key, in the order of the keys; nulls where it does not have the key.

        Parameters
        ----------
        *keys : array-like of shape (n,)
            As for :meth:`find`.
        columns : iterable of int or str, optional
            Positions or names of the columns, by default all. Others are not read.
        """
        return self.take_rows(self.find(*keys), columns)

    def take_rows(self, rows: Indices, columns: Iterable[int | str] | None = None) -> Table:
        """Return rows by the numbers that :meth:`find` gives; nulls for -1."""
        table = self._open().table
        table = table if columns is None else table.select(several(columns, "positions and names"))
        missing = rows < 0
        return table.take(array(rows, mask=missing) if missing.any() else rows)

    def pieces(self, rows: Indices) -> Iterator[Indices]:
        """Cut numbers of rows into pieces whose rows have about :data:`PIECE_BYTES` bytes, or are one."""
        widths = self._open().arrays.get("widths")
        if widths is None or not len(rows):
            yield rows
            return
        pieces = np.cumsum(np.where(rows < 0, 0, widths[rows])) // PIECE_BYTES
        yield from np.split(rows, np.flatnonzero(np.diff(pieces)) + 1)

    def width(self, columns: Sequence[int]) -> int:
        """Return about how many bytes a row of the frame has in some columns, on average."""
        table = self._open().table
        return table.select(columns).nbytes // max(table.num_rows, 1)

    def _open(self) -> _Opened:
        known = cached(self.name)
        if known is not MISSING:
            opened: _Opened = known
            return opened
        recipe, name = self._recipe, self.name
        store = self._store.visible() if recipe is None else self._store.store()
        with explaining_limits(f"the index {name!r}"):
            if recipe is not None:
                assert store is not None
                left = seconds_left(recipe.frame.name, recipe.frame.until)
                bundle: Any = store.get_or_put(name, recipe.make, protect=True, expire_after=left)
            elif store is not None and name in store:
                bundle = store.get(name)
            else:
                raise ObjectNotFound(errno.ENOENT, f"{name!r} is not on this host, or its frame was destroyed")
            arrays = {part: bundle[part].to_numpy() for part in bundle}
            kept: _Recipe = pickle.loads(arrays.pop("recipe"))
            made = _Opened(arrays, (recipe or kept).frame.read_all(), kept)
        there: _Opened = cache(name, made, partial(store.__contains__, name))
        return there

    def __repr__(self) -> str:
        return f"<FrameIndex {self.name!r}>"


def frame_index(frame: Any, on: str | Iterable[str], spark: SparkSession | None = None) -> FrameIndex:
    """Return an index of a frame, as :meth:`SharedFrame.index` describes it; ``spark`` is the session that uses it."""
    keys = tuple([frame.schema.index_of(name) for name in ([on] if isinstance(on, str) else several(on, "on"))])
    if not keys:
        raise InvalidArgument(f"on must name the columns of the key, found {shown(on)}")
    types = tuple([_key_type(frame.schema.field(i)) for i in keys])
    name = f"{frame.name}/index-{sha256(repr(keys).encode()).hexdigest()[:16]}"
    index = FrameIndex(frame.store, name, _Recipe(frame, keys, types))
    if spark is not None and not is_local(spark):  # indexes on other hosts end with the frame
        remove = partial(frame.store.delete_here, prefix=f"{frame.name}/")
        frame._on_destroy(partial(on_workers, spark, remove), "indexes")
    if not all(handle.is_here for handle in frame.handles):
        return index
    index._open()  # its errors are raised here
    return index if any(handle.way for handle in frame.handles) else FrameIndex(frame.store, name, None)


def _key_type(field: Field) -> DataType:
    """Return the type in which the keys of a column are compared."""
    with at("column", field.name):
        final: Any = casting_for("spark", ()).stages(unwrapped(field.type)).final
        kind = kind_of(final)
        if kind not in _KEYS:
            raise InvalidType(
                f"{field.type} is no type of keys; expected integers, text, binary, bool, times or decimals"
            )
    if kind == "timestamp" and final.tz is not None:
        return timestamp("us", "UTC")
    return _KEYS[kind] or final


def _converted(values: Any, type: DataType) -> Array:
    """Return keys in the type in which they are compared; integers that it cannot hold become null."""
    if not isinstance(values, (Array, ChunkedArray)):
        values = array(values)
    made: Any = values.combine_chunks() if isinstance(values, ChunkedArray) else values
    if made.type == uint64() and type == int64():
        large = made.values > np.iinfo(np.int64).max
        made = array(made.values.astype(np.int64), mask=large | made.is_null().values)
    cast: Array = made if made.type == type else made.cast(type)
    return cast


def _widths(column: Any) -> Any:
    """Return about how many bytes each row of a column takes."""
    layout = column.type.layout
    if layout in ("binary", "large_binary"):
        return np.diff(column.offsets).astype(np.int64)
    if layout == "binary_view":
        return column.views[:, 0].astype(np.int64)
    if layout == "dictionary":
        codes = column.indices.fill_null(0).to_numpy()
        return _widths(column.dictionary)[codes] if len(column.dictionary) else np.zeros(len(column), np.int64)
    return np.full(len(column), -(-column.nbytes // max(len(column), 1)))  # of nested values, the average
