"""A check of a dozen lines: all that the factory promises holds for it, without an engine and without a table."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pytest

from de_checks.factory import CheckRun, check_of_asset, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, NoPartitionChosen, Verdict
from de_checks.subject import Subject
from de_resources.retries import TransientRetries

NAMES = {"r": "red", "g": "green", "b": "blue"}
DAYS = dg.StaticPartitionsDefinition(["mon", "tue", "wed"])


def colour_check(asset: Subject, *, never: str, name: str = "colour_is_right") -> dg.AssetChecksDefinition:
    """A whole check: its judgement, and one call."""

    def judge(run: CheckRun, _key: Key, current: Materialized) -> Verdict:
        colour = run.resources.names[current.metadata["colour"]]
        return Verdict(colour != never, f"It is {colour}.", {"before": len(run.verdicts)})

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description="The colour is not the forbidden one.",
        patterns=["skew_detector"],
        blocking=True,
        resources=["names"],
    )


@dataclass
class Painted:
    """An asset whose partitions have colours, and a check of it."""

    partitions: dg.PartitionsDefinition | None = DAYS
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        self.asset = dg.AssetSpec("painted", partitions_def=self.partitions)
        self.check = colour_check(self.asset, never="red")
        self.checks = [self.check]

    def paint(self, colours: dict[str | None, str]) -> None:
        for key, colour in colours.items():
            told: dict[str, Any] = {"colour": colour}
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(self.asset.key, partition=key, metadata=told)
            )

    def judge(self, *keys: str) -> dg.ExecuteInProcessResult:
        """A run of the checks alone: without a key, or for the range from the first to the last."""
        start, end = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
        definitions = dg.Definitions([self.asset], asset_checks=self.checks, resources={"names": NAMES})
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance,
            tags={start: keys[0], end: keys[-1]} if keys else {},
            raise_on_error=False,
        )


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str | None, bool]:
    return {found.partition: found.passed for found in result.get_asset_check_evaluations()}


def test_every_day_of_a_range_is_judged_by_itself() -> None:
    it = Painted()
    it.paint({"mon": "g", "tue": "r", "wed": "b"})

    result = it.judge("mon", "wed")

    assert verdicts(result) == {"mon": True, "tue": False, "wed": True}
    assert not result.success, "a blocking check that is red fails its step"
    judged = {found.partition: found for found in result.get_asset_check_evaluations()}
    records = it.instance.fetch_materializations(it.asset.key, limit=3).records
    newest = {record.partition_key: record.storage_id for record in records}
    assert {key: found.target_materialization_data.storage_id for key, found in judged.items()} == newest
    assert [found.metadata["before"].value for found in judged.values()] == [0, 1, 2]


def test_what_was_never_materialised_is_red_and_the_newest_materialisation_counts() -> None:
    it = Painted()
    it.paint({"mon": "r", "wed": "r"})
    it.paint({"mon": "g"})
    assert verdicts(it.judge("mon", "tue")) == {"mon": True, "tue": False}
    assert verdicts(it.judge("mon")) == {"mon": True}, "what was judged in an earlier run is not judged before"


def test_an_asset_without_partitions_has_one_verdict() -> None:
    it = Painted(None)
    it.paint({None: "r"})
    assert verdicts(it.judge()) == {None: False}


def test_a_run_that_names_no_partition_is_refused() -> None:
    it = Painted()
    it.paint({"mon": "g"})
    result = it.judge()
    assert not result.success
    failure = next(event for event in result.all_events if event.is_step_failure)
    assert NoPartitionChosen.__name__ in str(failure.step_failure_data.error)
    assert verdicts(result) == {}


def test_it_carries_its_pattern_and_asks_for_its_resources() -> None:
    (spec,) = (check := Painted().check).check_specs
    assert (spec.name, spec.blocking, spec.partitions_def) == ("colour_is_right", True, DAYS)
    assert spec.description == "The colour is not the forbidden one."
    assert dict(spec.metadata or {}) == {"pattern/skew_detector": True}
    assert check.node_def.required_resource_keys == {"names"}


@pytest.mark.faults
def test_a_transient_error_is_tried_again() -> None:
    assert isinstance(Painted().check.node_def.retry_policy, TransientRetries)


def test_a_check_of_the_whole_asset_needs_no_partition_and_has_the_same_policy() -> None:
    it = Painted()
    it.paint({"mon": "g"})

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        there = run.instance.get_materialized_partitions(run.asset.key)
        return dg.AssetCheckResult(passed=there == {"mon"}, metadata={"name": run.check.name})

    check = check_of_asset(it.asset, "all_are_there", judge, description="", patterns=["full_loader"])
    it.checks = [check]
    (found,) = it.judge().get_asset_check_evaluations()
    assert (found.partition, found.passed, found.metadata["name"].value) == (None, True, "all_are_there")
    assert isinstance(check.node_def.retry_policy, TransientRetries)
    assert dict(next(iter(check.check_specs)).metadata or {}) == {"pattern/full_loader": True}


def test_what_a_materialisation_said_is_read_once_for_all_checks_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is the newest is asked by each check, and by each run."""
    it = Painted()
    it.checks = [colour_check(it.asset, never="red", name=f"colour_{number}") for number in range(4)]
    it.paint({"mon": "g", "tue": "r", "wed": "b"})
    read: list[int] = []
    fetch = dg.DagsterInstance.fetch_materializations

    def counted(self: dg.DagsterInstance, *asked: Any, **more: Any) -> Any:
        found = fetch(self, *asked, **more)
        read.extend(record.storage_id for record in found.records)
        return found

    monkeypatch.setattr(dg.DagsterInstance, "fetch_materializations", counted)
    assert [found.passed for found in it.judge("mon", "wed").get_asset_check_evaluations()] == [True, False, True] * 4
    assert len(read) == len(set(read)) == 3
    it.paint({"tue": "g"})
    read.clear()
    again = it.judge("mon", "wed").get_asset_check_evaluations()
    assert [found.passed for found in again] == [True] * 12, "the newest counts"
    assert len(read) == 3, "another run may be another process, or much later"
