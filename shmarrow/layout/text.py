"""UTF-8 validation of strings, by offsets and by views, in blocks of some MiB ("Variable-size Binary Layout").

Two facts make it fast. Strings are valid if their concatenated bytes are UTF-8 and each starts at a character boundary,
so that many are validated at once. And the union of overlapping valid strings is valid.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData
from shmarrow.layout.memory import Indices
from shmarrow.layout.runs import CHUNK, PIECE, gather_bytes, is_ascii
from shmarrow.layout.views import HALF, HIGH_BITS, INLINE, NONE, SIZE, groups_of

if TYPE_CHECKING:
    import numpy.typing as npt

_SLOTS = 1 << 20
"""Views processed at once if their bytes must first be gathered."""


def decode(type: Any, value: bytes, index: int) -> str:
    """Decode the bytes of one slot."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidData(f"{type}: slot {index} is not UTF-8: {error.reason} at byte {error.start}") from None


# --- by offsets -------------------------------------------------------------------------------------------------


def check_utf8(array: Any, data: Bytes, offsets: npt.NDArray[Any], first: int = 0) -> None:
    """Check that every valid slot is UTF-8; ``first`` is the number of the first slot, for messages.

    The bytes of all slots are checked in large blocks; ASCII needs no further check. A block that is not UTF-8, or a
    slot that does not start at a character boundary, may be due to null slots, so only then are slots checked one by
    one.
    """
    mask: Mask | None = None
    for start, end in _broken_pieces(data, offsets):
        if mask is None:
            mask = array._valid()
        for i in range(start, end):
            if mask[i]:
                decode(array.type, data[int(offsets[i]) : int(offsets[i + 1])].tobytes(), first + i)


def is_utf8(data: Bytes, offsets: npt.NDArray[Any]) -> bool:
    """Return whether every slot, including null slots, is UTF-8."""
    return next(_broken_pieces(data, offsets), None) is None


