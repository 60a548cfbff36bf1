"""From claims on bytes to regions that cover them: sorted, with gaps filled and overlaps declared."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.xray.model import Finding, Region

Report = Callable[[Finding], None]

EXAMINED = 1 << 24
"""Bytes of a run that are compared with zero; of longer runs only the first ones are."""
LONG_PADDING = 64
"""Zeros between two parts that count as alignment; more of them are worth a note."""


class Place(NamedTuple):
    """A step of a path, and the one before it."""

    parent: Place | None
    label: str
    depth: int

    def below(self, label: str) -> Place:
        """A step further."""
        return Place(self, label, self.depth + 1)

    def __str__(self) -> str:
        labels = [self.label]
        step = self.parent
        while step is not None:
            labels.append(step.label)
            step = step.parent
        return " / ".join(reversed(labels))


class Claim(NamedTuple):
    """Bytes that something refers to; what they are is worked out when it is their turn.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object.
    kind : str
        The kind of region.
    name : str
        What is there, such as the name of a table.
    place : Place
        Where it is in the structure.
    detail : object
        What else is known of it.
    """

    start: int
    end: int
    kind: str
    name: str
    place: Place
    detail: Any = None


Render = Callable[[Claim, bool], Iterable[Region]]
Fill = Callable[[int, int], Iterable[Region]]
Overlap = Callable[[Claim, int], Region]


def tile(
    claims: Sequence[Claim], start: int, end: int, render: Render, fill: Fill, overlap: Overlap
) -> Iterator[Region]:
    """Regions for all of [start, end), sorted by their start.

    Parameters
    ----------
    claims : sequence of Claim
        In any order, within [start, end).
    start, end : int
        The bytes to cover.
    render : callable
        The regions of a claim; only one where the second argument is False, as others overlap it.
    fill : callable
        The regions of bytes that nothing claims.
    overlap : callable
        The region of the first bytes of a claim, up to an end, which an earlier claim covers.
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
            yield Region(claim.start, claim.end, claim.kind, f"rest of {claim.name}", str(claim.place), "")
        else:
            alone = (upcoming is None or upcoming.start >= claim.end) and not (rest and rest[0][0] < claim.end)
            yield from render(claim, alone)
        cursor = claim.end
    if cursor < end:
        yield from fill(cursor, end)


def _order(claim: Claim) -> tuple[int, int]:
    return claim.start, -claim.end


def zeros(data: Bytes, start: int, end: int) -> int:
    """How many of the bytes from ``start`` on are zero; after :data:`EXAMINED` of them the count may stop."""
    at, step = start, 4096
    while at < end and at - start < EXAMINED:
        piece = data[at : min(at + step, end)]
        found = int(np.argmax(piece != 0))
        if piece[found]:
            return at + found - start
        at += len(piece)
        step = 1 << 20
    return at - start
