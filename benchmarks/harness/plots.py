"""Plots as SVG, from rows of the JSON file, which fit light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

from harness.figures import show, size

OURS = "shmarrow"
AXES = {"columns": "columns in the file", "batches": "batches in the file", "bytes": "size",
        "readers": "processes that read", "names": "names in the store"}  # fmt: skip
WIDTH, HEIGHT = 540, 330
LEFT, RIGHT, TOP, BOTTOM = 66, 148, 48, 52
GAP = 15
"""Least distance of two labels at the ends of lines."""

STYLE = """
.plot text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: INK; }
.plot .title { font-size: 14px; font-weight: 600; }
.plot .tick, .plot .axis { fill: DIM; font-size: 11px; }
.plot .grid { stroke: GRID; stroke-width: 1; }
.plot .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.plot .ours .line { stroke-width: 3; }
.plot .ours .name { font-weight: 700; }
.plot .paper { fill: PAPER; }
""" + "".join(
    f".plot .c{number} .line {{ stroke: C{number}; }} "
    f".plot .c{number} circle, .plot .c{number} .name {{ fill: C{number}; }}\n"
    for number in range(8)
)
THEMES = {
    "PAPER": ("#ffffff", "#14171c"), "INK": ("#1d2430", "#e8ebf0"), "DIM": ("#5d6777", "#9aa4b2"),
    "GRID": ("#e3e7ed", "#2b313b"), "C0": ("#1457d9", "#6ea8ff"), "C1": ("#c2410c", "#ff9459"),
    "C2": ("#0f7b53", "#4fd39b"), "C3": ("#8a3ffc", "#c4a1ff"), "C4": ("#6b7280", "#aab2bf"),
    "C5": ("#b0185e", "#ff86b8"), "C6": ("#7a5c00", "#e3c04a"), "C7": ("#00748f", "#56cfe6"),
}  # fmt: skip
"""Each colour on light and on dark pages."""
COLOURS = {
    OURS: 0, "pyarrow": 1, "polars": 2, "pickle, queue": 3, "shared_memory": 4, "safetensors": 5, "lmdb": 6,
    "diskcache": 7, "pyarrow read_tensor": 1, "itself, 1 batch": 4, "pyarrow, memory_map": 1, "pyarrow, copied": 3,
    "itself, of 1 object": 5, "shared_memory, untracked": 2,
}  # fmt: skip
"""The same side has the same colour in all plots."""


class Plot(NamedTuple):
    """A figure by how many of something: a line for each side, in the order of ``x``."""

    title: str
    axis: str
    unit: str
    series: dict[str, list[tuple[float, float]]]


def plots(rows: Iterable[Mapping[str, Any]]) -> list[Plot]:
    """The plots that rows belong to, in order; rows with one point each show no line and are left out."""
    found: dict[str, dict[float, list[Mapping[str, Any]]]] = {}
    for row in rows:
        if row["point"] is not None:
            found.setdefault(row["point"]["plot"], {}).setdefault(row["point"]["x"], []).append(row)
    made = []
    for title, at in found.items():
        first = next(iter(at.values()))[0]
        plot = Plot(title, first["point"]["axis"], first["unit"], {OURS: []})
        for x, same in sorted(at.items()):
            # Rows with one peer each measured our side several times; the last one is as good as any.
            sides = {OURS: same[-1]["ours"]} | {peer: value for row in same for peer, value in row["peers"].items()}
            for side, value in sides.items():
                plot.series.setdefault(side, []).append((x, value))
        if len(at) > 1:
            made.append(plot)
    return made


def themed() -> str:
    """The rules in the light colours, and after them in the dark ones: not all viewers know CSS variables."""
    light, dark = STYLE, STYLE
    for name, (one, other) in THEMES.items():
        light, dark = light.replace(f" {name};", f" {one};"), dark.replace(f" {name};", f" {other};")
    return f"{light}@media (prefers-color-scheme: dark) {{{dark}}}\n"


def picture(plot: Plot) -> str:
    """A plot as a file of its own, with a background that follows the reader's colour scheme."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(_spoken(plot))}">\n'
        f"<style>{themed()}</style>\n"
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>\n{drawn(plot)}\n</svg>\n'
    )


def _spoken(plot: Plot) -> str:
    """A plot for those who cannot see it."""
    said = []
    for name, points in plot.series.items():
        (first, low), (last, high) = points[0], points[-1]
        start, end = (f"{show(y, plot.unit)} at {_count(x, plot.axis)}" for x, y in ((first, low), (last, high)))
        said.append(f"{name} {start} and {end}")
    return f"{plot.title}, by {AXES[plot.axis]}: {'; '.join(said)}."


def drawn(plot: Plot) -> str:
    """The inside of a plot, on two logarithmic axes."""
    xs = sorted({x for points in plot.series.values() for x, _ in points})
    ys = [y for points in plot.series.values() for _, y in points]
    marks = ticks(min(ys), max(ys), 2 if plot.unit == "bytes" else 10)
    low, high = marks[0], marks[-1]

    def across(x: float) -> float:
        return LEFT + 10 + math.log(x / xs[0]) / math.log(xs[-1] / xs[0]) * (WIDTH - LEFT - RIGHT - 20)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - math.log(max(y, low) / low) / math.log(high / low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="title" x="14" y="24">{escape(plot.title)}</text>']
    for tick in marks:
        y, label = up(tick), show(tick, "bytes" if plot.unit == "bytes" else "s")
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    last = -math.inf
    for x in xs:
        at, foot = across(x), HEIGHT - BOTTOM
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{foot}" y2="{foot + 5}"/>')
        if at - last > 44:
            label, last = _count(x, plot.axis), at
            parts.append(f'<text class="tick" x="{at:.1f}" y="{foot + 18}" text-anchor="middle">{label}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{AXES[plot.axis]}</text>')
    ends = _apart({name: up(points[-1][1]) for name, points in plot.series.items()})
    for name, points in reversed(plot.series.items()):  # ours on top
        at = [(f"{across(x):.1f}", f"{up(y):.1f}") for x, y in points]
        dots = "".join(f'<circle cx="{x}" cy="{y}" r="{4 if name == OURS else 3}"/>' for x, y in at)
        parts.append(
            f'<g class="c{COLOURS[name]}{" ours" if name == OURS else ""}">'
            f'<polyline class="line" points="{" ".join(f"{x},{y}" for x, y in at)}"/>{dots}'
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
    """Heights of labels near the wanted ones, of which no two overlap and none is below the axis."""
    placed: dict[str, float] = {}
    least = -math.inf
    for name in sorted(wanted, key=lambda name: wanted[name]):
        placed[name] = least = max(wanted[name], least + GAP)
    most: float = HEIGHT - BOTTOM
    for name in reversed(placed):
        placed[name] = most = min(placed[name], most)
        most -= GAP
    return placed
