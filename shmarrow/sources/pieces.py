"""Coalescing of small pieces before a write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

_SMALL = 1 << 16
_GROUP = 1 << 20
_FEW = 64


def joined(pieces: Sequence[Any]) -> list[Any]:
    """Join runs of small pieces by copying; large pieces are kept."""
    count = len(pieces)
    if 0 < count <= _FEW and sum(map(len, pieces)) < _SMALL:
        return [pieces[0] if count == 1 else b"".join(pieces)]
    sizes = np.fromiter(map(len, pieces), np.int64, count)
    # A run ends before and after a large piece, and at the size of a group.
    large = sizes >= _SMALL
    groups = np.cumsum(sizes) // _GROUP
    ends = np.flatnonzero(large[1:] | large[:-1] | (groups[1:] != groups[:-1])) + 1
    bounds = [0, *ends.tolist(), count] if count else []
    return [pieces[start] if end - start == 1 else b"".join(pieces[start:end]) for start, end in pairwise(bounds)]