def _broken_pieces(data: Bytes, offsets: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Half-open ranges of slots with at least one that is not UTF-8."""
    if is_ascii(data[offsets.item(0) : offsets.item(-1)]):
        return
    start, length = 0, len(offsets) - 1
    while start < length:
        # With a key of a different dtype, searchsorted would convert all offsets.
        key = offsets.dtype.type(min(int(offsets[start]) + CHUNK, int(offsets[-1])))
        end = int(np.searchsorted(offsets, key, "right")) - 1
        end = min(max(end, start + 1), length)
        region = data[int(offsets[start]) : int(offsets[end])]
        if not is_ascii(region) and not _splits_well(region, offsets[start:end] - offsets[start]):
            yield start, end
        start = end


def _splits_well(region: Bytes, starts: npt.NDArray[Any]) -> bool:
    """Whether the region is UTF-8 and every slot starts at a character boundary."""
    return _decodes(region) and bool(_are_first(region, starts).all())


def _decodes(data: Bytes) -> bool:
    """Whether the bytes are UTF-8."""
    start, end = 0, len(data)
    while start < end:
        stop = min(start + CHUNK, end)
        try:
            start += codecs.utf_8_decode(data[start:stop].data, "strict", stop == end)[1]
        except UnicodeDecodeError:
            return False
    return True


def _are_first(data: Bytes, places: npt.NDArray[Any]) -> Mask:
    """Which places, including the end of the data, are character boundaries."""
    if len(places) and int(places.max()) >= len(data):
        inside = places < len(data)
        found = np.ones(len(places), np.bool_)
        found[inside] = (data.take(places[inside]) & 0xC0) != 0x80
        return found
    return np.asarray((data.take(places) & 0xC0) != 0x80)


# --- by views ---------------------------------------------------------------------------------------------------

_MIXED, _UTF8, _ASCII = range(3)


def check_views(array: Any, valid: Mask | None) -> None:
    """Check that views are within their buffers and UTF-8, except where ``valid`` is False."""
    words, buffers = array._words(), array.data_buffers
    blocks = list(_blocks(len(words), PIECE))
    held, total = sum(map(len, buffers)), 0
    if held > CHUNK:
        total = sum([int(_sizes(words, valid, at).sum(dtype=np.int64)) for at in blocks])
    kinds = [_kind(data) if held <= 4 * total + CHUNK else _MIXED for data in buffers]
    if _MIXED in kinds:  # overlapping ranges are then checked once per block
        blocks = list(_blocks(len(words), _SLOTS))
    for at in blocks:
        sizes = _sizes(words, valid, at)
        for slots in _wrong(words[at], sizes, buffers, kinds):
            for slot in slots.tolist():
                decode(array.type, array._bytes(at.start + slot)[0], at.start + slot)


def _blocks(count: int, size: int) -> Iterator[Any]:
    return (slice(start, start + size) for start in range(0, count, size))


def _sizes(words: npt.NDArray[np.uint64], valid: Mask | None, at: Any) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = (words[at, 0] & SIZE).view(np.int64)
    if valid is not None:
        sizes *= valid[at]
    return sizes


def _kind(data: Bytes) -> int:
    return _ASCII if is_ascii(data) else _UTF8 if _decodes(data) else _MIXED


def _wrong(
    words: npt.NDArray[np.uint64], sizes: Indices, buffers: Sequence[Bytes], kinds: Sequence[int]
) -> Iterator[Indices]:
    """Slots with at least one that is not UTF-8."""
    long = sizes > INLINE
    some_long = bool(long.any())
    marks = (words[:, 0] >> HALF) | words[:, 1]
    if some_long:
        marks *= ~long
    slots = NONE
    if int(np.bitwise_or.reduce(marks)) & HIGH_BITS:
        slots = np.flatnonzero((marks & HIGH_BITS != 0) & (sizes > 0))
    for start in range(0, len(slots), PIECE):
        part = slots[start : start + PIECE]
        values = np.ascontiguousarray(words[part]).view(np.uint8).reshape(-1, 16)[:, 4:]
        joined = values[np.arange(INLINE) < sizes[part, None]]
        if not _decodes(joined) or ((values[:, 0] & 0xC0) == 0x80).any():
            yield part
    if not some_long or all(kind == _ASCII for kind in kinds):
        return
    slots = np.flatnonzero(long)
    places = words[slots, 1]
    numbers, starts, ends = (places & SIZE).view(np.int64), (places >> HALF).view(np.int64), sizes[slots]
    ends += starts
    for number, at in groups_of(numbers):
        data, kind = buffers[number], kinds[number]
        if kind == _MIXED:
            good = _cover_well(data, starts[at], ends[at])
        else:
            good = kind == _ASCII or bool(_are_first(data, starts[at]).all() and _are_first(data, ends[at]).all())
        if not good:
            yield slots[at]


def _cover_well(data: Bytes, starts: Indices, ends: Indices) -> bool:
    """Whether byte ranges, which may overlap, are each UTF-8."""
    if not _are_first(data, starts).all():
        return False
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    # A range that ends within another one must end at a character boundary.
    inner = ends < reach
    inner[:-1] |= ends[:-1] > starts[1:]
    if not _are_first(data, ends[inner]).all():
        return False
    first = np.append(0, np.flatnonzero(starts[1:] > reach[:-1]) + 1)
    starts, lengths = starts[first], reach[np.append(first[1:], len(reach)) - 1] - starts[first]
    large = lengths > CHUNK
    if not all(_decodes(data[a : a + n]) for a, n in zip(starts[large].tolist(), lengths[large].tolist(), strict=True)):
        return False
    starts, lengths = starts[~large], lengths[~large]
    totals, done = np.cumsum(lengths), 0
    while done < len(starts):
        base = int(totals[done - 1]) if done else 0
        stop = max(int(np.searchsorted(totals, base + CHUNK, "right")), done + 1)
        if not _decodes(gather_bytes(data, starts[done:stop], lengths[done:stop])):
            return False
        done = stop
    return True
