"""Unaligned Fan-In: a partition is requested when its last input is there, or at a deadline with those that are there by then.

The sensor compares the inputs that are there with those that the partition's newest materialisation was made of, which its
metadata tells. So it has no memory of its own: it may restart, and a partition that somebody else ran is up to date.

- One that was never computed is requested when its inputs are complete, and otherwise at its deadline.
- One whose inputs are others than those that it was made of is requested again for as long as its contract says (`late_for`).
- What is overdue for long, and what is requested again, waits until the inputs are settled: while somebody catches up with a
  month, its days are not requested with every hour that comes.

The same inputs are requested once, by the run key: a run that fails waits for another input, or for a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import dagster as dg

from de_assets.automation.late_data.runs import Consumer
from de_assets.dataset import pattern_tags
from de_assets.ranges import contiguous, range_tags
from de_checks.freshness.clock import Clock, utc_now
from de_checks.per_key import latest_materializations
from de_resources.fan_in import INPUTS, FanIn, fan_in
from de_resources.promises import needed

PUNCTUAL = timedelta(hours=1)
"""How long after its deadline a partition is asked for at once, whatever is still being written."""
SETTLED = timedelta(minutes=10)
"""How long nothing has to happen to the inputs, and to what they are made of."""
PARTITIONS_PER_RUN = 31
RUNS_PER_TICK = 4


class FanInVerdict(StrEnum):
    """What becomes of a partition in a tick."""

    UP_TO_DATE = "up to date"
    WAITS = "waits for inputs"
    SETTLING = "waits until its inputs are settled"
    REQUESTED = "requested"


@dataclass(frozen=True)
class Candidate:
    """A partition whose time is over. `made_of`: the digest of its newest materialisation's inputs; None: there is none."""

    key: str
    inputs: FanIn
    due: datetime
    made_of: str | None = None

    def verdict(self, now: datetime, *, settled: bool) -> FanInVerdict:
        """What to do about it now."""
        if self.made_of == self.inputs.digest:
            return FanInVerdict.UP_TO_DATE
        is_new = self.made_of is None
        if is_new and (self.inputs.is_complete or self.due <= now < self.due + PUNCTUAL):
            return FanInVerdict.REQUESTED
        if is_new and now < self.due:
            return FanInVerdict.WAITS
        return FanInVerdict.REQUESTED if settled else FanInVerdict.SETTLING


