"""The report as text: HTML for people, Markdown for Dagster's page of the asset."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from de_assets.dashboards.chart import ChartSeries, bar_and_line
from de_assets.dashboards.traffic import Day

_COLUMNS = ("Day", "Visits", "by robots", "Visitors", "Sessions", "Visits per session")
_APPROXIMATE = "≈"
_STYLE = (
    "body{font-family:sans-serif;max-width:880px;margin:2em auto;color:#222}table{border-collapse:collapse;width:100%}"
    "th,td{padding:.3em .6em;text-align:right;border-bottom:1px solid #ddd}"
    "th:first-child,td:first-child{text-align:left}"
)


def chart_of(days: Sequence[Day]) -> str:
    """Visits and visitors per day as SVG."""
    return bar_and_line(
        "Daily traffic",
        [f"{d.day:%d %b}" for d in days],
        ChartSeries("Visits", "#4878a8", [d.visits for d in days]),
        ChartSeries("Visitors", "#d1662f", [d.users for d in days]),
        x_label="Day (UTC)",
        y_label="Count per day",
    )


def html_of(days: Sequence[Day]) -> str:
    """One self-contained page: no script, nothing fetched from elsewhere."""
    head = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(d))}</tr>" for d in reversed(days))
    notes = "".join(f"<p>{escape(note)}</p>" for note in notes_of(days))
    period = f"{days[0].day} to {days[-1].day}" if days else "no day yet"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Daily traffic</title>'
        f"<style>{_STYLE}</style></head><body><h1>Daily traffic</h1><p>{escape(period)}</p>{chart_of(days)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}</body></html>\n"
    )


def notes_of(days: Sequence[Day]) -> list[str]:
    """A sentence for each day whose figures lack something, newest first: an approximation is not taken for the truth."""
    return [
        f"{_APPROXIMATE} {d.day}: computed without {', '.join(f'{key} ({why})' for key, why in d.lacks.items())}."
        for d in reversed(days)
        if d.lacks
    ]


def markdown_table_of(days: Sequence[Day]) -> str:
    """The days as a Markdown table, newest first."""
    rows = [_COLUMNS, ("---", *("--:" for _ in _COLUMNS[1:])), *(_cells(d) for d in reversed(days))]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def markdown_plot_of(days: Sequence[Day]) -> str:
    """The chart as an embedded Markdown image."""
    return f"![Daily traffic](data:image/svg+xml;base64,{base64.b64encode(chart_of(days).encode()).decode()})"


def _cells(d: Day) -> tuple[str, ...]:
    ratio = f"{d.visits / d.sessions:.1f}" if d.sessions else "-"
    day = f"{d.day.isoformat()} {_APPROXIMATE}" if d.lacks else d.day.isoformat()
    return (day, f"{d.visits:,}", f"{d.bot_visits:,}", f"{d.users:,}", f"{d.sessions:,}", ratio)
