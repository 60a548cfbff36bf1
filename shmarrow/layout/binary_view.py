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
from shmarrow.layout.binary import check_utf8, decode, gather_bytes, join_bytes, slices
from shmarrow.layout.memory import Indices, frozen, ranges, read_only, validity_of, view_of
from shmarrow.layout.preview import Budget, preview_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

INLINE = 12
_WORDS = np.dtype(("<i4", (4,)))
_MAX = (1 << 31) - 1


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

    def _checked(self, mask: Mask | None) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """The views, all zero where null, and which of them are long, after a check of where they lead."""
        views = self.views
        if mask is not None:
            views = np.where(mask[:, None], views, 0)
        lengths = views[:, 0]
        long = lengths > INLINE
        wrong = lengths < 0
        if long.any():
            at = np.flatnonzero(long)
            sizes = np.array([len(data) for data in self.data_buffers] or [0], np.int64)
            index, start = views[at, 2], views[at, 3].astype(np.int64)
            known = (index >= 0) & (index < len(self.data_buffers))
            room = sizes[np.where(known, index, 0)]
            wrong[at] |= ~known | (start < 0) | (start + lengths[at] > room)
        if wrong.any():
            self._fail(int(wrong.argmax()))
        return views, long

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
        views, long = self._checked(mask)
        starts = np.arange(4, 16 * self._length + 4, 16)
        ends = starts + np.where(long, 0, views[:, 0])
        result = slices(self._type, views.tobytes(), starts.tolist(), ends.tolist(), mask)
        at = np.flatnonzero(long)
        if len(at):
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
        lengths = views[:, 0].astype(np.int64)
        self._check_total(lengths)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if not long.any():
            starts = np.arange(4, 16 * self._length + 4, 16, dtype=np.int64)
            return offsets, gather_bytes(np.ascontiguousarray(views).reshape(-1).view(np.uint8), starts, lengths)
        data = np.empty(int(offsets[-1]), np.uint8)
        short = np.flatnonzero(~long)
        flat = np.ascontiguousarray(views).reshape(-1).view(np.uint8)
        _scatter(data, offsets[short], flat, short * 16 + 4, lengths[short])
        buffers = self.data_buffers
        for i, at in _by_buffer(views, long):
            _scatter(data, offsets[at], buffers[i], views[at, 3].astype(np.int64), lengths[at])
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

    def _same(self, other: Any) -> bool:
        if not np.array_equal(self.views[:, 0], other.views[:, 0]):
            return False
        for start in range(0, self._length, 1 << 16):
            mine, theirs = (array.slice(start, 1 << 16).contiguous()[1] for array in (self, other))
            if not np.array_equal(mine, theirs):
                return False
        return True

    def _check_references(self) -> None:
        self._checked(self._mask())

    def _check_values(self) -> None:
        mask = self._mask()
        views, long = self._checked(mask)
        flat = np.ascontiguousarray(views).view(np.uint8).reshape(-1, 16)
        short = ~long
        padding = np.arange(INLINE)[None, :] >= views[short, 0][:, None]
        bad = (padding & (flat[short, 4:] != 0)).any(axis=1)
        if bad.any():
            slot = int(np.flatnonzero(short)[bad.argmax()])
            raise InvalidData(f"{self._type}: the view at {slot} has bytes other than 0 after its value")
        buffers = self.data_buffers
        for i, at in _by_buffer(views, long):
            starts = views[at, 3].astype(np.int64)
            prefixes = buffers[i][starts[:, None] + np.arange(4)]
            unequal = (prefixes != flat[at, 4:8]).any(axis=1)
            if unequal.any():
                slot = int(at[unequal.argmax()])
                raise InvalidData(f"{self._type}: the view at {slot} has a prefix other than its value's first 4 bytes")
        if self._type.text:
            for start in range(0, self._length, 1 << 18):
                part = self.slice(start, 1 << 18)
                offsets, data = part.contiguous()
                check_utf8(_Plain(self._type, part, data), offsets)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], mask: Mask | None) -> Any:
        data, lengths = join_bytes(type, values, mask)
        starts = np.cumsum(lengths) - lengths
        return cls.over(type, np.frombuffer(data, np.uint8), starts, lengths, mask)

    @classmethod
    def over(cls, type: Any, data: Bytes, starts: Indices, lengths: Indices, mask: Mask | None = None) -> Any:
        """Views of runs of bytes: short ones are copied into the views, long ones stay where they are."""
        if len(lengths) and int(lengths.max()) > _MAX:
            raise InvalidData(f"{type}: a value of {int(lengths.max())} bytes is longer than 2147483647")
        views = np.zeros((len(lengths), 4), np.int32)
        views[:, 0] = lengths
        flat = views.reshape(-1).view(np.uint8)
        short = np.flatnonzero(lengths <= INLINE)
        _scatter(flat, short * 16 + 4, data, starts[short], lengths[short])
        long = np.flatnonzero(lengths > INLINE)
        buffers: list[Bytes | None] = []
        if len(long):
            _scatter(flat, long * 16 + 4, data, starts[long], np.full(len(long), 4, np.int64))
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
        validity, count = validity_of(mask)
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


class _Plain:
    """Contiguous text in the shape that :func:`check_utf8` reads."""

    __slots__ = ("_array", "data", "type")

    def __init__(self, type: Any, array: BinaryViewArray, data: Bytes) -> None:
        self.type = type
        self.data = data
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def is_valid(self) -> Mask:
        return self._array.is_valid()


def _scatter(target: npt.NDArray[np.uint8], to: Indices, source: Bytes, starts: Indices, lengths: Indices) -> None:
    """Copy runs of bytes to their places, in pieces that bound the memory of the positions."""
    first = 0
    ends = np.cumsum(lengths)
    while first < len(lengths):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + (1 << 22), "right")), first + 1)
        run = slice(first, last)
        target[ranges(to[run], lengths[run])] = source[ranges(starts[run], lengths[run])]
        first = last
