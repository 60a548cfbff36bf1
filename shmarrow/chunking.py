"""Positions in a column of chunks, or a table of batches: which chunk a row is in, and where in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Indices, Mask
from shmarrow.errors import LimitExceeded
from shmarrow.layout.making import no_index

_MOST = (1 << 63) - 1


def starts_of(lengths: list[int], parts: str) -> Indices:
    """Return the first row of each chunk, and the end of the last, of shape (n + 1,).

    Raises
    ------
    LimitExceeded
        If the end is more than 2**63 - 1.
    """
    total = sum(lengths)
    if total > _MOST:
        raise LimitExceeded(f"{len(lengths)} {parts} have {total} rows, more than the {_MOST} that can be counted")
    return np.cumsum([0, *lengths], dtype=np.int64)


def cut(parts: Sequence[Any], starts: Indices, offset: int, length: int) -> list[Any]:
    """Slice chunks that start at ``starts`` as a whole; empty ones are dropped."""
    if not length:
        return []
    end = offset + length
    first, last = int(np.searchsorted(starts, offset, "right")) - 1, int(np.searchsorted(starts, end, "left"))
    found = [part for part in parts[first:last] if len(part)]
    if found:  # the first and the last are cut; where there is one part, at both ends
        found[-1] = _within(found[-1], 0, end - int(starts[last - 1]))
        found[0] = _within(found[0], offset - int(starts[first]), len(found[0]))
    return found


def _within(part: Any, start: int, end: int) -> Any:
    """Slice a chunk; returns the chunk itself if the slice covers it."""
    return part if not start and end == len(part) else part.slice(start, end - start)


class Located(NamedTuple):
    """Rows located in chunks.

    Attributes
    ----------
    parts : list of (int, ndarray)
        The chunks that have any of the rows, by number, and the positions in each.
    back : ndarray or None
        For each row its position among the rows of all chunks one after another; None if that is their order.
    valid : bool ndarray or None
        False for rows that become null; given with ``back`` only.
    """

    parts: list[tuple[int, Indices]]
    back: Indices | None
    valid: Mask | None


def check_range(positions: Indices, valid: Mask | None, length: int, what: str) -> Indices:
    """Check valid positions; IndexOutOfRange if one is negative or beyond the end."""
    wanted = positions if valid is None else positions[valid]
    if len(wanted) and not (int(wanted.min()) >= 0 and int(wanted.max()) < length):
        raise no_index(wanted, length, what, "value" if what == "column" else "row")
    return wanted


def locate(starts: Indices, positions: Indices, valid: Mask | None, what: str) -> Located:
    """Locate positions, in any order, in chunks that start at ``starts``; IndexOutOfRange if one is beyond the end."""
    wanted = check_range(positions, valid, int(starts[-1]), what)
    numbers = np.searchsorted(starts, wanted, "right") - 1
    back: Indices | None = None
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        numbers, wanted = numbers[order], wanted[order]
    if valid is not None:
        rank = np.arange(len(wanted)) if back is None else back
        back = np.zeros(len(positions), np.int64)
        back[valid] = rank
    found, first = np.unique(numbers, return_index=True)
    parts = np.split(wanted - starts[numbers], first[1:]) if len(found) else []
    return Located(list(zip(found.tolist(), parts, strict=True)), back, valid)


def split(starts: Indices, positions: Indices, valid: Mask | None) -> Iterator[tuple[int, Indices, Mask | None]]:
    """Split increasing positions by chunk: yields its number, the positions in it, and their validity.

    Chunks without any of them are skipped.
    """
    bounds = np.searchsorted(positions, starts).tolist()
    for i in np.flatnonzero(np.diff(bounds)).tolist():
        rows = slice(bounds[i], bounds[i + 1])
        yield i, positions[rows] - int(starts[i]), None if valid is None else valid[rows]
