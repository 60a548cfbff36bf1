# SPDX-License-Identifier: Apache-2.0
"""Validity bitmaps: one bit per slot, least significant bit first, 1 for valid (columnar format, "Validity bitmaps").

Invariants: a bitmap is a ``uint8`` ndarray; functions take the bit offset of the first slot and the number of
slots, touch only the bytes in between, and never read past ``bytes_for(offset + length)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shmarrow.buffer import Bytes, Indices, Mask

_CHUNK = 1 << 20
_SMALL = 1 << 10
"""Bits for each run up to which it is faster to unpack them."""
_WORD = np.dtype("<u8")


def bytes_for(length: int) -> int:
    """Return the number of bytes for ``length`` bits."""
    return (length + 7) >> 3


def unpack(bitmap: Bytes, offset: int, length: int) -> Mask:
    """Unpack bits to a bool ndarray of shape (length,); a copy."""
    first = offset >> 3
    skip = offset & 7
    bits = np.unpackbits(bitmap[first : bytes_for(offset + length)], count=skip + length, bitorder="little")
    return bits[skip:].view(np.bool_)


def pack(mask: Mask) -> Bytes:
    """Pack booleans into a bitmap of ``bytes_for(len(mask))`` bytes; a copy."""
    return np.packbits(mask, bitorder="little")


def realign(bitmap: Bytes, offset: int, length: int) -> Bytes:
    """Shift the bits to start at bit 0; a view if ``offset`` is a multiple of 8, else a zero-padded copy."""
    if not offset & 7:
        return bitmap[offset >> 3 : bytes_for(offset + length)]
    return _at(0, bitmap, offset, length)


def _at(place: int, bitmap: Bytes | None, offset: int, length: int) -> Bytes:
    """The bits from bit ``place`` of a byte on, and zeros around them; a copy. None is a bitmap of ones."""
    if bitmap is None:
        moved = np.full(bytes_for(place + length), 0xFF, np.uint8)
    elif place == offset & 7:
        moved = bitmap[offset >> 3 : bytes_for(offset + length)].copy()
    else:
        part = bitmap[offset >> 3 : bytes_for(offset + length)]
        words = np.zeros((len(part) >> 3) + 3, _WORD)
        words.view(np.uint8)[1 : len(part) + 1] = part
        shift = 8 + (offset & 7) - place
        found = words[:-1] >> np.uint64(shift)
        found |= words[1:] << np.uint64(64 - shift)
        moved = found.view(np.uint8)[: bytes_for(place + length)]
    moved[:1] &= 0xFF << place & 0xFF
    return _ended(moved, place + length)


def join(parts: Sequence[tuple[Bytes | None, int, int]]) -> Bytes:
    """Concatenate runs of bits, each given as a bitmap, an offset and a length; a copy. None is a bitmap of ones."""
    total = sum([length for _, _, length in parts])
    if total < _SMALL * len(parts):
        masks = [np.ones(size, np.bool_) if bits is None else unpack(bits, at, size) for bits, at, size in parts]
        return pack(np.concatenate(masks))
    result = np.zeros(bytes_for(total), np.uint8)
    end = 0
    for bits, offset, length in parts:
        moved = _at(end & 7, bits, offset, length)
        result[end >> 3 : (end >> 3) + len(moved)] |= moved
        end += length
    return result


def ones(length: int) -> Bytes:
    """A bitmap of ones."""
    return _at(0, None, 0, length)


def inverted(bitmap: Bytes, length: int) -> Bytes:
    """Invert each bit; a copy."""
    return _ended(~bitmap, length)


def _ended(bitmap: Bytes, length: int) -> Bytes:
    """The bitmap itself, with zeros in its last byte behind so many bits."""
    if length & 7:
        bitmap[-1] &= (1 << (length & 7)) - 1
    return bitmap


def count(bitmap: Bytes, offset: int, length: int) -> int:
    """Count the set bits."""
    if length <= 0:
        return 0
    end = offset + length
    head = min(end, (offset + 7) & ~7)
    total = int(unpack(bitmap, offset, head - offset).sum()) if head > offset else 0
    tail = max(head, end & ~7)
    if end > tail:
        total += int(unpack(bitmap, tail, end - tail).sum())
    whole = bitmap[head >> 3 : tail >> 3]
    for start in range(0, len(whole), _CHUNK):
        part = whole[start : start + _CHUNK]
        words = len(part) & ~7
        total += int(np.bitwise_count(part[:words].view(_WORD)).sum(dtype=np.int64))
        total += int(np.bitwise_count(part[words:]).sum(dtype=np.int64))
    return total


def same(left: Bytes, left_offset: int, right: Bytes, right_offset: int, length: int) -> bool:
    """Whether two runs of bits are equal; copies nothing if both start at the same bit within a byte."""
    if length <= 0:
        return True
    if (left_offset ^ right_offset) & 7:
        return bool(np.array_equal(unpack(left, left_offset, length), unpack(right, right_offset, length)))
    mine = left[left_offset >> 3 : bytes_for(left_offset + length)]
    theirs = right[right_offset >> 3 : bytes_for(right_offset + length)]
    if np.array_equal(mine, theirs):
        return True
    differ = mine ^ theirs
    differ[0] &= (0xFF << (left_offset & 7)) & 0xFF
    if (left_offset + length) & 7:
        differ[-1] &= (1 << ((left_offset + length) & 7)) - 1
    return not differ.any()


def bits_at(bitmap: Bytes, positions: Indices) -> Mask:
    """Return the bits at positions, as a bool ndarray of the same shape."""
    return (bitmap[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).view(np.bool_)


def get(bitmap: Bytes, index: int) -> bool:
    """Return one bit."""
    return bool(bitmap[index >> 3] >> (index & 7) & 1)
