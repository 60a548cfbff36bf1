"""Rows of figures: what is required of them, how they follow from measured times, and how they are written.

Everything here is a pure function of numbers, so that the tests can check it against figures worked out by hand.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Rounds = Sequence[Mapping[str, Sequence[float]]]
"""For each round, what each side took in its turns, in seconds. Our side comes first."""


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
    """The position of a row in a plot.

    Attributes
    ----------
    plot : str
        Title of the plot.
    axis : str
        What is varied: "columns", "batches", "bytes", "readers" or "names".
    x : float
        How many of them.
    """

    plot: str
    axis: str
    x: float


@dataclass(frozen=True)
class Row:
    """One row of the results, as the JSON file has it.

    Attributes
    ----------
    group, part, name : str
        Where the row belongs, and what was measured.
    unit : str
        Of ``ours`` and ``peers``: "s", "s/op" (shown as a rate), "bytes", or a plain number's noun.
    ours : float
        Median of all turns.
    ours_low, ours_high : float
        Smallest and largest of the rounds' medians.
    peers : dict of str to float
        The same median of each other side.
    peer : str or None
        The side that ``ratio`` and ``required`` refer to.
    ratio, low, high : float or None
        The peer's figure over ours: the median of the rounds' ratios, the smallest, and the largest. Above 1 we win.
    result, required : str
        What is held to the requirement, and the requirement, for people.
    reached : bool or None
        None without a requirement.
    doubtful : bool
        Whether some rounds reach it and others do not.
    point : Point or None
        The row's place in a plot.
    extra : dict
        Anything more that was measured, as JSON allows.
    """

    group: str
    part: str
    name: str
    unit: str
    ours: float
    ours_low: float
    ours_high: float
    peers: dict[str, float] = field(default_factory=dict)
    peer: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    result: str = ""
    required: str = ""
    reached: bool | None = None
    doubtful: bool = False
    point: Point | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compared(
    place: tuple[str, str, str],
    rounds: Rounds,
    required: Required = None,
    unit: str = "s",
    point: Point | None = None,
    extra: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Rows of sides that took turns: one for each peer that something is required beside, else one.

    Parameters
    ----------
    place : tuple of str
        Group, part and name.
    rounds : sequence of mapping of str to sequence of float
        What each side took, our side first.
    required : Faster, Extra, mapping of str to these, or None
        What is to be reached beside the first peer, or beside each of several. Peers without figures are left out.
    """
    ours, *peers = list(rounds[0])
    middle = {name: statistics.median([took for each in rounds for took in each[name]]) for name in (ours, *peers)}
    medians = [{name: statistics.median(took) for name, took in each.items()} for each in rounds]
    own = sorted(each[ours] for each in medians)
    common: dict[str, Any] = {
        **dict(zip(("group", "part", "name"), place, strict=True)),
        "unit": unit,
        "ours": middle[ours],
        "ours_low": own[0],
        "ours_high": own[-1],
        "peers": {name: middle[name] for name in peers},
        "point": point,
        "extra": dict(extra or {}),
    }
    if not peers:
        return [Row(**common, result=show(middle[ours], unit))]
    held = required if isinstance(required, Mapping) else {peers[0]: required}
    rows = []
    for peer, requirement in held.items():
        if peer not in peers:
            continue
        ratios = sorted(each[peer] / each[ours] for each in medians)
        ask = requirement or Faster(0, "")
        values = sorted(ask.of(each[ours], each[peer]) for each in medians)
        value = statistics.median(values)
        rows.append(
            Row(
                **common,
                peer=peer,
                ratio=statistics.median(ratios),
                low=ratios[0],
                high=ratios[-1],
                result=ask.show(value),
                required=ask.text,
                reached=ask.reached(value) if requirement else None,
                doubtful=requirement is not None and ask.reached(values[0]) != ask.reached(values[-1]),
            )
        )
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
    value = statistics.median(values)
    beside = dict(peers or {})
    peer = next(iter(beside), None)
    ratio = beside[peer] / value if peer is not None and value else None
    return Row(
        *place,
        unit,
        value,
        min(values),
        max(values),
        beside,
        peer,
        ratio,
        ratio,
        ratio,
        result=show(value, unit) if limit is not None or ratio is None else times(ratio),
        required="" if limit is None else f"at {'least' if at_least else 'most'} {show(limit, unit)}",
        reached=None if limit is None else value >= limit if at_least else value <= limit,
        point=point,
    )


# --- numbers for people -----------------------------------------------------------------------------------------


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
    if unit == "s":
        return duration(value)
    if unit == "s/op":
        return f"{digits(1 / value)}/s"
    if unit == "bytes":
        return size(value)
    if unit == "share":
        return f"{value:.3%}"
    return f"{digits(value)} {unit}"
