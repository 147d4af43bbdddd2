"""Does a topic get about as many records as it usually does? Pattern *Skew Detector*, window to window: offsets only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.freshness.flow import STATE, FlowState
from de_checks.seasons import Band, Tolerance
from de_checks.subject import Subject
from de_checks.volume import ACCEPT_TAG, Baseline, compare
from de_resources.compat.checks import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.errors import TopicMissing

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SEASONS = 7
"""How many earlier windows may be the measure."""
WINDOW = "window_end"
_VERDICTS_READ = 200


def topic_volume_check(
    asset: Subject,
    topic: str,
    *,
    tolerance: Band | Tolerance = (0.5, 2.0),
    window: timedelta = HOUR,
    season: timedelta = DAY,
    broker: str = "broker",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    now: Clock = utc_now,
    name: str = "volume_is_stable",
) -> dg.AssetChecksDefinition:
    """A check that a topic got about as many records in the last whole window as a season before: this hour as yesterday's.

    What the broker took in a window of its own clock is counted by offsets, no record is read. The measure is the nearest of
    the `SEASONS` seasons before whose window was not refused: a bad hour is never the measure of tomorrow's. Refused are the
    windows from a verdict that was recorded bad to the next good one. The bounds, both included, are those of `volume_check`,
    and what chance explains is stable as well. A window in which nothing came is neither judged nor a measure, for silence is
    the matter of `TopicRecords`; nor is the one in which the topic, or what it keeps, begins.

    When the level did change for good, a person executes the check with the run tag `de/volume_accepted` and the reason.
    Offsets also count the markers of transactions. It belongs to a watch, like the checks of flows. Raises `NotAppendTime`,
    `ServiceUnavailable` where the broker does not answer, and `ValueError` at definition for a season of no whole windows.
    Metadata: as of `compare`, and `window_end`. A rerun within the same window judges the same.
    """
    if season < window or season % window:
        raise ValueError(f"A season of {season} does not consist of whole windows of {window}.")
    accepted = tolerance if isinstance(tolerance, Tolerance) else Tolerance(tolerance)

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        client: KafkaBroker = getattr(run.resources, broker)
        log = AppendLog(client.client_config(), topic)
        try:
            log.require_append_time()
        except TopicMissing:
            return dg.AssetCheckResult(
                passed=True, description=f"There is no topic `{topic}` here.", metadata={STATE: str(FlowState.ABSENT)}
            )
        end = last_end(now(), window)
        taken = whole_window(log, end, window)
        judged = {WINDOW: dg.MetadataValue.timestamp(end)}
        if not taken:
            why = f"No whole window until {end:%Y-%m-%d %H:%M} in which anything came: nothing to judge."
            return dg.AssetCheckResult(
                passed=True, description=why, metadata={**judged, STATE: str(FlowState.NOT_BEGUN)}
            )
        band = accepted.at(end - window)
        verdict = compare(taken, _measure(run, log, end, window, season), band, min_rows=1, events=True)
        verdict = verdict.accepted_for(_reason(run))
        return dg.AssetCheckResult(
            passed=verdict.passed,
            severity=severity,
            description=verdict.description,
            metadata={**verdict.metadata, **judged},
        )

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"What came within {duration(window.total_seconds())} is between {accepted} what came "
        f"{duration(season.total_seconds())} before.",
        patterns=["skew_detector"],
        resources=[broker],
        standing=True,
    )


def last_end(moment: datetime, window: timedelta) -> datetime:
    """The end of the last whole window, on the clock of UTC."""
    epoch = datetime.fromtimestamp(0, UTC)
    return moment - (moment - epoch) % window


def whole_window(log: AppendLog, end: datetime, window: timedelta) -> int | None:
    """How many records the broker took in the window; None where the topic, or what it keeps, begins inside of it."""
    begins, first, last = log.begins(), log.offsets_at(end - window), log.offsets_at(end)
    if all(first[partition] <= begins.get(partition, 0) for partition in first):
        return None
    return sum(last[partition] - first[partition] for partition in first)


def refused(verdicts: Mapping[datetime, bool], end: datetime) -> bool:
    """Whether the newest verdict that was recorded by then is bad; `verdicts` by the ends of the windows, newest first."""
    return next((not passed for at, passed in verdicts.items() if at <= end), False)


def _measure(run: CheckRun, log: AppendLog, end: datetime, window: timedelta, season: timedelta) -> Baseline | None:
    verdicts = dict(_recorded(run))
    ends = (end - number * season for number in range(1, SEASONS + 1))
    kept = log.kept_for()
    for at in takewhile(lambda each: kept is None or end - (each - window) <= kept, ends):
        if not refused(verdicts, at) and (taken := whole_window(log, at, window)):
            return Baseline(taken, f"the one until {at:%Y-%m-%d %H:%M}")
    return None


def _recorded(run: CheckRun) -> Iterator[tuple[datetime, bool]]:
    """The windows that were judged and recorded, newest first, the newest verdict of each."""
    records = run.instance.event_log_storage.get_asset_check_execution_history(
        run.check.key, limit=_VERDICTS_READ, status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    )
    told: dict[datetime, bool] = {}
    for evaluation in (record.evaluation for record in records):
        if evaluation is not None and (at := evaluation.metadata.get(WINDOW)) is not None:
            told.setdefault(datetime.fromtimestamp(float(str(at.value)), UTC), evaluation.passed)
    yield from sorted(told.items(), reverse=True)


def _reason(run: CheckRun) -> str | None:
    """Why a person lets it pass; a watch asks without a run."""
    context = run.context.op_execution_context
    return context.get_tag(ACCEPT_TAG) if context.has_tag(ACCEPT_TAG) else None
