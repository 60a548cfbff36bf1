# SPDX-License-Identifier: Apache-2.0
"""Binary views as pairs of 64-bit words: writing them, and resolving them in blocks of some thousands.

The first word has the length in its low half and the first four bytes of the value in its high half; the second has the
rest of an inline value, or the buffer index in its low half and the offset in its high half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow.buffer import Bytes, Indices, NDArray, Words
from shmarrow.layout.binary import decodes
from shmarrow.layout.runs import LOW_BYTES, is_ascii, load_words

INLINE = 12
"""Maximum size of an inline value; longer values are in data buffers."""
WORDS = np.dtype(("<i4", (4,)))
PAIR = np.dtype(("<u8", (2,)))
MAX = (1 << 31) - 1
"""Maximum length, and maximum offset in a buffer."""
MASK = 0xFFFFFFFF
SIZE = np.uint64(MASK)
"""The low half of a word: the length, or the buffer index."""
HALF = np.uint64(32)
INLINE_BITS = np.array(
    [[int(LOW_BYTES[min(max(size - place, 0), 4)]) for size in range(INLINE + 1)] for place in (0, 4, 8)], np.uint32
)
"""The bits of the last three quarters of a view that belong to an inline value of each length."""


Sizes: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.uint32]]
Quarters: TypeAlias = Sizes
"""Views by quarter, of shape (4, n): lengths, prefixes, buffer indices, offsets; or lengths, and inline values."""


class TextBlock(NamedTuple):
    """A block of views, and their values."""

    first: int
    """The first slot."""
    words: Words
    sizes: Sizes
    """The lengths, 0 if null."""
    source: Bytes
    """Bytes that contain the values: the views themselves, with the inline ones, and then the long ones."""
    starts: Indices
    """The offset of each value in them."""


def groups_of(numbers: Indices | Sizes) -> Iterator[tuple[int, Any]]:
    """Iterate over the distinct numbers, ascending, with their positions as indices or a slice."""
    if not len(numbers):
        return
    order: Indices | None = None
    last = np.flatnonzero(numbers[1:] != numbers[:-1])
    if (numbers[last + 1] < numbers[last]).any():
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        last = np.flatnonzero(numbers[1:] != numbers[:-1])
    ends = np.append(last + 1, len(numbers))
    start = 0
    for number, end in zip(numbers[ends - 1].tolist(), ends.tolist(), strict=True):
        yield number, slice(start, end) if order is None else order[start:end]
        start = end


def is_inline_text(views: Quarters, sizes: Sizes) -> bool:
    """Return whether inline values are UTF-8; ``sizes`` are their lengths, 0 for other views."""
    if is_ascii((views[1:] * (sizes > 0)).reshape(-1).view(np.uint8)):
        return True
    rows = np.zeros((len(sizes), 4), np.uint32)  # the zeros keep values apart
    rows.T[1:] = views[1:] & INLINE_BITS.take(sizes, axis=1)
    return decodes(rows.reshape(-1).view(np.uint8))


def is_worth(buffers: Sequence[Bytes], total: int) -> bool:
    """Return whether values of ``total`` bytes make up enough of the buffers to read those as a whole."""
    return sum(map(len, buffers)) <= 4 * total + (1 << 16)


def is_same_memory(left: Bytes, right: Bytes) -> bool:
    """Return whether two buffers share address and size, so that they need no comparison."""
    return len(left) == len(right) and left.ctypes.data == right.ctypes.data


def extents(
    long: Iterator[tuple[Indices, Sizes, Indices]], sizes: Sizes, count: int
) -> tuple[Indices, Indices, Indices]:
    """Return for each buffer the bytes of long values in it, and their first and last offset; 0 and 0 if none."""
    needed, low, high = np.zeros(count, np.int64), np.full(count, MAX), np.zeros(count, np.int64)
    for slots, numbers, starts in long:
        lengths = sizes[slots].astype(np.int64)
        ends = starts + lengths
        for number, at in groups_of(numbers):
            needed[number] += lengths[at].sum()
            low[number] = min(low[number], starts[at].min())
            high[number] = max(high[number], ends[at].max())
    return needed, np.where(high > 0, low, 0), high


def write_views(words: Words, data: Bytes, offsets: NDArray, base: int, number: int) -> int:
    """Write views of byte ranges, with long ones in buffer ``number`` after ``base``; return the maximum length."""
    starts = offsets[:-1].astype(np.int64)
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int64)
    longest = int(lengths.max())
    heads = load_words(data, starts)
    heads &= LOW_BYTES[lengths if longest <= 8 else np.minimum(lengths, 8)]
    np.bitwise_or(heads << HALF, lengths.view(np.uint64), out=words[:, 0])
    heads >>= HALF
    if longest > 8:
        at = np.flatnonzero((lengths > 8) & (lengths <= INLINE))
        if len(at):
            heads[at] |= (load_words(data, starts[at] + 8) & LOW_BYTES[lengths[at] - 8]) << HALF
        if longest > INLINE:
            np.copyto(heads, ((starts - base).view(np.uint64) << HALF) | np.uint64(number), where=lengths > INLINE)
    words[:, 1] = heads
    return longest
