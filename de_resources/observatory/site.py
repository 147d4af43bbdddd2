"""A world as a site: an index, and a page for each dataset, each whole by itself. Pure: the same pages for the same world.

No page asks anybody for anything: style, script and pictures are in it, and its policy allows no others, by their digests. All
text from outside is escaped by the templates, and cut where it is too long.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from de_resources.observatory import charts, health
from de_resources.observatory.lineage import LineageEdges
from de_resources.observatory.model import Check, ColumnRef, HealthVerdict, ObservedDataset, ObservedWorld
from de_resources.observatory.paths import INDEX, page_path
from de_resources.observatory.series import (
    FigureSeries,
    series_of_check,
    series_of_observations,
    series_of_writes,
    thinned,
)
from de_resources.pages import plots, theme
from de_resources.pages.plots import Mark
from de_resources.pages.policy import policy
from de_resources.pages.templating import environment_of, source_of
from de_resources.pages.words import short, visible

_PACKAGE = "de_resources.observatory"
LIMITS = {
    "first_problems": 4,
    "most_problems": 100,
    "most_promises": 60,
    "most_columns": 300,
    "most_listed": 200,
    "most_plots": 24,
    "most_of_check": 6,
}
"""How much of a kind one page shows; of the rest it tells the number."""

PROMISES = (
    ("Freshness", "Did the data flow, and did all of it come?", "flow_interruption_detector"),
    ("Service levels", "Was it there when it was promised, and in the time that it may take?", "sla_misses_detector"),
    ("Lag", "How far are the readers behind?", "lag_detector"),
    ("Skew", "Is there as much as usual, spread as usual?", "skew_detector"),
)
"""Title, question, and the pattern that a check carries who asks it."""

ACCOUNTS = ("dead_letter", "late_data_detector", "dynamic_late_data_integrator")
_ACCOUNT_FIGURES = ("dead_letters/", "late/", "records_not_understood")

_LIGHT = (
    "--good:#1a6a4f;--warn:#7d5100;--bad:#a5260e;--calm:#e1f1ea;--heed:#fbefd3;--alert:#fbe4dd;--mute:#eceef1;"
    "--fill-good:#3f9e7c;--fill-warn:#c98a12;--fill-bad:#c2351a;--fill-written:#7389aa"
)
_DARK = (
    "--good:#7fd8b4;--warn:#f3c465;--bad:#ff9c80;--calm:#193a2f;--heed:#3d3116;--alert:#47211a;--mute:#2a2e36;"
    "--fill-good:#3f9e7c;--fill-warn:#c98a12;--fill-bad:#d9492b;--fill-written:#6f86aa"
)


def pages_of(world: ObservedWorld) -> dict[str, str]:
    """All pages by their path: `index.html`, and `gold/sessions.html` for the dataset `gold/sessions`."""
    lineage = LineageEdges(world)
    downstream = _downstream(world)
    pages = {INDEX: _index(world)}
    for dataset in world.datasets.values():
        pages[page_path(dataset.name)] = _page(world, dataset, lineage, downstream.get(dataset.name, ()))
    return pages


def _index(world: ObservedWorld) -> str:
    healths = {name: health.health(dataset) for name, dataset in world.datasets.items()}
    rows = [_row(world, dataset, healths[name]) for name, dataset in world.datasets.items()]
    counted = Counter(found.verdict for found in healths.values())
    open_ = [problem for dataset in world.datasets.values() for problem in health.problems(dataset)]
    groups = groupby(sorted(rows, key=lambda row: (row["group"], row["name"])), key=lambda row: row["group"])
    return _render(
        "index.html",
        world=world,
        rows=rows,
        groups=[(group, list(own)) for group, own in groups],
        counts=[(verdict, counted[verdict]) for verdict in HealthVerdict if counted[verdict]],
        problems=sorted(open_, key=lambda problem: (problem.verdict.rank, problem.dataset)),
        news=[_news(each) for each in world.news],
        promises=[(title, about, health.promises(world, pattern)) for title, about, pattern in PROMISES],
        accounts=[_account(dataset) for dataset in world.datasets.values() if set(ACCOUNTS) & set(dataset.patterns)],
    )


def _row(world: ObservedWorld, dataset: ObservedDataset, found: health.Health) -> dict[str, Any]:
    checks = health.checks_now(dataset)
    return {
        "name": dataset.name,
        "group": dataset.group if dataset.declared else "no longer declared",
        "owners": ", ".join(dataset.owners) or "no owner",
        "words": f"{dataset.name} {dataset.group} {' '.join(dataset.owners)}".lower(),
        "page": page_path(dataset.name),
        "health": found,
        "strip": Markup(_strip(dataset)),  # noqa: S704 - made of numbers, and of text that `charts` escapes
        "rows": _number(health.rows(dataset)),
        "written": _ago(dataset.writes[0].at, world.at) if dataset.writes else "–",
        "checks": f"{checks.passed}/{checks.total}" if checks.total else "–",
    }


def _strip(dataset: ObservedDataset) -> str:
    """Of a dataset with partitions these; of another one its writes as its checks have judged them."""
    cells = health.cells(dataset)
    if cells:
        shown = [cell.verdict for cell in cells]
        counted = Counter(shown)
        title = ", ".join(f"{counted[v]} {charts.WORDS[v]}" for v in HealthVerdict if counted[v])
        return charts.strip(f"Newest partitions; of all: {title}", shown)
    verdicts = [_write_verdict(dataset, write.id) for write in reversed(dataset.writes[: charts.STRIP])]
    return charts.strip(f"Newest writes: {len(verdicts)}", verdicts) if verdicts else ""


def _write_verdict(dataset: ObservedDataset, write: int) -> HealthVerdict:
    verdicts = [e.verdict for check in dataset.checks for e in check.evaluations if e.judged == write]
    return health.worst(verdicts) if verdicts else HealthVerdict.WRITTEN


@dataclass(frozen=True)
class _Drawn:
    """Series as a page shows them: those that move as plots, the others as numbers."""

    drawn: Sequence[Mapping[str, Any]]
    still: Sequence[tuple[str, str]]


def _page(world: ObservedWorld, dataset: ObservedDataset, lineage: LineageEdges, downstream: Sequence[str]) -> str:
    root = "../" * page_path(dataset.name).count("/")
    cells = health.cells(dataset)
    counted = Counter(cell.verdict for cell in cells)
    return _render(
        "dataset.html",
        world=world,
        root=root,
        dataset=dataset,
        health=health.health(dataset),
        problems=health.problems(dataset),
        facts=list(_facts(world, dataset, cells)),
        upstream=[name for name in dataset.upstream if name in world.datasets],
        downstream=downstream,
        calendar=Markup(charts.calendar("Partitions", cells)) if cells else "",  # noqa: S704 - `charts` escapes
        partition_counts=[(verdict, counted[verdict]) for verdict in HealthVerdict if counted[verdict]],
        noteworthy=[
            c
            for c in reversed(cells)
            if c.verdict in (HealthVerdict.FAILED, HealthVerdict.WARNED, HealthVerdict.MISSING)
        ],
        above={column.name: lineage.above(ColumnRef(dataset.name, column.name)) for column in dataset.columns},
        lineage=Markup(_lineage_island(world, dataset, lineage, root)),  # noqa: S704 - `<` is escaped in it
        lineage_nodes=bool(dataset.columns),
        checks=[_check(dataset, check) for check in dataset.checks],
        written=_drawn(series_of_writes(dataset)),
        observed=_drawn(series_of_observations(dataset)),
    )


def _facts(world: ObservedWorld, dataset: ObservedDataset, cells: Sequence[health.Cell]) -> Iterator[tuple[str, str]]:
    yield ", ".join(dataset.owners) or "no owner", "owner"
    found = health.rows(dataset)
    if found is not None:
        yield f"{found:,}", "rows"
    if dataset.writes:
        yield _ago(dataset.writes[0].at, world.at), f"since the newest write, {_moment(dataset.writes[0].at)}"
    if cells and not dataset.external:
        there = sum(cell.verdict is not HealthVerdict.MISSING for cell in cells)
        yield f"{there:,} of {len(cells):,}", "partitions written"
    checks = health.checks_now(dataset)
    if checks.total:
        yield f"{checks.passed} of {checks.total}", "checks without a finding"
    if dataset.freshness:
        yield dataset.freshness.lower(), f"freshness: {dataset.promise}"
    elif dataset.promise:
        yield "not judged", f"freshness: {dataset.promise}"
    if dataset.kinds:
        yield ", ".join(dataset.kinds), "kept as"


def _check(dataset: ObservedDataset, check: Check) -> dict[str, Any]:
    newest = health.newest_evaluations(check)
    verdicts = [evaluation.verdict for evaluation in newest.values()]
    ordered = list(reversed(check.evaluations))
    said = list(dict.fromkeys(e.said for e in newest.values() if not e.passed and e.said))
    return {
        "check": check,
        "verdict": health.worst(verdicts) if verdicts else HealthVerdict.MISSING,
        "rate": health.rate(check),
        "strip": Markup(  # noqa: S704 - `charts` escapes
            charts.strip(f"The newest evaluations of {check.name}", [each.verdict for each in ordered])
        ),
        "from": _moment(ordered[-charts.STRIP :][0].at) if ordered else "",
        "to": _moment(ordered[-1].at) if ordered else "",
        "said": said[:3],
        "series": _drawn(series_of_check(dataset, check)),
    }


def _drawn(series: Sequence[FigureSeries]) -> _Drawn:
    moving = [each for each in series if each.moves]
    drawn = [{"name": each.name, "svg": Markup(_plot(each))} for each in moving]  # noqa: S704 - `plots` escapes
    return _Drawn(drawn, [(each.name, short(each.points[-1].value)) for each in series if not each.moves])


def _plot(series: FigureSeries) -> str:
    points = thinned(series.points)
    return plots.history(series.name, [Mark(visible(point.label, 40), point.value) for point in points])


def _lineage_island(world: ObservedWorld, dataset: ObservedDataset, lineage: LineageEdges, root: str) -> str:
    """What the script draws from. Dataset 0 is the page's own."""
    around = lineage.around(dataset)
    names = list(dict.fromkeys([dataset.name, *(node.dataset for node in around.nodes)]))
    place = {name: n for n, name in enumerate(names)}
    told = {
        "datasets": [_named(world, name) for name in names],
        "nodes": [[place[node.dataset], node.column] for node in around.nodes],
        "edges": around.edges,
        "base": root,
    }
    return json.dumps(told, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _named(world: ObservedWorld, name: str) -> tuple[str, str, str, bool]:
    known = world.datasets.get(name, ObservedDataset(name, external=True))
    begins = known.external or not known.upstream
    return visible(name), ", ".join(known.owners), page_path(name), begins


def _account(dataset: ObservedDataset) -> dict[str, Any]:
    events = [*dataset.writes, *dataset.observations]
    names = sorted({n for event in events for n in event.figures if n.startswith(_ACCOUNT_FIGURES)})
    told = [f"{name.split('/')[-1].replace('_', ' ')} {short(_account_sum(dataset, name))}" for name in names]
    carries = [p.replace("_", " ") for p in dataset.patterns if p in ACCOUNTS]
    return {
        "name": dataset.name,
        "carries": ", ".join(carries),
        "rows": _number(health.rows(dataset)),
        "told": ", ".join(told),
    }


def _account_sum(dataset: ObservedDataset, figure: str) -> float:
    found = health.newest_sum(dataset, figure)
    if found is None:
        found = next((each.figures[figure] for each in dataset.observations if figure in each.figures), 0.0)
    return found


def _news(each: Any) -> dict[str, Any]:
    verdict = HealthVerdict.FAILED if each.severe else HealthVerdict.WARNED
    return {
        "verdict": verdict,
        "dataset": each.datasets[0] if each.datasets else "",
        "what": each.said,
        "said": "",
        "since": each.since,
        "partitions": (),
    }


def _downstream(world: ObservedWorld) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for dataset in world.datasets.values():
        for name in dataset.upstream:
            found.setdefault(name, []).append(dataset.name)
    return found


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**LIMITS, **values)


