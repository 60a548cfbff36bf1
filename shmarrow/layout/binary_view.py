"""Binary view layout ("Variable-size Binary View Layout"): sixteen bytes for each slot.

The first four bytes are the length. Values of up to 12 bytes follow at once, padded with zeros; of longer ones the
first four bytes follow, the index of a data buffer, and the offset in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.buffer import Bytes
from shmarrow.errors import EXPANDED_VALUES, InvalidData, LimitExceeded
from shmarrow.layout.array import Array, make_array
from shmarrow.layout.binary import (
    LOW_BYTES,
    PIECE,
    SLACK,
    check_utf8,
    copy_rest,
    decode,
    gather_bytes,
    is_ascii,
    join_bytes,
    load_words,
    same_bytes,
    same_runs,
    slices,
    split,
    write_words,
)
from shmarrow.layout.memory import EMPTY, Indices, frozen, read_only, validity_of, view_of
from shmarrow.layout.preview import Budget, preview_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

INLINE = 12
_WORDS = np.dtype(("<i4", (4,)))
_PAIR = np.dtype(("<u8", (2,)))
_MAX = (1 << 31) - 1
_SIZE = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_HIGH_BITS = np.uint64(0x8080808080808080)
_PADDING = np.array(
    [(~int(LOW_BYTES[min(size + 4, 8)])) & ((1 << 64) - 1) for size in range(INLINE + 1)] + [0], np.uint64
)
_PADDING_2 = np.array(
    [(~int(LOW_BYTES[max(size - 4, 0)])) & ((1 << 64) - 1) for size in range(INLINE + 1)] + [0], np.uint64
)
"""For each length of a short value the bits of both words that are zero; none for long ones, which come last."""


Sizes: TypeAlias = "npt.NDArray[np.uint32]"
_NONE = np.empty(0, np.int64)


class _Piece(NamedTuple):
    """Some of the views, and where they lead."""

    first: int
    """The first slot."""
    words: npt.NDArray[np.uint64]
    sizes: Sizes
    """The lengths, 0 where null."""
    long: Mask | None
    """True for long values, None where there are none."""
    starts: Indices
    """Where long values start in their buffers; 0 for others, and of no length where no value is long."""
    numbers: Indices
    """The indices of their buffers, likewise."""


class BinaryViewArray(Array, late=True):
    """Byte strings or text, by views."""

    __slots__ = ()
    layouts = ("binary_view",)

    @property
    def views(self) -> npt.NDArray[np.int32]:
        """The views of shape (length, 4) as int32 words: length, data or prefix, buffer index, offset; read-only."""
        return view_of(self._buffers[1], _WORDS, self._offset, self._length)

    @property
    def data_buffers(self) -> list[Bytes]:
        """The buffers that long values lie in."""
        return [EMPTY if data is None else data for data in self._buffers[2:]]

    def _words(self) -> npt.NDArray[np.uint64]:
        """The views of shape (length, 2) as two little-endian numbers; the length is the low half of the first."""
        return view_of(self._buffers[1], _PAIR, self._offset, self._length)

    def _sizes(self, mask: Mask | None) -> Sizes:
        """The lengths of the values, 0 where null, of shape (length,); a copy."""
        sizes: Sizes = self._words().view(np.uint32)[:, 0].copy()
        if mask is not None:
            sizes *= mask
        return sizes

    def _pieces(self, sizes: Sizes) -> Iterator[_Piece]:
        """The views by some thousands, after a check of where they lead; ``sizes`` are their lengths."""
        words = self._words()
        held = [len(data) for data in self.data_buffers]
        room = np.array([*held, 0], np.int64)
        for first in range(0, len(sizes), PIECE):
            part, own = words[first : first + PIECE], sizes[first : first + PIECE]
            longest = int(own.max())
            if longest <= INLINE:
                yield _Piece(first, part, own, None, _NONE, _NONE)
                continue
            long = own > INLINE
            places = part[:, 1] * long
            starts, numbers = (places >> _HALF).view(np.int64), (places & _SIZE).view(np.int64)
            ends = starts + own * long
            if (
                longest > _MAX
                or int(starts.max()) > _MAX
                or int(numbers.max()) >= len(held)
                or (ends > (room[0] if len(held) == 1 else room[numbers])).any()
            ):
                wrong = (ends > room[np.minimum(numbers, len(held))]) | (starts > _MAX) | (own > _MAX)
                self._fail(first + int(((wrong | (numbers >= len(held))) & long).argmax()))
            yield _Piece(first, part, own, long, starts, numbers)

    def _long(self, sizes: Sizes) -> tuple[Indices, Indices, Indices]:
        """The slots of long values, the numbers of their buffers and where they start there, after the same check."""
        parts: list[tuple[Indices, Indices, Indices]] = [(_NONE, _NONE, _NONE)]
        for piece in self._pieces(sizes):
            if piece.long is not None:
                at = np.flatnonzero(piece.long)
                parts.append((at + piece.first, piece.numbers[at], piece.starts[at]))
        slots, numbers, starts = (np.concatenate(part) for part in zip(*parts, strict=True))
        return slots, numbers, starts

    def _fail(self, slot: int) -> None:
        length, _, index, start = self.views[slot].tolist()
        sizes = [len(data) for data in self.data_buffers]
        found = (
            f"of buffer {index}, which has {sizes[index]}"
            if 0 <= index < len(sizes)
            else f"of buffer {index} of {len(sizes)}"
        )
        raise InvalidData(f"{self._type}: the view at {slot} wants bytes [{start}, {start + length}) {found}")

    def _bytes(self, index: int, most: int = _MAX) -> tuple[bytes, int]:
        """The first bytes of a slot's value, and how many it has."""
        view = self.views[index : index + 1]
        length, _, buffer, start = view[0].tolist()
        if 0 <= length <= INLINE:
            return view.tobytes()[4 : 4 + min(length, most)], length
        data = self.data_buffers
        if length < 0 or not 0 <= buffer < len(data) or start < 0 or start + length > len(data[buffer]):
            self._fail(index)
        return data[buffer][start : start + min(length, most)].tobytes(), length

    def _value(self, index: int) -> Any:
        value, _ = self._bytes(index)
        return decode(self._type, value, index) if self._type.text else value

    def _value_preview(self, index: int, budget: Budget) -> str:
        head, size = self._bytes(index, 100)
        return preview_bytes(head, size, self._type.text)

    def _pylist(self, mask: Mask | None) -> list[Any]:
        sizes = self._sizes(mask)
        if int(sizes.sum(dtype=np.int64)) > sum(map(len, self.data_buffers)) + 16 * self._length:
            return self._distinct(sizes, mask)
        result: list[Any] = []
        for piece in self._pieces(sizes):
            offsets = _offsets(piece.sizes)
            target = np.empty(int(offsets[-1]) + SLACK, np.uint8)
            _join(target, offsets[:-1], piece, self.data_buffers)
            data = target[:-SLACK]
            found = split(self._type, data, offsets[1:])
            if found is None:
                at, first = offsets.tolist(), piece.first
                part = None if mask is None else mask[first : first + len(piece.sizes)]
                found = slices(self._type, data.tobytes(), at[:-1], at[1:], part, first)
            result += found
        return result

    def _distinct(self, sizes: Sizes, mask: Mask | None) -> list[Any]:
        """The values where long ones overlap; those of equal views are made once."""
        at, numbers, places = self._long(sizes)
        short = self._words().copy()
        short[at] = 0
        starts = np.arange(4, 16 * self._length + 4, 16)
        ends = starts + np.where(sizes <= INLINE, sizes, 0)
        result = slices(self._type, short.tobytes(), starts.tolist(), ends.tolist(), mask)
        distinct, inverse = np.unique(
            np.stack([numbers, places, sizes[at].astype(np.int64)], 1), axis=0, return_inverse=True
        )
        self._check_total(distinct[:, 2])
        buffers = self.data_buffers
        raw = [buffers[i][start : start + length].tobytes() for i, start, length in distinct.tolist()]
        values = [decode(self._type, value, 0) for value in raw] if self._type.text else raw
        for slot, i in zip(at.tolist(), inverse.reshape(-1).tolist(), strict=True):
            result[slot] = values[i]
        return result

    def _check_total(self, lengths: npt.NDArray[Any]) -> None:
        """Views may overlap: bound what they add up to."""
        total, held = int(lengths.sum(dtype=np.int64)), sum(map(len, self.data_buffers)) + 16 * self._length
        if total > 4 * held + EXPANDED_VALUES:
            raise LimitExceeded(f"{self._type}: overlapping views add up to {total} bytes over {held}; take slices")

    def contiguous(self) -> tuple[npt.NDArray[np.int64], Bytes]:
        """Offsets of shape (length + 1,) and the bytes of all values one after another; null slots are empty; a copy.

        Raises
        ------
        InvalidData
            If a view leads outside of its buffer.
        LimitExceeded
            If overlapping views add up to far more bytes than there are.
        """
        sizes = self._sizes(self._mask())
        self._check_total(sizes)
        offsets = _offsets(sizes)
        target = np.empty(int(offsets[-1]) + SLACK, np.uint8)
        for piece in self._pieces(sizes):
            _join(target, offsets[piece.first : piece.first + len(piece.sizes)], piece, self.data_buffers)
        return offsets, read_only(target[:-SLACK])

    def _gather(self, indices: Indices) -> Any:
        buffers = [None, frozen(self.views[indices]), *self._buffers[2:]]
        return make_array(self._type, len(indices), buffers, 0)

    def trim(self) -> Any:
        mask = self._mask()
        words = self._words()
        if mask is not None:
            dead = np.flatnonzero(~mask)
            if words[dead].any():
                words = words.copy()
                words[dead] = 0
        sizes = self._sizes(mask)
        slots, numbers, starts = self._long(sizes)
        kept: list[Bytes] = []
        changed = words
        for number, at in _groups(numbers):
            own, begin = slots[at], starts[at]
            data, places = _cut(self.data_buffers[number], begin, sizes[own].astype(np.int64))
            if places is not begin or number != len(kept):
                changed = words.copy() if changed is words else changed
                changed[own, 1] = (places.view(np.uint64) << _HALF) | np.uint64(len(kept))
            kept.append(data)
        buffers = [self._trimmed_validity(), frozen(changed), *kept]
        return self._with(offset=0, buffers=buffers, null_count=self.null_count)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        parts = []
        buffers: list[Bytes | None] = []
        for array in arrays:
            views = array.views.copy()
            views[views[:, 0] > INLINE, 2] += len(buffers)
            buffers += array.data_buffers
            parts.append(views)
        views = np.concatenate(parts)
        return make_array(arrays[0].type, len(views), [None, frozen(views), *buffers], 0)

    def _same(self, other: Any, live: Mask | None) -> bool:
        mine, theirs = self._words(), other._words()
        valid: Mask | None = None
        known = same_views = True
        for first in range(0, self._length, PIECE):
            piece = slice(first, first + PIECE)
            left, right = mine[piece], theirs[piece]
            if np.array_equal(left, right):
                continue
            if known:
                valid, known = self._live(live), False
            heads, tails = left[:, 0] != right[:, 0], left[:, 1] != right[:, 1]
            if valid is not None:
                heads &= valid[piece]
                tails &= valid[piece]
            if heads.any():
                return False
            if tails.any():
                if (tails & (left.view(np.uint32)[:, 0] <= INLINE)).any():
                    return False
                same_views = False
        sizes = self._sizes(self._live(live) if known else valid)
        if not len(sizes) or int(sizes.max()) <= INLINE:
            return True
        return (same_views and self._same_data(other, sizes)) or self._same_long(other, sizes)

    def _same_data(self, other: Any, sizes: Sizes) -> bool:
        """Whether the data buffers are the same, which is only looked at where most of them is referred to."""
        left, right = self.data_buffers, other.data_buffers
        if len(left) != len(right):
            return False
        if all(mine is theirs for mine, theirs in zip(left, right, strict=True)):
            return True
        most = sum(map(len, left)) <= 4 * int(sizes.sum(dtype=np.int64)) + 1024
        return most and all(same_bytes(mine, theirs) for mine, theirs in zip(left, right, strict=True))

    def _same_long(self, other: Any, sizes: Sizes) -> bool:
        slots, numbers, starts = self._long(sizes)
        _, their_numbers, their_starts = other._long(sizes)
        lengths = sizes[slots].astype(np.int64)
        for i, mine in _groups(numbers):
            for j, both in _groups(their_numbers[mine]):
                at = mine[both]
                left, right = self.data_buffers[i], other.data_buffers[j]
                if not same_runs(left, starts[at], right, their_starts[at], lengths[at]):
                    return False
        return True

    def _check_references(self) -> None:
        for _ in self._pieces(self._sizes(self._mask())):
            pass

    def _check_values(self) -> None:
        mask = self._mask()
        text = ascii_ = self._type.text
        regions: dict[int, tuple[int, int]] = {}
        for piece in self._pieces(self._sizes(mask)):
            sizes = np.minimum(piece.sizes, INLINE + 1)
            first, second = piece.words[:, 0], piece.words[:, 1]
            bad = (first & _PADDING[sizes]) | (second & _PADDING_2[sizes])
            if mask is not None:
                bad *= mask[piece.first : piece.first + len(sizes)]
            if bad.any():
                slot = piece.first + int((bad > 0).argmax())
                raise InvalidData(f"{self._type}: the view at {slot} has bytes other than 0 after its value")
            if ascii_:
                inline = second if piece.long is None else second * ~piece.long
                ascii_ = not int(np.bitwise_or.reduce((first >> _HALF) | inline) & _HIGH_BITS)
            if piece.long is not None:
                self._check_prefixes(piece, regions)
        buffers = self.data_buffers
        if text and not (ascii_ and all(is_ascii(buffers[i][low:high]) for i, (low, high) in regions.items())):
            for start in range(0, self._length, 1 << 18):
                part = self.slice(start, 1 << 18)
                offsets, data = part.contiguous()
                check_utf8(part, data, offsets, start)

    def _check_prefixes(self, piece: _Piece, regions: dict[int, tuple[int, int]]) -> None:
        """The views of long values repeat their first four bytes; widens ``regions`` by the bytes that they are in."""
        assert piece.long is not None
        slots = np.flatnonzero(piece.long)
        for number, at in _groups(piece.numbers[slots]):
            own = slots[at]
            starts = piece.starts[own]
            heads = load_words(self.data_buffers[number], starts)
            unequal = (heads ^ (piece.words[own, 0] >> _HALF)) & _SIZE
            if unequal.any():
                slot = piece.first + int(own[(unequal > 0).argmax()])
                raise InvalidData(f"{self._type}: the view at {slot} has a prefix other than its value's first 4 bytes")
            low, high = regions.get(number, (_MAX, 0))
            regions[number] = min(low, int(starts.min())), max(high, int((starts + piece.sizes[own]).max()))

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], mask: Mask | None) -> Any:
        data, lengths = join_bytes(type, values, mask)
        return cls.over(type, np.frombuffer(data, np.uint8), _offsets(lengths), mask)

    @classmethod
    def over(cls, type: Any, data: Bytes, offsets: npt.NDArray[Any], mask: Mask | None = None) -> Any:
        """Views of runs of bytes between offsets of shape (n + 1,), which do not go back and lie within the data.

        Short values are copied into the views, long ones stay where they are.

        Raises
        ------
        InvalidData
            If a value is longer than 2**31 - 1 bytes.
        """
        length = len(offsets) - 1
        words = np.empty((length, 2), np.uint64)
        buffers: list[Bytes] = []
        end = int(offsets[-1])
        first = 0
        while first < length:
            base, last = int(offsets[first]), length
            if end - base > _MAX:  # more than one buffer holds
                last = int(np.searchsorted(offsets, base + _MAX, "right")) - 1
                if last <= first:
                    size = int(offsets[first + 1]) - base
                    raise InvalidData(f"{type}: a value of {size} bytes is longer than {_MAX}")
            longest = 0
            for start in range(first, last, PIECE):
                stop = min(start + PIECE, last)
                part = offsets[start : stop + 1]
                longest = max(longest, _write_views(words[start:stop], data, part, base, len(buffers)))
            if longest > INLINE:
                buffers.append(frozen(data[base : int(offsets[last])]))
            first = last
        validity, count = validity_of(mask)
        return make_array(type, length, [validity, frozen(words), *buffers], count)


