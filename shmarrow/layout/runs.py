# SPDX-License-Identifier: Apache-2.0
"""Variable-length byte ranges: gather, compare and read as words, in blocks of some thousands.

All functions take the start and the length of each range, integers of shape (n,), which lie within the data. Where most
ranges follow each other in the data, those are copied as one.

Values that are referenced repeatedly have limits on copies, checked before copying, and each pair is compared once: a
dictionary of one long value with many indices, long runs, and overlapping list views take few bytes but can expand
without limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes, Indices, NDArray, Words
from shmarrow.errors import EXPANDED_VALUES, LimitExceeded, clip
from shmarrow.layout.construct import is_sparse, read_only
from shmarrow.layout.listing import LISTING

CHUNK = 1 << 20
"""Bytes or offsets processed at once."""

PIECE = 1 << 14
"""Slots processed at once, so that they stay in the CPU cache."""

_WIDTH = 32
"""The smallest word that is copied, in bytes: most values need no other."""

_LONG = 1024
"""Bytes of a range that are copied as words; what lies beyond is copied range by range."""


def offsets_from(lengths: NDArray) -> Indices:
    """Return offsets of shape (n + 1,) from n lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths.astype(np.int64, copy=False), out=offsets[1:])
    return offsets


def gather_bytes(data: Bytes, starts: Indices, lengths: Indices, offsets: Indices | None = None) -> Bytes:
    """Concatenate byte ranges; a copy. ``offsets`` are those of the result, if known."""
    if offsets is None:
        offsets = offsets_from(lengths)
    return gather_pieces(offsets, [(data, starts, lengths)])


def gather_pieces(offsets: Indices, pieces: Iterable[tuple[Bytes, Indices, Indices]]) -> Bytes:
    """Concatenate byte ranges of several data, each with the starts and lengths in it; a copy.

    ``offsets``, of shape (n + 1,), are those of the result.
    """
    size = int(offsets[-1])
    target = np.empty(size + min(max(size, _WIDTH), _LONG), np.uint8)
    done = 0
    for data, starts, lengths in pieces:
        for first in range(0, len(starts), PIECE):
            piece = slice(first, first + PIECE)
            to = offsets[done : done + len(starts)][piece]
            _copy_ranges(target, *_merged(to, starts[piece], lengths[piece]), data)
        done += len(starts)
    return read_only(target[:size])


def _merged(to: Indices, starts: Indices, lengths: Indices) -> tuple[Indices, Indices, Indices]:
    """Merge ranges that follow each other in the data, unless few do."""
    gaps = np.flatnonzero(starts[1:] - starts[:-1] != lengths[:-1])
    if 2 * len(gaps) > len(starts):
        return to, starts, lengths
    firsts, lasts = np.append(0, gaps + 1), np.append(gaps, len(starts) - 1)
    starts, ends = starts[firsts], starts[lasts] + lengths[lasts]
    return to[firsts], starts, ends - starts


def _copy_ranges(target: Bytes, to: Indices, starts: Indices, lengths: Indices, data: Bytes) -> None:
    """Copy byte ranges to ascending, adjacent places.

    numpy copies words of a fixed size fastest, so each range is copied as words of doubling size, and spills into those
    that follow, or into the padding. What it spills into is copied later: first come the bytes from 512, then those
    from 256, and so on down to the usual length, and numpy assigns in the order of the indices.
    """
    longest = int(lengths.max())
    for i in np.flatnonzero(lengths > _LONG).tolist() if longest > _LONG else ():
        place, start, size = int(to[i]), int(starts[i]), int(lengths[i])
        target[place + _LONG : place + size] = data[start + _LONG : start + size]
    width, usual = _LONG // 2, max(int(lengths.mean()), _WIDTH)
    while width >= usual:
        if longest > width:
            more = np.flatnonzero(lengths > width)
            words = _items_at(target, f"V{width}")
            words[to[more] + width] = load(data, starts[more] + width, words.dtype)
        width //= 2
    words = _items_at(target, f"V{2 * width}")
    words[to] = load(data, starts, words.dtype)


