"""Rows of figures: what is required of them, how they follow from measured times, and how they are written.

Everything here is a pure function of numbers, so that the tests can check it against figures worked out by hand.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Rounds = Sequence[Mapping[str, Sequence[float]]]
"""For each round, what each side took in its turns, in seconds. Our side comes first."""

Row = dict[str, Any]
"""A row as ``results.json`` has it.

* group, part, name: where the row belongs, and what was measured.
* unit: of ``ours`` and ``peers``: "s", "s/op" (shown as a rate), "bytes", "share", or a plain number's noun.
* ours, peers: the median of all turns of our side, and of each other one.
* peer: the side that the ratio and the requirement refer to.
* ratio, low, high: the peer's figure over ours: the median of the rounds' ratios, the smallest, and the largest. Above
  1 we win.
* result, required, reached: what is held to the requirement, the requirement, and whether that is reached in the
  median; None without one.
* doubtful: whether some rounds reach it and others do not.
* point: the row's place in a plot. extra: anything more that was measured.
"""


@dataclass(frozen=True)
class Faster:
    """The peer's time over ours is at least ``times``."""

    times: float
    text: str

    def of(self, ours: float, peer: float) -> float:
        return peer / ours

    def reached(self, value: float) -> bool:
        return value >= self.times

    def show(self, value: float) -> str:
        return times(value)


@dataclass(frozen=True)
class Extra:
    """Our time is at most ``seconds`` longer than the peer's."""

    seconds: float
    text: str

    def of(self, ours: float, peer: float) -> float:
        return ours - peer

    def reached(self, value: float) -> bool:
        return value <= self.seconds

    def show(self, value: float) -> str:
        return f"{'−' if value < 0 else '+'}{duration(abs(value))}"


Requirement = Faster | Extra
Required = Requirement | Mapping[str, Requirement] | None
"""Of the first peer, of each of several, or nothing: the row is for information."""


def faster(times: float) -> Faster:
    return Faster(times, f"{times:g} times faster")


def within(times: float) -> Faster:
    """Our time is at most so many times the peer's."""
    return Faster(1 / times, f"within {times:g} times")


AS_FAST = Faster(1, "as fast")


@dataclass(frozen=True)
class Point:
    """The position of a row in a plot: the plot's title, what is varied (see ``plots.AXES``), and how many of them."""

    plot: str
    axis: str
    x: float


def row(
    place: tuple[str, str, str], unit: str, ours: float, peers: Mapping[str, float], point: Point | None, **more: Any
) -> Row:
    """A row of which ``more`` has what follows from a comparison."""
    measured = {"unit": unit, "ours": ours, "peers": dict(peers), "point": point and asdict(point), "extra": {}}
    blank = {**dict.fromkeys(("peer", "ratio", "low", "high", "reached")), "required": "", "doubtful": False}
    return {**dict(zip(("group", "part", "name"), place, strict=True)), **measured, **blank, **more}


