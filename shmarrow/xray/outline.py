# SPDX-License-Identifier: Apache-2.0
"""The summary of an object: one region per message, with long lists abbreviated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shmarrow.errors import ShmarrowError, counted
from shmarrow.xray.model import Region
from shmarrow.xray.overviews import BATCH, Overview
from shmarrow.xray.walker import FILE, MESSAGE, NAMES, Part, ending, magic, parts_of

_PLURALS = {kind: f"{name}es" if name.endswith("h") else f"{name}s" for kind, name in NAMES.items()}


def summary(found: Overview, most: int = 16) -> Iterator[Region]:
    """Yield regions of whole messages and of the bytes between them; they cover the object.

    Parameters
    ----------
    found : Overview
        The object.
    most : int
        Maximum number of messages to list; of more, the first and last ones, with one region for those in between.
    """
    is_file = found.kind in ("file", "bundle")
    end = found.size if found.footer is None else found.footer[0]
    at = min(8, end) if is_file else 0
    if is_file:
        yield magic(0, at, " and padding")
    parts, ends = parts_of(found, end)
    count = len(parts)
    head, tail = (count, count) if count <= most else (most - most // 2, count - most // 2)
    rows = _rows(found, np.concatenate([parts[:head], parts[tail:]]))
    for index in [*range(head), *([-1] if tail > head else []), *range(tail, count)]:
        if index < 0:
            start, stop = int(parts[head, 0]), int(max(ends[tail - 1], parts[head, 0]))
            region = Region(start, stop, "message", _many(parts[head:tail, 3]), "", MESSAGE)
        else:
            region = _message(Part(*parts[index].tolist()), rows)
        if region.start > at:
            yield _between(found, at, region.start)
        if region.end > at:
            yield region._replace(start=max(region.start, at))
            at = region.end
    if at < end:
        yield _between(found, at, end)
    if found.footer is not None:
        start, stop = found.footer
        value = {"record batches": len(found.blocks), "dictionary batches": len(found.dictionaries)}
        yield Region(start, stop, "footer", "footer", "footer", FILE, value | _measured(found))
        yield from ending(start, stop)


def _measured(found: Overview) -> dict[str, Any]:
    """Return which columns have statistics."""
    try:
        statistics = found.statistics
    except ShmarrowError:
        return {"statistics": "unreadable"}
    return {} if statistics is None else {"statistics": ", ".join(statistics.schema.names)}


def _rows(found: Overview, parts: Any) -> dict[int, int]:
    """Return the number of rows of each listed record batch with a readable message."""
    made = {}
    for number in parts[parts[:, 3] == BATCH, 4].tolist():
        try:
            made[number] = int(found.rows(number, number + 1)[0])
        except ShmarrowError:
            continue  # the walk reports why
    return made


def _message(part: Part, rows: dict[int, int]) -> Region:
    value: dict[str, int] = {}
    if part.kind == BATCH and part.number in rows:
        value["rows"] = rows[part.number]
    value |= {"metadata": part.metadata, "body": part.body}
    name = NAMES.get(part.kind, "message")
    label = f"{name} {part.number}" if part.kind == BATCH else name
    return Region(part.start, sum(part[:3]), "message", label, label, MESSAGE, value)


def _many(kinds: Any) -> str:
    """Describe a run of messages."""
    found, counts = np.unique(kinds, return_counts=True)
    names = [
        f"{many} {NAMES.get(kind, 'message') if many == 1 else _PLURALS.get(kind, 'messages')}"
        for kind, many in zip(found.tolist(), counts.tolist(), strict=True)
    ]
    return f"... {' and '.join(names)} ..."


def _between(found: Overview, start: int, end: int) -> Region:
    """Return the region of bytes between messages, without reading all of them."""
    head = bytes(found.data[start : min(start + 8, end)])
    if head == b"\xff\xff\xff\xff\0\0\0\0":
        return Region(start, end, "end", "end of stream", "stream", MESSAGE)
    what = "end of stream or padding" if end - start <= 64 and not any(head) else "outside of the listed messages"
    kind = "padding" if end - start <= 64 and not any(head) else "gap"
    return Region(start, end, kind, f"{counted(end - start, 'byte')}, {what}", "stream", MESSAGE)
