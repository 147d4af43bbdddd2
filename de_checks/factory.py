"""The one place that makes Dagster's checks: a check's own module is its judgement, and one call.

    def files_check(asset: Subject, *, most: int, name: str = "files_are_few") -> dg.AssetChecksDefinition:
        def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
            files = int(current.metadata["delta/files"])
            return Verdict(files <= most, f"{files:,} files.", {"files": files})

        return check_per_key(asset, name, key_by_key(judge), description=f"At most {most} files.", patterns=["compactor"])

What every check shares is decided here: the partitions of its asset, one evaluation per key, the patterns that it carries, and
what happens after a transient error.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import dagster as dg

from de_checks.patterns import STANDING, carries
from de_checks.per_key import Key, Materialized, Verdict, evaluate, spec_for
from de_checks.subject import Subject, spec_of
from de_resources.compat.checks import AssetCheckExecutionRecordStatus
from de_resources.compat.graph import whole_graph
from de_resources.delta.table import Table
from de_resources.lake import Lake
from de_resources.retries import RETRY_TRANSIENT


@dataclass(frozen=True)
class CheckRun:
    """What a judgement may ask for: the asset, the check, the instance, and the tags and resources of the run."""

    asset: dg.AssetSpec
    check: dg.AssetCheckSpec
    context: dg.AssetCheckExecutionContext
    verdicts: dict[Key, Verdict] = field(default_factory=dict)
    """What `key_by_key` has judged so far, newer than any recorded verdict."""

    @property
    def instance(self) -> dg.DagsterInstance:
        """Where runs, materialisations and verdicts are recorded."""
        instance: dg.DagsterInstance = self.context.instance
        return instance

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the run."""
        return self.context.run.tags

    @cached_property
    def refused(self) -> frozenset[Key]:
        """The partitions whose newest verdict by a gate is bad, as recorded when it is first asked for."""
        found = self.instance.event_log_storage.get_asset_check_partition_info(self.gates) if self.gates else []
        return frozenset(each.partition_key for each in found if each.latest_execution_status == _FAILED)

    @cached_property
    def gates(self) -> list[dg.AssetCheckKey]:
        """The other checks that can refuse a state of the asset: its blocking ones."""
        graph = whole_graph(self.context.op_execution_context.job_def)
        own = (key for key in graph.asset_check_keys if key.asset_key == self.asset.key and key != self.check.key)
        return sorted(key for key in own if graph.get(key).blocking)

    @property
    def resources(self) -> Any:
        """The resources that the check asked for, as attributes."""
        return self.context.resources

    @property
    def lake(self) -> Lake:
        """The resource `lake`."""
        lake: Lake = self.resources.lake
        return lake

    def table(self, lake: str = "lake") -> Table:
        """The asset's table in the lake of this resource key."""
        table: Table = getattr(self.resources, lake).table(self.asset.key, self.asset.metadata)
        return table


Judge = Callable[[CheckRun, Mapping[Key, Materialized]], Mapping[Key, Verdict]]
"""All materialised keys of a run at once, for judgements that read something for all of them; answers for each."""

_FAILED = AssetCheckExecutionRecordStatus.FAILED

JudgeKey = Callable[[CheckRun, Key, Materialized], Verdict]
"""One key, from its newest materialisation."""

JudgeAsset = Callable[[CheckRun], dg.AssetCheckResult]
"""The asset as a whole."""


def check_per_key(
    asset: Subject,
    name: str,
    judge: Judge,
    *,
    description: str,
    patterns: Collection[str] = (),
    blocking: bool = False,
    resources: Collection[str] = (),
    about: Mapping[str, Any] | None = None,
) -> dg.AssetChecksDefinition:
    """A check that judges each partition key of a run by itself, or the one state of an asset without partitions.

    `judge` gets the newest materialisation of each key that has one; a key that was never materialised fails. In a run over
    a range as well, one evaluation per key is recorded (`evaluate`), so that a bad day does not hold back the good ones.
    `resources` are the keys of what `judge` asks the run for; `patterns` are those of the catalogue that the check carries,
    and `about` is more of its metadata.

    A transient error begins the step again; any other fails it. A rerun judges and records again. A run of a partitioned asset
    that names no partition raises `NoPartitionChosen`.
    """
    metadata = {**carries(*patterns), **(about or {})}
    spec = spec_for(asset, name, description=description, blocking=blocking, metadata=metadata)
    subject = spec_of(asset)

    @dg.multi_asset_check(
        name=spec.get_python_identifier(),
        specs=[spec],
        can_subset=True,
        required_resource_keys=set(resources),
        retry_policy=RETRY_TRANSIENT,
    )
    def judge_keys(
        context: dg.AssetCheckExecutionContext,
    ) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        yield from evaluate(context, spec, partial(judge, CheckRun(subject, spec, context)))

    return judge_keys


def key_by_key(judge: JudgeKey) -> Judge:
    """A judgement of all keys from one of a single key: in the order of the partitions, each may look at those before it."""

    def judge_all(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        for key, current in materialized.items():
            run.verdicts[key] = judge(run, key, current)
        return run.verdicts

    return judge_all


def check_of_asset(
    asset: Subject,
    name: str,
    judge: JudgeAsset,
    *,
    description: str,
    patterns: Collection[str] = (),
    blocking: bool = False,
    resources: Collection[str] = (),
    also_reads: Collection[dg.AssetKey] = (),
    standing: bool = False,
) -> dg.AssetChecksDefinition:
    """A check of an asset as a whole, whatever its partitions: for questions that no partition answers.

    It runs without a partition. `also_reads` are the other assets that `judge` looks at; the rest is as in `check_per_key`.
    The answer to a `standing` question changes with time alone: a watch asks it though no run happens, so that `judge` starts
    no engine and answers within seconds.
    """
    subject = spec_of(asset)

    @dg.asset_check(
        asset=subject.key,
        name=name,
        additional_deps=list(also_reads),
        blocking=blocking,
        description=description,
        metadata={**carries(*patterns), **({STANDING: True} if standing else {})},
        required_resource_keys=set(resources),
        retry_policy=RETRY_TRANSIENT,
    )
    def judge_asset(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return judge(CheckRun(subject, next(iter(judge_asset.check_specs)), context))

    return judge_asset
