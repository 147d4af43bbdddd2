"""In one run that a person starts, a red gate stops who needs the promise it guards, and not their siblings.

Also where nothing has partitions, and in a pipeline that goes in order, whose next
partitions wait all the same. Tiny graphs without an engine, really run; `a` has two gates, `strict` needs both, `easy` one.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.api import create_execution_plan

from de_assets.catalogue import load_locations
from de_checks.per_key import Key, Materialized, Verdict, evaluate, spec_for
from de_resources.held_back import HELD, LEFT_OUT, own_keys
from de_resources.promises import NEEDS
from de_resources.run_queue.failures import Failures
from de_resources.run_queue.places import HAS_COME, TURN, Place, in_order

pytestmark = pytest.mark.pattern("aligned_fan_in")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-06")
KEYS = DAYS.get_partition_keys()
BAD = KEYS[2]
EASY = {"a": ["is_whole"]}
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def computed(
    name: str,
    *deps: str,
    days: bool = False,
    needs: Mapping[str, Collection[str]] | None = None,
    held: bool = True,
    **more: Any,
) -> dg.AssetsDefinition:
    """An asset, of days or without partitions, that asks what is held back, unless it is not `held`."""

    @dg.asset(
        name=name,
        deps=list(deps),
        partitions_def=DAYS if days else None,
        metadata={**({HELD: LEFT_OUT} if held else {}), **({NEEDS: needs} if needs is not None else {})},
        backfill_policy=dg.BackfillPolicy.single_run() if days else None,
        **more,
    )
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"keys": own_keys(context) if held else []})

    return asset


def gate(
    asset: dg.AssetsDefinition, name: str, *, red: bool, severity: dg.AssetCheckSeverity = ERROR
) -> dg.AssetChecksDefinition:
    """A gate by key, or of the one state of an asset without partitions: of days `BAD` is the red one."""
    spec = spec_for(asset, name, description="", blocking=True, metadata={})

    @dg.multi_asset_check(name=f"{asset.key.to_python_identifier()}_{name}", specs=[spec], can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        def judge(found: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
            return {key: Verdict(not red or key not in (None, BAD), "", severity=severity) for key in found}

        yield from evaluate(context, spec, judge)

    return check


def behind(*, days: bool = False) -> list[dg.AssetsDefinition]:
    return [
        computed("strict", "a", days=days),
        computed("easy", "a", days=days, needs=EASY),
        computed("after", "easy", days=days),
        computed("after_strict", "strict", days=days),
    ]


class World:
    """One instance, in which graphs are run."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance

    def run(
        self,
        parts: Collection[dg.AssetsDefinition | dg.AssetChecksDefinition],
        key: str | None = None,
        last: str | None = None,
        **more: Any,
    ) -> dg.ExecuteInProcessResult:
        ends = {"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": last} if last else {}
        return dg.materialize(
            [*parts],
            instance=self.instance,
            partition_key=None if last else key,
            tags={**ends, **more.pop("tags", {})},
            raise_on_error=False,
            **more,
        )

    def plan(self, parts: Collection[dg.AssetsDefinition | dg.AssetChecksDefinition]) -> dict[str, set[str]]:
        """The steps that each step waits for."""
        assets = [each for each in parts if not isinstance(each, dg.AssetChecksDefinition)]
        checks = [each for each in parts if isinstance(each, dg.AssetChecksDefinition)]
        job = dg.Definitions(assets, asset_checks=checks).resolve_implicit_global_asset_job_def()
        return {key: {*waits} for key, waits in create_execution_plan(job).get_executable_step_deps().items()}


@pytest.fixture
def world() -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(instance)


def written(result: dg.ExecuteInProcessResult) -> set[str]:
    return {event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key}


def failed(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    return {event.step_key: str(event.step_failure_data.error) for event in result.get_step_failure_events()}


def test_without_partitions_the_sibling_goes_on_and_who_needs_it_says_what_failed(world: World) -> None:
    a = computed("a")
    done = world.run([a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=False), *behind()])
    assert written(done) == {"a", "easy", "after"}
    assert failed(done).keys() == {"strict"}, "what lies behind it is skipped, as behind any step that failed"
    assert "`strict` was not computed" in failed(done)["strict"]
    assert "a, is_unique" in failed(done)["strict"]
    assert not done.success, "the run is red, for something that it was for was not computed"


