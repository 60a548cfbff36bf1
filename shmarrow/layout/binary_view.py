"""Binary view layout ("Variable-size Binary View Layout"): sixteen bytes for each slot.

The first four bytes are the length. Values of up to 12 bytes follow at once, padded with zeros; of longer ones the
first four bytes follow, the index of a data buffer, and the offset in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.buffer import Bytes
from shmarrow.errors import EXPANDED_VALUES, InvalidData, LimitExceeded
from shmarrow.layout.array import Array, make_array
from shmarrow.layout.binary import (
    LOW_BYTES,
    cast_binary,
    check_utf8,
    copy_runs,
    decode,
    gather_bytes,
    is_ascii,
    join_bytes,
    load_words,
    same_bytes,
    same_runs,
    slices,
    split,
)
from shmarrow.layout.memory import Indices, frozen, read_only, validity_of, view_of
from shmarrow.layout.preview import Budget, preview_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

INLINE = 12
_WORDS = np.dtype(("<i4", (4,)))
_PAIR = np.dtype(("<u8", (2,)))
_MAX = (1 << 31) - 1
_PIECE = 1 << 14  # slots whose words stay in the processor's cache
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
        return [data for data in self._buffers[2:] if data is not None]

    def _checked(self, valid: Mask | None) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """The views, all zero where null, and which of them are long, after a check of where they lead."""
        words = self._words()
        if valid is not None:
            dead = np.flatnonzero(~valid)
            if words[dead].any():
                words = words.copy()
                words[dead] = 0
        views = words.view(np.int32)
        if not len(views) or (int(views[:, 0].max()) <= INLINE and int(views[:, 0].min()) >= 0):
            return views, np.zeros(len(views), np.bool_)
        long = np.empty(len(views), np.bool_)
        held = [len(data) for data in self.data_buffers]
        room = np.array([*held, 0], np.uint64)  # none beyond the last buffer
        for first in range(0, len(views), _PIECE):
            piece = slice(first, first + _PIECE)
            # Unsigned, so what is negative is too large.
            sizes, places = words[piece, 0] & _SIZE, words[piece, 1]
            starts, index = places >> _HALF, places & _SIZE
            wrong = starts + sizes > (room[0] if len(held) == 1 else room[np.minimum(index, len(held))])
            wrong |= (index >= len(held)) | (starts > _MAX) | (sizes > _MAX)
            long[piece] = sizes > INLINE
            wrong &= long[piece]
            if wrong.any():
                self._fail(first + int(wrong.argmax()))
        return views, long

    def _words(self) -> npt.NDArray[np.uint64]:
        """The views of shape (length, 2) as two little-endian numbers; the length is the low half of the first."""
        return view_of(self._buffers[1], _PAIR, self._offset, self._length)

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

    def _pylist(self, valid: Mask | None) -> list[Any]:
        views, long = self._checked(valid)
        if int(views[:, 0].sum(dtype=np.int64)) > sum(map(len, self.data_buffers)) + 16 * self._length:
            return self._distinct(views, long, valid)
        result: list[Any] = []
        for start in range(0, self._length, 1 << 14):
            part = slice(start, start + (1 << 14))
            offsets, data = self._joined(views[part], long[part])
            found = split(self._type, data, offsets[1:])
            if found is None:
                at = offsets.tolist()
                found = slices(
                    self._type, data.tobytes(), at[:-1], at[1:], None if valid is None else valid[part], start
                )
            result += found
        return result

    def _distinct(self, views: npt.NDArray[np.int32], long: npt.NDArray[np.bool_], valid: Mask | None) -> list[Any]:
        """The values where long ones overlap; those of equal views are made once."""
        at = np.flatnonzero(long)
        short = views.copy()
        short[at] = 0
        starts = np.arange(4, 16 * self._length + 4, 16)
        result = slices(self._type, short.tobytes(), starts.tolist(), (starts + short[:, 0]).tolist(), valid)
        distinct, inverse = np.unique(views[at][:, [0, 2, 3]], axis=0, return_inverse=True)
        self._check_total(distinct[:, 0])
        buffers = self.data_buffers
        raw = [buffers[i][start : start + length].tobytes() for length, i, start in distinct.tolist()]
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
        views, long = self._checked(self._mask())
        self._check_total(views[:, 0])
        return self._joined(views, long)

    def _joined(self, views: npt.NDArray[np.int32], long: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], Bytes]:
        """The same for some of the views, which have been checked and add up to no more than there is."""
        offsets = np.zeros(len(views) + 1, np.int64)
        np.cumsum(views[:, 0], out=offsets[1:])
        total = int(offsets[-1])
        at = np.flatnonzero(long)
        buffers = self.data_buffers
        if not len(at):
            inline = views[:, 1:].tobytes().translate(None, b"\0")
            if len(inline) == total:  # no value holds a zero byte, so all that were are padding
                return offsets, np.frombuffer(inline, np.uint8)
        lengths = views[:, 0].astype(np.int64)
        if len(at):
            sizes, places = lengths[at], views.view(np.uint64)[:, 1][at]
            index = places & _SIZE
            if total == int(sizes.sum()) and bool((index == index[0]).all()):
                return offsets, gather_bytes(buffers[int(index[0])], (places >> _HALF).view(np.int64), sizes)
        data = np.empty(total, np.uint8)
        short = np.flatnonzero(~long)
        flat = np.ascontiguousarray(views).reshape(-1).view(np.uint8)
        copy_runs(data, offsets[short], flat, short * 16 + 4, lengths[short])
        for i, slots in _by_buffer(views, long):
            copy_runs(data, offsets[slots], buffers[i], views[slots, 3].astype(np.int64), lengths[slots])
        return offsets, read_only(data)

    def _gather(self, indices: Indices) -> Any:
        buffers = [None, frozen(self.views[indices]), *self._buffers[2:]]
        return make_array(self._type, len(indices), buffers, 0)

    def trim(self) -> Any:
        views, long = self._checked(self._mask())
        buffers = self.data_buffers
        kept: list[Bytes] = []
        changed = views
        for i, at in _by_buffer(views, long):
            starts = views[at, 3].astype(np.int64)
            low, high = int(starts.min()), int((starts + views[at, 0]).max())
            if low or len(kept) != i:
                changed = changed if changed is not views else views.copy()
                changed[at, 3] = starts - low
                changed[at, 2] = len(kept)
            kept.append(buffers[i][low:high])
        return self._with(
            offset=0, buffers=[self._trimmed_validity(), frozen(changed), *kept], null_count=self.null_count
        )

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
        long = (mine[:, 0] & _SIZE) > INLINE
        differ = mine[:, 0] != theirs[:, 0]
        differ |= (mine[:, 1] != theirs[:, 1]) & ~long
        valid: Mask | None = None
        if differ.any():
            valid = self._live(live)
            if valid is None or (differ & valid).any():
                return False
        if not long.any():
            return True
        valid = self._live(live) if valid is None else valid
        moved = (mine[:, 1] != theirs[:, 1]) & long
        if not (moved if valid is None else moved & valid).any() and self._same_data(other, mine[:, 0] & _SIZE):
            return True
        return self._same_long(other, valid)

    def _same_data(self, other: Any, sizes: npt.NDArray[np.uint64]) -> bool:
        """Whether the data buffers are the same, which is only looked at where most of them is referred to."""
        left, right = self.data_buffers, other.data_buffers
        if len(left) != len(right):
            return False
        if all(mine is theirs for mine, theirs in zip(left, right, strict=True)):
            return True
        most = sum(map(len, left)) <= 4 * int(sizes.sum()) + 1024
        return most and all(same_bytes(mine, theirs) for mine, theirs in zip(left, right, strict=True))

    def _same_long(self, other: Any, valid: Mask | None) -> bool:
        views, long = self._checked(valid)
        their_views, _ = other._checked(valid)
        for i, mine in _by_buffer(views, long):
            rest = np.zeros(self._length, np.bool_)
            rest[mine] = True
            for j, at in _by_buffer(their_views, rest):
                starts, their_starts = views[at, 3].astype(np.int64), their_views[at, 3].astype(np.int64)
                lengths = views[at, 0].astype(np.int64)
                if not same_runs(self.data_buffers[i], starts, other.data_buffers[j], their_starts, lengths):
                    return False
        return True

    def _codes(self) -> Indices:
        from shmarrow.layout.codes import of_runs

        offsets, data = self.contiguous()
        return of_runs(data, offsets[:-1], np.diff(offsets), self._mask())

    def _cast(self, target: Any, safe: bool) -> Any:
        return cast_binary(self, target)

    _contiguous = contiguous

    def _check_references(self) -> None:
        self._checked(self._mask())

    def _check_values(self) -> None:
        mask = self._mask()
        views, long = self._checked(mask)
        words = views.view(np.uint64)
        ascii_ = self._type.text
        for start in range(0, self._length, _PIECE):
            piece = slice(start, start + _PIECE)
            sizes = np.minimum(views[piece, 0], INLINE + 1)
            first, second = words[piece, 0], words[piece, 1]
            bad = (first & _PADDING[sizes]) | (second & _PADDING_2[sizes])
            if bad.any():
                slot = start + int((bad > 0).argmax())
                raise InvalidData(f"{self._type}: the view at {slot} has bytes other than 0 after its value")
            ascii_ = ascii_ and not bool(((first >> _HALF | second) & _HIGH_BITS)[sizes <= INLINE].any())
        buffers = self.data_buffers
        for i, at in _by_buffer(views, long):
            starts = views[at, 3].astype(np.int64)
            unequal = load_words(buffers[i], starts).astype(np.uint32) != views[at, 1].view(np.uint32)
            if unequal.any():
                slot = int(at[unequal.argmax()])
                raise InvalidData(f"{self._type}: the view at {slot} has a prefix other than its value's first 4 bytes")
            ascii_ = ascii_ and is_ascii(buffers[i][int(starts.min()) : int((starts + views[at, 0]).max())])
        if self._type.text and not ascii_:
            for start in range(0, self._length, 1 << 18):
                part = self.slice(start, 1 << 18)
                offsets, data = part.contiguous()
                check_utf8(_Plain(self._type, part, data), offsets, start)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Any:
        data, lengths = join_bytes(type, values, valid)
        starts = np.cumsum(lengths) - lengths
        return cls.over(type, np.frombuffer(data, np.uint8), starts, lengths, valid)

    @classmethod
    def over(cls, type: Any, data: Bytes, starts: Indices, lengths: Indices, valid: Mask | None = None) -> Any:
        """Views of runs of bytes: short ones are copied into the views, long ones stay where they are."""
        if len(lengths) and int(lengths.max()) > _MAX:
            raise InvalidData(f"{type}: a value of {int(lengths.max())} bytes is longer than 2147483647")
        words = np.zeros((len(lengths), 2), np.uint64)
        for first in range(0, len(lengths) if len(data) else 0, _PIECE):
            piece = slice(first, first + _PIECE)
            _write_short(words[piece], data, starts[piece], lengths[piece])
        views = words.view(np.int32)
        long = np.flatnonzero(lengths > INLINE)
        buffers: list[Bytes | None] = []
        if len(long):
            places = starts if len(long) == len(starts) else starts[long]
            low, high = int(places.min()), int((places + lengths[long]).max())
            if high - low <= _MAX:
                words[long, 1] = (places - low).view(np.uint64) << _HALF
                validity, count = validity_of(valid)
                return make_array(type, len(lengths), [validity, frozen(views), frozen(data[low:high])], count)
            first = 0
            while first < len(long):
                base = int(starts[long[first]])
                ends = starts[long[first:]] + lengths[long[first:]] - base
                beyond = np.flatnonzero((ends > _MAX) | (starts[long[first:]] < base))
                last = first + (int(beyond[0]) if len(beyond) else len(ends))
                at = long[first:last]
                views[at, 2] = len(buffers)
                views[at, 3] = starts[at] - base
                buffers.append(frozen(data[base : base + int(ends[: last - first].max())]))
                first = last
        validity, count = validity_of(valid)
        return make_array(type, len(lengths), [validity, frozen(views), *buffers], count)


def _by_buffer(views: npt.NDArray[np.int32], long: npt.NDArray[np.bool_]) -> Iterator[tuple[int, Indices]]:
    """The data buffers that long values lie in, in their order, and the slots of each."""
    at = np.flatnonzero(long)
    if not len(at):
        return
    numbers = views[at, 2]
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), at
        return
    order = np.argsort(numbers, kind="stable")
    found, firsts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(at[order], firsts[1:]), strict=True)


def _write_short(words: npt.NDArray[np.uint64], data: Bytes, starts: Indices, lengths: Indices) -> None:
    """The lengths and the first bytes of runs, up to :data:`INLINE` of them, into views as pairs of words."""
    head = load_words(data, starts) & LOW_BYTES[np.minimum(lengths, 8)]
    words[:, 0] = lengths.astype(np.uint64) | (head << _HALF)
    words[:, 1] = head >> _HALF
    more = np.flatnonzero((lengths > 8) & (lengths <= INLINE))
    if len(more):
        words[more, 1] |= (load_words(data, starts[more] + 8) & LOW_BYTES[lengths[more] - 8]) << _HALF


class _Plain:
    """Contiguous text in the shape that :func:`check_utf8` reads."""

    __slots__ = ("_array", "data", "type")

    def __init__(self, type: Any, array: BinaryViewArray, data: Bytes) -> None:
        self.type = type
        self.data = data
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def _valid(self) -> Mask:
        return self._array._valid()
