"""Plots as SVG, from rows of the JSON file, which fit light and dark pages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from harness.figures import show, size

OURS = "shmarrow"
AXES = {
    "columns": "columns in the file",
    "batches": "batches in the file",
    "bytes": "size",
    "readers": "processes that read",
    "names": "names in the store",
}
UNITS = {"s": "time", "s/op": "time of an operation", "bytes": "memory"}
WIDTH, HEIGHT = 540, 330
LEFT, RIGHT, TOP, BOTTOM = 66, 148, 48, 52
GAP = 15
"""Least distance of two labels at the ends of lines."""

STYLE = """
.plot text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
.plot .title { font-size: 14px; font-weight: 600; }
.plot .tick, .plot .axis { fill: var(--dim); font-size: 11px; }
.plot .grid { stroke: var(--grid); stroke-width: 1; }
.plot .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.plot .ours .line { stroke-width: 3; }
.plot .ours .name { font-weight: 700; }
.plot .range { stroke-width: 2; opacity: .45; }
.plot .paper { fill: var(--paper); }
""" + "".join(
    f".plot .c{number} .line, .plot .c{number} .range {{ stroke: var(--c{number}); }} "
    f".plot .c{number} circle, .plot .c{number} .name {{ fill: var(--c{number}); }}\n"
    for number in range(8)
)
LIGHT = {
    "paper": "#ffffff", "ink": "#1d2430", "dim": "#5d6777", "grid": "#e3e7ed",
    "c0": "#1457d9", "c1": "#c2410c", "c2": "#0f7b53", "c3": "#8a3ffc", "c4": "#6b7280", "c5": "#b0185e",
    "c6": "#7a5c00", "c7": "#00748f",
}  # fmt: skip
DARK = {
    "paper": "#14171c", "ink": "#e8ebf0", "dim": "#9aa4b2", "grid": "#2b313b",
    "c0": "#6ea8ff", "c1": "#ff9459", "c2": "#4fd39b", "c3": "#c4a1ff", "c4": "#aab2bf", "c5": "#ff86b8",
    "c6": "#e3c04a", "c7": "#56cfe6",
}  # fmt: skip
COLOURS = {
    OURS: 0, "pyarrow": 1, "polars": 2, "pickle, queue": 3, "shared_memory": 4, "safetensors": 5, "lmdb": 6,
    "diskcache": 7, "pyarrow read_tensor": 1, "itself, 1 batch": 4, "pyarrow, memory_map": 1, "pyarrow, copied": 3,
    "itself, of 1 object": 5, "shared_memory, untracked": 2,
}  # fmt: skip
"""The same side has the same colour in all plots; others get one that is free."""


def themed(style: str) -> str:
    """The rules in the light colours, and after them in the dark ones: not all viewers know CSS variables."""

    def coloured(colours: Mapping[str, str]) -> str:
        return re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], style)

    return f"{coloured(LIGHT)}@media (prefers-color-scheme: dark) {{\n{coloured(DARK)}}}\n"


@dataclass
class Plot:
    """A figure by how many of something: a line for each side, in the order of ``x``."""

    title: str
    axis: str
    unit: str
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    ranges: list[tuple[float, float, float]] = field(default_factory=list)
    """Our smallest and largest round at each ``x``."""


def plots(rows: Iterable[Mapping[str, Any]]) -> list[Plot]:
    """The plots that rows belong to, in order; rows with one point each show no line and are left out."""
    found: dict[str, dict[float, list[Mapping[str, Any]]]] = {}
    for row in rows:
        if row["point"] is not None:
            found.setdefault(row["point"]["plot"], {}).setdefault(row["point"]["x"], []).append(row)
    made = []
    for title, at in found.items():
        if len(at) < 2:
            continue
        first = next(iter(at.values()))[0]
        plot = Plot(title, first["point"]["axis"], first["unit"], {OURS: []})
        for x, same in sorted(at.items()):
            # Rows with one peer each measured our side several times; the last one is as good as any.
            plot.series[OURS].append((x, same[-1]["ours"]))
            plot.ranges.append((x, same[-1]["ours_low"], same[-1]["ours_high"]))
            for peer, value in {peer: value for row in same for peer, value in row["peers"].items()}.items():
                plot.series.setdefault(peer, []).append((x, value))
        made.append(plot)
    return made


def picture(chosen: Sequence[Plot], note: str = "") -> str:
    """Plots beside each other as a file of its own, with a background that follows the reader's colour scheme."""
    width, height = WIDTH * len(chosen), HEIGHT + (20 if note else 0)
    panels = "".join(
        f'<g transform="translate({WIDTH * number} 0)">{drawn(each)}</g>' for number, each in enumerate(chosen)
    )
    described = " ".join(_spoken(plot) for plot in chosen)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(described)}">\n'
        f"<style>{themed(STYLE)}</style>\n"
        f'<rect class="paper" width="{width}" height="{height}" rx="8"/>\n{panels}\n'
        + (
            f'<text class="tick" x="{width / 2:.0f}" y="{height - 10}" text-anchor="middle">{escape(note)}</text>\n'
            if note
            else ""
        )
        + "</svg>\n"
    )