def test_without_partitions_what_all_need_stops_all(world: World) -> None:
    a = computed("a")
    done = world.run([a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=True), *behind()])
    assert written(done) == {"a"}
    assert not done.success


def test_without_partitions_a_mended_asset_lets_all_through_and_a_warning_too(world: World) -> None:
    a = computed("a")
    world.run([a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=False), *behind()])
    mended = world.run([a, gate(a, "is_unique", red=False), gate(a, "is_whole", red=False), *behind()])
    assert written(mended) == {"a", "strict", "easy", "after", "after_strict"}
    warned = world.run([a, gate(a, "is_unique", red=True, severity=WARN), gate(a, "is_whole", red=False), *behind()])
    assert warned.success
    assert written(warned) == {"a", "strict", "easy", "after", "after_strict"}


def test_without_partitions_what_was_said_of_an_earlier_state_holds_nobody(world: World) -> None:
    a = computed("a")
    world.run([a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=False), *behind()])
    parts = [a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=False), *behind()]
    unasked = world.run(parts, selection=dg.AssetSelection.all(include_sources=False).without_checks())
    assert written(unasked) == {"a", "strict", "easy", "after", "after_strict"}, "nobody has judged what is there now"


def test_days_behind_a_red_asset_without_partitions(world: World) -> None:
    """A lookup that every day reads: who needs what is red of it gets none of its days."""
    a = computed("a")
    parts = [a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=False), *behind(days=True)]
    for first, last in ((BAD, None), (KEYS[0], KEYS[-1])):
        done = world.run(parts, first, last)
        assert written(done) == {"a", "easy", "after"}, last
        assert failed(done).keys() == {"strict"}, last


def test_what_reads_beside_a_sibling_that_needs_less_is_read_where_the_gates_are_asked() -> None:
    """By an input of the IO manager, or by days that it asks for: else it would be computed behind a gate that goes on."""
    less = 0
    for location in load_locations():
        graph = location.resolve_asset_graph()
        for key in graph.materializable_asset_keys:
            children = {child for child in graph.get(key).child_keys if graph.get(child).is_materializable}
            if not any(key.to_user_string() in (graph.get(child).metadata.get(NEEDS) or {}) for child in children):
                continue
            less += 1
            for child in children - {key}:
                node = graph.get(child)
                assert node.metadata.get(HELD) == LEFT_OUT, child
                assert node.is_partitioned or key in node.assets_def.keys_by_input_name.values(), child
    assert less > 0


def test_a_gate_that_is_dagsters_own_stops_all_for_each_step_behind_it_begins_with_its_end(world: World) -> None:
    """What cannot be done from outside of the check: Dagster's plan has no step behind an asset that does without its gate."""
    a = computed("a")

    @dg.asset_check(asset=a, name="is_unique", blocking=True)
    def is_unique() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    done = world.run([a, is_unique, gate(a, "is_whole", red=False), *behind()])
    assert written(done) == {"a"}
    plan = world.plan([a, is_unique, gate(a, "is_whole", red=False), *behind()])
    for step in ("strict", "easy"):
        assert "a_is_unique" in plan[step], "though `easy` does not need it"


def test_an_asset_that_does_not_ask_what_is_held_back_stops_the_run_as_dagster_does(world: World) -> None:
    """To let the run go on would compute it from what is red."""
    a, foreign = computed("a"), computed("foreign", "a", held=False)
    done = world.run([a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=False), *behind(), foreign])
    assert written(done) == {"a"}
    assert not done.success


def whole_graph_job() -> dg.JobDefinition:
    """Of assets without partitions, of whose gates one is red."""
    a = computed("a")
    gates = [gate(a, "is_unique", red=True), gate(a, "is_whole", red=False)]
    everything = dg.define_asset_job("everything", "*", executor_def=dg.in_process_executor)
    return dg.Definitions([a, *behind()], asset_checks=gates, jobs=[everything]).resolve_job_def("everything")


