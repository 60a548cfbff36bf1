"""Variable-length byte ranges: gather, compare and read as words, in blocks of some thousands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.layout.memory import Indices, read_only

if TYPE_CHECKING:
    import numpy.typing as npt

CHUNK = 1 << 20
"""Bytes or offsets processed at once."""


def gather_bytes(data: Bytes, starts: Indices, lengths: Indices) -> Bytes:
    """Concatenate byte ranges, all within the data; a copy."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total and np.array_equal(starts[1:], starts[:-1] + lengths[:-1]):
        return read_only(data[int(starts[0]) : int(starts[0]) + total].copy())
    target = np.empty(total + SLACK, np.uint8)
    to = ends - lengths
    for first in range(0, len(starts) if total else 0, PIECE):
        piece = slice(first, first + PIECE)
        copy_rest(target, to[piece], data, starts[piece], lengths[piece])
        write_words(target, to[piece], load_words(data, starts[piece]))
    return read_only(target[:total])


PIECE = 1 << 14
"""Slots processed at once, so that they stay in the CPU cache."""

_LONG = 1024

SLACK = 8
"""Padding after a target, which the last word of a range may extend into."""


def write_words(target: npt.NDArray[np.uint8], to: Indices, words: npt.NDArray[np.uint64]) -> None:
    """Write eight bytes to each position: the first word of each range, as the last step of concatenation.

    Words are written whole for shorter ranges too: the excess spills into the next ranges, which are written later, as
    numpy assigns in the order of the indices.
    """
    words_at(target, 8)[to] = words


def copy_rest(target: npt.NDArray[np.uint8], to: Indices, source: Bytes, starts: Indices, lengths: Indices) -> None:
    """Copy the bytes after the first eight of each range to their places, for adjacent targets.

    The last word of a range may spill into the first eight bytes of the next ones, which :func:`write_words` writes
    afterwards, or into the :data:`SLACK` after the last one.
    """
    if not len(lengths) or int(lengths.max()) <= 8:
        return
    at = np.flatnonzero(lengths > _LONG)
    for i, start, size in zip(to[at].tolist(), starts[at].tolist(), lengths[at].tolist(), strict=True):
        target[i : i + size] = source[start : start + size]
    some = lengths > 8
    if len(at):
        some &= lengths <= _LONG
    if not some.all():
        to, starts, lengths = to[some], starts[some], lengths[some]
    write = words_at(target, 8)
    position = 8
    while len(to):
        write[to + position] = load_words(source, starts + position)
        position += 8
        more = lengths > position
        if not more.all():
            to, starts, lengths = to[more], starts[more], lengths[more]


def words_at(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[Any]:
    """Return an overlapping view of the word of ``width`` bytes at each position of the data."""
    return np.ndarray((len(data) - width + 1,), f"<u{width}", data, 0, (1,))


def same_bytes(left: Bytes, right: Bytes) -> bool:
    """Return whether two buffers are equal, compared in blocks that stay in the CPU cache."""
    return len(left) == len(right) and all(
        np.array_equal(left[start : start + CHUNK], right[start : start + CHUNK])
        for start in range(0, len(left), CHUNK)
    )


def load_words(data: Bytes, starts: Indices) -> npt.NDArray[np.uint64]:
    """Read eight bytes at each position as a little-endian number, zero-padded beyond the data."""
    if len(data) < 8:
        data = np.concatenate([data, np.zeros(8 - len(data), np.uint8)])
    last = len(data) - 8
    if not len(starts) or int(starts.max()) <= last:
        inside: npt.NDArray[np.uint64] = words_at(data, 8)[starts]
        return inside
    words: npt.NDArray[np.uint64] = words_at(data, 8)[np.minimum(starts, last)]
    beyond = np.flatnonzero(starts > last)
    if len(beyond):
        missing = (starts[beyond] - last).clip(0, 8)
        words[beyond] = np.where(missing < 8, words[beyond] >> (8 * missing % 64).astype(np.uint64), 0)
    return words


LOW_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""Masks of the first n bytes of an eight-byte little-endian number."""


def same_runs(left: Bytes, starts: Indices, right: Bytes, right_starts: Indices, lengths: Indices) -> bool:
    """Return whether byte ranges, all within their data, are pairwise equal."""
    some = lengths > 0
    if not some.all():
        starts, right_starts, lengths = starts[some], right_starts[some], lengths[some]
    if not len(lengths):
        return True
    gaps = (starts[1:] != starts[:-1] + lengths[:-1]) | (right_starts[1:] != right_starts[:-1] + lengths[:-1])
    first = np.append(0, np.flatnonzero(gaps) + 1)
    if 16 * len(first) <= len(starts) + 256:
        # Few contiguous stretches: compare each as a whole.
        last = np.append(first[1:], len(starts)) - 1
        sizes = (starts[last] + lengths[last] - starts[first]).tolist()
        stretches = zip(starts[first].tolist(), right_starts[first].tolist(), sizes, strict=True)
        return all(same_bytes(left[a : a + size], right[b : b + size]) for a, b, size in stretches)
    long = np.flatnonzero(lengths > _LONG)
    for i in long.tolist():
        a, b, size = int(starts[i]), int(right_starts[i]), int(lengths[i])
        if not same_bytes(left[a : a + size], right[b : b + size]):
            return False
    if len(long):
        rest = lengths <= _LONG
        starts, right_starts, lengths = starts[rest], right_starts[rest], lengths[rest]
    differ = load_words(left, starts) ^ load_words(right, right_starts)
    if (differ & LOW_BYTES[np.minimum(lengths, 8)]).any():
        return False
    position = 8
    while True:  # eight bytes of each remaining range; the last eight overlap the previous ones
        more = lengths > position
        if not more.any():
            return True
        starts, right_starts, lengths = starts[more], right_starts[more], lengths[more]
        at = np.minimum(position, lengths - 8)
        if (load_words(left, starts + at) != load_words(right, right_starts + at)).any():
            return False
        position += 8


def is_ascii(data: Bytes) -> bool:
    """Return whether no byte has its high bit set."""
    return not np.bitwise_or.reduce(data) & 0x80
