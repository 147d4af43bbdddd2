"""Verdicts as SVG: a strip of the newest, and a calendar. Each verdict has a shape of its own besides its colour. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, pairwise

from de_resources.observatory.health import Cell, worst
from de_resources.observatory.model import HealthVerdict
from de_resources.pages.words import text

CELL = 13
GAP = 3
STEP = CELL + GAP
_LEFT, _TOP = 34, 18
WEEKS = 54
"""So many begin in a year, or are cut by its ends."""
LISTED = 371
"""As many partitions that are no days, or no time at all, are drawn: the newest."""
HOURLY_DAYS = 14
"""Of hours, the newest so many days are also drawn hour by hour."""

STRIP = 40
SIGNS = {
    HealthVerdict.FAILED: "✕",
    HealthVerdict.WARNED: "▲",
    HealthVerdict.MISSING: "○",
    HealthVerdict.WRITTEN: "◆",
    HealthVerdict.PASSED: "✓",
    HealthVerdict.OUTSIDE: "◇",
}
WORDS = {
    HealthVerdict.FAILED: "failing",
    HealthVerdict.WARNED: "warning",
    HealthVerdict.MISSING: "not written",
    HealthVerdict.WRITTEN: "not judged",
    HealthVerdict.PASSED: "healthy",
    HealthVerdict.OUTSIDE: "outside",
}


@dataclass(frozen=True)
class Square:
    """One place of a calendar: what it is called, how it is, and what is said about it."""

    label: str
    verdict: HealthVerdict
    said: str


def strip(title: str, verdicts: Sequence[HealthVerdict]) -> str:
    """The newest verdicts from left (older) to right, a few elements however many they are."""
    shown = verdicts[-STRIP:]
    width = len(shown) * 6
    paths = []
    for verdict in dict.fromkeys(shown):
        drawn = "".join(_bar(n * 6, verdict) for n, each in enumerate(shown) if each is verdict)
        paths.append(f'<path class="v-{verdict}" d="{drawn}"/>')
    return (
        f'<svg class="strip" viewBox="0 0 {max(width, 6)} 18" width="{max(width, 6)}" height="18" role="img">'
        f"<title>{text(title)}</title>{''.join(paths)}</svg>"
    )


def calendar(title: str, cells: Sequence[Cell]) -> str:
    """All partitions: a year of days by week and weekday, of hours also the newest days hour by hour; others in a row."""
    dated = [cell for cell in cells if cell.partition.start is not None]
    if len(dated) < len(cells) or not dated:
        return _listed(title, cells)
    by_day = {day: list(own) for day, own in groupby(dated, key=_day)}
    if len(by_day) == 1 and len(dated) == 1:
        return _year(title, by_day)
    spans = sorted(by_day)
    apart = min(((b - a).days for a, b in pairwise(spans)), default=1)
    if apart > 1:
        return _listed(title, cells)
    if max(map(len, by_day.values())) == 1:
        return _year(title, by_day)
    hours = _hours(title, by_day)
    return hours if len(by_day) <= HOURLY_DAYS else _year(title, by_day) + hours


def _year(title: str, by_day: dict[date, list[Cell]]) -> str:
    last = max(by_day)
    monday = last - timedelta(days=last.weekday())
    first = max(monday - timedelta(weeks=WEEKS - 1), min(by_day) - timedelta(days=min(by_day).weekday()))
    weeks = (monday - first).days // 7 + 1
    parts = [_weekdays(), *_months(first, weeks)]
    for day, own in by_day.items():
        if day >= first:
            x, y = _LEFT + (day - first).days // 7 * STEP, _TOP + day.weekday() * STEP
            parts.append(_square(x, y, _together(f"{day}", own)))
    return _svg(f"{title}, by day", _LEFT + weeks * STEP, _TOP + 7 * STEP, parts)


def _hours(title: str, by_day: dict[date, list[Cell]]) -> str:
    days = sorted(by_day)[-HOURLY_DAYS:]
    parts = [_says(_LEFT + 36 + hour * STEP, 12, f"{hour:02}") for hour in range(0, 24, 3)]
    for row, day in enumerate(days):
        y = _TOP + row * STEP
        parts.append(_says(0, y + CELL - 3, f"{day:%a %d %b}"))
        for hour, own in groupby(by_day[day], key=_hour):
            square = _together(f"{day} {hour:02}:00", list(own))
            parts.append(_square(_LEFT + 36 + hour * STEP, y, square))
    return _svg(f"{title}, by hour", _LEFT + 36 + 24 * STEP, _TOP + len(days) * STEP, parts)


def _listed(title: str, cells: Sequence[Cell]) -> str:
    shown = cells[-LISTED:]
    parts = [
        _square(n // 7 * STEP, n % 7 * STEP, Square(cell.partition.key, cell.verdict, cell.said))
        for n, cell in enumerate(shown)
    ]
    return _svg(title, max(1, (len(shown) + 6) // 7) * STEP, min(7, max(1, len(shown))) * STEP, parts)


def _together(label: str, own: Sequence[Cell]) -> Square:
    """Partitions of one day or hour as one square: as good as the worst."""
    if len(own) == 1:
        return Square(own[0].partition.key, own[0].verdict, own[0].said)
    verdict = worst([cell.verdict for cell in own])
    counted = ", ".join(f"{n} {WORDS[v]}" for v in HealthVerdict if (n := sum(cell.verdict is v for cell in own)))
    return Square(label, verdict, counted)


def _day(cell: Cell) -> date:
    start = cell.partition.start or datetime.min
    return start.date()


def _hour(cell: Cell) -> int:
    return cell.partition.start.hour if cell.partition.start else 0


def _square(x: int, y: int, square: Square) -> str:
    said = f"{square.label}: {WORDS[square.verdict]}. {square.said}"
    sign = (
        SIGNS[square.verdict]
        if square.verdict in (HealthVerdict.FAILED, HealthVerdict.WARNED, HealthVerdict.WRITTEN)
        else ""
    )
    drawn = f'<text x="{x + CELL / 2:g}" y="{y + CELL - 3}">{sign}</text>' if sign else ""
    return (
        f'<g class="q v-{square.verdict}"><title>{text(said)}</title>'
        f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="3"/>{drawn}</g>'
    )


def _bar(x: int, verdict: HealthVerdict) -> str:
    """Full height, or less, or cut in two: told apart without colours."""
    match verdict:
        case HealthVerdict.PASSED:
            return f"M{x} 5h4v8h-4z"
        case HealthVerdict.FAILED:
            return f"M{x} 0h4v18h-4z"
        case HealthVerdict.WARNED:
            return f"M{x} 0h4v7h-4zM{x} 11h4v7h-4z"
        case HealthVerdict.WRITTEN:
            return f"M{x} 8h4v2h-4z"
        case _:
            return f"M{x} 16h4v2h-4z"


def _weekdays() -> str:
    return "".join(_says(0, _TOP + row * STEP + CELL - 3, day) for row, day in ((0, "Mon"), (2, "Wed"), (4, "Fri")))


def _months(first: date, weeks: int) -> Iterable[str]:
    shown, free = None, 0
    for week in range(weeks):
        day = first + timedelta(weeks=week)
        if (day.year, day.month) != shown and week >= free:
            shown, free = (day.year, day.month), week + 3
            yield _says(_LEFT + week * STEP, 11, f"{day:%b}" if day.month != 1 and week else f"{day:%b %Y}")


def _says(x: float, y: float, said: str) -> str:
    return f'<text class="says" x="{x:g}" y="{y:g}">{text(said)}</text>'


def _svg(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{text(title)}"><svg class="calendar" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"><title>{text(title)}</title>'
        f"{''.join(parts)}</svg></div>"
    )
