"""What the instance remembers, read in bulk: a fixed number of queries per asset and per check, however many partitions it has.

Materialisations, observations and evaluations come in pages, the newest first, by the order in which they were stored: a clock
that was set back or forward changes no order. At most `Limits.writes` of an asset and `Limits.evaluations` of a check are read;
which partitions are there at all is a question of its own, so that older ones do not look missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import dagster as dg

from de_resources.compat.checks import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES, AssetCheckExecutionRecord
from de_resources.delta.metadata import COLUMN_LINEAGE, LINEAGE_INCOMPLETE
from de_resources.observatory.definitions import Declared, declared
from de_resources.observatory.model import (
    ColumnRef,
    Evaluation,
    Failure,
    Figures,
    News,
    ObservedColumn,
    ObservedDataset,
    ObservedWorld,
    Write,
)

Mask = Callable[[str], str]
"""Takes out of a sentence what may be personal."""

_PAGE = 1000
_RUNS_PER_QUERY = 500
_LINEAGE_LOOKED_AT = 20
"""So many of the newest writes are looked through for lineage: a restore, for one, records none."""


@dataclass(frozen=True)
class Limits:
    """How far back is looked, and how much is read of one asset or check. A year of hours is 8,784 partitions."""

    days: int = 366
    writes: int = 10_000
    evaluations: int = 10_000
    observations: int = 1_000


AFTER_A_RUN = Limits(writes=2_000, evaluations=2_000)
"""Years of days, months of hours: what is read in seconds, for whoever waits."""


def read_world(
    instance: dg.DagsterInstance,
    locations: Iterable[dg.Definitions],
    at: datetime,
    *,
    mask: Mask = lambda _: "",
    news: Collection[News] = (),
    unreadable: Collection[str] = (),
    limits: Limits | None = None,
) -> ObservedWorld:
    """All assets of the locations, and those that only the instance knows any more.

    `at` is now, an aware time. Sentences of checks go through `mask`, and are left out without one. Reads only.
    """
    limits = limits or Limits()
    known = declared(locations, instance, at)
    for key in instance.get_asset_keys():
        gone = ObservedDataset(key.to_user_string(), "The definitions do not have this asset any more.", declared=False)
        known.setdefault(key.to_user_string(), Declared(gone, key))
    freshness = instance.get_freshness_state_records([each.key for each in known.values()])
    reader = _Reader(instance, limits, at, mask)
    datasets = {}
    for name, each in sorted(known.items()):
        state = freshness.get(each.key)
        datasets[name] = replace(reader.dataset(each), freshness=str(state.freshness_state.value) if state else "")
    return ObservedWorld(at, datasets, tuple(news), tuple(unreadable))


@dataclass(frozen=True)
class _Reader:
    instance: dg.DagsterInstance
    limits: Limits
    at: datetime
    mask: Mask

    def dataset(self, known: Declared) -> ObservedDataset:
        dataset, key = known.dataset, known.key
        personal = {column.name for column in dataset.columns if column.personal}
        pages = _pages(self.instance.fetch_materializations, key, self.since)
        records = list(islice(pages, self.limits.writes))
        observations = islice(_pages(self.instance.fetch_observations, key, self.since), self.limits.observations)
        lineage = _lineage(records)
        checks = [
            replace(check, evaluations=tuple(self._evaluations(check_key, personal)))
            for check, check_key in zip(dataset.checks, known.checks, strict=True)
        ]
        partitioned = dataset.partitions is not None
        return replace(
            dataset,
            checks=tuple(checks),
            writes=tuple(_write(record, personal) for record in records),
            observations=tuple(_write(record, personal) for record in observations),
            failures=tuple(self._failures(key, records, partitioned=partitioned)),
            materialized=frozenset(self.instance.get_materialized_partitions(key)) if partitioned else frozenset(),
            columns=_with_sources(dataset.columns, lineage),
            lineage_incomplete=bool(lineage and LINEAGE_INCOMPLETE in lineage),
        )

    @property
    def since(self) -> float:
        return (self.at - timedelta(days=self.limits.days)).timestamp()

    def _evaluations(self, key: dg.AssetCheckKey, personal: Collection[str]) -> Iterator[Evaluation]:
        left, cursor = self.limits.evaluations, None
        while left > 0:
            records = self.instance.event_log_storage.get_asset_check_execution_history(
                key, min(left, _PAGE), cursor, COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
            )
            for record in records:
                if record.create_timestamp >= self.since:
                    yield from self._evaluation(record, personal)
            if len(records) < min(left, _PAGE):
                return
            left, cursor = left - len(records), records[-1].id

    def _evaluation(self, record: AssetCheckExecutionRecord, personal: Collection[str]) -> Iterator[Evaluation]:
        found, event = record.evaluation, record.event
        if found is None or event is None:
            return
        target = found.target_materialization_data
        yield Evaluation(
            id=record.id,
            at=_moment(event.timestamp),
            partition=found.partition,
            passed=found.passed,
            severe=found.severity is dg.AssetCheckSeverity.ERROR,
            said=self.mask(found.description or "") if not found.passed else "",
            judged=target.storage_id if target else None,
            figures=figures_of(found.metadata, personal),
        )

    def _failures(
        self, key: dg.AssetKey, records: Sequence[dg.EventLogRecord], *, partitioned: bool
    ) -> Iterator[Failure]:
        """Attempts after the newest write whose runs have failed. One query for the attempts, one for their runs."""
        newest = max((record.storage_id for record in records), default=0)
        storage = self.instance.event_log_storage
        if partitioned:
            tried = storage.get_latest_asset_partition_materialization_attempts_without_materializations(key)
            attempts: list[tuple[str | None, str, int]] = [
                (partition, run, id_) for partition, (run, id_) in tried.items()
            ]
        else:
            planned = storage.get_latest_planned_materialization_info(key)
            attempts = [(None, planned.run_id, planned.storage_id)] if planned and planned.storage_id > newest else []
        ends = self._failed_runs({run for _, run, _ in attempts})
        for partition, run, id_ in attempts:
            if run in ends:
                yield Failure(id_, ends[run], partition, run)

    def _failed_runs(self, runs: Collection[str]) -> dict[str, datetime | None]:
        wanted, found = sorted(runs), {}
        for first in range(0, len(wanted), _RUNS_PER_QUERY):
            filters = dg.RunsFilter(
                run_ids=wanted[first : first + _RUNS_PER_QUERY], statuses=[dg.DagsterRunStatus.FAILURE]
            )
            for record in self.instance.get_run_records(filters):
                found[record.dagster_run.run_id] = _moment(record.end_time) if record.end_time else None
        return found


def figures_of(metadata: Mapping[str, dg.MetadataValue[Any]], personal: Collection[str]) -> Figures:
    """The numbers among metadata. What is named after a personal column is none of them."""
    return {
        name: value.value
        for name, value in metadata.items()
        if isinstance(value, dg.IntMetadataValue | dg.FloatMetadataValue)
        and value.value is not None
        and not set(name.split("/")) & set(personal)
    }


def _pages(fetch: Callable[..., Any], key: dg.AssetKey, since: float) -> Iterator[dg.EventLogRecord]:
    """All records of an asset since then, the newest first."""
    wanted, cursor, more = dg.AssetRecordsFilter(asset_key=key, after_timestamp=since), None, True
    while more:
        page = fetch(wanted, limit=_PAGE, cursor=cursor)
        yield from page.records
        cursor, more = page.cursor, page.has_more


def _write(record: dg.EventLogRecord, personal: Collection[str]) -> Write:
    event = record.asset_materialization or record.event_log_entry.asset_observation
    metadata = event.metadata if event else {}
    return Write(
        record.storage_id,
        _moment(record.timestamp),
        record.partition_key,
        record.run_id,
        figures_of(metadata, personal),
    )


def _lineage(records: Sequence[dg.EventLogRecord]) -> Mapping[str, dg.MetadataValue[Any]] | None:
    events = (record.asset_materialization for record in records[:_LINEAGE_LOOKED_AT])
    return next((event.metadata for event in events if event and COLUMN_LINEAGE in event.metadata), None)


def _with_sources(
    columns: Sequence[ObservedColumn], metadata: Mapping[str, dg.MetadataValue[Any]] | None
) -> tuple[ObservedColumn, ...]:
    lineage = (metadata or {}).get(COLUMN_LINEAGE)
    if not isinstance(lineage, dg.TableColumnLineageMetadataValue):
        return tuple(columns)
    by_column = {
        name: tuple(sorted({ColumnRef(d.asset_key.to_user_string(), d.column_name) for d in deps}))
        for name, deps in lineage.value.deps_by_column.items()
    }
    named = {column.name for column in columns}
    found = [replace(column, sources=by_column.get(column.name, ())) for column in columns]
    # A table that follows no contract has the columns that its lineage names.
    return (
        *found,
        *(ObservedColumn(name, sources=sources) for name, sources in by_column.items() if name not in named),
    )


def _moment(timestamp: float) -> datetime:
    try:
        return datetime.fromtimestamp(timestamp, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
