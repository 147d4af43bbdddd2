"""Is what arrives recent? The age of the newest event, from the file statistics in Delta's log: no scan, no engine."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.subject import Subject
from de_resources.delta.log import TableLog
from de_resources.errors import PermanentError


class NoStatistics(PermanentError):
    """A column of which the table's log keeps no minimum and maximum."""

    def __init__(self, asset: dg.AssetKey, column: str) -> None:
        self.asset, self.column = asset, column
        super().__init__(
            f"The log of `{asset.to_user_string()}` keeps no statistics of the column `{column}`. Name an existing "
            "time column, and put it among the table's first 32 or into `delta.dataSkippingStatsColumns`."
        )


@dataclass(frozen=True)
class Newest:
    """The newest believable event, and how many files claim events of the future."""

    event: datetime | None
    future_files: int
    furthest: datetime | None


def newest_event_check(
    asset: Subject,
    *,
    column: str,
    max_age: timedelta,
    clock_skew: timedelta = timedelta(minutes=5),
    blocking: bool = False,
    now: Clock = utc_now,
    name: str = "newest_event_is_recent",
) -> dg.AssetChecksDefinition:
    """A check of the whole table: the newest value of the time column `column` is at most `max_age` old.

    `column` is a TIMESTAMP or DATE; a DATE counts from its midnight, UTC. An event more than `clock_skew` ahead of the
    clock is not believed: of a file that holds one, only the oldest event counts, unless that lies ahead as well. One
    producer with a wrong clock can therefore not make a dead flow look alive, and is reported (`future_files`,
    `furthest_event`); the age errs to the old side by at most that file's span of time.

    Run it on a schedule of its own. Needs the resource `lake`. Metadata: `newest_event` (the last good time),
    `age_seconds`, `future_files`. A table without rows, or none at all, fails. Raises `NoStatistics`.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        moment = now()
        log = run.table().log()
        bounds = _bounds(log, run.asset.key, column) if log else []
        return _result(newest(bounds, moment + clock_skew), moment, max_age)

    return check_of_asset(
        asset,
        name,
        judge,
        description=f"The newest `{column}` is at most {duration(max_age.total_seconds())} old.",
        patterns=["flow_interruption_detector"],
        blocking=blocking,
        resources=["lake"],
    )


def newest(bounds: Iterable[tuple[datetime, datetime]], believable: datetime) -> Newest:
    """The newest event from the (oldest, newest) of each file, of which nothing after `believable` counts."""
    spans = list(bounds)
    ahead = [high for _, high in spans if high > believable]
    events = [value for low, high in spans for value in (high if high <= believable else low,) if value <= believable]
    return Newest(max(events, default=None), len(ahead), max(ahead, default=None))


def _bounds(log: TableLog, asset: dg.AssetKey, column: str) -> list[tuple[datetime, datetime]]:
    files = log.files().to_pylist()
    low, high = (
        (f"partition.{column}",) * 2 if column in log.partition_columns() else (f"min.{column}", f"max.{column}")
    )
    filled = [file for file in files if file["num_records"] != 0]
    if any(high not in file for file in filled):
        raise NoStatistics(asset, column)
    # A file in which every value is null has no bounds, and says nothing.
    return [(_instant(f[low]), _instant(f[high])) for f in filled if f[low] is not None and f[high] is not None]


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise PermanentError(
        f"A value of type {type(value).__name__} is no point in time. Name a TIMESTAMP or DATE column."
    )


def _result(found: Newest, moment: datetime, max_age: timedelta) -> dg.AssetCheckResult:
    figures: dict[str, Any] = {"future_files": found.future_files}
    if found.furthest is not None:
        figures["furthest_event"] = dg.MetadataValue.timestamp(found.furthest)
    warning = (
        f" {found.future_files} file(s) hold events of the future, which do not count." if found.future_files else ""
    )
    if found.event is None:
        # A flow that has not begun, or a quiet source: no event is older than it may be.
        return dg.AssetCheckResult(
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"There is no event yet.{warning}",
            metadata=figures,
        )
    age = moment - found.event
    figures |= {"newest_event": dg.MetadataValue.timestamp(found.event), "age_seconds": round(age.total_seconds(), 3)}
    measured, accepted = duration(age.total_seconds()), duration(max_age.total_seconds())
    text = f"The newest event is {measured} old; accepted: {accepted}.{warning}"
    return dg.AssetCheckResult(passed=age <= max_age, description=text, metadata=figures)
