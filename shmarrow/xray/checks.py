# SPDX-License-Identifier: Apache-2.0
"""Checks of the footer's blocks that read no messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shmarrow.ipc.file.footer import HEAD
from shmarrow.xray.model import Finding

if TYPE_CHECKING:
    import numpy.typing as npt

_MOST = 20
"""Maximum findings per check; the last one counts those left out."""
_WRITE_AGAIN = "write the file again with a correct writer"


def fitting(blocks: npt.NDArray[np.int64], first: int, end: int) -> npt.NDArray[np.bool_]:
    """Return which messages, by offset, metadata length and body length, are within the bytes from first to end."""
    start, metadata, body = blocks[:, 0], blocks[:, 1], blocks[:, 2]
    good: npt.NDArray[np.bool_] = (start >= first) & (start <= end) & (metadata >= 8) & (metadata <= end - start)
    return good & (body >= 0) & (body <= end - start - metadata)


def check_blocks(dictionaries: npt.NDArray[np.int64], batches: npt.NDArray[np.int64], end: int) -> tuple[Finding, ...]:
    """Check that blocks are within the file, aligned, disjoint and in order.

    Parameters
    ----------
    dictionaries, batches : int64 ndarrays of shape (n, 3)
        Offset, metadata length and body length.
    end : int
        Offset of the footer.
    """
    blocks = np.concatenate([dictionaries, batches])
    found: list[Finding] = []

    def name(row: int) -> str:
        many = len(dictionaries)
        return f"dictionary batch {row}" if row < many else f"record batch {row - many}"

    def report(rows: npt.NDArray[np.int64], severity: str, text: str, remedy: str) -> None:
        for number, row in enumerate(rows[:_MOST].tolist()):
            start, metadata, body = blocks[row].tolist()
            stop = start + max(metadata, 0) + max(body, 0)
            low, high = max(min(start, end), 0), max(min(stop, end), 0)
            more = f"; and {len(rows) - _MOST} more" if number == _MOST - 1 < len(rows) - 1 else ""
            span = f"[{start}, {stop})"
            found.append(Finding(low, max(low, high), severity, f"{name(row)}: {text.format(span)}{more}", remedy))

    start, metadata, body = blocks.T
    inside = fitting(blocks, HEAD, end)
    text = f"the block {{}} is not within the file's messages, [{HEAD}, {end})"
    report(np.flatnonzero(~inside), "error", text, _WRITE_AGAIN)
    good = np.flatnonzero(inside)
    odd = good[(start[good] & 7 != 0) | (metadata[good] & 7 != 0)]
    report(odd, "warning", "the message {} or its body is not aligned to 8 bytes", "readers have to copy its buffers")
    order = good[np.argsort(start[good], kind="stable")]
    ends = start[order] + metadata[order] + body[order]
    if len(order) > 1:
        reach = np.maximum.accumulate(ends[:-1])
        over = order[1:][start[order[1:]] < reach]
        report(over, "warning", "the message {} overlaps another one", "one of the footer's blocks is wrong, or shared")
    rows = batches[:, 0]
    if len(rows) > 1 and (back := np.flatnonzero(rows[1:] < rows[:-1])).size:
        row = int(back[0]) + 1
        text = f"the footer lists record batch {row} after one that is behind it in the file"
        at = max(min(int(rows[row]), end), 0)
        found.append(Finding(at, at, "note", text, "none is needed; batches are read in the footer's order"))
    return tuple(found)
