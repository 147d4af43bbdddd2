"""A profile as one HTML page: self-contained, without a script, readable in light and dark and on a phone.

Every text that comes from data goes through `text`, which no markup survives; a policy in the page's head forbids it to
fetch anything besides.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from de_resources.contract import Contract
from de_resources.observers.bounds import LEAST_POINTS
from de_resources.observers.drift import Judgement
from de_resources.observers.figures_shown import markdown_table_of
from de_resources.observers.measures import (
    DISTINCT,
    LONGEST,
    MAX,
    MIN,
    NOT_FINITE,
    NULLS,
    QUANTILES,
    ROWS,
    TOP,
    TRUE,
    Figure,
    may_show_values,
)
from de_resources.observers.memory import Memory
from de_resources.observers.profile import MOST_PROFILED, HistoryPoint
from de_resources.pages import plots, theme
from de_resources.pages.plots import Mark
from de_resources.pages.words import short, text

MOST_COLUMNS = 200
"""As many columns have a card; of a wider table the others are counted."""

_STYLE = f"""{theme.BASE}
.wide{{max-width:480px}}
.drift{{border-left:4px solid var(--alarm)}}
.usual{{border-left:4px solid var(--accent)}}
ul.said{{margin:4px 0;padding-left:18px}}
svg{{display:block;width:100%;height:auto;margin-top:8px}}
dl{{display:grid;grid-template-columns:auto 1fr;gap:1px 12px;margin:8px 0}}
dt{{color:var(--soft)}}
dd{{margin:0;text-align:right;font-variant-numeric:tabular-nums}}
.bar{{position:relative;padding:1px 6px;margin-top:3px;display:flex;justify-content:space-between;gap:10px}}
.bar i{{position:absolute;inset:0 auto 0 0;background:var(--accent);opacity:.16;border-radius:3px}}
{plots.STYLE}"""
_EXPLAINED = (
    "Distinct values are estimated within 1.6 %, quantiles within 1.3 % of the ranks. The band is where the newest value "
    "was expected: three standard deviations around the mean of the accepted points before it, those of the same weekday where "
    f"there are {LEAST_POINTS}. A value outside (filled) or a refused point (ring) is not learnt from."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class ProfiledDataset:
    """What is profiled. `types` are the columns in their order, with their types."""

    name: str
    types: Mapping[str, str]
    contract: Contract | None = None


def page_of(dataset: ProfiledDataset, memory: Memory, judgement: Judgement) -> str:
    """The page about the newest point, and those before it. Values of personal columns are in none of the points."""
    keys = sorted(memory.points)
    body = "".join(_sections(dataset, memory, judgement, keys)) if keys else _card("Nothing was looked at yet.")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(dataset.name)}: profile</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{text(dataset.name)}</h1>{body}</main></body></html>\n"
    )


def markdown_of(dataset: ProfiledDataset, memory: Memory, judgement: Judgement) -> str:
    """The same in short, for Dagster's page of the asset, which opens no files: findings, rows over time, the figures."""
    keys = sorted(memory.points)
    if not keys:
        return "Nothing was looked at yet."
    drawn = _history("", ROWS, memory, judgement)
    colours = f"<style>svg{{{theme.LIGHT};background:#fff}}{plots.STYLE}</style></svg>"
    image = b64encode(drawn.replace("</svg>", colours).encode()).decode()
    found = [f"- {_plain(str(drift))}" for drift in judgement.of(keys[-1])] or [_plain(_learnt(judgement))]
    newest = memory.points[keys[-1]].figures
    plot = f"![Rows over time](data:image/svg+xml;base64,{image})"
    return "\n".join(
        [f"**{_plain(dataset.name)}**, {_plain(keys[-1])}", "", *found, "", plot, "", markdown_table_of(newest)]
    )


def _plain(value: str) -> str:
    return "".join(c if c.isprintable() and c not in "<>`*_[]!|\\" else " " for c in value)


def _sections(dataset: ProfiledDataset, memory: Memory, judgement: Judgement, keys: Sequence[str]) -> Iterator[str]:
    newest = memory.points[keys[-1]]
    if dataset.contract is not None:
        yield f'<p class="soft">{text(dataset.contract.description)}</p>'
    facts = [
        (f"{newest.figures.rows:,}", "rows in the newest point"),
        (text(newest.key), "newest point"),
        (f"{len(keys):,}", "points"),
        (str(memory.version), "version"),
        (f"{newest.at:%Y-%m-%d %H:%M} UTC", "looked at"),
    ]
    yield f'<ul class="facts">{"".join(f"<li><b>{value}</b><br><small>{name}</small></li>" for value, name in facts)}</ul>'
    yield _findings(newest, memory, judgement)
    yield f'<h2>Rows over time</h2><div class="card wide">{_history("", ROWS, memory, judgement)}</div>'
    yield '<h2>Columns</h2><div class="grid">'
    shown = list(dataset.types)[:MOST_COLUMNS]
    for column in shown:
        yield _column(column, dataset, memory, judgement, keys)
    yield "</div>"
    measured = min(len(dataset.types), MOST_PROFILED)
    if measured > len(shown):
        yield f"<p>{measured - len(shown):,} more columns are measured and not shown.</p>"
    if len(dataset.types) > measured:
        yield f"<p>The last {len(dataset.types) - measured:,} columns of the table are not measured.</p>"
    yield f'<p class="soft">{_EXPLAINED}</p>'


