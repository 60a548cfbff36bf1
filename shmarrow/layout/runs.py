"""Variable-length byte ranges: gather, compare and read as words, in blocks of some thousands.

All functions take the start and the length of each range, int64 of shape (n,), which lie within the data. Ranges that
follow each other in the data are handled as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.layout.memory import Indices, read_only

if TYPE_CHECKING:
    import numpy.typing as npt

CHUNK = 1 << 20
"""Bytes or offsets processed at once."""

PIECE = 1 << 14
"""Slots processed at once, so that they stay in the CPU cache."""

_WIDTH = 32
"""Bytes copied at once: most values need one step, and numpy moves a step as one item."""

_LONG = 1024
"""Longer ranges are copied and compared one by one."""


def offsets_from(lengths: npt.NDArray[Any]) -> Indices:
    """Return offsets of shape (n + 1,) from n lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    return offsets


def joined_runs(starts: Indices, lengths: Indices) -> tuple[Indices, Indices]:
    """Return the same ranges with those that follow each other in the data merged."""
    if len(starts) < 2:
        return starts, lengths
    ends = starts + lengths
    gaps = starts[1:] != ends[:-1]
    if 2 * np.count_nonzero(gaps) > len(starts):
        return starts, lengths
    breaks = np.flatnonzero(gaps)
    firsts, lasts = starts[np.append(0, breaks + 1)], ends[np.append(breaks, len(ends) - 1)]
    return firsts, lasts - firsts


def gather_bytes(data: Bytes, starts: Indices, lengths: Indices) -> Bytes:
    """Concatenate byte ranges; a copy."""
    found = _concatenated(data, starts, lengths)
    return read_only(found.copy() if np.may_share_memory(found, data) else found)


def _concatenated(data: Bytes, starts: Indices, lengths: Indices) -> Bytes:
    """The concatenated ranges; a view if they follow each other.

    Words of ``_WIDTH`` bytes are copied, so a short range spills into the next ones, or into the padding after the last
    one. They are written later, as numpy assigns in the order of the indices: of each block, first what lies behind the
    first word of a range, then all first words.
    """
    starts, lengths = joined_runs(starts, lengths)
    if len(starts) < 2:
        first = int(starts[0]) if len(starts) else 0
        return data[first : first + int(lengths.sum())]
    offsets = offsets_from(lengths)
    target = np.empty(int(offsets[-1]) + _WIDTH, np.uint8)
    words = _items_at(target, f"V{_WIDTH}")
    for first in range(0, len(starts), PIECE):
        piece = slice(first, first + PIECE)
        to, at, sizes = offsets[:-1][piece], starts[piece], lengths[piece]
        if int(sizes.max()) > _WIDTH:
            _copy_rest(target, to, data, at, sizes)
        words[to] = load(data, at, words.dtype)
    return target[:-_WIDTH]


def _copy_rest(target: npt.NDArray[np.uint8], to: Indices, data: Bytes, starts: Indices, lengths: Indices) -> None:
    """Copy what lies behind the first word of each range, and all of long ones."""
    long = np.flatnonzero(lengths > _LONG)
    for place, start, size in zip(to[long].tolist(), starts[long].tolist(), lengths[long].tolist(), strict=True):
        target[place : place + size] = data[start : start + size]
    words = _items_at(target, f"V{_WIDTH}")
    more = np.flatnonzero((lengths > _WIDTH) & (lengths <= _LONG))
    position = _WIDTH
    while len(more):
        words[to[more] + position] = load(data, starts[more] + position, words.dtype)
        position += _WIDTH
        more = more[lengths[more] > position]


def _items_at(data: npt.NDArray[np.uint8], dtype: Any) -> npt.NDArray[Any]:
    """An overlapping view of the item at each position of the data."""
    item = np.dtype(dtype)
    return np.ndarray((len(data) - item.itemsize + 1,), item, data, 0, (1,))


def load(data: Bytes, starts: Indices, dtype: Any) -> npt.NDArray[Any]:
    """Read an item of a dtype at each position, zero-padded beyond the data."""
    size = np.dtype(dtype).itemsize
    if len(data) < size:
        data = np.concatenate([data, np.zeros(size - len(data), np.uint8)])
    last = len(data) - size
    if not len(starts) or int(starts.max()) <= last:
        inside: npt.NDArray[Any] = _items_at(data, dtype)[starts]
        return inside
    found: npt.NDArray[Any] = _items_at(data, dtype)[np.minimum(starts, last)]
    beyond = np.flatnonzero(starts > last)
    end = np.concatenate([data[last:], np.zeros(size, np.uint8)])
    found[beyond] = _items_at(end, dtype)[np.minimum(starts[beyond] - last, size)]
    return found


def load_words(data: Bytes, starts: Indices) -> npt.NDArray[np.uint64]:
    """Read eight bytes at each position as a little-endian number, zero-padded beyond the data."""
    return load(data, starts, "V8").view("<u8")


LOW_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""Masks of the first n bytes of an eight-byte little-endian number."""


def same_bytes(left: Bytes, right: Bytes) -> bool:
    """Return whether two buffers are equal, compared in blocks that stay in the CPU cache."""
    return len(left) == len(right) and all(
        np.array_equal(left[start : start + CHUNK], right[start : start + CHUNK])
        for start in range(0, len(left), CHUNK)
    )


def same_runs(left: Bytes, starts: Indices, right: Bytes, right_starts: Indices, lengths: Indices) -> bool:
    """Return whether byte ranges are pairwise equal."""
    return next(unequal_runs(left, starts, right, right_starts, lengths), None) is None


def unequal_runs(
    left: Bytes, starts: Indices, right: Bytes, right_starts: Indices, lengths: Indices
) -> Iterator[Indices]:
    """Iterate over the numbers of the byte ranges that differ pairwise, in blocks of some thousands."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(ends):
        most = int(ends[first] - lengths[first]) + 16 * CHUNK
        end = max(min(first + PIECE, int(np.searchsorted(ends, most, "right"))), first + 1)
        sizes = lengths[first:end]
        mine = _concatenated(left, starts[first:end], sizes)
        theirs = _concatenated(right, right_starts[first:end], sizes)
        if not same_bytes(mine, theirs):
            rows = np.flatnonzero(sizes)
            differ = np.bitwise_or.reduceat(mine ^ theirs, offsets_from(sizes)[rows]) != 0
            yield rows[differ] + first
        first = end


def is_ascii(data: Bytes) -> bool:
    """Return whether no byte has its high bit set."""
    return not np.bitwise_or.reduce(data) & 0x80
