"""Partitions that failed, or did not pass a gate, and that nothing has made good since.

A run that goes on behind a red gate, for some of it does not need what the gate guards (`de_resources/held_back.py`), may end
well: what did not pass holds the next partitions as one that failed does.

A run over a range fails as one; it is made good partition by partition, in their order. What it still holds begins at the
first of them that is not there: so that one goes, and the next one behind it, whoever repairs them day by day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain

import dagster as dg

from de_resources.compat.queueing import ROOT_RUN_ID_TAG
from de_resources.run_queue.places import HAS_COME, PIPELINE, PLACE, TURN, Place

RELEASED = "single_runner/let_pass"
"""In the metadata of an observation of a partition: why what comes after it need not wait for it."""
REFUSED = f"{PIPELINE}/refused"
"""On a run that went on behind a red gate of its pipeline, and in the metadata of the verdict: the next partitions wait."""
_FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_PLANNED, _EVALUATED = (
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
)
_OVERLAP = timedelta(minutes=1)
_PAGE = 100


@dataclass(frozen=True)
class Failure:
    """A run that failed, was stopped, or went on behind a red gate, with partitions of a pipeline in it."""

    run_id: str
    place: Place
    """Of a range: from the first partition that is not made good to its last."""
    ended: float
    went_on: bool = False

    def told(self) -> str:
        """What waits for it says this."""
        asset = self.place.assets[0]
        what = "did not pass a check" if self.went_on else "failed"
        return (
            f"{self.place.told()}, which {what} (run {self.run_id[:8]}). Run it again; or let the others pass: "
            f"de let-pass {asset} {self.place.first} --reason …"
        )


@dataclass
class Failures:
    """The failures of all pipelines. It reads from the instance what has changed since it was asked last."""

    instance: dg.DagsterInstance
    _open: dict[str, Failure] = field(default_factory=dict)
    _repaired: dict[str, Place] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _looked: datetime | None = None

    def of(self, pipeline: str) -> Iterator[Failure]:
        """The failures of a pipeline that nothing has made good, in the order of partitions."""
        self._look()
        left = [self._left(each) for each in [*self._open.values()] if each.place.pipeline == pipeline]
        yield from sorted(
            (each for each in left if each is not None), key=lambda known: (known.place.begin, known.ended)
        )

    def _look(self) -> None:
        now = datetime.now(UTC)
        for record in self._ended_since_last_look():
            run = record.dagster_run
            if run.run_id in self._seen or (record.start_time is None and run.status == dg.DagsterRunStatus.CANCELED):
                continue
            self._seen.add(run.run_id)
            place = Place.of_tags({PLACE: run.tags[PLACE]})
            if place.first is not None:
                ended = record.end_time or record.update_timestamp.timestamp()
                went_on = run.status == dg.DagsterRunStatus.SUCCESS
                self._open[run.run_id] = Failure(run.run_id, place, ended, went_on)
        self._looked = now - _OVERLAP

    def _ended_since_last_look(self) -> Iterator[dg.RunRecord]:
        """Runs that failed, and those that ended well though a gate of the pipeline is red."""
        turn = {TURN: HAS_COME}
        for statuses, tags in ((_FAILED, turn), ([dg.DagsterRunStatus.SUCCESS], {**turn, REFUSED: "true"})):
            changed = dg.RunsFilter(statuses=statuses, tags=tags, updated_after=self._looked)
            yield from self.instance.get_run_records(changed)

    def _left(self, failure: Failure) -> Failure | None:
        """What of a failure is not made good. A partition that was repaired once is not asked for again."""
        known = self._repaired.get(failure.run_id, failure.place)
        left = (
            None if self._let_pass(failure) else next(filter(partial(self._is_missing, failure), known.rests()), None)
        )
        if left is None:
            del self._open[failure.run_id]
            return None
        self._repaired[failure.run_id] = left
        return replace(failure, place=left)

    def _is_missing(self, failure: Failure, rest: Place) -> bool:
        names = map(dg.AssetKey.from_user_string, rest.assets)
        return not all(self._computed(failure, name, str(rest.first)) for name in names)

    def _computed(self, failure: Failure, asset: dg.AssetKey, key: str) -> bool:
        """Whether the partition is there: since the failure, or in the failed run itself and with no check against it."""
        wanted = dg.AssetRecordsFilter(asset, asset_partitions=[key])
        newest = self.instance.fetch_materializations(wanted, limit=1).records
        if not newest:
            return False
        if newest[0].run_id == failure.run_id:
            return not self._refused(failure.run_id, asset, key)
        return newest[0].timestamp > failure.ended

    def _refused(self, run_id: str, asset: dg.AssetKey, key: str) -> bool:
        """Whether a blocking check of the asset did not pass in the run, or did not come to a verdict.

        What a later try of the run has judged counts in the place of what the run itself left: a try that goes on from a
        failure does not compute the partition again when it is there, and asks the checks that are missing.
        """
        open_: set[tuple[dg.AssetKey, str]] = set()
        refused: set[tuple[dg.AssetKey, str]] = set()
        told = (self.instance.all_logs(attempt, of_type={_PLANNED, _EVALUATED}) for attempt in self._attempts(run_id))
        for entry in chain.from_iterable(told):
            event = entry.get_dagster_event()
            if event.event_type == _PLANNED:
                planned = event.asset_check_planned_data
                open_.add((planned.asset_key, planned.check_name))
                continue
            verdict = event.asset_check_evaluation_data
            check = verdict.asset_key, verdict.check_name
            open_.discard(check)
            if verdict.partition in (None, key):
                is_gate = bool(verdict.blocking) or REFUSED in verdict.metadata
                stops = is_gate and verdict.severity == dg.AssetCheckSeverity.ERROR and not verdict.passed
                (refused.add if stops else refused.discard)(check)
        return any(judged == asset for judged, _ in open_ | refused)

    def _attempts(self, run_id: str) -> list[str]:
        """The run, and the tries of it that were made since, in their order."""
        run = self.instance.get_run_by_id(run_id)
        root = run.root_run_id or run_id if run else run_id
        tries = [each.run_id for each in self.instance.get_runs(dg.RunsFilter(tags={ROOT_RUN_ID_TAG: root}))]
        later = tries[: tries.index(run_id)] if run_id in tries else tries  # the newest is the first
        return [run_id, *reversed(later)]

    def _let_pass(self, failure: Failure) -> bool:
        """Whether a person released one of the partitions since, however much was told of them after that."""
        keys = [str(rest.first) for rest in failure.place.rests()]
        return any(
            RELEASED in told.metadata
            for name in failure.place.assets
            for told in self._told(dg.AssetKey.from_user_string(name), keys, failure.ended)
        )

    def _told(self, asset: dg.AssetKey, keys: Sequence[str], since: float) -> Iterator[dg.AssetObservation]:
        wanted = dg.AssetRecordsFilter(asset, asset_partitions=keys, after_timestamp=since)
        cursor, more = None, True
        while more:
            page = self.instance.fetch_observations(wanted, limit=_PAGE, cursor=cursor)
            yield from (record.asset_observation for record in page.records if record.asset_observation is not None)
            cursor, more = page.cursor, page.has_more
