"""Figures as cells: the same table for the terminal and for the document."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.table import Table

from benchmarks.figure import Figure, Kind, Verdict
from benchmarks.measure import Samples, middle

COLUMNS = ("case", "what", "ours", "peer", "figure", "bar", "verdict", "spread")
_COLOURS = {Verdict.HOLDS: "green", Verdict.MISSED: "red", Verdict.INFORMATION: "dim"}


def cells(figure: Figure) -> tuple[str, ...]:
    """The cells of `COLUMNS`. Seconds are medians, with CPU seconds in brackets."""
    low, high = figure.spread
    spread = (
        f"{amount(figure.kind, low)} to {amount(figure.kind, high)}" if len(figure.per_round) > 1 else "measured once"
    )
    return (
        figure.case,
        figure.what,
        f"{figure.ours}: {seconds(figure.our_samples)}",
        f"{figure.peer}: {seconds(figure.peer_samples)}" if figure.peer else "none",
        amount(figure.kind, figure.value),
        bar(figure),
        figure.verdict.value,
        spread,
    )


def seconds(samples: Samples) -> str:
    """`1.23 s (2.50)`: the median of the wall seconds and of the CPU seconds."""
    return f"{wall(middle(samples))} ({median(s.cpu for s in samples):.2f})"


def wall(value: float) -> str:
    """Seconds, or milliseconds where they are few."""
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"


def amount(kind: Kind, value: float) -> str:
    """A figure with its unit."""
    if kind is Kind.RATIO:
        return f"{value:.2f}x"
    return f"{value:+.2f} s" if kind is Kind.EXTRA else f"{value:,.0f}/s"


def bar(figure: Figure) -> str:
    """`≤ 1.3x`, or nothing."""
    if figure.bar is None:
        return ""
    if figure.kind is Kind.RATE:
        return f"≥ {figure.bar:,.0f}/s"
    return f"≤ {figure.bar:g}{'x' if figure.kind is Kind.RATIO else ' s'}"


def terminal_table(figures: Sequence[Figure]) -> Table:
    """For people at the terminal."""
    table = Table(*COLUMNS, title="Benchmarks: wall seconds (CPU seconds)", show_lines=True)
    for figure in figures:
        table.add_row(*cells(figure), style=_COLOURS[figure.verdict])
    return table


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a `|` in a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
