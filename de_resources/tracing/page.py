"""A traced row as one page, whole by itself: the way from the row down to where it began. Pure.

What it shows of a row is what `TracedRow.shown` leaves visible, and where the row was landed. The page has no script, and its
policy allows nothing but its own style.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from de_resources.pages import theme
from de_resources.pages.policy import policy
from de_resources.pages.templating import environment_of, source_of
from de_resources.pages.words import visible
from de_resources.tracing.makers import OUTSIDE, Maker
from de_resources.tracing.trace import Traced, TracedRow

OPEN = 3
"""Rows of each dataset that are seen at once; the others open with a click."""
MOST_MAKERS = 3
"""Of the commits that a row may come from the newest."""
_LONGEST = 80
_PACKAGE = "de_resources.tracing"
_WHOLE_RECORDS = frozenset({"raw", "payload"})
"""Columns that hold a record as it came: where it stands is told, and not what it says."""


@dataclass(frozen=True)
class Surroundings:
    """What a page tells beside the walk: who owns a dataset, where its own page is, and where a row was landed."""

    owners: Callable[[str], Sequence[str]] = lambda _name: ()
    page: Callable[[str], str | None] = lambda _name: None
    places: Callable[[Mapping[str, Any]], Iterable[str]] = lambda _values: ()


def short_values(row: TracedRow) -> dict[str, str]:
    """The values of a row that people see: masked, without nulls and whole records, and none that is long."""
    told = {name: str(value) for name, value in row.shown.items() if value is not None and name not in _WHOLE_RECORDS}
    return {name: value for name, value in told.items() if len(value) <= _LONGEST}


def page_of(found: Traced, around: Surroundings, at: datetime) -> str:
    """The page of a row that was traced at `at`."""
    style = f"{theme.BASE}\n{source_of(_PACKAGE, 'trace.css')}"
    return (
        _environment()
        .get_template("trace.html")
        .render(
            found=found,
            around=around,
            at=f"{at.astimezone(UTC):%Y-%m-%d %H:%M}",
            runs=len({maker.run for each in _all(found) for row in each.rows for maker in row.makers if maker.run}),
            datasets=len({each.dataset for each in _all(found)}),
            style=Markup(style),  # noqa: S704 - from this package
            policy=policy(style),
        )
    )


def _all(found: Traced) -> Iterator[Traced]:
    yield found
    for each in found.inputs:
        yield from _all(each)


def _made(maker: Maker) -> str:
    """Beside the run: what the log calls its commit."""
    if maker.version == OUTSIDE:
        return "outside of the lake"
    return f"version {maker.version}, {maker.operation}" if maker.operation else f"version {maker.version}"


@cache
def _environment() -> Environment:
    environment = environment_of(_PACKAGE)
    filters: dict[str, Callable[..., Any]] = {
        "shown": visible,
        "number": lambda number: f"{number:,}",
        "made": _made,
        "values": short_values,
    }
    environment.filters |= filters
    environment.globals |= {"OPEN": OPEN, "MOST_MAKERS": MOST_MAKERS}
    return environment