def _findings(newest: HistoryPoint, memory: Memory, judgement: Judgement) -> str:
    drifts = judgement.of(newest.key)
    said = ""
    if newest.refused:
        said += f"<p>Refused: {text(newest.refused)}</p>"
    if newest.key in memory.accepted:
        said += f"<p>Accepted by a person: {text(memory.accepted[newest.key])}</p>"
    if drifts:
        listed = "".join(f"<li>{text(drift)}</li>" for drift in drifts[:20])
        more = f"<p>and {len(drifts) - 20} more</p>" if len(drifts) > 20 else ""
        return _card(f'<h3>Outside of what is usual</h3><ul class="said">{listed}</ul>{more}{said}', "drift")
    return _card(f"<p>{text(_learnt(judgement))}</p>{said}", "drift" if newest.refused else "usual")


def _learnt(judgement: Judgement) -> str:
    if not judgement.bounds:
        return f"Still learning: fewer than {LEAST_POINTS} accepted points came before this one."
    return f"Nothing is outside of what is usual: {len(judgement.bounds):,} figures were compared."


def _column(column: str, dataset: ProfiledDataset, memory: Memory, judgement: Judgement, keys: Sequence[str]) -> str:
    newest = memory.points[keys[-1]].figures
    own = newest.columns.get(column, {})
    badge = "" if may_show_values(column, dataset.contract) else ' <span class="badge">counts only</span>'
    described = {c.name: c.description for c in dataset.contract.columns} if dataset.contract else {}
    about = f"<small>{text(described[column])}</small>" if described.get(column) else ""
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in _facts(own, newest.rows))
    moving = [f for c, f in judgement.series if c == column and (f == "median" or f.startswith("share of nulls"))]
    drawn = "".join(
        f"<div><small>{text(figure)} over time</small>{_history(column, figure, memory, judgement)}</div>"
        for figure in moving
        if len(keys) > 1
    )
    inside = f"<h3>{text(column)}{badge}</h3><small>{text(dataset.types[column])}</small> {about}<dl>{listed}</dl>"
    return _card(
        inside + _distribution(column, own) + _top(own, newest.rows) + drawn,
        "drift" if any(drift.column == column for drift in judgement.of(keys[-1])) else "",
    )


def _facts(own: Mapping[str, Figure], rows: int) -> Iterator[tuple[str, str]]:
    for name, label in ((NULLS, "nulls"), (TRUE, "true"), (NOT_FINITE, "NaN or infinite")):
        value = own.get(name)
        if isinstance(value, int) and (name != NOT_FINITE or value):
            yield label, f"{value:,} <small>({value / rows:.1%})</small>" if rows else f"{value:,}"
    for name, label in ((DISTINCT, "distinct, about"), (LONGEST, "longest"), (MIN, "lowest"), (MAX, "highest")):
        if name in own:
            yield label, _number(own[name])


def _distribution(column: str, own: Mapping[str, Figure]) -> str:
    quantiles, low, high = own.get(QUANTILES), own.get(MIN), own.get(MAX)
    if not isinstance(quantiles, list) or not isinstance(low, int | float) or not isinstance(high, int | float):
        return ""
    return plots.box(f"{column}: distribution", float(low), [float(str(q)) for q in quantiles], float(high))


def _top(own: Mapping[str, Figure], rows: int) -> str:
    top = own.get(TOP)
    if not isinstance(top, list) or not rows:
        return ""
    pairs = [(str(each[0]), int(each[1])) for each in top if isinstance(each, tuple)]
    if not pairs or max(count for _, count in pairs) < 2:
        return ""
    return "".join(
        f'<div class="bar"><i style="width:{min(count / rows, 1):.1%}"></i><span>{text(value or "(empty)")}</span>'
        f"<small>{count / rows:.1%}</small></div>"
        for value, count in pairs
    )


def _history(column: str, figure: str, memory: Memory, judgement: Judgement) -> str:
    outside = {drift.key for drift in judgement.drifts if (drift.column, drift.figure) == (column, figure)}
    marks = [
        Mark(key, value, key in outside, bool(memory.points[key].refused))
        for key, value in judgement.series.get((column, figure), ())
    ]
    title = f"{column}: {figure} over time" if column else "Rows over time"
    bounds = judgement.bounds.get((column, figure))
    return plots.history(title, marks, (bounds.low, bounds.high) if bounds else None)


def _number(value: Figure) -> str:
    if isinstance(value, int | float):
        return text(short(value))
    return text(value)


def _card(inside: str, kind: str = "") -> str:
    return f'<div class="card {kind}">{inside}</div>'
