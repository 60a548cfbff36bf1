# SPDX-License-Identifier: Apache-2.0
"""Every byte of a message's body: the buffers of columns and tensors, and their padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import counted
from shmarrow.ipc.batch.codecs import codec_name
from shmarrow.ipc.flatbuffers.tables import TABLES
from shmarrow.ipc.message.decode import Message
from shmarrow.memory import shared_of
from shmarrow.memory.split import FILE_STRIDE
from shmarrow.xray.flat import chapter_of, padding
from shmarrow.xray.model import BufferRole, Claim, Finding, Path, Region, Report, tile
from shmarrow.xray.overviews import Batch

_COMPRESSION = "Columnar.rst, Compression"
_BODY = "Columnar.rst, Encapsulated message format"
_WRITE_AGAIN = "write the object again with a correct writer"
_UNITS = {
    "validity": "bits",
    "offsets": "int{bits}",
    "sizes": "int{bits}",
    "type_ids": "int8",
    "views": "views of 16 bytes",
}
"""Units of a buffer's slots by role; for other roles, the unit is the type."""


class Body:
    """The body of one message.

    Parameters
    ----------
    data : uint8 ndarray
        The object.
    start, end : int
        Range of the body.
    label : str
        Name of the message, the first step of all paths.
    report : callable
        Called with each finding.
    """

    def __init__(self, data: Bytes, start: int, end: int, label: str, report: Report) -> None:
        self._data = data
        self._shared = shared_of(data)
        self._start, self._end = start, end
        self._path = Path(None, label, 0)
        self._report = report
        self._claims: list[Claim] = []

    def batch(self, batch: Batch, roles: Iterable[BufferRole]) -> Iterator[Region]:
        """Yield the regions of a record batch or dictionary."""
        nodes = batch.nodes.tolist()
        known = list(roles)
        if len(known) != len(batch.buffers):
            text = f"{len(batch.buffers)} buffers, where the columns of the schema have {len(known)}"
            self._find(self._start, self._end, "error", text)
        for i, (offset, length) in enumerate(batch.buffers.tolist()):
            role = known[i] if i < len(known) else None
            rows = nodes[role.node] if role is not None and role.node < len(nodes) else None
            self._buffer(i, offset, length, role, rows, batch.codec)
        return self._tiled()

    def tensor(self, message: Message) -> Iterator[Region]:
        """Yield the regions of a tensor: its elements and, if sparse, its index."""
        for name, offset, length in tensor_buffers(message):
            path = self._path.below(name)
            self._claim(
                offset, length, f"{name} of the tensor: {counted(length, 'byte')}", path, chapter_of(message.kind)
            )
        return self._tiled()

    def other(self) -> Iterator[Region]:
        """Yield the regions of a body with unknown content."""
        return self._tiled()

    def _find(self, start: int, end: int, severity: str, text: str, remedy: str = _WRITE_AGAIN) -> None:
        start = min(max(start, self._start), self._end)
        end = min(max(end, start), self._end)
        self._report(Finding(start, end, severity, f"{self._path}: {text}", remedy))

    def _claim(self, offset: int, length: int, what: str, path: Path, chapter: str, detail: Any = None) -> bool:
        """Claim a buffer by its offset in the body, clipped to the body; return whether any bytes were claimed."""
        size = self._end - self._start
        start = self._start + min(max(offset, 0), size)
        end = self._start + min(max(offset + length, 0), size)
        if length and not 0 <= offset <= offset + length <= size:
            self._find(
                start, max(start, end), "error", f"{what}: [{offset}, {offset + length}) of {size} bytes of body"
            )
        if length <= 0 or start >= end:
            return False
        self._claims.append(Claim(start, end, "buffer", what, path, (chapter, detail)))
        return True

    def _buffer(
        self, number: int, offset: int, length: int, role: BufferRole | None, node: list[int] | None, codec: int | None
    ) -> None:
        if role is None:
            name = f"buffer {number}"
            self._claim(offset, length, f"{name}, which no column has", self._path.below(name), _BODY, codec)
            return
        path = self._path.below(role.path).below(role.buffer)
        owner = f"column {role.path!r}" if role.column >= 0 else f"the dictionary of {role.path!r}"
        slots, nulls = node if node is not None else (0, 0)
        what = f"{role.buffer} of {owner}: {_content(role, slots, nulls, length)}"
        needed = _needed(role, slots)
        packed = codec if codec is not None and length >= 8 else None
        elsewhere = self._is_shared(offset, length)
        if not elsewhere and not self._claim(offset, length, what, path, role.chapter, packed):
            length = 0
        start = self._start + (0 if elsewhere else offset)
        if length and offset & 7 and not elsewhere:
            text = f"{what}: not aligned to 8 bytes"
            self._find(start, start + length, "warning", text, "readers have to copy it; write the object again")
        absent = role.buffer == "validity" and (not nulls or not length)
        if packed is not None and 0 <= offset <= self._end - self._start - 8:
            said = int(np.ndarray((), "<i8", self._data, start))
            length = length - 8 if said == -1 else said
        if not absent and needed > max(length, 0) and slots > 0:
            self._find(start, start + length, "error", f"{what}: {length} bytes, {slots} slots need {needed}")

    def _is_shared(self, offset: int, length: int) -> bool:
        """Whether a buffer is in a file that the object shares with others; see :mod:`shmarrow.reuse`."""
        part, start = divmod(offset, FILE_STRIDE)
        shared = self._shared
        return shared is not None and 0 < part <= shared.count and start + length <= len(shared.data(part))

    def _tiled(self) -> Iterator[Region]:
        return tile(self._claims, self._start, self._end, self._render, self._fill, self._overlap)

    def _render(self, claim: Claim, alone: bool) -> Iterable[Region]:
        chapter, codec = claim.detail
        path, start = str(claim.path), claim.start
        if codec is None or claim.end - start < 8 or not alone:
            yield Region(start, claim.end, "buffer", claim.name, path, chapter)
            return
        length = int(np.ndarray((), "<i8", self._data, start))
        name = claim.name.partition(":")[0]
        text = "not compressed" if length == -1 else f"{length} bytes uncompressed"
        yield Region(start, start + 8, "length", f"uncompressed length of the {name}", path, _COMPRESSION, length)
        if start + 8 < claim.end:
            form = "" if length == -1 else f"{codec_name(codec)} frame of the "
            yield Region(start + 8, claim.end, "buffer", f"{form}{claim.name}, {text}", path, chapter)

    def _fill(self, start: int, end: int) -> Iterable[Region]:
        """Yield the region of the bytes between buffers."""
        yield padding(self._data, start, end, str(self._path), _BODY, self._report)

    def _overlap(self, claim: Claim, end: int) -> Region:
        chapter, _ = claim.detail
        same = any(each.start == claim.start and each.end == claim.end and each is not claim for each in self._claims)
        text = f"{claim.name}; {'the same bytes as' if same else 'overlaps'} another buffer"
        remedy = "none is needed for readers; a writer that changes one of them changes both"
        self._find(claim.start, end, "note" if same else "warning", text, remedy)
        return Region(claim.start, end, "overlap", text, str(claim.path), chapter)


