"""Rows as tables of Markdown, and the lists that a summary consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.figures import show, times

Record = Mapping[str, Any]
"""A row as the JSON file has it: :meth:`harness.figures.Row.as_json`."""

HEADINGS = ("what", "shmarrow", "beside", "", "result", "spread", "required", "reached", "also")


def line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def cells(row: Record) -> list[str]:
    """The cells of a row under :data:`HEADINGS`."""
    unit, peer = row["unit"], row["peer"]
    also = [f"{name} {show(value, unit)}" for name, value in row["peers"].items() if name != peer]
    beside = "" if peer is None else show(row["peers"][peer], unit)
    spread = "" if row["low"] is None else f"{times(row['low'])} to {times(row['high'])}"
    return [
        row["name"],
        show(row["ours"], unit),
        peer or "",
        beside,
        f"**{row['result']}**",
        spread,
        row["required"],
        verdict(row),
        ", ".join(also),
    ]


def verdict(row: Record) -> str:
    """Whether a row reaches what is required: "yes", "no", and whether the spread leaves doubt."""
    if row["reached"] is None:
        return ""
    return ("yes" if row["reached"] else "**no**") + (", within the spread" if row["doubtful"] else "")


def losses(rows: Sequence[Record]) -> list[tuple[float, str, Record]]:
    """Every comparison in which a peer is better, the worst first: the ratio, the peer, and the row."""
    found = {
        (row["group"], row["name"], peer): (value / row["ours"], peer, row)
        for row in rows
        for peer, value in row["peers"].items()
        if comparable(peer) and row["ours"] and value < row["ours"]
    }
    return sorted(found.values(), key=lambda each: each[0])


def uncertain(row: Record, peer: str) -> bool:
    """Whether in some round we were ahead of a peer that is better in the median."""
    return bool(peer == row["peer"] and row["high"] >= 1)


def comparable(peer: str) -> bool:
    """Whether a side is another library, rather than this one under other conditions."""
    return not peer.startswith(("itself", "`import"))


def missed(rows: Sequence[Record]) -> list[Record]:
    """Rows that do not reach what is required, the furthest from the peer first."""
    return sorted((row for row in rows if row["reached"] is False), key=lambda row: row["ratio"] or 0)


def summary(results: Record) -> str:
    """Summarise the run in lines: counts, requirements that are not reached, and where a peer is better."""
    return "\n".join(_summary(results))


def _summary(results: Record) -> Iterator[str]:
    rows = results["rows"]
    asked = [row for row in rows if row["reached"] is not None]
    yield f"\n{len(rows)} rows; {sum(row['reached'] for row in asked)} of {len(asked)} requirements reached."
    if absent := missed(rows):
        yield f"\nNot reached ({len(absent)}):\n"
        for row in absent:
            beside = f" beside {row['peer']}" if row["peer"] else ""
            doubt = "; within the spread" if row["doubtful"] else ""
            yield f"- {row['group']}: {row['name']}{beside}: {row['result']}, required {row['required']}{doubt}"
    if worse := losses(rows):
        yield f"\nA peer is better ({len(worse)}), the worst first:\n"
        for ratio, peer, row in worse:
            ours, theirs = show(row["ours"], row["unit"]), show(row["peers"][peer], row["unit"])
            doubt = "; within the spread" if uncertain(row, peer) else ""
            yield f"- {times(ratio)} {row['group']}: {row['name']}: {ours}, {peer} {theirs}{doubt}"
    for each in results["skipped"]:
        yield f"\nLeft out: {each['part']}: {each['reason']}"
    for each in results["failed"]:
        yield f"\nFAILED: {each['part']}: {each['error']}"
    yield f"\nTook {results['seconds']:,.0f} s."