def fan_in_sensor(
    name: str,
    asset: dg.AssetKey,
    source: dg.AssetKey,
    *,
    deadline: timedelta,
    now: Clock = utc_now,
    seconds: int = 60,
    description: str,
) -> dg.SensorDefinition:
    """A sensor that requests partitions of `asset` from those of `source` within their time; `deadline` after they end.

    Both have time partitions. Before the first input that ever came, nothing is due. Starts no engine. The tick fails with
    `AgeUnsaid` for an asset whose contract does not say for how long it takes in what comes late.
    """

    @dg.sensor(
        name=name,
        description=description,
        target=dg.AssetSelection.assets(asset),
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags=pattern_tags("unaligned_fan_in"),
    )
    def due(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if context.repository_def is None:
            raise dg.DagsterInvariantViolationError("The sensor needs its definitions: pass them to the context.")
        moment, instance = now(), context.instance
        consumer = Consumer(asset, source, context.repository_def.asset_graph)
        found = candidates(instance, consumer, moment, deadline)
        settled = is_settled(instance, consumer, moment)
        verdicts = {each.key: each.verdict(moment, settled=settled) for each in found}
        wanted = [each for each in found if verdicts[each.key] == FanInVerdict.REQUESTED]
        requests = _requests(instance, consumer, wanted)
        waiting = [_waits(each) for each in found if verdicts[each.key] == FanInVerdict.WAITS]
        settling = [each.key for each in found if verdicts[each.key] == FanInVerdict.SETTLING]
        said = "; ".join([*waiting, *([f"{', '.join(settling[:5])}: {FanInVerdict.SETTLING}"] if settling else [])])
        return (
            dg.SensorResult(run_requests=requests) if requests else dg.SkipReason(said or "Every report is up to date.")
        )

    return due


def candidates(instance: dg.DagsterInstance, consumer: Consumer, now: datetime, deadline: timedelta) -> list[Candidate]:
    """The partitions that may have to be computed: those never computed, and the newest; none before the first input."""
    partitions, key = consumer.partitions, consumer.key
    there = instance.get_materialized_partitions(consumer.source)
    existing = [each for each in consumer.source_partitions.get_partition_keys(current_time=now) if each in there]
    if not existing:
        return []
    begun = consumer.source_partitions.time_window_for_partition_key(existing[0]).start
    ended = [str(each) for each in partitions.get_partition_keys(current_time=now)]
    computed = instance.get_materialized_partitions(key)
    # In a closed calendar time ends with its last partition.
    oldest = consumer.end_of(ended[-1]) - consumer.late_for() if ended else now
    watched = {each for each in ended if each not in computed or consumer.end_of(each) >= oldest}
    keys = [each for each in ended if each in watched and consumer.end_of(each) > begun]
    busy = _in(instance, consumer, keys, dg.AssetPartitionStatus.IN_PROGRESS)
    free = [each for each in keys if each not in busy]
    parts = {each: consumer.existing_source_keys(each) for each in free}
    gates = needed(consumer.graph, [key], consumer.source)
    inputs = fan_in(instance, consumer.graph, consumer.source, [part for each in free for part in parts[each]], gates)
    made_of = _made_of(instance, key, [each for each in free if each in computed])
    return [
        Candidate(each, inputs.of(parts[each]), consumer.end_of(each) + deadline, made_of.get(each)) for each in free
    ]


def is_settled(instance: dg.DagsterInstance, consumer: Consumer, now: datetime) -> bool:
    """Whether no run of the source, or of anything above it, is under way or brought something a moment ago."""
    above = dg.AssetSelection.assets(consumer.source).upstream().resolve(consumer.graph)
    watched = [key for key in above if consumer.graph.get(key).is_materializable]
    for record in instance.get_asset_records(watched):
        entry = record.asset_entry
        run = instance.get_run_by_id(entry.last_run_id) if entry.last_run_id else None
        if run is not None and not run.is_finished:
            return False
        last = entry.last_materialization_record
        if last is not None and abs(now.timestamp() - last.timestamp) < SETTLED.total_seconds():
            return False
    return True


def _made_of(instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Sequence[str]) -> dict[str, str]:
    found = latest_materializations(instance, asset, keys) if keys else {}
    return {str(key): str(each.metadata.get(INPUTS, "")) for key, each in found.items()}


def _in(
    instance: dg.DagsterInstance, consumer: Consumer, keys: Sequence[str], status: dg.AssetPartitionStatus
) -> set[str]:
    found = instance.get_status_by_partition(consumer.key, list(keys), consumer.partitions) or {} if keys else {}
    return {key for key in keys if found.get(key) == status}


def _requests(instance: dg.DagsterInstance, consumer: Consumer, wanted: Sequence[Candidate]) -> list[dg.RunRequest]:
    """Those that follow each other in one run; each that has failed before in one of its own, so that it spoils no other."""
    by_start = {consumer.partitions.time_window_for_partition_key(each.key).start: each for each in wanted}
    failed = _in(instance, consumer, [each.key for each in wanted], dg.AssetPartitionStatus.FAILED)
    step = consumer.partitions.time_window_for_partition_key(wanted[0].key) if wanted else None
    together = [start for start, each in by_start.items() if each.key not in failed]
    groups = contiguous(together, step.end - step.start, at_most=PARTITIONS_PER_RUN) if step else []
    alone = [[start] for start, each in by_start.items() if each.key in failed]
    chosen = sorted([*groups, *alone])[:RUNS_PER_TICK]
    return [_request(consumer.name, [by_start[start] for start in group]) for group in chosen]


def _request(name: str, group: Sequence[Candidate]) -> dg.RunRequest:
    first, last = group[0].key, group[-1].key
    told = "".join(f"{each.key}@{each.inputs.digest};" for each in group)
    run_key = f"{name}:{first}..{last}@{hashlib.blake2b(told.encode(), digest_size=8).hexdigest()}"
    tags = {"fan_in/why": _why(group)}
    if first == last:
        return dg.RunRequest(run_key=run_key, partition_key=first, tags=tags)
    return dg.RunRequest(run_key=run_key, tags={**tags, **range_tags(first, last)})


def _why(group: Sequence[Candidate]) -> str:
    missing = [part for each in group for part in each.inputs.missing]
    again = sum(each.made_of is not None for each in group)
    said = (
        f"without {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}"
        if missing
        else "all inputs are there"
    )
    return f"{said}; {again} again" if again else said


def _waits(candidate: Candidate) -> str:
    named: Mapping[str, str] = candidate.inputs.missing
    told = ", ".join(f"{part} ({why})" for part, why in list(named.items())[:3])
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return f"{candidate.key} waits for {told}{more} until {candidate.due:%Y-%m-%d %H:%M} UTC"