def tensor_buffers(message: Message) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset in the body and length of each buffer of a Tensor or SparseTensor message."""
    header = message.header
    data = header["data"]
    if data is not None:
        yield "elements", *_pair(data)
    if message.kind != "SparseTensor":
        return
    kind, index = header["sparseIndex"]
    if index is None:
        return
    scale = _csf_scale(header, index) if kind == "SparseTensorIndexCSF" else None
    for slot, sort, *_ in TABLES[str(kind)]:
        if sort not in ("Buffer", "[Buffer]") or (found := index[slot]) is None:
            continue
        name = slot.removesuffix("s").removesuffix("Buffer")
        for level, (offset, length) in enumerate(found.tolist() if sort[0] == "[" else [_pair(found)]):
            label = f"{name} of level {level}" if sort[0] == "[" else name
            yield label, offset, length if scale is None else length * scale[name]


def _pair(buffer: Any) -> tuple[int, int]:
    offset, length = buffer if isinstance(buffer, tuple) else buffer.item()
    return int(offset), int(length)


def _csf_scale(header: Any, index: Any) -> dict[str, int] | None:
    """Return the element size of each buffer if lengths count elements, as written by Arrow C++; else None."""
    from shmarrow.ipc.tensor.decode_sparse import counts_elements

    ptrs, nodes = index["indptrBuffers"], index["indicesBuffers"]
    if ptrs is None or nodes is None or len(nodes) != len(ptrs) + 1:
        return None
    if not counts_elements(ptrs.tolist(), nodes.tolist(), header["non_zero_length"]):
        return None
    types = index["indptrType"], index["indicesType"]
    if None in types:
        return None
    starts, levels = [each["bitWidth"] >> 3 for each in types]
    return {"indptr": starts, "indices": levels}


def _content(role: BufferRole, slots: int, nulls: int, length: int) -> str:
    """Describe the content of a buffer."""
    if role.bits < 0:
        return counted(length, "byte")
    count = slots + role.extra
    unit = "bits" if role.bits == 1 else _UNITS.get(role.buffer, "").format(bits=role.bits)
    if role.bits == 1 or role.buffer == "views":
        return f"{count} {unit}, {counted(nulls, 'null')}" if role.buffer == "validity" else f"{count} {unit}"
    return f"{count} × {unit or role.type}"


def _needed(role: BufferRole, slots: int) -> int:
    """Return the minimum size of a buffer in bytes."""
    return 0 if role.bits < 0 else ((slots + role.extra) * role.bits + 7) >> 3
