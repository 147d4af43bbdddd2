"""A chart as SVG text: bars, a line over them, axes with labels. Pure: the same text for the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 34, 62
LABELS_SHOWN = 12


@dataclass(frozen=True)
class ChartSeries:
    """One row of numbers: a name for the legend, a CSS colour, and a value per label."""

    name: str
    colour: str
    values: Sequence[float]


def bar_and_line(
    title: str, labels: Sequence[str], bars: ChartSeries, line: ChartSeries, *, x_label: str, y_label: str
) -> str:
    """An `<svg>` element with one bar and one point of the line per label, both on one axis that begins at 0.

    Raises `ValueError` when a series has not as many values as there are labels.
    """
    for series in (bars, line):
        if len(series.values) != len(labels):
            raise ValueError(f"`{series.name}` has {len(series.values)} values for {len(labels)} labels.")
    ticks = nice_ticks(max([*bars.values, *line.values], default=0))
    plot = _Plot(count=max(len(labels), 1), top=ticks[-1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="sans-serif" font-size="12"><title>{escape(title)}</title>',
        *_axes(plot, ticks, labels),
        *(plot.bar(i, value, bars.colour) for i, value in enumerate(bars.values)),
        _polyline(plot, line),
        *_legend((bars, line)),
        _text(LEFT + plot.width / 2, HEIGHT - 8, x_label),
        _text(16, TOP + plot.height / 2, y_label, extra=f' transform="rotate(-90 16 {TOP + plot.height / 2:.1f})"'),
        "</svg>",
    ]
    return "".join(parts)


def nice_ticks(top: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least `top`, about `about` steps of 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return [0.0, 1.0]
    rough = top / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * i for i in range(math.ceil(top / step) + 1)]


@dataclass(frozen=True)
class _Plot:
    """The plotting area: where a value and a position are on the canvas."""

    count: int
    top: float
    width: float = WIDTH - LEFT - RIGHT
    height: float = HEIGHT - TOP - BOTTOM

    def x(self, index: int) -> float:
        return LEFT + self.width * (index + 0.5) / self.count

    def y(self, value: float) -> float:
        return TOP + self.height * (1 - value / self.top)

    def bar(self, index: int, value: float, colour: str) -> str:
        wide = 0.7 * self.width / self.count
        place = f'x="{self.x(index) - wide / 2:.1f}" y="{self.y(value):.1f}" width="{wide:.1f}"'
        return f'<rect {place} height="{self.y(0) - self.y(value):.1f}" fill="{colour}"/>'


def _axes(plot: _Plot, ticks: Sequence[float], labels: Sequence[str]) -> list[str]:
    right = WIDTH - RIGHT
    grid = [
        f'<line x1="{LEFT}" x2="{right}" y1="{plot.y(t):.1f}" y2="{plot.y(t):.1f}" stroke="#ddd"/>'
        + _text(LEFT - 8, plot.y(t) + 4, f"{t:,.10g}", anchor="end")
        for t in ticks
    ]
    every = math.ceil(len(labels) / LABELS_SHOWN) or 1
    days = [_text(plot.x(i), HEIGHT - BOTTOM + 18, label) for i, label in enumerate(labels) if i % every == 0]
    return [*grid, *days, f'<line x1="{LEFT}" x2="{right}" y1="{plot.y(0):.1f}" y2="{plot.y(0):.1f}" stroke="#333"/>']


def _polyline(plot: _Plot, line: ChartSeries) -> str:
    points = [(plot.x(i), plot.y(value)) for i, value in enumerate(line.values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="2"/>{dots}'


def _legend(series: Sequence[ChartSeries]) -> list[str]:
    return [
        f'<rect x="{LEFT + 130 * i}" y="10" width="12" height="12" fill="{s.colour}"/>'
        + _text(LEFT + 130 * i + 18, 20, s.name, anchor="start")
        for i, s in enumerate(series)
    ]


def _text(x: float, y: float, text: str, *, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333"{extra}>{escape(text)}</text>'
