# SPDX-License-Identifier: Apache-2.0
"""The data of a page: the messages, buffers and regions of an object, as one JSON document.

A page contains positions, sizes, names, types and metadata, but no column values.

Invariants:

* batches or messages that exceed a budget are left out entirely, and the page shows the command that draws them;
* strings are untrusted: they are shortened, and invisible and bidirectional characters are escaped.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.errors import ShmarrowError, printable
from shmarrow.xray.model import BufferRole, Finding, Region, type_name, value_text
from shmarrow.xray.overviews import BATCH, Overview
from shmarrow.xray.sentences import KINDS, PARTS
from shmarrow.xray.walker import NAMES, parts_of, walk

if TYPE_CHECKING:
    import numpy.typing as npt

_BUFFERS = 500_000
"""Maximum buffers of a page."""
_BATCHES = 20_000
"""Maximum batches with buffers in a page."""
_BROKEN = 100
"""Maximum batches that are tried and cannot be read."""
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
_NAME, _VALUE, _REFERENCES = 120, 240, 12
_NAMES = 400_000
"""Maximum characters of all field names together; beyond that, each is shortened further."""


def encode(found: Overview, batches: range | None) -> bytes:
    """Return the data of a page, compressed and base64-encoded.

    Parameters
    ----------
    found : Overview
        The object.
    batches : range, optional
        Record batches to include with buffers and metadata; by default as many of the first ones as fit.
    """
    text = json.dumps(_Page(found, batches).document(), ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 6))


# --- strings ----------------------------------------------------------------------------------------------------


def _clean(text: str, most: int = _NAME) -> str:
    """Escape and shorten a string."""
    if len(text) > most:
        text = f"{text[: most - 12]}… ({len(text)} characters)"
    return printable(text)


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


class _AlikeBatches(NamedTuple):
    """Consecutive batches with the same list of buffers: absolute offset and length of each."""

    first: int
    roles: tuple[BufferRole, ...]
    buffers: npt.NDArray[np.int64]


# --- the page ---------------------------------------------------------------------------------------------------


class _Page:
    """Collects the data of one page."""

    def __init__(self, found: Overview, batches: range | None) -> None:
        self._found = found
        self._asked = batches
        self._regions: list[Region] = []
        self._findings: dict[Finding, None] = dict.fromkeys(found.findings)
        self._reached = 0, 0
        """The batches examined; their buffers are in the page unless malformed."""
        self._walked: list[tuple[int, int]] = []
        """Ranges of walked metadata, whose bytes may be in the page."""
        end = found.size if found.footer is None else found.footer[0]
        self._parts, self._ends = parts_of(found, end)

    def document(self) -> dict[str, Any]:
        """Return the data of the page."""
        found = self._found
        spans = self._spans()
        whole = self._walk(spans)
        return {
            "name": _clean(label(found), 200), "kind": found.kind, "size": found.size,
            "version": found.version, "endianness": found.endianness, "compression": found.compression,
            "batches": len(found.blocks), "dictionaries": len(found.dictionaries), "footer": found.footer,
            "sentences": KINDS | PARTS, "names": {str(kind): name for kind, name in NAMES.items()},
            "asked": None if self._asked is None else [self._asked.start, self._asked.stop],
            "messages": self._messages(), "rows": self._rows(), "fields": self._fields(spans),
            **self._buffers(spans), "reached": self._reached, "whole": whole, "regions": self._described(),
            "raw": self._raw(), **self._listed_findings(),
        }  # fmt: skip

    # --- messages and fields ---

    def _messages(self) -> dict[str, list[int]]:
        """Return the gap before each message, its sizes and kind, and the step from the previous number to its own."""
        parts = self._parts
        ends = parts[:, :3].sum(axis=1)
        gaps = parts[:, 0] - np.concatenate([[0], ends[:-1]])[: len(parts)]
        columns = {"gap": gaps, "metadata": parts[:, 1], "body": parts[:, 2], "kind": parts[:, 3]}
        columns["step"] = np.diff(parts[:, 4], prepend=0)
        return {name: column.tolist() for name, column in columns.items()}

    def _rows(self) -> list[int]:
        try:
            return [*map(int, self._found.rows(0, None if len(self._found.blocks) <= _BATCHES else 1))]
        except ShmarrowError:
            return []

    def _fields(self, spans: list[_AlikeBatches]) -> dict[str, Any]:
        """Return the fields of the schema with their depths, and their bytes in the batches of the page."""
        names, types, depths, columns = [], [], [], []
        stack = [(column, 0, layout) for column, layout in reversed(list(enumerate(self._found.layouts)))]
        while stack:
            column, depth, layout = stack.pop()
            names.append(layout.field.name)
            types.append(type_name(layout))
            depths.append(depth)
            columns.append(column)
            stack += [(column, depth + 1, child) for child in reversed(layout.children)]
        own = np.zeros(len(names), np.int64)
        by_kind: dict[str, int] = {}
        for span in spans:
            sizes = span.buffers[:, :, 1].sum(axis=0)
            np.add.at(own, [role.node for role in span.roles], sizes)
            for role, size in zip(span.roles, sizes.tolist(), strict=True):
                by_kind[role.buffer] = by_kind.get(role.buffer, 0) + size
        bodies = sum([int(self._found.blocks[span.first :][: len(span.buffers), 2].sum()) for span in spans])
        most = max(16, min(_NAME, _NAMES // max(len(names), 1)))
        return {
            "name": [_clean(name, most) for name in names],
            "type": [_clean(name, 60) for name in types],
            "own": own.tolist(),
            "depth": depths,
            "column": columns,
            "buffers": by_kind,
            "bodies": bodies,
        }

    # --- buffers ---

    def _spans(self) -> list[_AlikeBatches]:
        """Return the buffers of the first well-formed batches, as many as a page may have."""
        found, count = self._found, len(self._found.blocks)
        if found.schema is None or not count:
            return []
        chosen = range(count) if self._asked is None else self._asked
        many = max(1, min(_BATCHES, _BUFFERS // max(len(found.buffer_roles), 1)))
        tried = range(chosen.start, min(chosen.stop, chosen.start + many))
        self._reached = tried.start, tried.stop
        return [part for span in self._read(tried) for part in self._in_order(span)]

    def _read(self, chosen: range) -> Iterator[_AlikeBatches]:
        """Yield spans of batches with the same list of buffers; ends early if too many cannot be read."""
        found = self._found
        first, roles, rows = 0, (), []  # type: tuple[int, tuple[BufferRole, ...], list[Any]]
        broken = 0
        for number in chosen:
            try:
                batch = found.batch(number)
                own = found.roles_of(batch)
            except ShmarrowError:
                broken += 1  # the walk reports the defect
                if broken < _BROKEN:
                    continue
                self._reached = chosen.start, number
                break
            if len(own) != len(batch.buffers):
                continue
            if rows and (number != first + len(rows) or own != roles):
                yield _AlikeBatches(first, roles, np.stack(rows))
                rows = []
            if not rows:
                first, roles = number, own
            rows.append(np.add(batch.buffers, (batch.body, 0)))
        if rows:
            yield _AlikeBatches(first, roles, np.stack(rows))

    def _in_order(self, span: _AlikeBatches) -> Iterator[_AlikeBatches]:
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
            yield _AlikeBatches(span.first + start, span.roles, span.buffers[start:stop])

    def _buffers(self, spans: list[_AlikeBatches]) -> dict[str, Any]:
        """Return the buffers of the spans, and the lists of roles to which they refer.

        A buffer is a length, and the bytes since the previous buffer; those of one role follow each other.
        """
        made: list[dict[str, Any]] = []
        lists: dict[tuple[BufferRole, ...], int] = {}
        for span in spans:
            offset, length = span.buffers[:, :, 0].T, span.buffers[:, :, 1].T
            body = self._found.blocks[span.first : span.first + len(span.buffers), :2].sum(axis=1)
            ends = np.maximum.accumulate(np.where(length > 0, offset + length, body))
            before = np.concatenate([np.broadcast_to(body, ends[:1].shape), ends[:-1]])
            gaps = np.where(length > 0, offset - before, 0)
            made.append({
                "first": span.first, "count": len(span.buffers), "leaves": lists.setdefault(span.roles, len(lists)),
                "gaps": gaps.ravel().tolist(), "lengths": length.ravel().tolist(),
            })  # fmt: skip
        roles = [
            {
                "field": [role.node for role in each], "column": [role.column for role in each],
                "buffer": [role.buffer for role in each], "chapter": [role.chapter for role in each],
            }
            for each in lists
        ]  # fmt: skip
        return {"spans": made, "leaves": roles}

    # --- regions ---

    def _walk(self, spans: list[_AlikeBatches]) -> bool:
        """Walk all of a small object, or all but the buffers of a large one; return whether all was walked."""
        found, parts = self._found, self._parts
        wide = len(found.buffer_roles) if found.schema is not None else 0
        if len(parts) * (12 + 2 * wide) <= _WHOLE and found.size <= 1 << 26:
            kept = list(islice(walk(found, report=self._note), _WHOLE * 4))
            if len(kept) < _WHOLE * 4:
                self._regions = kept
                return True
        detailed = {span.first + number for span in spans for number in range(len(span.buffers))}
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
            self._findings[finding] = None

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
        kept = islice(walk(self._found, start=start, stop=stop, report=self._note), left)
        self._regions += [each for each in kept if each.start >= start]

    def _metadata(self, start: int) -> int:
        """Return the size of the metadata at ``start``."""
        footer = self._found.footer
        rows = self._parts[self._parts[:, 0] == start]
        if len(rows):
            return int(rows[0, 1])
        return footer[1] - footer[0] if footer is not None and start <= footer[0] else 0

    def _described(self) -> dict[str, Any]:
        """Return the regions as one list per attribute."""
        once = {each[:4]: each for each in self._regions}  # some are in two of the ranges that were walked
        regions = sorted(once.values(), key=lambda each: (each.start, -each.end))
        self._walked = [(each.start, each.end) for each in regions if each.kind not in ("buffer", "gap", "unknown")]
        return {
            "start": [each.start for each in regions],
            "end": [each.end for each in regions],
            "kind": [each.kind for each in regions],
            "chapter": [each.chapter for each in regions],
            "what": [_clean(each.what, 160) for each in regions],
            "path": [_clean(each.path, 160) for each in regions],
            "value": [_clean(value_text(each.value), _VALUE) for each in regions],
            "references": [_references(each) for each in regions],
        }

    def _listed_findings(self) -> dict[str, Any]:
        name, short = self._found.name, label(self._found)
        rows = [
            [
                each.start, each.end, each.severity,
                _clean(each.message.replace(name, short), 400), _clean(each.remedy.replace(name, short), 300),
            ]
            for each in self._findings
        ]  # fmt: skip
        return {"findings": rows[:_FINDINGS], "more_findings": len(rows) > _FINDINGS}

    def _raw(self) -> dict[str, Any]:
        """Return the bytes of walked metadata, in hexadecimal, but not those of buffers."""
        left, starts, texts = _RAW, [], []
        for start, end in self._walked:
            size = min(end - start, 256, left)
            if size <= 0:
                continue
            starts.append(start)
            texts.append(self._found.data[start : start + size].tobytes().hex())
            left -= size
        return {"start": starts, "hex": texts}
