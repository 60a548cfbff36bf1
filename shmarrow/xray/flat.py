# SPDX-License-Identifier: Apache-2.0
"""Every byte of a FlatBuffer: tables, vtables, vectors, strings and padding, by the declarations in ``tables``.

Invariants:

* each table, vector and string is visited once, however many references it has; shared ones are marked as such;
* references are followed iteratively, with bounds on their number and depth, so that cyclic or hostile offsets end in
  a finding;
* values are decoded lazily, when their region is yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, Limits, counted
from shmarrow.ipc.flatbuffers.reader import FlatBuffer, Offsets, extent
from shmarrow.ipc.flatbuffers.tables import ENUMS, SCALARS, SLOTS, STRUCTS, TABLES, UNIONS, TableSlot
from shmarrow.types.descriptors import TYPES, Enumeration
from shmarrow.xray.model import EXAMINED, LONG_PADDING, Claim, Finding, Path, Region, Report, tile, zeros

_DEPTH = 200
"""Maximum depth below the root; fields nest up to 64 deep."""
_LISTED = 32
"""Elements of a vector in a value; strings are cut to 100 times as many bytes."""

_LATER = 64
"""Maximum unknown fields (of later versions of the format) listed per table."""

_MESSAGE = "Columnar.rst, Encapsulated message format"
_SCHEMA = "Columnar.rst, Schema message"
_BATCH = "Columnar.rst, RecordBatch message"
_FILE = "Columnar.rst, IPC File Format"
_TENSOR = "Other.rst, Tensor"
_SPARSE = "Other.rst, Sparse Tensor"
_CHAPTERS = {
    "Message": _MESSAGE,
    "RecordBatch": _BATCH,
    "FieldNode": _BATCH,
    "Buffer": _BATCH,
    "BodyCompression": "Columnar.rst, Compression",
    "DictionaryBatch": "Columnar.rst, Dictionary Messages",
    "DictionaryEncoding": "Columnar.rst, Dictionary Messages",
    "KeyValue": "Columnar.rst, Custom Application Metadata",
    "Footer": _FILE,
    "Block": _FILE,
    "Tensor": _TENSOR,
    "TensorDim": _TENSOR,
    "SparseTensor": _SPARSE,
    "SparseTensorIndexCOO": _SPARSE,
    "SparseMatrixIndexCSX": _SPARSE,
    "SparseTensorIndexCSF": _SPARSE,
}
"""The chapter that defines each table; by default the one on the schema."""

_ENUMS = {
    ("Message", "version"): "MetadataVersion",
    ("Footer", "version"): "MetadataVersion",
    ("Schema", "endianness"): "Endianness",
    ("Schema", "features"): "Feature",
    ("DictionaryEncoding", "dictionaryKind"): "DictionaryKind",
    ("BodyCompression", "codec"): "CompressionType",
    ("BodyCompression", "method"): "BodyCompressionMethod",
    ("SparseMatrixIndexCSX", "compressedAxis"): "SparseMatrixCompressedAxis",
    **{
        (each.member, parameter.slot): parameter.kind.name
        for each in TYPES
        for parameter in each.parameters
        if isinstance(parameter.kind, Enumeration)
    },
}
"""The enumerations of fields, by table and field."""
_MEMBERS = {name: {number: member for member, number in numbers.items()} for name, numbers in ENUMS.items()}


_Explained = tuple[str, str, Any]
"""What a part is, the chapter that defines it, and its value."""


def chapter_of(name: str) -> str:
    """Return the chapter that defines a table or struct."""
    return _CHAPTERS.get(name, _SCHEMA)


class Flat:
    """One FlatBuffer within an object.

    Parameters
    ----------
    data : uint8 ndarray
        The object.
    start, end : int
        Range of the FlatBuffer.
    root : str
        The table at its root.
    label : str
        Name of the FlatBuffer, the first step of all paths.
    limits : Limits
        Bounds on what is accepted.
    report : callable
        Called with each finding.
    """

    def __init__(
        self, data: Bytes, start: int, end: int, root: str, label: str, limits: Limits, report: Report
    ) -> None:
        self._data = data
        self._start, self._end = start, end
        self._buffer = FlatBuffer(data[start:end], label, limits)
        self._root = root
        self._path = Path(None, label, 0)
        self._report = report
        self._claims: dict[tuple[int, str], Claim] = {}
        self._shared: dict[tuple[int, str], int] = {}
        self._vtables: dict[int, tuple[int, Offsets]] = {}
        self._steps = min(2 * limits.tables, self._buffer.size + 64)

    def regions(self) -> Iterator[Region]:
        """Yield regions that cover the FlatBuffer."""
        try:
            self._collect()
        except InvalidData as error:
            self._find(self._start, self._end, "error", str(error))
        claims = list(self._claims.values())
        return tile(claims, self._start, self._end, self._render, self._fill, self._overlap)

    def _find(self, start: int, end: int, severity: str, message: str, remedy: str = "") -> None:
        message = message.removeprefix(f"{self._path.label}: ")
        text = f"{self._path.label}: {message}"
        self._report(Finding(start, end, severity, text, remedy or "write the object again with a correct writer"))

    # --- following references ---

    def _claim(self, start: int, end: int, kind: str, name: str, path: Path, detail: Any = None) -> bool:
        """Claim bytes by offsets in the FlatBuffer; return whether this is the first reference to them."""
        key = start, name if kind == "table" else kind
        if key in self._claims:
            self._shared[key] = self._shared.get(key, 1) + 1
            return False
        base = self._start
        self._claims[key] = Claim(base + start, base + end, kind, name, path, detail)
        return True

    def _spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise InvalidData(f"more references than its {self._buffer.size} bytes can hold; the rest is not followed")

    def _collect(self) -> None:
        buffer = self._buffer
        if buffer.size < 8:
            buffer.fail("the root offset", 0, 8)
        root = buffer.follow(0, self._root)
        self._claim(0, 4, "root", f"offset of the root table {self._root}", self._path, root)
        stack = [(self._root, root, self._path)]
        while stack:
            name, position, path = stack.pop()
            self._spend(1)
            try:
                if path.depth > _DEPTH:
                    raise InvalidData(f"{path.label}: more than {_DEPTH} tables within each other")
                stack += reversed(self._table(name, position, path))
            except InvalidData as error:
                at = min(self._start + position, self._end)
                self._find(at, min(at + 4, self._end), "error", str(error))

    def _table(self, name: str, position: int, path: Path) -> list[tuple[str, int, Path]]:
        """Claim a table, its vtable, vectors and strings; return the tables that it refers to."""
        buffer = self._buffer
        vtable, _ = buffer.table_at(name, position)
        says, offsets = self._read_vtable(vtable)
        slots = SLOTS[name]
        end = position + extent(name, offsets[: len(slots)])
        later = offsets[len(slots) :]
        if later and any(later):  # fields of a later version, whose sizes are not known
            end = max(end, position + says)
        if position + says < end:
            at = self._start + position
            text = f"table {name} takes {end - position} bytes, but its vtable says {says}"
            self._find(at, self._start + min(end, buffer.size), "warning", text)
        if end > buffer.size:
            buffer.fail(f"table {name}", position, end - position)
        if not self._claim(position, end, "table", name, path, (vtable, offsets)):
            return []
        end = vtable + 4 + 2 * len(offsets)
        self._claim(vtable, end, "vtable", f"vtable of {name}", path, (says, offsets, name))
        found: list[tuple[str, int, Path]] = []
        for slot in slots:
            if not _has(offsets, slot) or slot.kind in SCALARS or slot.kind in STRUCTS:
                continue
            try:
                found += self._follow(name, slot, position, offsets, path.below(slot.name))
            except InvalidData as error:
                at = self._start + position + offsets[slot.number]
                self._find(at, at + 4, "error", str(error))
        return found

    def _read_vtable(self, at: int) -> tuple[int, Offsets]:
        """Return the table size and all offsets of a vtable; hostile bytes may hold up to 32,766 offsets."""
        found = self._vtables.get(at)
        if found is None:
            data = self._buffer.data
            size, says = np.ndarray(2, "<u2", data, at).tolist()
            count = (size - 4) >> 1
            self._spend(count)
            offsets = np.ndarray(count, "<u2", data, at + 4)
            found = self._vtables[at] = says, tuple(offsets.tolist())
        return found

    def _follow(
        self, table: str, slot: TableSlot, position: int, offsets: Offsets, path: Path
    ) -> Iterable[tuple[str, int, Path]]:
        """Claim the target of a field; if it is a table, return it instead."""
        buffer = self._buffer
        at = buffer.slot(table, position, offsets, slot.number, 4)
        what, kind = f"{table}.{slot.name}", slot.kind
        if kind == "string":
            start, length = buffer.vector_at(at, 1, table, slot.name)
            end = start + length
            closed = end < buffer.size and not buffer.view[end]
            if self._claim(start - 4, end + closed, "string", f"string {what}", path) and not closed:
                where = self._start + start
                self._find(where, where + length, "note", f"the string {what} has no NUL behind it")
            return ()
        if kind.startswith("union "):
            members = UNIONS[kind[6:]]
            tag_at = buffer.slot(table, position, offsets, slot.number - 1, 1)
            tag = buffer.view[tag_at] if tag_at else 0
            if not 0 < tag <= len(members):
                raise InvalidData(f"{what} has type {tag}, expected 1 to {len(members)} ({', '.join(members)})")
            return ((members[tag - 1], buffer.follow(at, table, slot.name), path),)
        if kind[0] != "[":
            return ((kind, buffer.follow(at, table, slot.name), path),)
        inner = kind[1:-1]
        dtype = SCALARS.get(inner) or STRUCTS.get(inner) or np.dtype("<u4")
        start, length = buffer.vector_at(at, dtype.itemsize, table, slot.name)
        sort = "block" if inner == "Block" else "vector"
        end = start + length * dtype.itemsize
        if not self._claim(start - 4, end, sort, f"vector {what}", path, (inner, dtype, length, table, slot.name)):
            return ()
        if inner not in TABLES:
            return ()
        self._spend(length)
        steps = np.arange(start, end, 4) + np.ndarray(length, dtype, buffer.data, start)
        parent, label = path.parent or path, slot.name
        return [(inner, target, parent.below(f"{label}[{i}]")) for i, target in enumerate(steps.tolist())]

    # --- regions ---

    def _render(self, claim: Claim, alone: bool) -> Iterable[Region]:
        what, chapter, value = _EXPLAINED[claim.kind](self, claim)
        yield Region(claim.start, claim.end, claim.kind, what, str(claim.path), chapter, value)

    def _text(self, claim: Claim) -> str:
        name = claim.name if claim.kind == "table" else claim.kind
        times = self._shared.get((claim.start - self._start, name), 1)
        return claim.name if times == 1 else f"{claim.name} (shared by {times})"

    def _explain_root(self, claim: Claim) -> _Explained:
        return claim.name, chapter_of(self._root), claim.detail

    def _explain_vtable(self, claim: Claim) -> _Explained:
        says, offsets, name = claim.detail
        slots = SLOTS[name]
        names = [*[slot.name for slot in slots], *[f"field {i}" for i in range(len(slots), len(offsets))]]
        fields = {key: offset for key, offset in zip(names, offsets, strict=False) if offset}
        value = {"size": claim.end - claim.start, "table_size": says, "offsets": fields}
        return self._text(claim), chapter_of(name), value

    def _explain_table(self, claim: Claim) -> _Explained:
        """Explain a table by the values of its fields."""
        _, offsets = claim.detail
        slots, size = SLOTS[claim.name], claim.end - claim.start
        value = {}
        for slot in slots:
            if _has(offsets, slot):
                value[slot.name] = self._value(claim.name, slot, claim.start + offsets[slot.number])
        for number in range(len(slots), min(len(offsets), len(slots) + _LATER)):
            if 0 < (at := offsets[number]) < size:
                end = min([each for each in (*offsets, size) if each > at])
                raw = bytes(self._data[claim.start + at : claim.start + min(end, at + 8)]).hex(" ")
                value[f"field {number}, of a later version"] = raw
        return f"table {self._text(claim)}", chapter_of(claim.name), value

    def _explain_vector(self, claim: Claim) -> _Explained:
        inner, dtype, length, table, slot = claim.detail
        values = np.ndarray(length, dtype, self._data, claim.start + 4)
        first = [self._element(table, slot, inner, claim.start, i, values[i]) for i in range(min(length, _LISTED))]
        value: Any = first if length <= _LISTED else {"length": length, "first": first}
        chapter = chapter_of(inner if inner in TABLES or inner in STRUCTS else table)
        return f"{self._text(claim)}: {length} × {inner}", chapter, value

    def _explain_string(self, claim: Claim) -> _Explained:
        table = claim.name.removeprefix("string ").partition(".")[0]
        return self._text(claim), chapter_of(table), self._string(claim.start)

    def _value(self, table: str, slot: TableSlot, at: int) -> Any:
        """Decode a field at an absolute offset to a JSON-serializable value."""
        data, kind = self._data, slot.kind
        if kind in SCALARS:
            number = np.ndarray((), SCALARS[kind], data, at).item()
            if slot.name.endswith("_type") and kind == "u1":
                return _member(table, slot, number)
            return _enumerated(table, slot.name, number)
        if kind in STRUCTS:
            return _fields(np.ndarray((), STRUCTS[kind], data, at), kind)
        target = at + int(np.ndarray((), "<u4", data, at))
        if kind == "string" and target + 4 <= self._end:
            return self._string(target)
        return {"at": target}

    def _string(self, start: int) -> str:
        length = int(np.ndarray((), "<u4", self._data, start))
        shown = bytes(self._data[start + 4 : min(start + 4 + min(length, 100 * _LISTED), self._end)])
        return shown.decode(errors="replace") + ("..." if length > len(shown) else "")

    def _element(self, table: str, slot: str, inner: str, start: int, index: int, item: Any) -> Any:
        if inner in TABLES:
            return {"at": start + 4 + 4 * index + int(item)}
        return _fields(item, inner) if inner in STRUCTS else _enumerated(table, slot, item.item())

    def _fill(self, start: int, end: int) -> Iterable[Region]:
        """Yield regions of unreferenced bytes of the FlatBuffer."""
        label, data = self._path.label, self._data
        identifier = bytes(data[start : start + 4])
        if start == self._start + 4 and end >= start + 4 and identifier.isalnum():
            text = identifier.decode()
            yield Region(start, start + 4, "magic", "FlatBuffers file identifier", label, chapter_of(self._root), text)
            start += 4
        if start < end:
            yield padding(data, start, end, label, _MESSAGE, self._report)

    def _overlap(self, claim: Claim, end: int) -> Region:
        text = f"{claim.name} overlaps what comes before it"
        self._find(claim.start, end, "warning", text, "readers may refuse it; write the object again")
        return Region(claim.start, end, "overlap", text, str(claim.path), chapter_of(claim.name))


_EXPLAINED: dict[str, Callable[[Flat, Claim], _Explained]] = {
    "root": Flat._explain_root,
    "vtable": Flat._explain_vtable,
    "table": Flat._explain_table,
    "vector": Flat._explain_vector,
    "block": Flat._explain_vector,
    "string": Flat._explain_string,
}
"""How the parts of a FlatBuffer are explained, by the kind of region."""


def padding(
    data: Bytes, start: int, end: int, label: str, chapter: str, report: Report, most: int = LONG_PADDING
) -> Region:
    """Return the region of unreferenced bytes: padding if they are zero, else unknown."""
    size = end - start
    if zeros(data, start, end) < min(size, EXAMINED):
        text = f"{label}: {counted(size, 'byte')} that nothing refers to and that are not zero"
        report(Finding(start, end, "warning", text, "none for readers, which ignore them; writers pad with zeros"))
        shown = bytes(data[start : min(end, start + 16)]).hex(" ")
        return Region(start, end, "unknown", f"{counted(size, 'byte')} that nothing refers to", label, "", shown)
    if size > most:
        text = f"{label}: {size} bytes of padding"
        report(Finding(start, end, "note", text, "none is needed; writing the object again may save the space"))
    what = f"padding, {counted(size, 'byte')}" + (f"; only the first {EXAMINED} were read" if size > EXAMINED else "")
    return Region(start, end, "padding", what, label, chapter)


def _has(offsets: Offsets, slot: TableSlot) -> bool:
    return slot.number < len(offsets) and offsets[slot.number] != 0


def _member(table: str, slot: TableSlot, tag: int) -> Any:
    """Return the name of a union's member."""
    members = UNIONS[SLOTS[table][slot.number + 1].kind[6:]]
    return members[tag - 1] if 0 < tag <= len(members) else tag


def _enumerated(table: str, slot: str, number: Any) -> Any:
    """Return the name of a member of an enumeration, and other scalars unchanged."""
    name = _ENUMS.get((table, slot))
    return number if name is None else _MEMBERS[name].get(number, number)


def _fields(item: Any, kind: str) -> dict[str, int]:
    """Return the fields of a struct by name."""
    names = STRUCTS[kind].names or ()
    return dict(zip(names, item.tolist(), strict=True))
