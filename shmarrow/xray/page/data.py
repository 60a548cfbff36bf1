"""The data of a page: the messages, buffers and regions of an object, encoded to compress well.

A page contains positions, sizes, names, types and metadata, but no column values. Numbers are delta-encoded arrays,
stored in the minimum number of bytes, byte plane by byte plane. The buffers of a thousand batches of a thousand columns
take several hundred kilobytes; if the batches are alike, a few.

Invariants:

* batches or messages that exceed a budget are left out entirely, and the page shows the command that draws them;
* strings are untrusted: they are shortened, and invisible and bidirectional characters are escaped.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.errors import ShmarrowError, printable
from shmarrow.xray.leaves import Leaf, type_name
from shmarrow.xray.messages import BATCH
from shmarrow.xray.model import Finding, Region
from shmarrow.xray.overviews import Overview
from shmarrow.xray.sentences import KINDS, PARTS
from shmarrow.xray.walker import NAMES, parts_of, walk

if TYPE_CHECKING:
    import numpy.typing as npt

_BUDGET = 1_150_000
"""Maximum compressed bytes for the buffers of all batches."""
_BUFFERS = 2_500_000
"""Maximum buffers of a page."""
_BATCHES = 20_000
"""Maximum batches with buffers in a page."""
_ODD_BATCHES = 400
"""Maximum batches read one by one (those with views)."""
_REGIONS, _REGIONS_OF_PART = 16_000, 5_000
"""Maximum regions of a page, and of one message."""
_MOST_METADATA = 1 << 19
"""Maximum size of a message's metadata to be walked, in bytes."""
_WHOLE = 4_000
"""Estimated number of regions up to which an object is walked entirely."""
_PLACES = 200
"""Maximum gaps between messages to be walked."""
_RAW = 96 << 10
"""Maximum metadata bytes in a page, for hex dumps."""
_FINDINGS = 500
_NAME, _VALUE, _ELEMENTS, _REFERENCES = 120, 240, 6, 12
_NAMES = 400_000
"""Maximum characters of all field names together; beyond that, each is shortened further."""

_KINDS = list(KINDS)


def encode(found: Overview, batches: range | None) -> bytes:
    """Return the data of a page, compressed and base64-encoded.

    Parameters
    ----------
    found : Overview
        The object.
    batches : range, optional
        Record batches to include with buffers and metadata; by default as many of the first ones as fit.
    """
    return base64.b64encode(zlib.compress(_Page(found, batches).blob(), 6))


# --- numbers and strings ----------------------------------------------------------------------------------------


def pack(numbers: npt.NDArray[np.int64]) -> tuple[int, bytes]:
    """Pack signed integers into the minimum width; return the width and the bytes, plane by plane."""
    flat = np.ascontiguousarray(numbers, "<i8").reshape(-1)
    width = 1
    if flat.size:
        low, high = int(flat.min()), int(flat.max())
        while not -(1 << (8 * width - 1)) <= low <= high < 1 << (8 * width - 1):
            width += 1
    return width, np.ascontiguousarray(flat.view(np.uint8).reshape(-1, 8)[:, :width].T).tobytes()


def _clean(text: str, most: int = _NAME) -> str:
    """Escape and shorten a string."""
    if len(text) > most:
        text = f"{text[: most - 12]}… ({len(text)} characters)"
    return printable(text)


def _text(value: Any) -> str:
    """Format a region's value on one line, with only the first elements of long vectors."""
    if value is None:
        return ""
    if isinstance(value, list):
        more = f", … ({len(value)})" if len(value) > _ELEMENTS else ""
        made = f"[{', '.join([_word(each) for each in value[:_ELEMENTS]])}{more}]"
    elif isinstance(value, dict):
        made = ", ".join([f"{key}: {_word(each)}" for key, each in islice(value.items(), 16)])
    else:
        made = _word(value)
    return _clean(made, _VALUE)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value[:_VALUE]
    if isinstance(value, dict):
        if list(value) == ["at"]:
            return f"→ {value['at']}"
        return f"{{{', '.join([f'{key}: {_word(each)}' for key, each in islice(value.items(), 16)])}}}"
    return json.dumps(value, ensure_ascii=False)[:_VALUE] if not isinstance(value, list) else _text(value)


