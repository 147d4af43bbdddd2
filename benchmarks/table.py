"""Figures as cells: the same table for the terminal and for the document."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.table import Table

from benchmarks.figure import Figure, Kind, Verdict
from benchmarks.measure import Samples, middle

COLUMNS = ("case", "what", "ours", "peer", "figure", "bar", "verdict", "spread")
_COLOURS = {Verdict.HOLDS: "green", Verdict.MISSED: "red", Verdict.UNDECIDED: "yellow", Verdict.INFORMATION: "dim"}


def cells(figure: Figure) -> tuple[str, ...]:
    """The cells of `COLUMNS`. Seconds are medians, with CPU seconds in brackets."""
    return (
        figure.case,
        figure.what,
        f"{figure.ours}: {seconds(figure.our_samples)}",
        f"{figure.peer}: {seconds(figure.peer_samples)}" if figure.peer else "none",
        amount(figure.kind, figure.value) if figure.per_round else "",
        bar(figure),
        figure.verdict.value,
        _spread(figure),
    )


def _spread(figure: Figure) -> str:
    """Least and greatest round, how many there were, and between which of them the median lies."""
    rounds = len(figure.per_round)
    if rounds < 2:
        return "measured once" if rounds else "not measured"
    low, high = (amount(figure.kind, value) for value in figure.spread)
    within = ", ".join(amount(figure.kind, value) for value in figure.interval or ())
    return f"{low} to {high} in {rounds} rounds" + (f"; median in [{within}]" if within else "")


def seconds(samples: Samples) -> str:
    """`1.23 s (2.50)`: the median of the wall seconds and of the CPU seconds, as far as they are known."""
    if not samples:
        return "not measured"
    cpu = median(s.cpu for s in samples)
    return wall(middle(samples)) + (f" ({cpu:.2f})" if cpu else "")


def wall(value: float) -> str:
    """Seconds, or milliseconds where they are few."""
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"


def amount(kind: Kind, value: float) -> str:
    """A figure with its unit."""
    match kind:
        case Kind.RATIO:
            return f"{value:.2f}x"
        case Kind.EXTRA:
            return f"{value:+.2f} s"
        case Kind.SECONDS:
            return f"{value:,.2f} s"
        case Kind.MEMORY:
            return f"{value:.2f} GiB"
        case Kind.RATE:
            return f"{value:,.0f}/s" if value >= 10 else f"{value:.2f}/s"


def bar(figure: Figure) -> str:
    """`≤ 1.3x`, or nothing."""
    if figure.bar is None:
        return ""
    if figure.kind is Kind.RATE:
        return f"≥ {figure.bar:,.0f}/s"
    unit = {Kind.RATIO: "x", Kind.MEMORY: " GiB"}.get(figure.kind, " s")
    return f"≤ {figure.bar:g}{unit}"


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
