"""Figures as Dagster's UI shows them: numbers that it plots from one materialisation to the next, and one table."""

from __future__ import annotations

from de_resources.observers.measures import (
    DISTINCT,
    LONGEST,
    MAX,
    MIN,
    NOT_FINITE,
    NULLS,
    PROBABILITIES,
    QUANTILES,
    TRUE,
    Figure,
    Figures,
)

PREFIX = "observer"
_MEDIAN = PROBABILITIES.index(0.5)

_PLOTTED = (NULLS, DISTINCT, MIN, MAX, NOT_FINITE, TRUE, LONGEST)
_COLUMNS = ("column", NULLS, DISTINCT, MIN, "5 %", "25 %", "median", "75 %", "95 %", MAX, "other")


def numbers(found: Figures, prefix: str = PREFIX) -> dict[str, int | float]:
    """`observer/rows`, and `observer/<column>/<figure>` for each figure that is a number."""
    told: dict[str, int | float] = {f"{prefix}/rows": found.rows}
    for column, own in found.columns.items():
        for name in _PLOTTED:
            value = own.get(name)
            if isinstance(value, int | float):
                told[f"{prefix}/{column}/{name}"] = value
        quantiles = own.get(QUANTILES)
        if isinstance(quantiles, list):
            told[f"{prefix}/{column}/median"] = quantiles[_MEDIAN]
    return told


def markdown_table_of(found: Figures) -> str:
    """All figures, one row for each column."""
    lines = [f"{found.rows:,} rows", "", f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    for column, own in found.columns.items():
        quantiles = own.get(QUANTILES)
        middle = [_text(each) for each in quantiles] if isinstance(quantiles, list) else [""] * len(PROBABILITIES)
        other = ", ".join(f"{name} {_text(own[name])}" for name in (NOT_FINITE, TRUE, LONGEST) if name in own)
        cells = [column, _text(own.get(NULLS)), _text(own.get(DISTINCT)), _text(own.get(MIN)), *middle]
        lines.append(f"| {' | '.join(map(cell, [*cells, _text(own.get(MAX)), other]))} |")
    return "\n".join(lines)


def _text(value: Figure | None) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, float) else str("" if value is None else value)


def cell(text: str) -> str:
    """Text that ends neither a cell nor a line of a table, and is no markup."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain.replace("|", "¦").replace("<", "‹").replace(">", "›").replace("`", "'")[:80]
