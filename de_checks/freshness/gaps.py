"""Was there a silence that this source does not usually keep? Rows per window come from Delta's log: no scan, no engine."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import exp

import dagster as dg

from de_checks.baselines import NoSeason
from de_checks.factory import CheckRun, check_of_asset
from de_checks.per_key import judged_before
from de_checks.subject import Subject, spec_of
from de_resources.delta.log import TableLog

ACCEPT_TAG = "de/gap_accepted"
"""Run tag with the reason for which a person no longer wants to be warned of the silences there are."""

ACCEPTED = "accepted"
_NAMED = 3
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
_DAYS_AROUND = 14
_FEWEST_DAYS = 2
_ODD_DAYS = 8
"""Of so many days one may have had less, as in an outage of its own."""


@dataclass(frozen=True)
class Gap:
    """Windows without a row, end exclusive, and how many rows would have been usual at least."""

    start: datetime
    end: datetime
    expected: float

    @property
    def label(self) -> str:
        """For people, and to know it again."""
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M}"


def gap_check(
    asset: Subject, *, chance: float = 1e-6, blocking: bool = False, name: str = "flow_has_no_gaps"
) -> dg.AssetChecksDefinition:
    """A check of the whole asset, which warns where materialised windows are empty that this source usually fills.

    Events that come one by one leave a stretch empty with the chance `exp(-expected)`, `expected` being how many usually
    come in it (Poisson distribution: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.6.19). Below `chance` it warns.
    Usual is what can least be doubted, the lowest of: the two windows around the stretch; what the same hours have on days
    around it (up to 14 on either side that have any rows; one of eight may have had less); the same hours a week before and
    after. A source that rests at night, on Sundays, or comes at hours of its own is therefore not warned of; of one that
    comes at random hours, a log of a few days does not show it. A stretch with fewer than two such days, at the end of what is
    there, or beside a missing window is not judged: what is missing is for `completeness_check`, the present for
    `newest_event_check`.

    Judges all that is materialised, so that after several ranges the last one decides. A person who knows the gap executes
    the check with the run tag `de/gap_accepted` and the reason as its value; the stretches of that moment are not warned of
    again. Needs the resource `lake`. Metadata: `windows`, `gaps`, `rows_expected`, and `accepted` with the reasons. Raises
    `NoSeason` for an asset without time partitions, at definition.
    """
    spec = spec_of(asset)
    partitions = spec.partitions_def
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        raise NoSeason(spec.key)

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        there = run.instance.get_materialized_partitions(spec.key)
        rows = _rows(run.table().log(), partitions, there, str(spec.metadata["partition_expr"]))
        before = next(iter(judged_before(run.instance, run.check.key, None, limit=1)), None)
        known: dict[str, str] = dict(before.metadata.get(ACCEPTED, {})) if before else {}
        return _result(rows, unlikely_gaps(rows, chance), known, run.tags.get(ACCEPT_TAG))

    return check_of_asset(
        asset,
        name,
        judge,
        description="No stretch without rows is longer than chance explains.",
        patterns=["flow_interruption_detector"],
        blocking=blocking,
        resources=["lake"],
    )


def _rows(
    log: TableLog | None, partitions: dg.TimeWindowPartitionsDefinition, there: Iterable[str], column: str
) -> dict[datetime, int]:
    """Rows by the start of each materialised window of the calendar."""
    if log is None:
        return {}
    place = log.partition_columns().index(column)
    stored: dict[datetime, int] = {}
    for values, rows in log.rows_by_partition().items():
        stored[values[place]] = stored.get(values[place], 0) + rows
    starts = (partitions.time_window_for_partition_key(key).start for key in there if partitions.has_partition_key(key))
    return {start: stored.get(start, 0) for start in sorted(starts)}


def unlikely_gaps(rows: Mapping[datetime, int], chance: float) -> list[Gap]:
    """The stretches of empty windows that chance does not explain; `rows` by the start of each window that is there."""
    windows = sorted(rows)
    if len(windows) < 2:
        return []
    length = min(after - before for before, after in pairwise(windows))
    # A day without any row, such as a Sunday, says nothing about the hours of others.
    days = {window.date() for window in windows if rows[window]}
    filled = {window: rows[window] for window in windows if window.date() in days}
    return [
        Gap(silent[0], silent[-1] + length, expected)
        for silent in _silences(windows, rows, length)
        if (expected := _usual(silent, rows, filled, length)) is not None and exp(-expected) < chance
    ]


def _silences(windows: Iterable[datetime], rows: Mapping[datetime, int], length: timedelta) -> Iterator[list[datetime]]:
    """Empty windows that follow each other."""
    silent: list[datetime] = []
    for window in windows:
        if silent and (rows[window] or window - silent[-1] != length):
            yield silent
            silent = []
        if not rows[window]:
            silent.append(window)
    if silent:
        yield silent


def _usual(
    silent: list[datetime], rows: Mapping[datetime, int], of_open_days: Mapping[datetime, int], length: timedelta
) -> float | None:
    """How many rows the source has at least in such a stretch; None: nobody can tell."""
    before, after = rows.get(silent[0] - length), rows.get(silent[-1] + length)
    of_windows = [_usual_at(window, of_open_days) for window in silent]
    if before is None or after is None or None in of_windows:
        return None
    of_weeks = [
        sum(rows[window + week] for window in silent)
        for week in (-_WEEK, _WEEK)
        if all(window + week in rows for window in silent)
    ]
    return min(min(before, after) * len(silent), sum(filter(None, of_windows)), *of_weeks)


def _usual_at(window: datetime, of_open_days: Mapping[datetime, int]) -> int | None:
    """What the source has at least at this hour of other days; None: there are too few of them."""
    days = (window + n * _DAY for n in range(-_DAYS_AROUND, _DAYS_AROUND + 1) if n)
    known = sorted(of_open_days[day] for day in days if day in of_open_days)
    return known[len(known) // _ODD_DAYS] if len(known) >= _FEWEST_DAYS else None


def _result(
    rows: Mapping[datetime, int], gaps: list[Gap], known: Mapping[str, str], reason: str | None
) -> dg.AssetCheckResult:
    accepted = {gap.label: told for gap in gaps if (told := known.get(gap.label) or reason)}
    open_ = [gap for gap in gaps if gap.label not in accepted]
    named = "; ".join(f"{gap.label}, where some {gap.expected:,.0f} rows are usual" for gap in open_[:_NAMED])
    more = f"; and {len(open_) - _NAMED:,} more" if len(open_) > _NAMED else ""
    told = f"Nothing came from {named}{more}." if open_ else f"{len(rows):,} windows without an unlikely gap."
    return dg.AssetCheckResult(
        passed=not open_,
        severity=dg.AssetCheckSeverity.WARN,
        description=told + (f" {len(accepted):,} known gap(s) were accepted." if accepted else ""),
        metadata={
            "windows": len(rows),
            "gaps": dg.MetadataValue.json([gap.label for gap in open_]),
            "rows_expected": round(sum(gap.expected for gap in open_)),
            ACCEPTED: dg.MetadataValue.json(accepted),
        },
    )
