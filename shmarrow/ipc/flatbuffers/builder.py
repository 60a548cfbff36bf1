# SPDX-License-Identifier: Apache-2.0
"""FlatBuffers writer on top of ``flatbuffers.Builder``, driven by the declarations in ``tables``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flatbuffers
import numpy as np

from shmarrow.buffer import Indices, NDArray, padded
from shmarrow.ipc.flatbuffers.tables import SCALARS, SLOTS, STRUCTS, TABLES, UNIONS


class Built(NamedTuple):
    """A table or vector already written to the builder, by its offset from the end."""

    offset: int


def encode(name: str, values: Mapping[str, Any]) -> bytes:
    """Encode a FlatBuffer with the named kind of root table.

    Parameters
    ----------
    name : str
        The table, one of :data:`TABLES`.
    values : mapping
        Slot names to values: int and bool; str or bytes; a mapping for a table; a pair of member name and mapping for a
        union; an ndarray for a vector of scalars or structs, of shape () for an inline struct; a list of mappings for
        a vector of tables; :class:`Built` for anything already written. None and missing slots are left out.
    """
    builder = new_builder()
    return finish(builder, add_table(builder, name, values))


class _Builder(flatbuffers.Builder):  # type: ignore[misc]
    """A builder that shares vtables only between tables of equal size.

    Versions up to 25.9 compare only the slot offsets, and so may record a wrong table size.
    """

    def __init__(self) -> None:
        super().__init__(1024)
        self._vtables_by_size: dict[int, Any] = {}

    def EndObject(self) -> int:
        size = padded(self.Offset(), 4) + 4 - self.objectEnd
        self.vtables = self._vtables_by_size.setdefault(size, {})
        return int(super().EndObject())


def new_builder() -> flatbuffers.Builder:
    """An empty builder."""
    return _Builder()


def finish(builder: flatbuffers.Builder, root: int) -> bytes:
    """Finish a builder, given its root table's offset; returns the bytes."""
    builder.Finish(root)
    return bytes(builder.Output())


def add_table(builder: flatbuffers.Builder, name: str, values: Mapping[str, Any]) -> int:
    """Write a table and everything it refers to; returns its offset from the end."""
    slots = SLOTS[name]
    ready: list[tuple[str, int, Any, Any]] = []
    for number, slot, kind, _, default in slots:
        value = values.get(slot)
        if value is None:
            continue
        if kind.startswith("union "):
            member, content = value
            offset = content.offset if isinstance(content, Built) else add_table(builder, member, content)
            ready.append(("u1", number - 1, UNIONS[kind[6:]].index(member) + 1, 0))
            ready.append(("offset", number, offset, 0))
        elif kind in SCALARS:
            ready.append((kind, number, value, default))
        elif kind in STRUCTS:
            ready.append(("struct", number, value, None))
        else:
            ready.append(("offset", number, _add_value(builder, kind, value), 0))
    builder.StartObject(len(slots))
    for kind, number, value, default in ready:
        if kind == "struct":
            builder.PrependStructSlot(number, _add_struct(builder, value), 0)
        else:
            getattr(builder, _PREPEND[kind])(number, value, default)
    return int(builder.EndObject())


_PREPEND = {
    "bool": "PrependBoolSlot",
    "u1": "PrependUint8Slot",
    "i1": "PrependInt8Slot",
    "i2": "PrependInt16Slot",
    "i4": "PrependInt32Slot",
    "i8": "PrependInt64Slot",
    "offset": "PrependUOffsetTRelativeSlot",
}


def _add_value(builder: flatbuffers.Builder, kind: str, value: Any) -> int:
    if isinstance(value, Built):
        return value.offset
    if kind == "string":
        return int(builder.CreateString(value))
    if kind[0] != "[":
        return add_table(builder, kind, value)
    inner = kind[1:-1]
    if inner in TABLES:
        return add_offsets(builder, [add_table(builder, inner, item) for item in value])
    dtype = SCALARS.get(inner) or STRUCTS[inner]
    raw = _without_gaps(np.ascontiguousarray(value, dtype)).tobytes()
    builder.StartVector(dtype.itemsize, len(raw) // dtype.itemsize, 8)
    add_raw(builder, raw)
    return int(builder.EndVector())


def _without_gaps(values: NDArray) -> NDArray:
    """Copy structs with zeroed padding, which numpy leaves uninitialized."""
    names = values.dtype.names
    if names is None or values.dtype.itemsize == sum(values.dtype[name].itemsize for name in names):
        return values
    clean = np.zeros(values.shape, values.dtype)
    for name in names:
        clean[name] = values[name]
    return clean


def add_offsets(builder: flatbuffers.Builder, offsets: Sequence[int] | Indices) -> int:
    """Write a vector of offsets of tables already written."""
    builder.StartVector(4, len(offsets), 4)
    # An offset is relative to its own position, and the last one has the lowest position from the end.
    places = builder.Offset() + 4 * np.arange(len(offsets), 0, -1, dtype=np.int64)
    add_raw(builder, (places - np.asarray(offsets, np.int64)).astype("<u4").tobytes())
    return int(builder.EndVector())


def add_raw(builder: flatbuffers.Builder, raw: bytes) -> None:
    """Copy bytes to the builder's head, into the space made by ``StartVector`` or ``Prep``."""
    builder.head -= len(raw)
    builder.Bytes[builder.head : builder.head + len(raw)] = raw


def _add_struct(builder: flatbuffers.Builder, value: NDArray) -> int:
    builder.Prep(8, value.dtype.itemsize)
    add_raw(builder, value.tobytes())
    return int(builder.Offset())