def job_in_order() -> dg.JobDefinition:
    """Of days that go in order; their gate breaks while a file says so."""
    a = computed("a", days=True, tags=in_order("line"))
    spec = spec_for(a, "is_unique", description="", blocking=True, metadata={})

    @dg.multi_asset_check(name="a_is_unique", specs=[spec], can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        if Path(os.environ["BREAKS"]).exists():
            raise ValueError("breaks on purpose")
        yield from evaluate(context, spec, lambda found: {key: Verdict(True, "") for key in found})

    everything = dg.define_asset_job("everything", "*", executor_def=dg.in_process_executor)
    return dg.Definitions([a], asset_checks=[check], jobs=[everything]).resolve_job_def("everything")


def test_re_execution_from_failure_finds_the_gate_still_red(world: World) -> None:
    """The gate's step ended well, so that it is not asked again; what it found stands until the asset is computed anew."""
    first = whole_graph_job().execute_in_process(instance=world.instance, raise_on_error=False)
    options = dg.ReexecutionOptions.from_failure(first.run_id, world.instance)
    job = dg.reconstructable(whole_graph_job)
    with dg.execute_job(job, instance=world.instance, reexecution_options=options) as again:
        assert {event.step_key for event in again.get_step_failure_events()} == {"strict"}
        assert "a, is_unique" in str(again.get_step_failure_events()[0].step_failure_data.error)
        assert not again.get_asset_materialization_events()


class TestInOrder:
    """A pipeline whose runs go one at a time: the siblings of a red gate go on, and the next partitions wait."""

    pytestmark = pytest.mark.pattern("single_runner")

    @staticmethod
    def line(world: World, key: str, *more: dg.AssetsDefinition, last: str | None = None) -> dg.ExecuteInProcessResult:
        """A run as the queue lets it go."""
        a = computed("a", days=True, tags=in_order("line"))
        begin = DAYS.time_window_for_partition_key(key).start.timestamp()
        place = Place("line", ("a",), key, last or key, begin)
        parts = [a, gate(a, "is_unique", red=True), gate(a, "is_whole", red=False), *more]
        return world.run(parts, key, last, tags={**place.tags(), TURN: HAS_COME})

    @staticmethod
    def held(world: World) -> list[str | None]:
        return [each.place.first for each in Failures(world.instance).of("line")]

    def test_the_sibling_goes_on_and_the_next_ones_wait(self, world: World) -> None:
        done = self.line(world, BAD, *behind(days=True))
        assert written(done) == {"a", "easy", "after"}
        assert failed(done).keys() == {"strict"}
        assert self.held(world) == [BAD]

    def test_the_next_ones_wait_also_where_all_that_the_run_was_for_went_on(self, world: World) -> None:
        done = self.line(world, BAD, *behind(days=True)[1:3])
        assert written(done) == {"a", "easy", "after"}
        assert done.success
        assert self.held(world) == [BAD]
        (why,) = Failures(world.instance).of("line")
        assert "which did not pass a check" in why.told()

    def test_what_passes_holds_nothing(self, world: World) -> None:
        assert self.line(world, KEYS[0], *behind(days=True)).success
        assert self.held(world) == []

    def test_computed_anew_it_holds_nothing(self, world: World) -> None:
        self.line(world, BAD, *behind(days=True)[1:3])
        failures = Failures(world.instance)
        assert len([*failures.of("line")]) == 1
        world.instance.report_runless_asset_event(dg.AssetMaterialization("a", partition=BAD))
        assert [*failures.of("line")] == []

    def test_a_gate_that_came_to_no_verdict_is_made_good_by_a_re_execution_from_failure(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As the daemon does it after a worker's death: the asset is there, and its gate alone is asked again."""
        monkeypatch.setenv("BREAKS", str(tmp_path / "breaks"))
        (tmp_path / "breaks").touch()
        place = Place("line", ("a",), BAD, BAD, DAYS.time_window_for_partition_key(BAD).start.timestamp())
        first = job_in_order().execute_in_process(
            instance=world.instance, partition_key=BAD, tags={**place.tags(), TURN: HAS_COME}, raise_on_error=False
        )
        assert (written(first), first.success) == ({"a"}, False)
        assert self.held(world) == [BAD], "nobody has judged it"
        failures = Failures(world.instance)
        assert len([*failures.of("line")]) == 1

        (tmp_path / "breaks").unlink()
        options = dg.ReexecutionOptions.from_failure(first.run_id, world.instance)
        of_a_retry = {"dagster/root_run_id": first.run_id, "dagster/parent_run_id": first.run_id}
        job, tags = dg.reconstructable(job_in_order), {**first.dagster_run.tags, **of_a_retry}
        with dg.execute_job(job, world.instance, tags=tags, reexecution_options=options) as again:
            assert again.success
            assert not again.get_asset_materialization_events(), "it was there"
        assert [*failures.of("line")] == []
        assert self.held(world) == [], "neither for a new daemon"
