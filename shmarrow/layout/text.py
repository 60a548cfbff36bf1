"""UTF-8 validation of strings in blocks of some MiB ("Variable-size Binary Layout").

Strings are valid if their concatenated bytes are UTF-8 and each starts at a character boundary, so that many are
validated at once.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes, Mask, NDArray
from shmarrow.errors import InvalidData
from shmarrow.layout.runs import CHUNK, is_ascii

_DECODED = 1 << 15
"""Bytes decoded at once: their text stays in the CPU cache."""


def decode(type: Any, value: bytes, index: int) -> str:
    """Decode the bytes of one slot."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        text = f"{type}: not UTF-8: {error.reason} at byte {error.start}"
        raise InvalidData(text, where=[("row", index)]) from None


def check_utf8(type: Any, data: Bytes, offsets: NDArray, first: int = 0, mask: Mask | None = None) -> None:
    """Check that every slot is UTF-8, except where ``mask`` is False; ``first`` is the number of the first slot.

    The bytes of all slots are checked in large blocks; ASCII needs no further check. A block that is not UTF-8, or a
    slot that does not start at a character boundary, may be due to null slots, so only then are slots checked one by
    one.
    """
    for start, end in _broken_pieces(data, offsets):
        for i in range(start, end):
            if mask is None or mask[i]:
                decode(type, data[int(offsets[i]) : int(offsets[i + 1])].tobytes(), first + i)


def is_utf8(data: Bytes, offsets: NDArray) -> bool:
    """Return whether every slot, including null slots, is UTF-8."""
    return next(_broken_pieces(data, offsets), None) is None


def _broken_pieces(data: Bytes, offsets: NDArray) -> Iterator[tuple[int, int]]:
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


def _splits_well(region: Bytes, starts: NDArray) -> bool:
    """Whether the region is UTF-8 and every slot starts at a character boundary."""
    return decodes(region) and bool(are_first(region, starts).all())


def decodes(data: Bytes) -> bool:
    """Whether the bytes are UTF-8."""
    start, end = 0, len(data)
    while start < end:
        stop = min(start + _DECODED, end)
        try:
            start += codecs.utf_8_decode(data[start:stop].data, "strict", stop == end)[1]
        except UnicodeDecodeError:
            return False
    return True


def are_first(data: Bytes, places: NDArray) -> Mask:
    """Mark the offsets that are character boundaries; the end of the data is one."""
    if len(places) and int(places.max()) >= len(data):
        inside = places < len(data)
        first = np.ones(len(places), np.bool_)
        first[inside] = (data.take(places[inside]) & 0xC0) != 0x80
        return first
    return np.asarray((data.take(places) & 0xC0) != 0x80)
