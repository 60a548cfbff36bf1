"""Positions in several parts: where the slots of a column lie in its chunks, and the rows of a table in its batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.errors import LimitExceeded
from shmarrow.layout.memory import Indices, no_index

if TYPE_CHECKING:
    import numpy.typing as npt

_MOST = (1 << 63) - 1


def starts_of(lengths: list[int], parts: str) -> npt.NDArray[np.int64]:
    """Where each part starts in the whole, and its end, of shape (n + 1,).

    Raises
    ------
    LimitExceeded
        If the end is more than 2**63 - 1.
    """
    total = sum(lengths)
    if total > _MOST:
        raise LimitExceeded(f"{len(lengths)} {parts} have {total} rows, more than the {_MOST} that can be counted")
    return np.cumsum([0, *lengths], dtype=np.int64)


def cut(parts: Iterable[Any], starts: npt.NDArray[np.int64], offset: int, length: int) -> list[Any]:
    """The parts of a slice of arrays or batches, which start at ``starts``; empty parts are left out."""
    found = []
    for start, part in zip(starts.tolist(), parts, strict=False):
        low, high = max(offset - start, 0), min(offset + length - start, len(part))
        if low < high:
            found.append(part.slice(low, high - low))
    return found


class Places(NamedTuple):
    """Where slots lie in several parts.

    Attributes
    ----------
    parts : list of (int, ndarray)
        The numbers of parts, and positions in them.
    back : ndarray or None
        For each slot its position in the slots of all parts after one another; None where that is the order.
    valid : bool ndarray or None
        False for slots that become null; given with ``back`` only.
    """

    parts: list[tuple[int, Indices]]
    back: Indices | None
    valid: Mask | None


def check_range(positions: Indices, valid: Mask | None, length: int, what: str) -> Indices:
    """The positions that are valid; IndexOutOfRange if one of them is negative or beyond the end."""
    wanted = positions if valid is None else positions[valid]
    if len(wanted) and not (int(wanted.min()) >= 0 and int(wanted.max()) < length):
        raise no_index(wanted, length, what, "value" if what == "column" else "row")
    return wanted


def places(starts: npt.NDArray[np.int64], positions: Indices, valid: Mask | None, what: str) -> Places:
    """Where positions in the whole lie in parts that start at ``starts``; IndexOutOfRange if one is beyond the end."""
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
    return Places(list(zip(found.tolist(), parts, strict=True)), back, valid)


def sorted_places(
    starts: npt.NDArray[np.int64], positions: Indices, valid: Mask | None
) -> Iterator[tuple[int, Indices, Mask | None]]:
    """The part, the positions in it and their validity, for positions that rise; parts without any are left out."""
    bounds = np.searchsorted(positions, starts).tolist()
    for i in np.flatnonzero(np.diff(bounds)).tolist():
        rows = slice(bounds[i], bounds[i + 1])
        yield i, positions[rows] - int(starts[i]), None if valid is None else valid[rows]
