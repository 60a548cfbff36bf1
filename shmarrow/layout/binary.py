# SPDX-License-Identifier: Apache-2.0
"""Variable-size binary layout ("Variable-size Binary Layout"): offsets into one buffer of bytes.

Bytes and UTF-8 strings with 32-bit or 64-bit offsets. Slot ``i`` holds the bytes ``[offsets[i], offsets[i + 1])``;
offsets are monotonic, the first need not be 0, and a null slot may have a non-zero length.

Strings are valid if their concatenated bytes are UTF-8 and each starts at a character boundary, so that many are
validated at once, in blocks of some MiB.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from shmarrow.buffer import EMPTY, Bytes, Indices, Mask, NDArray
from shmarrow.casts import kinds_of
from shmarrow.errors import InvalidData, InvalidType, shown
from shmarrow.layout.arguments import exact_integers, masked_validity
from shmarrow.layout.array import Array
from shmarrow.layout.construct import (
    array_class,
    check_reach,
    frozen,
    make_array,
    offsets_of,
    read_only,
    refuse_type,
    validity_of,
)
from shmarrow.layout.offsets import (
    check_ends,
    checked_offsets,
    joined_offsets,
    offsets_view,
    same_lengths,
    trimmed_offsets,
)
from shmarrow.layout.preview import Budget, preview_bytes
from shmarrow.layout.runs import CHUNK, gather_bytes, is_ascii, same_bytes, same_runs
from shmarrow.types import DataType, binary

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


class BinaryArray(Array):
    """Array of byte strings or UTF-8 strings."""

    __slots__ = ()
    layouts = ("binary", "large_binary")
    _joins_slices = True

    @property
    def offsets(self) -> NDArray:
        """Offsets, int32 or int64 of shape (length + 1,); a read-only view."""
        return offsets_view(self)

    @property
    def data(self) -> Bytes:
        """Data buffer, regardless of slicing; a read-only view."""
        data = self._buffers[2]
        return EMPTY if data is None else data

    def _bounds(self, index: int) -> tuple[int, int]:
        start, end = self.offsets[index : index + 2].tolist()
        if not 0 <= start <= end <= len(self.data):
            text = f"{self._type}: a value in bytes [{start}, {end}) of {len(self.data)}"
            raise InvalidData(text, where=[("row", index)])
        return start, end

    def _value(self, index: int) -> Any:
        start, end = self._bounds(index)
        value = self.data[start:end].tobytes()
        return decode(self._type, value, index) if self._type.text else value

    def _value_preview(self, index: int, budget: Budget) -> str:
        start, end = self._bounds(index)
        return preview_bytes(self.data[start : min(end, start + 100)].tobytes(), end - start, self._type.text)

    def _pylist(self, valid: Mask | None) -> list[Any]:
        offsets = checked_offsets(self, len(self.data), "bytes")
        data = self.data
        result: list[Any] = []
        for first in range(0, self._length, _BLOCK):
            bounds = offsets[first : first + _BLOCK + 1].astype(np.int64)
            start, end = int(bounds[0]), int(bounds[-1])
            bounds -= start
            if start < 0 or end > len(data) or int(np.diff(bounds).min()) < 0:
                raise InvalidData(f"{self._type}: offsets after row {first} changed while they were read")
            values = split(self._type, data[start:end], bounds[1:])
            if values is None:
                listed = bounds.tolist()
                part = valid if valid is None else valid[first : first + _BLOCK]
                values = slices(self._type, data[start:end].tobytes(), listed[:-1], listed[1:], part, first)
            result += values
        return result

    def _gather(self, indices: Indices, valid: Mask | None = None) -> Any:
        starts, ends = self.offsets.take(indices), self.offsets[1:].take(indices)
        if len(starts) and (int(starts.min()) < 0 or int(ends.max()) > len(self.data) or (starts > ends).any()):
            checked_offsets(self, len(self.data), "bytes")
        lengths = ends - starts
        if valid is not None:
            lengths *= valid
        offsets = offsets_of(lengths, self._type)
        data = gather_bytes(self.data, starts, lengths, offsets)
        return make_array(self._type, len(indices), [None, read_only(offsets), data], 0)

    _gather_valid = _gather

    def _filled(self, missing: Mask, value: Any) -> Any:
        """Insert a short value at nulls of no bytes."""
        offsets = checked_offsets(self, len(self.data), "bytes")
        lengths = np.diff(offsets).astype(np.int64)
        if len(value.data) > _SHORT or lengths[missing].any():
            return None
        lengths[missing] = len(value.data)
        ends = offsets_of(lengths, self._type)
        data = np.empty(int(ends[-1]), np.uint8)
        rest = np.ones(len(data), np.bool_)
        places = ends[:-1][missing].astype(np.int64)
        for i, byte in enumerate(value.data.tolist()):
            data[places + i] = byte
            rest[places + i] = False
        data[rest] = self.data[int(offsets[0]) : int(offsets[-1])]
        return make_array(self._type, self._length, [None, frozen(ends), read_only(data)], 0)

    def _copied_bytes(self, counts: NDArray) -> float:
        return float(counts @ np.diff(checked_offsets(self, len(self.data), "bytes")))

    def trim(self) -> Self:
        offsets, data = trimmed_offsets(self, len(self.data))
        buffers = [self._trimmed_validity(), frozen(offsets), self.data[data]]
        return self._with(offset=0, buffers=buffers, null_count=self.null_count)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        type = arrays[0].type
        offsets, windows = joined_offsets(arrays, [len(array.data) for array in arrays])
        data = np.concatenate([array.data[window] for array, window in zip(arrays, windows, strict=True)])
        return make_array(type, len(offsets) - 1, [None, frozen(offsets), read_only(data)], 0)

    def _same(self, other: Any, live: Mask | None) -> bool:
        mine, theirs = checked_offsets(self, len(self.data), "bytes"), checked_offsets(other, len(other.data), "bytes")
        if same_lengths(mine, theirs) and same_bytes(
            self.data[int(mine[0]) : int(mine[-1])], other.data[int(theirs[0]) : int(theirs[-1])]
        ):
            return True
        valid = self._live(live)
        if valid is None:
            return False
        slots = np.flatnonzero(valid)
        starts, their_starts = mine[slots].astype(np.int64), theirs[slots].astype(np.int64)
        lengths = mine[slots + 1] - starts
        return bool(np.array_equal(lengths, theirs[slots + 1] - their_starts)) and same_runs(
            self.data, starts, other.data, their_starts, lengths
        )

    def _codes(self) -> Indices:
        from shmarrow.layout import codes

        offsets = checked_offsets(self, len(self.data), "bytes").astype(np.int64)
        return codes.of_runs(self.data, offsets[:-1], np.diff(offsets), self._mask())

    def _run_starts(self) -> Indices:
        from shmarrow.layout import codes

        offsets = checked_offsets(self, len(self.data), "bytes").astype(np.int64)
        return codes.starts_of_runs(self.data, offsets[:-1], np.diff(offsets), self._mask())

    def _cast(self, target: Any, safe: bool) -> Any:
        return cast_bytes(self, target)

    @classmethod
    def _of_bytes(cls, array: Any, target: Any) -> Any:
        """Bytes or strings of any layout as a type of this class."""
        source = array.trim() if isinstance(array, BinaryArray) else array
        wider = isinstance(array, BinaryArray) and target.offset_dtype > array.offsets.dtype
        offsets, data = (source.offsets, source.data) if wider else source._contiguous(target)
        check_reach(int(offsets[-1]), target)
        buffers = [source._trimmed_validity(), frozen(offsets.astype(target.offset_dtype)), data]
        return make_array(target, len(source), buffers, source.null_count)

    def _contiguous(self, target: Any = None) -> tuple[NDArray, Bytes]:
        """Checked offsets, and the data buffer; copies nothing."""
        return checked_offsets(self, len(self.data), "bytes"), self.data

    def _check_structure(self) -> None:
        check_ends(self, len(self.data), "bytes")

    def _check_references(self) -> None:
        checked_offsets(self, len(self.data), "bytes")

    def _check_values(self) -> None:
        if self._type.text:
            check_utf8(self._type, self.data, self.offsets, mask=self._mask())

    def _safe_values(self) -> Any:
        offsets = checked_offsets(self, len(self.data), "bytes")
        if self._type.text and not is_utf8(self.data, offsets):
            check_utf8(self._type, self.data, offsets, mask=self._mask())
            return self._under_mask()
        return self

    def _under_mask(self) -> Any:
        """The same values with empty null slots; a copy."""
        valid = self._valid()
        return self._gather(np.arange(self._length), valid)._masked(valid)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        data, lengths = join_bytes(type, values, valid)
        offsets = offsets_of(lengths, type)
        validity, nulls = validity_of(valid)
        return cls._made(type, len(values), [validity, frozen(offsets), np.frombuffer(data, np.uint8)], nulls)

    @classmethod
    def from_arrays(cls, offsets: Any, data: Any, type: DataType | str | None = None, mask: Any = None) -> Self:
        """Create an array from offsets of shape (n + 1,) and a data buffer.

        Zero-copy if the arguments have the right dtypes and are contiguous.

        Parameters
        ----------
        offsets : integer ndarray, integer Array or sequence of int
            Start of each value, and end of the last one.
        data : buffer
            Contiguous bytes.
        type : DataType or str, optional
            A binary or string type with offsets; ``binary`` by default.
        mask : bool array, optional
            Shape (n,), True where a slot is null.

        Raises
        ------
        InvalidData
            If the first or last offset is out of range.
        InvalidType
            If the offsets are not integers, the data are not bytes, or the type has a different layout.
        InvalidArgument
            If the length of the mask is wrong.
        """
        refuse_type(offsets, "offsets")
        expected: Any = cls._expect(binary() if type is None else type)
        typed = exact_integers(offsets, expected.offset_dtype, "offsets")
        if not len(typed):
            raise InvalidData(f"{expected}: offsets must have the shape (n + 1,), found none")
        validity, nulls = masked_validity(mask, len(typed) - 1)
        try:
            raw = np.frombuffer(data, "u1") if memoryview(data).nbytes else EMPTY
        except (TypeError, ValueError, BufferError) as error:
            raise InvalidType(
                f"{expected}: data must be contiguous bytes, found {data.__class__.__name__}: {error}"
            ) from None
        result: Self = make_array(expected, len(typed) - 1, [validity, frozen(typed), frozen(raw)], nulls)
        result.validate()
        return result


def cast_bytes(array: Any, target: Any) -> Any:
    """Cast bytes or strings between layouts, or to fixed-size binary; bytes cast to strings are checked for UTF-8."""
    if target.descriptor.values == "bytes":
        return _cast_to_fixed(array, target)
    if not hasattr(target, "text"):
        return None
    if target.text and not array.type.text:
        array._with(type=array.type.__class__(True)).validate(full=True)
    if target.layout == array.type.layout:
        return array._with(type=target)
    cls: Any = array_class(target)
    return cls._of_bytes(array, target)


def _cast_to_fixed(array: Any, target: Any) -> Any:
    width, mask = target.byte_width, array._mask()
    offsets, data = array._contiguous()
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    wrong = lengths != width if mask is None else (lengths != width) & mask
    if wrong.any():
        i = int(wrong.argmax())
        raise InvalidData(f"{target}: expected {width} bytes, found {int(lengths[i])}", where=[("row", i)])
    if mask is None:
        values = data[int(offsets[0]) : int(offsets[-1])]
    else:
        filled = np.zeros((len(mask), width), np.uint8)
        filled[mask] = gather_bytes(data, starts[mask], lengths[mask]).reshape(-1, width) if width else 0
        values = read_only(filled)
    validity, count = validity_of(mask)
    return make_array(target, len(array), [validity, values], count)


# --- bytes and strings, also of views ---------------------------------------------------------------------------


_BLOCK = 1 << 14
_SHORT = 64


def split(type: Any, data: Bytes, ends: NDArray) -> list[Any] | None:
    """Short values that end at ``ends``, as bytes or str; None if :func:`slices` is faster or must report an error.

    With a NUL inserted after each value, a single ``split`` call creates all objects.
    """
    count = len(ends)
    if count <= 16 or len(data) > _SHORT * count or not data.all():
        return None
    room = np.ones(len(data) + count, np.bool_)
    room[ends + np.arange(count)] = False
    joined = np.zeros(len(room), np.uint8)
    joined[room] = data
    raw = joined.tobytes()
    try:
        parts: list[Any] = raw.decode().split("\0") if type.text else raw.split(b"\0")
    except UnicodeDecodeError:
        return None
    parts.pop()
    return parts


def slices(
    type: Any, region: bytes, starts: Sequence[int], ends: Sequence[int], valid: Mask | None, first: int = 0
) -> list[Any]:
    """The values in ``region`` as bytes or str; null slots may give any object.

    ``first`` is the number of the first slot, for messages.
    """
    if not type.text:
        return [region[start:end] for start, end in zip(starts, ends, strict=True)]
    if region.isascii():
        text = region.decode("ascii")
        return [text[start:end] for start, end in zip(starts, ends, strict=True)]
    try:
        return [str(region[start:end], "utf-8") for start, end in zip(starts, ends, strict=True)]
    except UnicodeDecodeError:
        keep = [True] * len(starts) if valid is None else valid.tolist()
        slots = enumerate(zip(starts, ends, keep, strict=True), first)
        return [decode(type, region[start:end], i) if ok else None for i, (start, end, ok) in slots]


_JOINED = 1 << 12


def join_bytes(type: Any, values: Sequence[Any], valid: Mask | None) -> tuple[bytes, Indices]:
    """The bytes of all values, concatenated, and their lengths; None is empty."""
    present = values if valid is None else list(itertools.compress(values, valid.tobytes()))
    if type.text:
        try:
            text = "".join(present)
        except TypeError:
            raise _wrong_kind(type, present, str) from None
        try:
            data = text.encode()
            if len(data) != len(text):
                present = [value.encode() for value in present]
        except UnicodeEncodeError as error:
            raise InvalidData(f"{type}: a string with lone surrogates cannot be encoded as UTF-8: {error}") from None
    else:
        kinds = kinds_of(present)
        if not all(issubclass(kind, (bytes, bytearray, memoryview)) for kind in kinds):
            raise _wrong_kind(type, present, (bytes, bytearray, memoryview))
        if memoryview in kinds:  # len() of a memoryview counts items, not bytes
            present = [value.tobytes() if isinstance(value, memoryview) else value for value in present]
        # join() asks all values for their memory before it copies, so there are some thousands at a time.
        data = b"".join([b"".join(present[i : i + _JOINED]) for i in range(0, len(present), _JOINED)])
    lengths = np.fromiter(map(len, present), np.int64, len(present))
    if valid is None:
        return data, lengths
    filled = np.zeros(len(values), np.int64)
    filled[valid] = lengths
    return data, filled


def _wrong_kind(type: DataType, values: Sequence[Any], kinds: Any) -> InvalidType:
    wrong = next(value for value in values if not isinstance(value, kinds))
    return InvalidType(f"{type}: cannot convert {shown(wrong)} of type {wrong.__class__.__name__}")