def compared(
    place: tuple[str, str, str],
    rounds: Rounds,
    required: Required = None,
    unit: str = "s",
    point: Point | None = None,
    extra: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Rows of sides that took turns: one for each peer that something is required beside, else one."""
    ours, *peers = list(rounds[0])
    middle = {name: statistics.median([took for each in rounds for took in each[name]]) for name in (ours, *peers)}
    medians = [{name: statistics.median(took) for name, took in each.items()} for each in rounds]
    common = (place, unit, middle.pop(ours), middle, point)
    if not peers:
        return [row(*common, extra=dict(extra or {}), result=show(common[2], unit))]
    rows = []
    for peer, requirement in (required if isinstance(required, Mapping) else {peers[0]: required}).items():
        if peer not in peers:
            continue
        ratios = sorted(each[peer] / each[ours] for each in medians)
        ask = requirement or Faster(0, "")
        values = sorted(ask.of(each[ours], each[peer]) for each in medians)
        value = statistics.median(values)
        held = {
            "result": ask.show(value),
            "required": ask.text,
            "reached": ask.reached(value) if requirement else None,
            "doubtful": requirement is not None and ask.reached(values[0]) != ask.reached(values[-1]),
        }
        spread = {"ratio": statistics.median(ratios), "low": ratios[0], "high": ratios[-1]}
        rows.append(row(*common, extra=dict(extra or {}), peer=peer, **spread, **held))
    return rows


def limited(
    place: tuple[str, str, str],
    values: Sequence[float],
    limit: float | None,
    unit: str,
    *,
    at_least: bool = False,
    peers: Mapping[str, float] | None = None,
    point: Point | None = None,
) -> Row:
    """A row of figures that are held to the most or the least they may be, with peers for information."""
    value, beside = statistics.median(values), peers or {}
    peer = next(iter(beside), None)
    ratio = beside[peer] / value if peer is not None and value else None
    held = {
        "result": show(value, unit) if limit is not None or ratio is None else times(ratio),
        "required": "" if limit is None else f"at {'least' if at_least else 'most'} {show(limit, unit)}",
        "reached": None if limit is None else value >= limit if at_least else value <= limit,
    }
    return row(place, unit, value, beside, point, peer=peer, ratio=ratio, low=ratio, high=ratio, **held)


# --- for people -------------------------------------------------------------------------------------------------

HEADINGS = ("what", "shmarrow", "beside", "", "result", "spread", "required", "reached", "also")


def line(texts: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(texts)} |"


def cells(row: Row) -> list[str]:
    """The cells of a row under :data:`HEADINGS`."""
    unit, peer = row["unit"], row["peer"]
    also = [f"{name} {show(value, unit)}" for name, value in row["peers"].items() if name != peer]
    beside = "" if peer is None else show(row["peers"][peer], unit)
    spread = "" if row["low"] is None else f"{times(row['low'])} to {times(row['high'])}"
    return [row["name"], show(row["ours"], unit), peer or "", beside, f"**{row['result']}**", spread, row["required"],
            verdict(row), ", ".join(also)]  # fmt: skip


def verdict(row: Row) -> str:
    """Whether a row reaches what is required: "yes", "no", and whether the spread leaves doubt."""
    if row["reached"] is None:
        return ""
    return ("yes" if row["reached"] else "**no**") + (", within the spread" if row["doubtful"] else "")


def missed(rows: Sequence[Row]) -> list[Row]:
    """Rows that do not reach what is required, the furthest from the peer first."""
    return sorted((row for row in rows if row["reached"] is False), key=lambda row: row["ratio"] or 0)


def summary(results: Mapping[str, Any]) -> Iterator[str]:
    """The run in lines: counts, requirements that are not reached, what was left out or failed."""
    asked = [row for row in results["rows"] if row["reached"] is not None]
    reached = sum(row["reached"] for row in asked)
    yield f"\n{len(results['rows'])} rows; {reached} of {len(asked)} requirements reached.\n"
    for row in missed(asked):
        beside = f" beside {row['peer']}" if row["peer"] else ""
        yield f"- {row['group']}: {row['name']}{beside}: {row['result']}, required {row['required']}: {verdict(row)}"
    for each in results["skipped"]:
        yield f"\nLeft out: {each['part']}: {each['reason']}"
    for each in results["failed"]:
        yield f"\nFAILED: {each['part']}: {each['error']}"
    yield f"\nTook {results['seconds']:,.0f} s."


def duration(seconds: float) -> str:
    """A time in the unit that suits it, with three digits."""
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit * 0.9995:
            return f"{digits(seconds / unit)} {name}"
    return f"{digits(seconds / 1e-6)} µs"


def size(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{digits(count / (1 << power))} {name}"
    return f"{count:,.0f} bytes"


def digits(value: float) -> str:
    """Three digits, without an exponent; whole numbers as they are."""
    if abs(value - round(value)) < 1e-9 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def times(value: float) -> str:
    """A ratio: "2.5×"."""
    return f"{digits(value)}×"


def show(value: float, unit: str) -> str:
    """A figure with its unit."""
    known = {"s": duration, "bytes": size, "s/op": lambda each: f"{digits(1 / each)}/s", "share": "{:.3%}".format}
    return known[unit](value) if unit in known else f"{digits(value)} {unit}"
