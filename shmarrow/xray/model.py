# SPDX-License-Identifier: Apache-2.0
"""Regions and findings, which the walk yields, and the roles of buffers.

Claims on bytes become regions: sorted, with gaps filled and overlaps marked. The buffers of a record batch have their
roles by their order ("Buffer Listing for Each Layout").
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.ipc.schema.lazy import FieldLayout
from shmarrow.layout import LISTING

_VALUE, _ELEMENTS, _FIELDS = 240, 6, 16
"""Characters of a value as text, elements of a vector and fields of a table in it."""


class Region(NamedTuple):
    """A run of bytes and its meaning.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object; ``end`` is exclusive.
    kind : str
        One of :data:`shmarrow.xray.KINDS`.
    what : str
        A human-readable description, such as ``"validity of column 'x'"``.
    path : str
        Position in the structure, such as ``"record batch 3 / x / values"``.
    chapter : str
        Chapter of the specification that defines it, such as ``"Columnar.rst, IPC File Format"``.
    value : object
        Decoded value, JSON-serializable; None for buffers.
    """

    start: int
    end: int
    kind: str
    what: str
    path: str
    chapter: str
    value: Any = None


class Finding(NamedTuple):
    """A deviation from the specification, or something unusual.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object; ``end`` is exclusive.
    severity : str
        ``"error"``: readers fail or return wrong values. ``"warning"``: a violation that readers tolerate.
        ``"note"``: allowed, but unusual.
    message : str
        What was expected and what was found.
    remedy : str
        What to do about it.
    """

    start: int
    end: int
    severity: str
    message: str
    remedy: str


def value_text(value: Any) -> str:
    """Format the value of a region on one line, with only the first elements of long vectors; not escaped."""
    if value is None:
        return ""
    if isinstance(value, dict) and list(value) != ["at"]:
        return ", ".join([f"{key}: {_word(each)}" for key, each in islice(value.items(), _FIELDS)])
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value[:_VALUE]
    if isinstance(value, list):
        more = f", … ({len(value)})" if len(value) > _ELEMENTS else ""
        return f"[{', '.join([_word(each) for each in value[:_ELEMENTS]])}{more}]"
    if isinstance(value, dict):
        return f"→ {value['at']}" if list(value) == ["at"] else f"{{{value_text(value)}}}"
    return json.dumps(value, ensure_ascii=False)[:_VALUE]


Report = Callable[[Finding], None]


# --- claims -------------------------------------------------------------------------------------------------------

EXAMINED = 1 << 24
"""Maximum bytes of a run that are compared with zero."""
LONG_PADDING = 64
"""Maximum zeros between two parts that count as alignment; longer runs get a note."""


class Path(NamedTuple):
    """A step of a path, linked to its parent."""

    parent: Path | None
    label: str
    depth: int

    def below(self, label: str) -> Path:
        """Return a child step."""
        return Path(self, label, self.depth + 1)

    def __str__(self) -> str:
        labels = [self.label]
        step = self.parent
        while step is not None:
            labels.append(step.label)
            step = step.parent
        return " / ".join(reversed(labels))


class Claim(NamedTuple):
    """A referenced range of bytes; its value is decoded when it is rendered.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object.
    kind : str
        The kind of region.
    name : str
        Name of the part, such as a table.
    path : Path
        Position in the structure.
    detail : object
        Data for rendering it.
    """

    start: int
    end: int
    kind: str
    name: str
    path: Path
    detail: Any = None


Render = Callable[[Claim, bool], Iterable[Region]]
Fill = Callable[[int, int], Iterable[Region]]
Overlap = Callable[[Claim, int], Region]


def tile(
    claims: Sequence[Claim], start: int, end: int, render: Render, fill: Fill, overlap: Overlap
) -> Iterator[Region]:
    """Yield regions that cover [start, end), sorted by start.

    Parameters
    ----------
    claims : sequence of Claim
        In any order, within [start, end).
    start, end : int
        The range to cover.
    render : callable
        Yields the regions of a claim; a single one if the second argument is False, because other claims overlap it.
    fill : callable
        Yields the regions of unclaimed bytes.
    overlap : callable
        Returns the region of the first bytes of a claim, up to an end, that an earlier claim covers.
    """
    rest: list[tuple[int, int, int, Claim]] = []
    ordered = iter(sorted(claims, key=_order))
    upcoming = next(ordered, None)
    cursor = start
    number = 0
    while upcoming is not None or rest:
        if upcoming is not None and (not rest or upcoming.start <= rest[0][0]):
            claim, upcoming, cut = upcoming, next(ordered, None), False
        else:
            claim, cut = heapq.heappop(rest)[3], True
        if claim.start > cursor:
            yield from fill(cursor, claim.start)
        elif claim.start < cursor:
            shared = min(claim.end, cursor)
            yield overlap(claim, shared)
            if claim.end > cursor:
                number += 1
                heapq.heappush(rest, (cursor, -claim.end, number, claim._replace(start=cursor)))
            continue
        if cut:
            yield Region(claim.start, claim.end, claim.kind, f"rest of {claim.name}", str(claim.path), "")
        else:
            alone = (upcoming is None or upcoming.start >= claim.end) and not (rest and rest[0][0] < claim.end)
            yield from render(claim, alone)
        cursor = claim.end
    if cursor < end:
        yield from fill(cursor, end)


def _order(claim: Claim) -> tuple[int, int]:
    return claim.start, -claim.end


def zeros(data: Bytes, start: int, end: int) -> int:
    """Count the zero bytes at the start of [start, end); may stop after :data:`EXAMINED` of them."""
    at, step = start, 4096
    while at < end and at - start < EXAMINED:
        piece = data[at : min(at + step, end)]
        found = int(np.argmax(piece != 0))
        if piece[found]:
            return at + found - start
        at += len(piece)
        step = 1 << 20
    return at - start


class BufferRole(NamedTuple):
    """One buffer of a record batch.

    Attributes
    ----------
    path : str
        Path of its field: ``"x"``, ``"l.item"``.
    buffer : str
        ``"validity"``, ``"values"``, ``"indices"`` (of a dictionary), ``"offsets"``, ``"sizes"``, ``"type_ids"``,
        ``"views"`` or ``"data"``.
    column : int
        Index of the top-level column; -1 for the values of a dictionary.
    node : int
        Index of the field's node in the batch.
    type : str
        Storage type of the field, such as ``"int64"``.
    bits : int
        Bits per slot; -1 if the size does not depend on the number of slots.
    extra : int
        Slots in addition to the field's length: 1 for offsets.
    chapter : str
        Chapter of the specification.
    variadic : bool
        Whether a batch may have any number of these buffers, like the data buffers of views. In
        :attr:`Overview.buffer_roles` one role represents all of them.
    """

    path: str
    buffer: str
    column: int
    node: int
    type: str
    bits: int
    extra: int
    chapter: str
    variadic: bool = False


def fields_below(layouts: Iterable[FieldLayout]) -> Iterator[tuple[int, str, FieldLayout]]:
    """Yield the top-level column, path and field of each node of a batch, in order."""
    for column, layout in enumerate(layouts):
        stack = [(layout.field.name, layout)]
        while stack:
            path, each = stack.pop()
            yield column, path, each
            stack += [(f"{path}.{child.field.name}", child) for child in reversed(each.children)]


def type_name(layout: FieldLayout) -> str:
    """Return a short name of a storage type; for nested types only the layout, as children are named separately."""
    return layout.type.layout if layout.children else str(layout.type)


def roles_of(layouts: Iterable[FieldLayout], v4: bool, dictionary: bool = False) -> Iterator[BufferRole]:
    """Yield the buffers of a batch with these columns.

    Parameters
    ----------
    layouts : iterable of FieldLayout
        Storage of the columns.
    v4 : bool
        Whether the metadata version is V4, in which unions have a validity bitmap.
    dictionary : bool
        Whether the batch holds the values of a dictionary.
    """
    for node, (number, path, layout) in enumerate(fields_below(layouts)):
        column = -1 if dictionary else number
        type = layout.type
        listing = LISTING[type.layout]
        name, chapter = type_name(layout), f"Columnar.rst, {listing.chapter}"
        if v4 and listing.v4_validity:
            yield BufferRole(path, "validity", column, node, name, 1, 0, "Columnar.rst, Validity bitmaps")
        for spec in listing.buffers:
            bits = 8 * type.byte_width if spec.bits == 0 else spec.bits
            where = "Columnar.rst, Validity bitmaps" if spec.role == "validity" else chapter
            if type.layout == "dictionary" and spec.role == "values":
                yield BufferRole(path, "indices", column, node, str(type.index_type), bits, spec.extra, where)
            else:
                yield BufferRole(path, spec.role, column, node, name, bits, spec.extra, where)
        if listing.variadic:
            yield BufferRole(path, "data", column, node, name, -1, 0, "Columnar.rst, Variadic buffers", True)


def expanded(roles: Iterable[BufferRole], variadic: Iterable[int]) -> Iterator[BufferRole]:
    """Yield the roles of one batch, with a role for each data buffer of a view.

    Parameters
    ----------
    roles : iterable of BufferRole
        The roles common to all batches.
    variadic : iterable of int
        Number of data buffers of each view column in the batch.
    """
    counts = iter(variadic)
    for role in roles:
        if role.variadic:
            for number in range(next(counts, 0)):
                yield role._replace(buffer=f"data {number}", variadic=False)
        else:
            yield role