def _spoken(plot: Plot) -> str:
    """A plot for those who cannot see it."""
    said = []
    for name, points in plot.series.items():
        (first, low), (last, high) = points[0], points[-1]
        said.append(
            f"{name} {show(low, plot.unit)} at {_count(first, plot.axis)} "
            f"and {show(high, plot.unit)} at {_count(last, plot.axis)}"
        )
    return f"{plot.title}, by {AXES[plot.axis]}: {'; '.join(said)}."


def drawn(plot: Plot) -> str:
    """The inside of a plot, on two logarithmic axes."""
    xs = sorted({x for points in plot.series.values() for x, _ in points})
    ys = [y for points in plot.series.values() for _, y in points] + [y for _, *ends in plot.ranges for y in ends]
    marks = ticks(min(ys), max(ys), 2 if plot.unit == "bytes" else 10)
    low, high = marks[0], marks[-1]

    def across(x: float) -> float:
        if xs[0] == xs[-1]:
            return LEFT
        share = (math.log(x) - math.log(xs[0])) / (math.log(xs[-1]) - math.log(xs[0]))
        return LEFT + 10 + share * (WIDTH - LEFT - RIGHT - 20)

    def up(y: float) -> float:
        share = (math.log(max(y, low)) - math.log(low)) / (math.log(high) - math.log(low))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="title" x="14" y="24">{escape(plot.title)}</text>']
    for tick in marks:
        y = up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = show(tick, "bytes" if plot.unit == "bytes" else "s")
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    last = -math.inf
    for x in xs:
        at = across(x)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 5}"/>'
        )
        if at - last > 44:
            label = _count(x, plot.axis)
            parts.append(
                f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>'
            )
            last = at
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{AXES[plot.axis]}</text>')
    free = iter(sorted(set(range(1, 8)) - {COLOURS.get(name) for name in plot.series}))
    colours = {name: COLOURS[name] if name in COLOURS else next(free, 4) for name in plot.series}
    ends = _apart({name: up(points[-1][1]) for name, points in plot.series.items()})
    for name, points in reversed(plot.series.items()):  # ours on top
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        ranges = plot.ranges if name == OURS else []
        bars = "".join(
            f'<line class="range" x1="{across(x):.1f}" x2="{across(x):.1f}" y1="{up(a):.1f}" y2="{up(b):.1f}"/>'
            for x, a, b in ranges
        )
        dots = "".join(
            f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="{4 if name == OURS else 3}"><title>'
            f"{escape(name)}, {_count(x, plot.axis)} {plot.axis if plot.axis != 'bytes' else ''}: "
            f"{show(y, plot.unit)}</title></circle>"
            for x, y in points
        )
        parts.append(
            f'<g class="c{colours[name]}{" ours" if name == OURS else ""}">{bars}'
            f'<polyline class="line" points="{path}"/>{dots}'
            f'<text class="name" x="{across(points[-1][0]) + 10:.1f}" y="{ends[name] + 4:.1f}">{escape(name)}</text>'
            "</g>"
        )
    return "".join(parts)


def ticks(low: float, high: float, base: int) -> list[float]:
    """At most seven powers of a base, evenly apart, of which the first and the last enclose both figures."""
    first = math.floor(math.log(max(low, 1e-9), base) + 1e-9)
    last = math.ceil(math.log(max(high, 1e-9), base) - 1e-9)
    step = max(1, math.ceil((last - first) / 6))
    count = max(1, math.ceil((last - first) / step))
    return [float(base) ** (first + step * number) for number in range(count + 1)]


def _count(x: float, axis: str) -> str:
    return size(x) if axis == "bytes" else f"{x:,.0f}"


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels near the wanted ones, of which no two overlap."""
    order = sorted(wanted, key=lambda name: wanted[name])
    placed: dict[str, float] = {}
    least = -math.inf
    for name in order:
        placed[name] = least = max(wanted[name], least + GAP)
    excess = least - (HEIGHT - BOTTOM)
    for name in reversed(order):  # push up what was pushed below the axis
        if excess <= 0:
            break
        placed[name] -= excess
        below = [placed[each] for each in order if order.index(each) < order.index(name)]
        excess = max(0.0, (below[-1] if below else -math.inf) + GAP - placed[name])
    return placed
