"""The data layer: the newest event, from the file statistics in Delta's log. No scan, no engine."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as midnight
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun
from de_checks.freshness.clock import Clock, utc_now
from de_checks.freshness.commits import NotAPart
from de_checks.freshness.flow import CLOCK_SKEW, NoPromise, flow_check, promised
from de_checks.freshness.signs import WHOLE, Sign, Signs
from de_checks.subject import Subject, spec_of
from de_resources.contract.freshness import Freshness
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
class Events:
    """Signs from the time column `column`, TIMESTAMP or DATE; a DATE counts from its midnight, UTC.

    `part`: a partition column, each of whose values is a flow of its own. Raises `NoStatistics` and `NotAPart`.
    """

    column: str
    part: str | None = None
    name: str = "data"
    sees: str = "the newest event"
    resources: Collection[str] = ("lake",)

    def signs(self, run: CheckRun, believable: datetime) -> Signs | None:
        """As `Layer` says. Of a file with an event of the future only the oldest event counts, unless it lies ahead as well."""
        log = run.table().log()
        found = (
            {part: newest(spans, believable) for part, spans in _spans(log, run.asset.key, self).items()} if log else {}
        )
        return {part: Sign(each.event, each.future_files, each.furthest) for part, each in found.items()}

    def figures(self, signs: Signs) -> Mapping[str, Any]:
        """The newest event of all parts, and how many files hold events of the future, with the furthest one."""
        told: dict[str, Any] = {"future_files": sum(sign.ahead for sign in signs.values())}
        times = {"newest_event": [s.at for s in signs.values()], "furthest_event": [s.furthest for s in signs.values()]}
        for name, known in times.items():
            if moment := max(filter(None, known), default=None):
                told[name] = dg.MetadataValue.timestamp(moment)
        return told


@dataclass(frozen=True)
class Newest:
    """The newest believable event, and how many files claim events of the future."""

    event: datetime | None
    future_files: int
    furthest: datetime | None


def newest_event_check(
    asset: Subject,
    *,
    column: str | None = None,
    max_age: timedelta | None = None,
    part: str | None = None,
    clock_skew: timedelta = CLOCK_SKEW,
    blocking: bool = False,
    now: Clock = utc_now,
    name: str = "newest_event_is_recent",
) -> dg.AssetChecksDefinition:
    """A check of the whole table: the newest event is as recent as its contract promises (`freshness`).

    `column` and `max_age`, the longest silence, are for a table without such a contract. An event more than `clock_skew`
    ahead of the clock is not believed: of a file that holds one, only the oldest event counts, unless that lies ahead as well.
    One producer with a wrong clock can therefore not make a dead flow look alive, and is reported (`future_files`,
    `furthest_event`); the age errs to the old side by at most that file's span of time.

    Needs the resource `lake`. A table without rows, or none at all, fails with a warning. Metadata: as of `flow_check`, and
    `newest_event`. Raises `NoStatistics`, and `NoPromise` at definition.
    """
    promise = Freshness(column or "", silence=max_age) if max_age is not None else promised(spec_of(asset))
    if not (time := column or promise.column):
        raise NoPromise(spec_of(asset).key)
    return flow_check(
        asset,
        Events(time, part),
        name=name,
        promise=promise,
        if_nothing="warns",
        clock_skew=clock_skew,
        blocking=blocking,
        now=now,
    )


def newest(bounds: Iterable[tuple[datetime, datetime]], believable: datetime) -> Newest:
    """The newest event from the (oldest, newest) of each file, of which nothing after `believable` counts."""
    spans = list(bounds)
    ahead = [high for _, high in spans if high > believable]
    events = [value for low, high in spans for value in (high if high <= believable else low,) if value <= believable]
    return Newest(max(events, default=None), len(ahead), max(ahead, default=None))


def _spans(log: TableLog, asset: dg.AssetKey, events: Events) -> dict[str, list[tuple[datetime, datetime]]]:
    """The oldest and the newest event of each file, by part."""
    column, part, columns = events.column, events.part, log.partition_columns()
    if part is not None and part not in columns:
        raise NotAPart(asset.to_user_string(), part)
    low, high = (f"partition.{column}",) * 2 if column in columns else (f"min.{column}", f"max.{column}")
    filled = [file for file in log.files().to_pylist() if file["num_records"] != 0]
    if any(high not in file for file in filled):
        raise NoStatistics(asset, column)
    found: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for file in filled:
        # A file in which every value is null has no bounds, and says nothing.
        if file[low] is not None and file[high] is not None:
            of = str(file[f"partition.{part}"]) if part else WHOLE
            found[of].append((_instant(file[low]), _instant(file[high])))
    return dict(found)


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value, midnight(), UTC)
    raise PermanentError(
        f"A value of type {type(value).__name__} is no point in time. Name a TIMESTAMP or DATE column."
    )