@cache
def _environment() -> Environment:
    environment = environment_of(_PACKAGE)
    environment.filters |= {
        "moment": _moment,
        "shown": visible,
        "coded": _coded,
        "first_line": lambda told: _coded((told.strip().splitlines() or [""])[0]),
        "brief": lambda told: visible(told, 24),
        "page": page_path,
        "slug": lambda name: re.sub(r"[^A-Za-z0-9_.-]", "_", name),
        "number": lambda number: f"{number:,}",
        "percent": lambda share: f"{share:.1%}" if 0 < share < 1 else f"{share:.0%}",
    }
    style, script = _style(), source_of(_PACKAGE, "site.js")
    environment.globals |= {
        "style": Markup(style),  # noqa: S704 - from this package
        "script": Markup(script),  # noqa: S704 - from this package
        "policy": policy(style, script),
        "signs": charts.SIGNS,
        "names": charts.WORDS,
        "judgements": charts.WORDS | {HealthVerdict.PASSED: "passing", HealthVerdict.MISSING: "not run"},
        "verdicts": list(HealthVerdict),
        "badge": _badge,
    }
    return environment


def _badge(verdict: HealthVerdict) -> Markup:
    return Markup('<span class="verdict v-{}"><b aria-hidden="true">{}</b> {}</span>').format(
        verdict, charts.SIGNS[verdict], charts.WORDS[verdict]
    )


def _style() -> str:
    light, dark = f"{theme.LIGHT};{_LIGHT}", f"{theme.DARK};{_DARK}"
    colours = (
        f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f":root[data-theme=light]{{{light}}}:root[data-theme=dark]{{{dark}}}"
    )
    return f"{theme.BASE}{colours}\n{plots.STYLE}\n{source_of(_PACKAGE, 'site.css')}"


def _coded(told: str) -> Markup:
    """A sentence, in which what stands in backquotes is code."""
    parts = visible(told, 1_200).split("`")
    if len(parts) % 2 == 0:
        return escape(visible(told, 1_200))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part) for n, part in enumerate(parts)
    )


def _number(value: float | None) -> str:
    return "–" if value is None else short(value)


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _ago(at: datetime, now: datetime) -> str:
    """How long ago; what a clock has put into the future is told as a time."""
    seconds = (now - at).total_seconds()
    if seconds < -60:
        return f"{_moment(at)}, ahead of the clock"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size):,} {unit} ago"
    return "just now"