def _offsets(lengths: npt.NDArray[Any]) -> Indices:
    """Offsets of shape (n + 1,) from n lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    return offsets


def _groups(numbers: Indices) -> Iterator[tuple[int, Indices]]:
    """Each distinct number, the smallest first, and where it is found."""
    if not len(numbers):
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), np.arange(len(numbers))
        return
    order = np.argsort(numbers, kind="stable")
    found, firsts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, firsts[1:]), strict=True)


def _cut(data: Bytes, starts: Indices, lengths: Indices) -> tuple[Bytes, Indices]:
    """The part of a buffer that values need, and where they start in it; a copy where they need little of it."""
    low, high = int(starts.min()), int((starts + lengths).max())
    if 4 * int(lengths.sum()) + 4096 < high - low:
        return gather_bytes(data, starts, lengths), np.cumsum(lengths) - lengths
    return data[low:high], starts - low if low else starts


def _join(target: npt.NDArray[np.uint8], to: Indices, piece: _Piece, buffers: list[Bytes]) -> None:
    """Write the values of some views, which follow one another, to their places."""
    sizes, words, long = piece.sizes, piece.words, piece.long
    heads = (words[:, 0] >> _HALF) | (words[:, 1] << _HALF)
    more = sizes > 8
    if long is not None:
        slots = np.flatnonzero(long)
        groups = list(_groups(piece.numbers[slots]))
        for number, at in groups:
            own = slots if len(groups) == 1 else slots[at]
            starts, places, lengths = piece.starts[own], to[own], sizes[own].astype(np.int64)
            source = buffers[number]
            if len(groups) == 1 and (starts - places == starts[0] - places[0]).all():
                # They lie in the buffer as they will in the target, so what is between them has its places too.
                low, high = int(starts[0]), int(starts[-1] + lengths[-1])
                target[int(places[0]) : int(places[0]) + high - low] = source[low:high]
                if int(lengths.sum()) == int(sizes.sum(dtype=np.int64)):
                    return
            else:
                copy_rest(target, places, source, starts, lengths)
            heads[own] = load_words(source, starts)
        more &= ~long
    at = np.flatnonzero(more)
    if len(at):
        write_words(target, to[at] + 8, words[at, 1] >> _HALF)
    write_words(target, to, heads)


def _write_views(words: npt.NDArray[np.uint64], data: Bytes, offsets: npt.NDArray[Any], base: int, number: int) -> int:
    """Write the views of runs of bytes, the long ones into buffer ``number`` from ``base`` on; gives the most bytes."""
    starts = offsets[:-1].astype(np.int64)
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int64)
    longest = int(lengths.max())
    heads = load_words(data, starts)
    heads &= LOW_BYTES[lengths if longest <= 8 else np.minimum(lengths, 8)]
    np.bitwise_or(heads << _HALF, lengths.view(np.uint64), out=words[:, 0])
    heads >>= _HALF
    if longest > 8:
        at = np.flatnonzero((lengths > 8) & (lengths <= INLINE))
        if len(at):
            heads[at] |= (load_words(data, starts[at] + 8) & LOW_BYTES[lengths[at] - 8]) << _HALF
        if longest > INLINE:
            np.copyto(heads, ((starts - base).view(np.uint64) << _HALF) | np.uint64(number), where=lengths > INLINE)
    words[:, 1] = heads
    return longest
