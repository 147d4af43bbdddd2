"""Small plots as SVG text, for a page that fetches nothing. Colours are the page's, in light and in dark.

Pure: the same text for the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite

from de_resources.pages.words import short

WIDTH, HEIGHT = 320, 96
_TOP, _BOTTOM, _SIDE = 16, 16, 6

STYLE = (
    ".line{fill:none;stroke:var(--accent);stroke-width:1.6;stroke-linejoin:round}.dot{fill:var(--accent)}"
    ".out{fill:var(--alarm)}.refused{fill:none;stroke:var(--alarm);stroke-width:1.4}"
    ".band{fill:var(--accent);opacity:.13}.axis{stroke:var(--edge)}.box{fill:var(--accent);opacity:.35}"
    ".mid{stroke:var(--accent);stroke-width:2.4}.says{fill:var(--soft);font:10.5px system-ui,sans-serif}"
)


@dataclass(frozen=True)
class Mark:
    """One value of a history. `outside` of its bounds, or `refused` by a check."""

    label: str
    value: float
    outside: bool = False
    refused: bool = False


def history(title: str, marks: Sequence[Mark], band: tuple[float, float] | None = None) -> str:
    """The values from left to right, and the band (lowest, highest) in which the newest was expected. None without values."""
    known = [mark for mark in marks if isfinite(mark.value)]
    if not known:
        return ""
    values = [mark.value for mark in known]
    scale = _Scale.over([*values, *(band or ())])
    xs = [_x(place, len(known)) for place in range(len(known))]
    parts = [_open(title)]
    if band:
        bottom, top = map(scale.y, band)
        parts.append(f'<rect class="band" x="0" y="{top:.1f}" width="{WIDTH}" height="{bottom - top:.1f}"/>')
    points = " ".join(f"{x:.1f},{scale.y(value):.1f}" for x, value in zip(xs, values, strict=True))
    parts.append(f'<polyline class="line" points="{points}"/>')
    parts += [_dot(x, scale.y(mark.value), mark) for x, mark in zip(xs, known, strict=True) if _stands_out(mark, known)]
    parts += [
        _says(0, 10, f"{short(max(values))} highest"),
        _says(0, HEIGHT - 3, known[0].label),
        _says(WIDTH, HEIGHT - 3, known[-1].label if len(known) > 1 else "", anchor="end"),
        _says(WIDTH, 10, f"{short(values[-1])} now", anchor="end"),
    ]
    return "".join([*parts, "</svg>"])


def box(title: str, low: float, quantiles: Sequence[float], high: float) -> str:
    """Where the values lie: a line from the lowest to the highest, a box from quarter to three quarters, the median."""
    wide = (high - low) or 1.0

    def at(value: float) -> float:
        return _SIDE + (WIDTH - 2 * _SIDE) * min(max((value - low) / wide, 0.0), 1.0)

    p05, p25, p50, p75, p95 = map(at, quantiles)
    return "".join(
        [
            _open(title, 44),
            f'<line class="axis" x1="{_SIDE}" x2="{WIDTH - _SIDE}" y1="14" y2="14"/>',
            *(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="20"/>' for x in (p05, p95)),
            f'<rect class="box" x="{p25:.1f}" y="4" width="{max(p75 - p25, 1.0):.1f}" height="20" rx="2"/>',
            f'<line class="mid" x1="{p50:.1f}" x2="{p50:.1f}" y1="3" y2="25"/>',
            _says(0, 40, short(low)),
            _says(WIDTH / 2, 40, f"median {short(quantiles[2])}", anchor="middle"),
            _says(WIDTH, 40, short(high), anchor="end"),
            "</svg>",
        ]
    )


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> _Scale:
        low, high = min(values), max(values)
        # A history that never moved lies in the middle.
        return cls(low, high) if high > low else cls(low - 1, high + 1)

    def y(self, value: float) -> float:
        # Divided first: the distance of the greatest numbers has no double.
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * share


def _x(place: int, count: int) -> float:
    return WIDTH / 2 if count == 1 else _SIDE + (WIDTH - 2 * _SIDE) * place / (count - 1)


def _stands_out(mark: Mark, marks: Sequence[Mark]) -> bool:
    return mark.outside or mark.refused or mark is marks[-1] or len(marks) <= 31


def _dot(x: float, y: float, mark: Mark) -> str:
    kind = "refused" if mark.refused else "out" if mark.outside else "dot"
    told = f"{mark.label}: {short(mark.value)}"
    said = ", refused by a check" if mark.refused else ", outside of its bounds" if mark.outside else ""
    radius = 2.2 if kind == "dot" else 4
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{escape(told + said)}</title></circle>'
    )


def _open(title: str, height: int = HEIGHT) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(title)}</title>'


def _says(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text class="says" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""
