"""Is there about as much data as last time? Pattern *Skew Detector*, window to window; guard of the *Full Loader*.

Rows come from the metadata of materialisations: no engine, no table is touched.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

import dagster as dg

from de_checks.baselines import NoSeason, Season, time_dimension, window_of
from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.history import good_before
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.seasons import Band, Tolerance
from de_checks.subject import Subject, spec_of

ACCEPT_TAG = "de/volume_accepted"
"""Run tag with the reason for which a person accepts a volume outside the tolerance."""

ROWS = "rows"
_PART = "part_of_window"
_CHANCE = 4.0
"""Standard deviations between two counts of events that chance still explains: one pair of some 16,000 lies farther apart."""


def volume_check(
    asset: Subject,
    *,
    tolerance: Band | Tolerance = (0.5, 2.0),
    against: Season = "last",
    min_rows: int = 1,
    events: bool = False,
    whole: Callable[[dg.TimeWindow], bool] = lambda _window: True,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    name: str = "volume_is_stable",
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that the number of rows stays within a ratio of what it was.

    `tolerance` is the lowest and highest accepted ratio of rows to the baseline's rows: (0.5, 2.0) fails at less than
    half and at more than double; a `Tolerance` has other bounds at night, on weekends or in December. Fewer than
    `min_rows` rows fail without any baseline: an empty dump is not data.

    The baseline is the nearest earlier partition (`against="last"`), or the same weekday and hour of the four weeks
    before (`"same_weekday"`), whose own newest verdict by this check is good, and that no blocking check of the asset
    has refused. A bad day is thus never the measure of the good day after it. Assets without time partitions are
    compared with the same key's last good materialisation: a full load with the last good load. The first key without
    a baseline passes and says so.

    With `events`, rows are things that happen one by one, such as visits: two counts that may differ by chance alone (by up
    to four standard deviations of Poisson's distribution) are not different, whatever their ratio. A window that is not
    `whole`, such as the day in which a log begins, is neither judged nor a measure.

    When the level did change for good, a person says so once: re-execute the check with the run tag
    `de/volume_accepted` and the reason as its value. The verdict records the reason, and the new level is the baseline.

    A rerun compares with the same baseline, never with the judged materialisation itself. Metadata of a verdict:
    `rows`, and where compared `baseline_rows`, `baseline` (its partition) and `ratio`. Raises `NoSeason`, and
    `ValueError` for a tolerance that excludes an unchanged volume, at definition.
    """
    subject = spec_of(asset)
    if against == "same_weekday" and time_dimension(subject.partitions_def) is None:
        raise NoSeason(subject.key)
    accepted = tolerance if isinstance(tolerance, Tolerance) else Tolerance(tolerance)

    def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
        window = window_of(subject.partitions_def, key)
        if window is not None and not whole(window):
            return Verdict(True, "The source covers a part of this window only.", {_PART: True})
        band = accepted.at(window.start if window else None)
        verdict = compare(current.rows, _baseline(run, key, current, against), band, min_rows, events=events)
        if not verdict.passed and verdict.severity == dg.AssetCheckSeverity.ERROR:
            verdict = replace(verdict, severity=severity)
        return verdict.accepted_for(run.tags.get(ACCEPT_TAG))

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description=f"Rows are at least {min_rows:,} and between {accepted} the last good "
        + ("same weekday." if against == "same_weekday" else "volume."),
        patterns=["skew_detector"],
        blocking=blocking,
    )


@dataclass(frozen=True)
class Baseline:
    """A good earlier volume, and the partition, or load, that had it."""

    rows: int
    label: str


def _baseline(run: CheckRun, key: Key, current: Materialized, season: Season) -> Baseline | None:
    """The nearest good state, also of the keys that this run judged before."""
    good = good_before(run, key, current, season)
    nearest = next(((partition, figures) for partition, figures in good if ROWS in figures), None)
    if nearest is None:
        return None
    partition, figures = nearest
    return Baseline(figures[ROWS], partition or "the last good load")


def compare(
    rows: int | None, baseline: Baseline | None, tolerance: Band, min_rows: int, *, events: bool = False
) -> Verdict:
    """The verdict on a number of rows. `tolerance` bounds, both included, the ratio to the baseline."""
    if rows is None:
        return Verdict(
            False,
            "The materialisation does not carry its number of rows, so its volume is not known. Materialise the key by "
            "itself, or partition the table by the column of the asset's partitions.",
            severity=dg.AssetCheckSeverity.WARN,
        )
    if rows < min_rows:
        return Verdict(False, f"{rows:,} rows, expected at least {min_rows:,}.", {ROWS: rows})
    if baseline is None or baseline.rows == 0:
        return Verdict(True, f"{rows:,} rows; there is no good earlier volume to compare with.", {ROWS: rows})
    ratio = rows / baseline.rows
    low, high = tolerance
    figures = {ROWS: rows, "baseline_rows": baseline.rows, "baseline": baseline.label, "ratio": round(ratio, 4)}
    change = f"{rows:,} rows, {ratio:.2f}x the {baseline.rows:,} of {baseline.label}"
    if low <= ratio <= high:
        return Verdict(True, f"{change}.", figures)
    # The difference of two counts of one rate has the variance of their sum.
    if events and abs(rows - baseline.rows) <= _CHANCE * sqrt(rows + baseline.rows):
        return Verdict(True, f"{change}: so few may differ by chance.", figures)
    return Verdict(
        False, f"{change}: {'less' if ratio < low else 'more'} than the accepted {low:g}x-{high:g}x.", figures
    )
