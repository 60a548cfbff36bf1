# SPDX-License-Identifier: Apache-2.0
"""Binary view layout ("Variable-size Binary View Layout"): 16 bytes per slot.

The first 4 bytes are the length. Values of up to 12 bytes are stored inline, padded with zeros; longer ones as their
first 4 bytes, the index of a data buffer, and the offset in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from shmarrow.buffer import EMPTY, Bytes, Indices, Mask, NDArray, Words
from shmarrow.errors import EXPANDED_VALUES, InvalidData, LimitExceeded
from shmarrow.layout.array import Array
from shmarrow.layout.binary import are_first, cast_bytes, check_utf8, decode, decodes, join_bytes, slices, split
from shmarrow.layout.construct import check_reach, frozen, make_array, validity_of, view_of
from shmarrow.layout.preview import Budget, preview_bytes
from shmarrow.layout.runs import PIECE, gather_bytes, gather_pieces, is_ascii, load, offsets_from, same_bytes, same_runs
from shmarrow.layout.views import (
    HALF,
    INLINE,
    INLINE_BITS,
    MASK,
    MAX,
    PAIR,
    SIZE,
    WORDS,
    Quarters,
    Sizes,
    TextBlock,
    extents,
    groups_of,
    is_inline_text,
    is_same_memory,
    is_worth,
    write_views,
)


class BinaryViewArray(Array):
    """Array of byte strings or UTF-8 strings in the view layout."""

    __slots__ = ()
    layouts = ("binary_view",)
    _joins_slices = True

    @property
    def views(self) -> NDArray:
        """Views, int32 of shape (length, 4): length, inline data or prefix, buffer index, offset; a read-only view."""
        return view_of(self._buffers[1], WORDS, self._offset, self._length)

    @property
    def data_buffers(self) -> list[Bytes]:
        """Data buffers of values that are not inline."""
        return [EMPTY if data is None else data for data in self._buffers[2:]]

    def _words(self) -> Words:
        """The views as uint64 of shape (length, 2); the length is the low half of the first word."""
        return view_of(self._buffers[1], PAIR, self._offset, self._length)

    def _sizes(self, valid: Mask | None) -> Sizes:
        """Lengths of the values, 0 if null, of shape (length,); a copy."""
        sizes: Sizes = self._words().view(np.uint32)[:, 0].copy()
        if valid is not None:
            sizes *= valid
        return sizes

    def _pieces(self, sizes: Sizes) -> Iterator[TextBlock]:
        """The views in blocks of some thousands, checked to be within their buffers; ``sizes`` are their lengths."""
        words = self._words()
        buffers = self.data_buffers
        room = self._room()
        for first, views in self._blocks(sizes=sizes):
            part, own = words[first : first + PIECE], views[0]
            sources: list[Bytes] = []
            end = 0
            starts = np.zeros(len(part), np.int64)
            if (own - np.uint32(1) < INLINE).any():  # 0 wraps around
                sources.append(part.reshape(-1).view(np.uint8))
                end = len(sources[0])
                starts += np.arange(4, end, 16)
            if int(own.max()) > INLINE:
                long, numbers, places = self._places(first, views, room)
                at = np.flatnonzero(long)
                for number, some in groups_of(numbers[at]):
                    slots = at[some]
                    at_number, lengths = places[slots].astype(np.int64), own[slots].astype(np.int64)
                    low, high = int(at_number.min()), int((at_number + lengths).max())
                    if high - low <= 2 * int(lengths.sum()):
                        sources.append(buffers[number][low:high])
                        starts[slots] = at_number - low + end
                    else:
                        sources.append(gather_bytes(buffers[number], at_number, lengths))
                        starts[slots] = offsets_from(lengths)[:-1] + end
                    end += len(sources[-1])
            source = sources[0] if len(sources) == 1 else np.concatenate([EMPTY, *sources])
            yield TextBlock(first, part, own, source, starts)

    def _blocks(self, valid: Mask | None = None, sizes: Sizes | None = None) -> Iterator[tuple[int, Quarters]]:
        """Copies of some thousands of views each, of shape (4, n), with the first slot of each.

        Lengths are 0 where ``valid`` is False; ``sizes`` replace them.
        """
        views = self.views.view(np.uint32)
        for first in range(0, self._length, PIECE):
            piece = slice(first, first + PIECE)
            part = views[piece].T.copy()
            if sizes is not None:
                part[0] = sizes[piece]
            elif valid is not None:
                part[0] *= valid[piece]
            yield first, part

    def _room(self) -> Indices:
        """The sizes of the buffers."""
        return np.array(list(map(len, self.data_buffers)), np.int64)

    def _places(self, first: int, views: Quarters, room: Indices) -> tuple[Mask, Sizes, Sizes]:
        """Return the mask of a block's long views, their buffer indices and their offsets; 0 for others.

        Lengths and offsets of up to :data:`MAX` add up without overflow.
        """
        sizes, _, numbers, starts = views
        long = sizes > INLINE
        if not long.all():
            sizes, numbers, starts = sizes * long, numbers * long, starts * long
        if len(room) and max(int(starts.max()), int(sizes.max())) <= MAX:
            ends, last = starts + sizes, int(numbers.max())
            if last < len(room) and (ends <= room[numbers] if last else ends.max() <= room[0]).all():
                return long, numbers, starts
        wrong = starts.astype(np.int64) + sizes > np.append(room, -1)[np.minimum(numbers, len(room))]
        wrong = long & (wrong | (starts > MAX) | (sizes > MAX))
        if wrong.any():
            self._fail(first + int(wrong.argmax()))
        return long, numbers, starts

    def _long(self, sizes: Sizes) -> Iterator[tuple[Indices, Sizes, Indices]]:
        """The slots of long values, their buffer indices and their offsets, in blocks of some thousands."""
        room = self._room()
        for first, views in self._blocks(sizes=sizes):
            long, numbers, starts = self._places(first, views, room)
            at = np.flatnonzero(long)
            if len(at):
                yield at + first, numbers[at], starts[at].astype(np.int64)

    def _groups(self, first: int, views: Quarters, room: Indices) -> Iterator[tuple[int, Any, Indices]]:
        """For each buffer, the positions in a block of the long values in it, as indices or a slice; their offsets."""
        long, numbers, starts = self._places(first, views, room)
        at = None if long.all() else np.flatnonzero(long)
        for number, some in groups_of(numbers if at is None else numbers[at]):
            slots = some if at is None else at[some]
            yield number, slots, starts[slots].astype(np.int64)

    def _fail(self, slot: int) -> None:
        length, _, index, start = self.views[slot].tolist()
        sizes = [len(data) for data in self.data_buffers]
        buffer = (
            f"of buffer {index}, which has {sizes[index]}"
            if 0 <= index < len(sizes)
            else f"of buffer {index} of {len(sizes)}"
        )
        text = f"{self._type}: the view refers to bytes [{start}, {start + length}) {buffer}"
        raise InvalidData(text, where=[("row", slot)])

    def _bytes(self, index: int, most: int = MAX) -> tuple[bytes, int]:
        """The first bytes of a slot's value, and its length."""
        view = self.views[index : index + 1]
        length, _, buffer, start = view[0].tolist()
        if 0 <= length <= INLINE:
            return view.tobytes()[4 : 4 + min(length, most)], length
        data = self._buffers[buffer + 2] if 0 <= buffer < len(self._buffers) - 2 else None
        if data is None or length < 0 or start < 0 or start + length > len(data):
            self._fail(index)
        assert data is not None
        return data[start : start + min(length, most)].tobytes(), length

    def _value(self, index: int) -> Any:
        value, _ = self._bytes(index)
        return decode(self._type, value, index) if self._type.text else value

    def _value_preview(self, index: int, budget: Budget) -> str:
        head, size = self._bytes(index, 100)
        return preview_bytes(head, size, self._type.text)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        sizes = self._sizes(valid)
        if self._find_repeats(sizes):
            distinct, places = self._distinct(valid)
            values = distinct._pylist(None)
            return [values[i] for i in places.tolist()]
        result: list[Any] = []
        for first, offsets, data in self._joined(sizes):
            items = split(self._type, data, offsets[1:])
            if items is None:
                at = offsets.tolist()
                part = None if valid is None else valid[first : first + PIECE]
                items = slices(self._type, data.tobytes(), at[:-1], at[1:], part, first)
            result += items
        return result

    def _joined(self, sizes: Sizes) -> Iterator[tuple[int, Indices, Bytes]]:
        """The first slot, the offsets and the concatenated bytes of some thousands of values each."""
        for piece in self._pieces(sizes):
            offsets = offsets_from(piece.sizes)
            yield piece.first, offsets, gather_bytes(piece.source, piece.starts, np.diff(offsets))

    def _find_repeats(self, sizes: Sizes) -> bool:
        """Find out whether values add up to far more bytes than the array has, as views refer to the same bytes.

        Raises
        ------
        LimitExceeded
            If they do although all views differ.
        """
        total, held = int(sizes.sum(dtype=np.int64)), sum(map(len, self.data_buffers)) + 16 * self._length
        if total <= 4 * held + EXPANDED_VALUES:
            return False
        distinct = self._distinct(sizes > 0)[0]
        if len(distinct) < self._length and not distinct._find_repeats(distinct._sizes(None)):
            return True
        raise LimitExceeded(f"{self._type}: overlapping views add up to {total} bytes over {held}; take slices")

    def _distinct(self, valid: Mask | None) -> tuple[Any, Indices]:
        """The distinct views as an array without nulls, and the position of each slot's view in it."""
        words = self._words() if valid is None else self._words() * valid[:, None]
        distinct, places = np.unique(words, axis=0, return_inverse=True)
        buffers = [None, frozen(distinct), *self._buffers[2:]]
        return make_array(self._type, len(distinct), buffers, 0), places.reshape(-1)

    def contiguous(self) -> tuple[Indices, Bytes]:
        """Return offsets of shape (length + 1,) and the concatenated bytes of all values, nulls empty; a copy.

        Raises
        ------
        InvalidData
            If a view is out of range of its buffer.
        LimitExceeded
            If overlapping views add up to far more bytes than the buffers have.
        """
        sizes = self._sizes(self._mask())
        if self._find_repeats(sizes):
            distinct, places = self._distinct(self._mask())
            offsets, data = distinct.contiguous()
            ends = offsets_from(np.diff(offsets)[places])
            return ends, gather_bytes(data, offsets[places], np.diff(ends))
        offsets = offsets_from(sizes)
        pieces = ((piece.source, piece.starts, piece.sizes.astype(np.int64)) for piece in self._pieces(sizes))
        return offsets, gather_pieces(offsets, pieces)

    def _gather(self, indices: Indices) -> Any:
        buffers = [None, frozen(self.views[indices]), *self._buffers[2:]]
        return make_array(self._type, len(indices), buffers, 0)

    def trim(self) -> Self:
        valid = self._mask()
        words = self._words()
        if valid is not None:
            dead = np.flatnonzero(~valid)
            if words[dead].any():
                words = words.copy()
                words[dead] = 0
        sizes = self._sizes(valid)
        data = self.data_buffers
        needed, low, high = extents(self._long(sizes), sizes, len(data))
        long = np.flatnonzero(high)
        if 4 * int(needed.sum()) + 4096 < int((high - low)[long].sum()):  # a small part of a large buffer
            offsets, raw = self.contiguous()
            _, *buffers = BinaryViewArray.over(self._type, raw, offsets)._buffers
        else:
            if low[long].any() or len(long) <= int(long.max(initial=-1)):
                words = words.copy()
                moved = np.cumsum(high > 0) - 1
                for slots, numbers, starts in self._long(sizes):
                    places = (starts - low[numbers]) << 32 | moved[numbers]
                    words[slots, 1] = places.view(np.uint64)
            buffers = [frozen(words), *[data[i][low[i] : high[i]] for i in long.tolist()]]
        return self._with(offset=0, buffers=[self._trimmed_validity(), *buffers], null_count=self.null_count)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        buffers: list[Bytes] = []
        positions: dict[tuple[int, int], int] = {}
        numbers_of = []
        for array in arrays:
            numbers = []
            for data in array.data_buffers:
                number = positions.setdefault((data.ctypes.data, len(data)), len(buffers))
                if number == len(buffers):
                    buffers.append(data)
                numbers.append(number)
            numbers_of.append(numbers)
        parts = []
        for array, numbers in zip(arrays, numbers_of, strict=True):
            if numbers == list(range(len(buffers))):
                parts.append(array._words())
                continue
            words = array._words().copy()
            table = np.array([*numbers, MASK], np.uint64)  # invalid buffer indices stay invalid
            for first in range(0, len(words), PIECE):
                places, sizes = words[first : first + PIECE, 1], words[first : first + PIECE, 0] & SIZE
                if int(sizes.max()) > INLINE:
                    moved = table[np.minimum(places & SIZE, len(numbers))] | (places >> HALF << HALF)
                    np.copyto(places, moved, where=sizes > INLINE)
            parts.append(words)
        words = np.concatenate(parts)
        if len(buffers) > 2 * len(arrays) + 16:
            buffers = _referenced_buffers(words, buffers)
        return make_array(arrays[0].type, len(words), [None, frozen(words), *buffers], 0)

    def _same(self, other: Any, live: Mask | None) -> bool:
        mine, theirs = self._words(), other._words()
        valid: Mask | None = None
        all_equal = same_views = True
        for first in range(0, self._length, PIECE):
            piece = slice(first, first + PIECE)
            left, right = mine[piece], theirs[piece]
            if np.array_equal(left, right):
                continue
            if all_equal:
                valid, all_equal = self._live(live), False
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
        sizes = self._sizes(self._live(live) if all_equal else valid)
        if not len(sizes) or int(sizes.max()) <= INLINE:
            return True
        return (same_views and self._same_data(other, sizes)) or self._same_long(other, sizes)

    def _same_data(self, other: Any, sizes: Sizes) -> bool:
        """Whether equal views have equal buffers; compared only if most of the buffers is referenced."""
        most = int((self._words()[:, 1] * (sizes > INLINE) & SIZE).max()) + 1
        left, right = self.data_buffers[:most], other.data_buffers[:most]
        if len(left) != len(right):
            return False
        pairs = [(one, two) for one, two in zip(left, right, strict=True) if not is_same_memory(one, two)]
        whole = not pairs or is_worth(left, int(sizes.sum(dtype=np.int64)))
        return whole and all(same_bytes(one, two) for one, two in pairs)

    def _same_long(self, other: Any, sizes: Sizes) -> bool:
        return all(
            same_runs(mine.source, mine.starts, theirs.source, theirs.starts, mine.sizes.astype(np.int64))
            for mine, theirs in zip(self._pieces(sizes), other._pieces(sizes), strict=True)
        )

    def _codes(self) -> Indices:
        from shmarrow.layout import codes

        offsets, data = self.contiguous()
        return codes.of_runs(data, offsets[:-1], np.diff(offsets), self._mask())

    def _cast(self, target: Any, safe: bool) -> Any:
        return cast_bytes(self, target)

    @classmethod
    def _of_bytes(cls, array: Any, target: Any) -> Any:
        source = array.trim()
        if isinstance(source, BinaryViewArray):
            return source._with(type=target)
        offsets, data = source._contiguous()
        views = cls.over(target, data, offsets)
        buffers = [source._trimmed_validity(), *views._buffers[1:]]
        return make_array(target, len(source), buffers, source.null_count)

    def _contiguous(self, target: Any = None) -> tuple[NDArray, Bytes]:
        """As :meth:`contiguous`; checked before the copy to be within reach of the offsets of a target."""
        if target is not None:
            check_reach(int(self._sizes(self._mask()).sum(dtype=np.int64)), target)
        return self.contiguous()

    def _check_references(self) -> None:
        self._check_places(self._mask())

    def _safe_values(self) -> Any:
        try:
            self._check_all(None)
        except InvalidData:
            mask = self._mask()
            if mask is None:
                raise
            self._check_all(mask)
            words = self._words().copy()
            words[~mask] = 0
            buffers = [self._trimmed_validity(), frozen(words), *self._buffers[2:]]
            return self._with(offset=0, buffers=buffers, null_count=self.null_count)
        return self

    def _check_all(self, valid: Mask | None) -> None:
        """Check that views are within their buffers, and strings UTF-8, except where ``valid`` is False."""
        self._check_text(valid, *self._check_places(valid))

    def _check_places(self, valid: Mask | None) -> tuple[int, bool]:
        """Check that views are within their buffers, except where ``valid`` is False.

        Returns
        -------
        long : int
            Total size of the long values.
        good : bool
            Whether the inline values of strings are UTF-8.
        """
        room, text, total, good = self._room(), self._type.text, 0, True
        for first, views in self._blocks(valid):
            inline = views[0]
            if int(inline.max()) > INLINE:
                long, _, _ = self._places(first, views, room)
                sizes = inline if long.all() else inline * long
                total += int(sizes.sum(dtype=np.int64))
                inline = inline - sizes
            if text and good and inline.any():
                good = is_inline_text(views, inline)
        return total, good

    def _check_text(self, valid: Mask | None, total: int, good: bool) -> None:
        """Check that strings are UTF-8 unless ``valid`` is False, given the result of :meth:`_check_places`."""
        if not self._type.text:
            return
        whole = not total or self._is_long_text(valid, total)
        if whole and good:
            return
        sizes = self._sizes(valid)
        sizes *= np.where(sizes > INLINE, not whole, not good)
        if self._find_repeats(sizes):
            distinct = self._distinct(sizes > 0)[0]
            distinct._check_text(None, *distinct._check_places(None))
            return
        for first, offsets, data in self._joined(sizes):
            check_utf8(self._type, data, offsets, first)

    def _is_long_text(self, valid: Mask | None, total: int) -> bool:
        """Whether long values are UTF-8, as whole buffers are, and they start and end at character boundaries."""
        buffers, room = self.data_buffers, self._room()
        if not is_worth(buffers, total):
            return False
        if all(map(is_ascii, buffers)):
            return True
        if not all(map(decodes, buffers)):
            return False
        return all(
            bool(are_first(buffers[number], places).all())
            for first, views in self._blocks(valid)
            for number, slots, starts in self._groups(first, views, room)
            for places in (starts, starts + views[0][slots])
        )

    def _check_slots(self) -> None:
        self._check_values()  # checks the ranges of the views first

    def _check_values(self) -> None:
        valid, room, buffers = self._mask(), self._room(), self.data_buffers
        total, good = self._check_places(valid)
        for first, views in self._blocks(valid):
            for number, slots, starts in self._groups(first, views, room):
                unequal = load(buffers[number], starts, "<u4") != views[1][slots]
                if unequal.any():
                    text = f"{self._type}: the view has a prefix other than its value's first 4 bytes"
                    slot = int(np.arange(len(views[0]))[slots][unequal.argmax()])
                    raise InvalidData(text, where=[("row", first + slot)])
            if int(views[0].min()) > INLINE:
                continue
            padding = views[1:] & ~INLINE_BITS.take(views[0], axis=1, mode="clip")
            bad = ((padding[0] | padding[1] | padding[2]) != 0) & (views[0] <= INLINE)
            if valid is not None:
                bad &= valid[first : first + PIECE]
            if bad.any():
                raise InvalidData(
                    f"{self._type}: the view has non-zero padding", where=[("row", first + int(bad.argmax()))]
                )
        self._check_text(valid, total, good)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        data, lengths = join_bytes(type, values, valid)
        offsets = offsets_from(lengths)
        array = cls.over(type, np.frombuffer(data, np.uint8), offsets, valid)
        long = np.flatnonzero(lengths > INLINE)
        if len(array._buffers) != 3 or int(lengths[long].sum()) == len(data):
            return array
        # Short values are inline: leave them out of the single data buffer.
        words, starts = array._words().copy(), offsets_from(lengths[long])
        words[long, 1] = starts[:-1].view(np.uint64) << HALF
        buffers = [array._buffers[0], frozen(words), gather_bytes(array.data_buffers[0], offsets[long], lengths[long])]
        return cls._made(type, len(values), buffers, array.null_count)

    @classmethod
    def over(cls, type: Any, data: Bytes, offsets: NDArray, valid: Mask | None = None) -> Self:
        """Create views of the values between monotonic offsets of shape (n + 1,) within the data.

        Short values are copied into the views; long ones are not copied.

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
            if end - base > MAX:  # exceeds one buffer
                last = int(np.searchsorted(offsets, base + MAX, "right")) - 1
                if last <= first:
                    size = int(offsets[first + 1]) - base
                    raise InvalidData(f"{type}: a value of {size} bytes is longer than {MAX}")
            longest = 0
            for start in range(first, last, PIECE):
                stop = min(start + PIECE, last)
                part = offsets[start : stop + 1]
                longest = max(longest, write_views(words[start:stop], data, part, base, len(buffers)))
            if longest > INLINE:
                buffers.append(frozen(data[base : int(offsets[last])]))
            first = last
        validity, count = validity_of(valid)
        return cls._made(type, length, [validity, frozen(words), *buffers], count)


def _referenced_buffers(words: Words, buffers: list[Bytes]) -> list[Bytes]:
    """The buffers that views refer to; renumbers the views in place."""
    long = np.flatnonzero(((words[:, 0] & SIZE) > INLINE) & ((words[:, 1] & SIZE) < len(buffers)))
    places = words[long, 1]
    numbers = (places & SIZE).view(np.int64)
    used = np.zeros(len(buffers), np.bool_)
    used[numbers] = True
    words[long, 1] = (places >> HALF << HALF) | (np.cumsum(used) - 1).astype(np.uint64)[numbers]
    return [buffers[i] for i in np.flatnonzero(used).tolist()]
