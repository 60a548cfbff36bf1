"""Turning claims on bytes into regions: sorted, with gaps filled and overlaps marked."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.xray.model import Finding, Region

Report = Callable[[Finding], None]

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
