# SPDX-License-Identifier: Apache-2.0
"""The nodes and buffers of many columns in a record batch, counted with a few array operations.

Every position is checked before it is read, level by level, and the number of fields is bounded.
"""

from __future__ import annotations

import numpy as np

from shmarrow.buffer import U1, Bytes, Indices
from shmarrow.errors import InvalidData, LimitExceeded
from shmarrow.ipc.flatbuffers.reader import I4, extent
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.schema.wide import CHILDREN, DICTIONARY, FEW, TYPE, TYPE_TAG, FieldTables
from shmarrow.layout import LISTING
from shmarrow.types.descriptors import TYPES, TypeDescriptor

# The code of a type: its number of buffers, and these flags.
_BUFFERS, _VARIADIC, _V4_BITMAP, _NESTED, _UNKNOWN = 15, 16, 32, 64, 128

_UNION_TAG = UNIONS["Type"].index("Union") + 1
_DENSE = ENUMS["UnionMode"]["Dense"]


def _code(descriptor: TypeDescriptor) -> int:
    layout = LISTING[descriptor.layouts[0]]  # for unions the sparse layout; dense ones have one more buffer
    code = len(layout.buffers) | _VARIADIC * layout.variadic
    return code | _NESTED * bool(descriptor.children) | _V4_BITMAP * layout.v4_validity


_CODES = np.full(256, _UNKNOWN, np.uint8)
_CODES[1 : len(TYPES) + 1] = [_code(descriptor) for descriptor in TYPES]
_CODES_LISTED: list[int] = _CODES.tolist()
_ENCODED = len(LISTING["dictionary"].buffers)


def flat_codes(tables: FieldTables, start: int, end: int) -> tuple[Bytes | None, bool]:
    """The number of buffers of columns ``start`` to ``end``; None if some have more than one node, or variadic buffers.

    Also returns whether the values of a dictionary among them may be dictionary-encoded themselves.
    """
    few = _few_codes(tables, start, end) if end - start <= FEW else None
    if few is not None:
        return np.frombuffer(few, U1), False
    codes, _, nested = _level(tables, tables.positions(start, end))
    return None if int(codes.max()) > _BUFFERS else codes, nested


def _few_codes(tables: FieldTables, start: int, end: int) -> bytearray | None:
    """The same of a few columns, one by one; None if one is nested, encoded or invalid."""
    buffer = tables.buffer
    view, size = buffer.view, buffer.size
    last_vtable, table_size, tag_at = -1, 0, 0
    codes = bytearray()
    for index in range(start, end):
        position = tables.position_of(index)
        if position + 4 > size:
            return None
        vtable = position - I4(view, position)[0]
        if vtable != last_vtable:
            offsets = buffer.table_at("Field", position)[1]
            tag_at, _, dictionary = (*offsets, 0, 0, 0, 0, 0)[TYPE_TAG : DICTIONARY + 1]
            if dictionary or tag_at < 4:
                return None
            last_vtable, table_size = vtable, extent("Field", offsets)
        if position + table_size > size:
            return None
        codes.append(_CODES_LISTED[view[position + tag_at]])
        if codes[-1] > _BUFFERS:
            return None
    return codes


def count_parts(tables: FieldTables) -> tuple[Indices, bool]:
    """Count the parts that each column has in a batch, with its children.

    Returns
    -------
    counts : int64 ndarray, shape (4, n)
        Nodes, buffers, variadic counts, and bitmaps present in V4 only.
    nested : bool
        Whether the values of a dictionary may be dictionary-encoded themselves.
    """
    buffer = tables.buffer
    most = min(buffer.limits.tables, buffer.size)
    counts = np.zeros((4, tables.count), np.int64)
    positions, owners = tables.positions(), np.arange(tables.count)
    nested, seen = False, 0
    for _ in range(buffer.limits.depth):
        seen += len(positions)
        if seen > most:
            raise LimitExceeded(f"{buffer.where}: more fields than its {buffer.size} bytes can hold")
        codes, children, encoded = _level(tables, positions)
        nested |= encoded
        parts = np.ones_like(codes), codes & _BUFFERS, codes & _VARIADIC != 0, codes & _V4_BITMAP != 0
        for total, part in zip(counts, parts, strict=True):
            total += np.bincount(owners, part, tables.count).astype(np.int64)
        parents = np.flatnonzero(children)
        positions, sizes = tables.below(children[parents])
        if not len(positions):
            return counts, nested
        owners = np.repeat(owners[parents], sizes)
    raise LimitExceeded(f"types nest deeper than Limits.depth = {buffer.limits.depth}")


def _level(tables: FieldTables, positions: Indices) -> tuple[Bytes, Indices, bool]:
    """The codes of some fields, the positions of the offsets to their children (0 if none), and ``nested`` as above."""
    buffer = tables.buffer
    tags_at, encodings = tables.slots(positions, (TYPE_TAG, DICTIONARY))
    if not int(tags_at.min()):
        raise InvalidData(f"{buffer.where}: a field has no type")
    tags = buffer.data.take(tags_at)
    codes = _CODES.take(tags)
    most = int(codes.max())
    if most >= _UNKNOWN:
        tag = int(tags[int(np.argmax(codes))])
        raise InvalidData(f"{buffer.where}: a field has type {tag}, expected 1 to {len(UNIONS['Type'])}")
    encoded = encodings != 0
    nested = False
    if encoded.any():
        nested = bool((codes[encoded] & _NESTED).any())
        codes[encoded] = _ENCODED
    if most < _NESTED:
        return codes, np.zeros(0, np.int64), nested
    types_at, children = tables.slots(positions, (TYPE, CHILDREN))
    reader = buffer.operation()
    for i in np.flatnonzero((tags == _UNION_TAG) & ~encoded & (types_at != 0)).tolist():
        union = reader.table("Union", buffer.follow(int(types_at[i]), "Field", "type"))
        codes[i] += union["mode"] == _DENSE
    return codes, np.where(codes & _NESTED, children, 0), nested