def _items_at(data: Bytes, dtype: Any) -> NDArray:
    """An overlapping view of the item at each position of the data."""
    item = np.dtype(dtype)
    return np.ndarray((len(data) - item.itemsize + 1,), item, data, 0, (1,))


def load(data: Bytes, starts: Indices, dtype: Any) -> NDArray:
    """Read an item of a dtype at each position, zero-padded beyond the data."""
    size = np.dtype(dtype).itemsize
    if len(data) < size:
        data = np.concatenate([data, np.zeros(size - len(data), np.uint8)])
    last = len(data) - size
    if not len(starts) or int(starts.max()) <= last:
        return _items_at(data, dtype)[starts]
    items: NDArray = _items_at(data, dtype)[np.minimum(starts, last)]
    beyond = np.flatnonzero(starts > last)
    end = np.concatenate([data[last:], np.zeros(size, np.uint8)])
    items[beyond] = _items_at(end, dtype)[np.minimum(starts[beyond] - last, size)]
    return items


def load_words(data: Bytes, starts: Indices) -> Words:
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
        mine = gather_bytes(left, starts[first:end], sizes)
        theirs = gather_bytes(right, right_starts[first:end], sizes)
        if not same_bytes(mine, theirs):
            rows = np.flatnonzero(sizes)
            differ = np.bitwise_or.reduceat(mine ^ theirs, offsets_from(sizes)[rows]) != 0
            yield rows[differ] + first
        first = end


def is_ascii(data: Bytes) -> bool:
    """Return whether no byte has its high bit set."""
    return not np.bitwise_or.reduce(data) & 0x80


REPEATED_BYTES = 1 << 30
"""Bytes that copies may take even if more than four times the size of the data."""


def check_repeats(array: Any, counts: Indices, referring: int) -> None:
    """Raise if copying each value of an array ``counts`` times, of shape (length,), takes too much memory.

    ``referring`` is the size in bytes of the indices, runs or views.

    Raises
    ------
    LimitExceeded
        If the copies take more than 1 GiB and more than four times the size of the data.
    """
    held = int(array.get_total_buffer_size())
    most = 4 * (held + referring) + REPEATED_BYTES
    if not len(counts) or int(counts.max()) * held <= most:
        return
    total = array._storage._copied_bytes(counts.astype(np.float64))
    if total > most:
        raise LimitExceeded(
            f"{clip(str(array.type), 200)}: repeated values would expand to {int(total)} bytes, "
            f"copied from {held}; work on slices"
        )


def has_fixed_width(array: Any) -> bool:
    """Return whether values have a small fixed width, or the length is not bounded by memory."""
    plain = not array.type.fields and all(
        row.role in ("validity", "values") for row in LISTING[array.type.layout].buffers
    )
    return plain or (len(array) > EXPANDED_VALUES and is_sparse(array))


def same_at(mine: Any, at: Indices, other: Any, there: Indices) -> bool:
    """Return whether two arrays are equal at pairs of positions.

    Each distinct pair is compared once, in small blocks, so that a long value is not repeated for all slots. Positions
    are less than 2**31.
    """
    if not len(at):
        return True
    if (at[1:] > at[:-1]).all() and (there[1:] > there[:-1]).all():
        return bool(_pick(mine, at)._equal(_pick(other, there), None))
    pairs = np.unique(at << 32 | there)
    at, there = pairs >> 32, pairs & 0xFFFFFFFF
    first, size = 0, 16
    while first < len(pairs):
        piece = slice(first, first + size)
        if not mine._take(at[piece])._equal(other._take(there[piece]), None):
            return False
        first, size = first + size, min(2 * size, 1024)
    return True


def _pick(child: Any, at: Indices) -> Any:
    """The slots of a child at increasing positions; a slice if they are contiguous."""
    first, last = int(at[0]), int(at[-1])
    if last - first + 1 == len(at) and bool((at[1:] == at[:-1] + 1).all()):
        return child.slice(first, len(at))
    return child._take(at)
