"""Dynamic Late Data Integrator: past partitions whose source changed since they were processed are requested again.

The cascade follows what runs of the platform report. These sensors follow what was committed, whoever did it: they read the
transaction log of the source, through `deltalake` and without an engine, and compare it with the version that the last run
over each partition had read (`delta/read`). A late hour, a restore, somebody's deletion: all of it is found, and so is a
change that the cascade lost. A change is left alone for a while first, so that hours that belong together make one run, and
what the cascade requests meanwhile is taken for what it is.

PostgreSQL holds what is claimed (`late_data.partitions`): evaluations may overlap and die. A claim whose run never came is
taken over after a lease, with the same run key, for which Dagster starts no second run. A run that failed is requested
again twice; then people are told, by `observability/late_partitions`, as they are of what is older than the
consumer's contract takes in (`late_for`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from de_assets.automation.late_data.report import observation, summary, told_of
from de_assets.automation.late_data.runs import CLAIM_TAG, Consumer, Fate, Runs
from de_assets.automation.starters import AGAIN_ONLY
from de_assets.dataset import pattern_tags
from de_assets.ranges import range_tags
from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.errors import PlatformError, TransientError
from de_resources.lake import Lake
from de_resources.late_data.plan import JudgedPartition, LateVerdict, Policy, Request, Situation, judge
from de_resources.late_data.state import ClaimDecision, Known, LateState
from de_resources.postgres import PostgresDatabase

if TYPE_CHECKING:
    from de_resources.compat.graph import AssetGraph

LEASE = timedelta(minutes=10)
"""How long a claim waits for its run before another evaluation takes it over."""

PARTITIONS_PER_RUN = 7 * 24
RUNS_PER_TICK = 4


@dataclass(frozen=True)
class Moment:
    """The time of an evaluation: `present` as far as the data goes, `now` by the clock."""

    present: datetime
    now: datetime


def clock_now() -> Moment:
    """Both are the same where data goes on."""
    now = datetime.now(UTC)
    return Moment(now, now)


@dataclass(frozen=True)
class Findings:
    """What an evaluation of one consumer came to."""

    requests: Sequence[dg.RunRequest] = ()
    events: Sequence[dg.AssetObservation] = ()
    summary: str = ""
    partitions: Collection[str] = ()
    """What is requested for the first time."""


@dataclass(frozen=True)
class Integrator:
    """One consumer, its state and its source."""

    consumer: Consumer
    lake: Lake
    state: LateState
    runs: Runs
    policy: Policy
    by: str

    def evaluate(self, moment: Moment, asked: Collection[str] = ()) -> Findings:
        """Look at the source's log and at the runs, claim what is free, and request it. Starts no engine.

        `asked` are partitions that are being requested for another source: that run reads this one as well.

        Raises `ServiceUnavailable`, `StateInterrupted`, `NoPartitions`.
        """
        source = self.lake.table(self.consumer.source, self.consumer.graph.get(self.consumer.source).metadata)
        log = source.log()
        if log is None:
            return Findings(summary=f"{self.consumer.name}: its source `{source.name}` does not exist yet")
        self.state.create_if_missing()
        found = changed_partitions(log, self.state.scanned(str(log.table.metadata().id)))
        self.state.changed(found, self.consumer.by_partition(found, log.partition_columns()))
        busy = self._catch_up(source.name, found.table_id) | set(asked)
        taken_over = self._taken_over(moment)
        decided = self._decide(moment, busy)
        news = [judged for judged in decided.judged if judged.partition.key in (decided.told or {}) and told_of(judged)]
        name, origin = self.consumer.name, self.consumer.source.to_user_string()
        return Findings(
            requests=[*taken_over, *(self._request(request) for request in decided.requests)],
            events=[observation(name, origin, decided.judged, news)] if news else [],
            summary=summary(name, decided.judged, found.through)
            + (f"; {len(taken_over)} claims without a run taken over" if taken_over else ""),
            partitions={found.partition.key for request in decided.requests for found in request.partitions},
        )

    def _catch_up(self, table: str, table_id: str) -> set[str]:
        """Record what ended since, and say which partitions some run is about to write.

        In this order: what ends in between is still busy here, and recorded next time.
        """
        known = {k.partition.key: k.partition for k in self.state.partitions()}
        busy = self.runs.busy(known)
        ended = [claim for claim in self.state.claims() if self.runs.fate(claim.name) == Fate.ENDED]
        released = {key for claim in ended for key in claim.partitions}
        recorded = {key: partition.processed_by for key, partition in known.items()}
        # A stateful consumer's partition also depends on when those before it were run, changed or not.
        keys = None if self.consumer.is_stateful else recorded
        processed = self.runs.processed(keys, recorded, released, (table, table_id))
        self.state.processed(processed, [claim.name for claim in ended])
        return busy

    def _taken_over(self, moment: Moment) -> list[dg.RunRequest]:
        requests = []
        for claim in self.state.claims():
            if self.runs.fate(claim.name) == Fate.NO_RUN:
                keys = self.state.take_over(claim, self.by, moment.now, LEASE)
                if keys:
                    requests.append(self._run(claim.name, keys[0], keys[-1], {"late/taken_over": "true"}))
        return requests

    def _decide(self, moment: Moment, busy: Collection[str]) -> ClaimDecision:
        stateful, seen = self.consumer.is_stateful, [k.partition for k in self.state.partitions()]
        wanted = judge(seen, Situation(moment.present, moment.now, busy), self.policy, stateful=stateful)
        held = self.runs.held(j.partition.key for j in wanted if j.verdict == LateVerdict.REQUESTED)
        situation = Situation(moment.present, moment.now, busy, held)

        def decision(known: Sequence[Known]) -> ClaimDecision:
            judged = judge([k.partition for k in known], situation, self.policy, stateful=stateful)
            requests, claimed = self._grouped(
                judged, {j.partition.key for j in wanted if j.verdict == LateVerdict.REQUESTED}
            )
            # What was not asked about its gates, or is beyond what one evaluation requests, is left to the next one.
            told = {
                j.partition.key: told_of(j)
                for j in judged
                if j.verdict != LateVerdict.REQUESTED or j.partition.key in claimed
            }
            before = {k.partition.key: k.told for k in known}
            return ClaimDecision(requests, {key: text for key, text in told.items() if text != before[key]}, judged)

        return self.state.decide(decision, by=self.by, now=moment.now, wait=stateful)

    def _grouped(self, judged: Sequence[JudgedPartition], asked: Collection[str]) -> tuple[list[Request], set[str]]:
        """Partitions to request, those that follow each other in one run where the consumer takes ranges."""
        at_most = PARTITIONS_PER_RUN if self.consumer.takes_ranges else 1
        groups: list[list[JudgedPartition]] = []
        for found in judged:
            if found.verdict != LateVerdict.REQUESTED or found.partition.key not in asked:
                continue
            start = self.consumer.partitions.time_window_for_partition_key(found.partition.key).start
            if groups and groups[-1][-1].partition.end == start and len(groups[-1]) < at_most:
                groups[-1].append(found)
            else:
                groups.append([found])
        requests = [Request(self._claim(group), tuple(group)) for group in groups[:RUNS_PER_TICK]]
        return requests, {found.partition.key for request in requests for found in request.partitions}

    def _claim(self, group: Sequence[JudgedPartition]) -> str:
        facts = [(found.partition.key, found.need, found.attempt) for found in group]
        identity = hashlib.blake2b(repr(facts).encode(), digest_size=6).hexdigest()
        return f"{self.consumer.name}:{group[0].partition.key}..{group[-1].partition.key}@{identity}"

    def _request(self, request: Request) -> dg.RunRequest:
        partitions = request.partitions
        versions = [j.partition.change.version for j in partitions if j.partition.change is not None]
        read = [j.partition.processed_version or 0 for j in partitions]
        tags = {
            "late/source": self.consumer.source.to_user_string(),
            "late/why": f"{len(partitions)} changed: {partitions[0].need}"[:200],
            "late/attempt": str(max(j.attempt for j in partitions)),
            **({"late/versions": f"{min(read)}..{max(versions)}"} if versions else {}),
        }
        return self._run(request.claim, request.first, request.last, tags)

    def _run(self, claim: str, first: str, last: str, tags: Mapping[str, str]) -> dg.RunRequest:
        tags = {**tags, CLAIM_TAG: claim}
        if first == last:
            return dg.RunRequest(run_key=claim, asset_selection=[self.consumer.key], partition_key=first, tags=tags)
        return dg.RunRequest(
            run_key=claim, asset_selection=[self.consumer.key], tags={**tags, **range_tags(first, last)}
        )


def late_data_sensor(
    name: str,
    consumers: Mapping[dg.AssetKey, dg.AssetKey],
    *,
    apart: Mapping[dg.AssetKey, tuple[dg.AssetKey, str]] | None = None,
    policy: Policy | None = None,
    clock: Callable[[], Moment] = clock_now,
    description: str,
) -> dg.SensorDefinition:
    """A sensor over consumers (each with its source) that have the same partitions and the same backfill policy.

    `apart` has consumers that read a second source by one of its columns, which does not carry its partitions: rows that came
    in another partition than their own (`Consumer.column`).

    What is stateful, takes ranges and is stored where is taken from the assets' definitions, and up to what age changes are
    requested from their contracts (`late_for`): what is older is told. `policy.max_age` is for assets without a contract; a
    consumer of which nobody says it is not evaluated, and the tick says so (`AgeUnsaid`). Needs the resources `lake` and
    `database`; without a database it skips and says so.
    """

    @dg.sensor(
        name=name,
        description=description,
        target=dg.AssetSelection.assets(*consumers),
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags={**pattern_tags("dynamic_late_data_integrator"), AGAIN_ONLY: ""},
    )
    def late_data(
        context: dg.SensorEvaluationContext, lake: Lake, database: PostgresDatabase
    ) -> dg.SensorResult | dg.SkipReason:
        graph, moment = _graph(context), clock()
        findings: list[Findings] = []
        problems: list[PlatformError] = []
        asked: dict[dg.AssetKey, set[str]] = defaultdict(set)
        for consumer in watched(consumers, apart or {}, graph):
            state, runs = LateState(database, consumer.name), Runs(context.instance, consumer)
            try:
                integrator = Integrator(consumer, lake, state, runs, _for(consumer, policy), by=name)
                findings.append(integrator.evaluate(moment, asked[consumer.key]))
                asked[consumer.key].update(findings[-1].partitions)
            except PlatformError as problem:
                # What was claimed for others has to be requested all the same.
                problems.append(problem)
                context.log.error("%s: %s", consumer.name, problem)
        if problems and not findings:
            return _without_findings(problems[0])
        requests = [request for found in findings for request in found.requests]
        seen = "; ".join([found.summary for found in findings] + [str(problem) for problem in problems])
        return dg.SensorResult(
            run_requests=requests,
            asset_events=[event for found in findings for event in found.events],
            skip_reason=None if requests else seen,
        )

    return late_data


def watched(
    consumers: Mapping[dg.AssetKey, dg.AssetKey],
    apart: Mapping[dg.AssetKey, tuple[dg.AssetKey, str]],
    graph: "AssetGraph",
) -> list[Consumer]:
    """What a sensor evaluates, one after the other: each consumer with each of its sources."""
    own = [Consumer(key, source, graph) for key, source in consumers.items()]
    return [*own, *(Consumer(key, source, graph, column) for key, (source, column) in apart.items())]


def _for(consumer: Consumer, policy: Policy | None) -> Policy:
    """The policy, with the age that the consumer's contract says."""
    policy = policy or Policy()
    return replace(policy, max_age=consumer.late_for(policy.max_age))


def _without_findings(problem: PlatformError) -> dg.SkipReason:
    """Skip what the next evaluation may find better, as while the database is away; fail visibly otherwise."""
    if isinstance(problem, TransientError):
        return dg.SkipReason(str(problem))
    raise problem


def _graph(context: dg.SensorEvaluationContext) -> "AssetGraph":
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor needs its definitions: pass them to the context.")
    return context.repository_def.asset_graph
