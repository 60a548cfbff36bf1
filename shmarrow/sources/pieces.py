"""Pieces of bytes on their way to a sink: many small ones cost more than their copy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

_SMALL = 1 << 16
_GROUP = 1 << 20
_FEW = 64


def joined(pieces: Sequence[Any]) -> list[Any]:
    """The same bytes in fewer pieces: runs of small ones are put together, large ones are left as they are."""
    count = len(pieces)
    if 0 < count <= _FEW and sum(map(len, pieces)) < _SMALL:
        return [pieces[0] if count == 1 else b"".join(pieces)]
    sizes = np.fromiter(map(len, pieces), np.int64, count)
    # A run ends before a large piece, after it, and where it has come to the size of a group.
    large = sizes >= _SMALL
    groups = np.cumsum(sizes) // _GROUP
    ends = np.flatnonzero(large[1:] | large[:-1] | (groups[1:] != groups[:-1])) + 1
    bounds = [0, *ends.tolist(), count] if count else []
    return [pieces[start] if end - start == 1 else b"".join(pieces[start:end]) for start, end in pairwise(bounds)]