def _references(region: Region) -> list[int]:
    """Return the offsets to which a region points."""
    value = region.value
    if region.kind == "root":
        return [region.start + value] if isinstance(value, int) else []
    each = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    made = []
    for one in islice(each, _REFERENCES):
        if isinstance(one, dict) and isinstance(at := one.get("at", one.get("offset")), int):
            made.append(at)
    return made if region.kind in ("table", "vector", "block") else []


def label(found: Overview) -> str:
    """Return the title of a page; for files without directories, which should not leak to those who get the page."""
    shared = found.name.startswith("shm:")
    is_path = not shared and (found.source.location is not None or os.path.isabs(found.name))
    return (os.path.basename(found.name) if is_path else "") or found.name


class _Span(NamedTuple):
    """Consecutive batches with the same list of buffers: absolute offset and length of each."""

    first: int
    leaves: tuple[Leaf, ...]
    buffers: npt.NDArray[np.int64]


class _Packed(NamedTuple):
    """A delta-encoded span: lengths relative to the previous batch, offsets to the next multiple of ``align``."""

    span: _Span
    align: int
    lengths: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


# --- the page ---------------------------------------------------------------------------------------------------


class _Page:
    """Collects the data of one page."""

    def __init__(self, found: Overview, batches: range | None) -> None:
        self._found = found
        self._asked = batches
        self._arrays: list[tuple[str, int, int]] = []
        self._bytes: list[bytes] = []
        self._regions: list[Region] = []
        self._findings: list[Finding] = list(found.findings)
        self._reached = 0, 0
        """The batches examined; their buffers are in the page unless malformed."""
        self._walked: list[tuple[int, int]] = []
        """Ranges of walked metadata, whose bytes may be in the page."""
        end = found.size if found.footer is None else found.footer[0]
        self._parts, self._ends = parts_of(found, end)

    def blob(self) -> bytes:
        """Return the length of the JSON header, the header, and the arrays that it lists."""
        found = self._found
        header: dict[str, Any] = {
            "name": _clean(label(found), 200), "kind": found.kind, "size": found.size,
            "version": found.version, "endianness": found.endianness, "compression": found.compression,
            "batches": len(found.blocks), "dictionaries": len(found.dictionaries), "footer": found.footer,
            "kinds": _KINDS, "sentences": KINDS | PARTS, "names": {str(kind): name for kind, name in NAMES.items()},
            "asked": None if self._asked is None else [self._asked.start, self._asked.stop],
        }  # fmt: skip
        spans = self._spans()
        self._put_messages()
        header["fields"] = self._put_fields(spans)
        header |= self._put_spans(spans)
        header["reached"] = self._reached
        header["whole"] = self._walk(spans)
        header |= self._put_regions()
        header |= self._put_findings()
        header["raw"] = self._put_raw()
        header["arrays"] = self._arrays
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return len(text).to_bytes(4, "little") + text + b"".join(self._bytes)

    def _put(self, name: str, numbers: Any) -> None:
        """Add an array of int64."""
        array = np.asarray(numbers, np.int64)
        width, data = pack(array)
        self._arrays.append((name, width, array.size))
        self._bytes.append(data)

    # --- messages and fields ---

    def _put_messages(self) -> None:
        """Add the messages: the gap in front of each, and delta-encoded sizes."""
        parts = self._parts
        ends = parts[:, :3].sum(axis=1)
        self._put("gap", parts[:, 0] - np.concatenate([[0], ends[:-1]])[: len(parts)])
        for name, column in (("metadata", 1), ("body", 2), ("number", 4)):
            self._put(name, np.diff(parts[:, column], prepend=0))
        self._put("kind", parts[:, 3])
        try:
            rows = self._found.rows() if len(self._found.blocks) <= _BATCHES else self._found.rows(0, 1)
        except ShmarrowError:
            rows = np.empty(0, np.int64)
        self._put("rows", np.diff(rows, prepend=0))

    def _put_fields(self, spans: list[_Packed]) -> dict[str, Any]:
        """Add the fields of the schema with their depths, and their bytes in the batches of the page."""
        names, types, depths, columns = [], [], [], []
        stack = [(column, 0, wire) for column, wire in reversed(list(enumerate(self._found.wires)))]
        while stack:
            column, depth, wire = stack.pop()
            names.append(wire.field.name)
            types.append(type_name(wire))
            depths.append(depth)
            columns.append(column)
            stack += [(column, depth + 1, child) for child in reversed(wire.children)]
        own = np.zeros(len(names), np.int64)
        roles: dict[str, int] = {}
        for span, *_ in spans:
            sizes = span.buffers[:, :, 1].sum(axis=0)
            np.add.at(own, [leaf.node for leaf in span.leaves], sizes)
            for leaf, size in zip(span.leaves, sizes.tolist(), strict=True):
                roles[leaf.buffer] = roles.get(leaf.buffer, 0) + size
        bodies = sum([int(self._found.blocks[span.first :][: len(span.buffers), 2].sum()) for span, *_ in spans])
        self._put("field_bytes", own)
        self._put("field_depth", depths)
        self._put("field_column", columns)
        most = max(16, min(_NAME, _NAMES // max(len(names), 1)))
        return {
            "names": [_clean(name, most) for name in names],
            "types": [_clean(name, 60) for name in types],
            "buffers": roles,
            "bodies": bodies,
        }

    # --- buffers ---

    def _spans(self) -> list[_Packed]:
        """Return the buffers of the batches that fit the budget."""
        found, count = self._found, len(self._found.blocks)
        if found.schema is None or not count:
            return []
        chosen = range(count) if self._asked is None else self._asked
        wide = max(len(found.columns), 1)
        if found.regular:
            last = min(chosen.stop, chosen.start + max(1, min(_BATCHES, _BUFFERS // wide)))
            self._reached = chosen.start, last
            try:
                return self._fitting([_Span(chosen.start, found.columns, found.buffers(chosen.start, last))])
            except ShmarrowError:
                pass  # a batch cannot be read: read them one by one
        many = max(1, min(_ODD_BATCHES, _BUFFERS // wide))
        tried = range(chosen.start, min(chosen.stop, chosen.start + many))
        self._reached = tried.start, tried.stop
        return self._fitting(list(self._one_by_one(tried)))

    def _one_by_one(self, chosen: range) -> Iterator[_Span]:
        """Yield spans of batches that are read one by one, because of views or unreadable messages."""
        found = self._found
        first, leaves, rows = 0, (), []  # type: tuple[int, tuple[Leaf, ...], list[Any]]
        for number in chosen:
            try:
                batch = found.batch(number)
                own = found.leaves(batch)
            except ShmarrowError:
                continue  # the walk reports the defect
            if len(own) != len(batch.buffers):
                continue
            if rows and (number != first + len(rows) or own != leaves):
                yield _Span(first, leaves, np.stack(rows))
                rows = []
            if not rows:
                first, leaves = number, own
            rows.append(np.add(batch.buffers, (batch.body, 0)))
        if rows:
            yield _Span(first, leaves, np.stack(rows))

    def _fitting(self, spans: list[_Span]) -> list[_Packed]:
        """Return as many well-formed batches as fit the budget."""
        made: list[_Packed] = []
        left = _BUDGET
        for span in spans:
            for part in self._in_order(span):
                packed = self._differences(part)
                size = sum([len(zlib.compress(pack(each)[1], 1)) for each in packed[2:]])
                if size > left:
                    many = int(len(part.buffers) * left / size * 0.95)
                    self._reached = self._reached[0], part.first + many
                    return [*made, self._differences(part._replace(buffers=part.buffers[:many]))] if many else made
                made.append(packed)
                left -= size
        return made

    def _in_order(self, span: _Span) -> Iterator[_Span]:
        """Yield runs of batches with disjoint, ordered buffers within the body; the walk draws the others."""
        offset, length = span.buffers[:, :, 0], span.buffers[:, :, 1]
        blocks = self._found.blocks[span.first : span.first + len(span.buffers)]
        body, end = blocks[:, :2].sum(axis=1)[:, None], blocks.sum(axis=1)[:, None]
        used = length > 0
        ends = np.maximum.accumulate(np.where(used, offset + length, body), axis=1)
        good = (length >= 0) & (~used | ((offset >= body) & (length <= end - offset)))
        good[:, 1:] &= ~used[:, 1:] | (offset[:, 1:] >= ends[:, :-1])
        fine = good.all(axis=1)
        edges = np.flatnonzero(np.diff(fine, prepend=False, append=False)).tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            yield _Span(span.first + start, span.leaves, span.buffers[start:stop])

    def _differences(self, span: _Span) -> _Packed:
        """Delta-encode a span."""
        offset, length = span.buffers[:, :, 0], span.buffers[:, :, 1]
        body = self._found.blocks[span.first : span.first + len(offset), :2].sum(axis=1)[:, None]
        used = length > 0
        start = np.where(used, offset - body, 0)
        ends = np.maximum.accumulate(np.where(used, start + length, 0), axis=1)
        before = np.concatenate([np.zeros((len(ends), 1), np.int64), ends[:, :-1]], axis=1)
        first = slice(0, 1)
        _, align = min(
            (np.count_nonzero((start[first] - ((before[first] + align - 1) & -align)) * used[first]), align)
            for align in (8, 64)
        )
        before += align - 1
        before &= -align
        return _Packed(span, align, np.diff(length, axis=0, prepend=0), (start - before) * used)

    def _put_spans(self, spans: list[_Packed]) -> dict[str, Any]:
        strings: dict[str, int] = {}

        def number(text: str) -> int:
            return strings.setdefault(text, len(strings))

        made: list[dict[str, int]] = []
        lists: dict[tuple[Leaf, ...], int] = {}
        for span, align, lengths, offsets in spans:
            at = lists.setdefault(span.leaves, len(lists))
            self._put(f"length {len(made)}", lengths)
            self._put(f"offset {len(made)}", offsets)
            made.append({"first": span.first, "count": len(lengths), "leaves": at, "align": align})
        for leaves, at in lists.items():
            self._put(f"leaf field {at}", [leaf.node for leaf in leaves])
            self._put(f"leaf column {at}", [leaf.column for leaf in leaves])
            self._put(f"leaf buffer {at}", [number(leaf.buffer) for leaf in leaves])
            self._put(f"leaf chapter {at}", [number(leaf.chapter) for leaf in leaves])
        return {"spans": made, "strings": list(strings)}

    # --- regions ---

    def _walk(self, spans: list[_Packed]) -> bool:
        """Walk all of a small object, or all but the buffers of a large one; return whether all was walked."""
        found, parts = self._found, self._parts
        wide = len(found.columns) if found.schema is not None else 0
        if len(parts) * (12 + 2 * wide) <= _WHOLE and found.size <= 1 << 26:
            kept = list(islice(walk(found, report=self._note), _WHOLE * 4))
            if len(kept) < _WHOLE * 4:
                del self._findings[: len(found.findings)]  # the walk reports them again
                self._keep(kept)
                return True
            self._findings = list(found.findings)
        detailed = {span.first + number for span, *_ in spans for number in range(len(span.buffers))}
        for start, stop in self._between():
            self._range(start, stop)
        kinds = parts[:, 3]
        for row in parts[kinds != BATCH][:8].tolist():
            self._range(row[0], row[0] + row[1] + (row[2] if row[2] <= _MOST_METADATA else 0))
        batches = parts[kinds == BATCH]
        chosen = self._asked or range(1)
        shown = batches[np.isin(batches[:, 4], [*islice(chosen, 64)])]
        broken = batches[~np.isin(batches[:, 4], list(detailed))][:8] if len(batches) <= _BATCHES else batches[:0]
        for row in np.unique(np.concatenate([shown, broken]), axis=0).tolist():
            self._range(row[0], row[0] + row[1] + (0 if row[4] in detailed else row[2]))
        return False

    def _note(self, finding: Finding) -> None:
        if len(self._findings) <= _FINDINGS:
            self._findings.append(finding)

    def _between(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges before, between and after the messages."""
        size = self._found.size
        starts = np.append(self._parts[:, 0], size)
        ends = np.concatenate([[0], self._ends])
        gaps = np.flatnonzero(starts > ends)
        for at in [*gaps[:_PLACES].tolist(), *gaps[_PLACES:][-1:].tolist()]:
            yield int(ends[at]), int(starts[at])

    def _range(self, start: int, stop: int) -> None:
        """Walk [start, stop) if it fits the budget."""
        left = min(_REGIONS_OF_PART, _REGIONS - len(self._regions))
        if left <= 0 or start >= stop or self._metadata(start) > _MOST_METADATA:
            return
        known = set(self._findings)
        new: list[Finding] = []
        kept = list(islice(walk(self._found, start=start, stop=stop, report=new.append), left))
        for each in new:
            if each not in known:
                self._note(each)
        self._keep([each for each in kept if each.start >= start])

    def _metadata(self, start: int) -> int:
        """Return the size of the metadata at ``start``."""
        footer = self._found.footer
        rows = self._parts[self._parts[:, 0] == start]
        if len(rows):
            return int(rows[0, 1])
        return footer[1] - footer[0] if footer is not None and start <= footer[0] else 0

    def _keep(self, regions: Iterable[Region]) -> None:
        self._regions += regions

    def _put_regions(self) -> dict[str, Any]:
        regions = sorted(set_of(self._regions), key=lambda each: (each.start, -each.end))
        kinds = {kind: number for number, kind in enumerate(_KINDS)}
        chapters: dict[str, int] = {}
        starts = np.array([each.start for each in regions], np.int64)
        ends = np.array([each.end for each in regions], np.int64)
        references = [_references(each) for each in regions]
        self._put("region start", np.diff(starts, prepend=0))
        self._put("region size", ends - starts)
        self._put("region kind", [kinds[each.kind] for each in regions])
        self._put("region chapter", [chapters.setdefault(each.chapter, len(chapters)) for each in regions])
        self._put("references", [at - each.start for each, all in zip(regions, references, strict=True) for at in all])
        self._put("reference count", [len(each) for each in references])
        self._walked = [(each.start, each.end) for each in regions if each.kind not in ("buffer", "gap", "unknown")]
        return {
            "what": [_clean(each.what, 160) for each in regions],
            "path": [_clean(each.path, 160) for each in regions],
            "value": [_text(each.value) for each in regions],
            "chapters": list(chapters),
        }

    def _put_findings(self) -> dict[str, Any]:
        found, name, short = self._findings, self._found.name, label(self._found)
        rows = [
            [
                each.start, each.end, each.severity,
                _clean(each.message.replace(name, short), 400), _clean(each.remedy.replace(name, short), 300),
            ]
            for each in found
        ]  # fmt: skip
        return {"findings": rows[:_FINDINGS], "more_findings": len(rows) > _FINDINGS}

    def _put_raw(self) -> list[int]:
        """Add the bytes of walked metadata, but not those of buffers."""
        left, offsets, sizes, pieces = _RAW, [], [], []
        for start, end in self._walked:
            size = min(end - start, 256, left)
            if size <= 0:
                continue
            offsets.append(start)
            sizes.append(size)
            pieces.append(self._found.data[start : start + size].tobytes())
            left -= size
        self._put("raw start", np.diff(np.array(offsets, np.int64), prepend=0))
        self._put("raw size", sizes)
        data = b"".join(pieces)
        self._put("raw", np.frombuffer(data, np.int8).astype(np.int64))
        return [len(data)]


def set_of(regions: list[Region]) -> list[Region]:
    """Return regions without duplicates; values need not be hashable."""
    return list({(each.start, each.end, each.kind, each.what): each for each in regions}.values())
