"""A red gate stops who needs what it guards, and not their siblings: in a run, in a range, by `de run`, by automation.

Tiny graphs without an engine. `a` has two gates, each guarding a promise of its own; `strict` reads it and needs both,
`easy` says that it needs one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import dagster as dg
import pytest

from de_assets.automation.conditions import late_cascade
from de_assets.catalogue import load_locations
from de_assets.filling import fill, units
from de_assets.filling.keys import FillState
from de_assets.filling.waits import Waits
from de_checks.per_key import Key, Materialized, Verdict, evaluate, spec_for
from de_resources.fan_in import inputs_of
from de_resources.held_back import HELD, LEFT_OUT, own_keys
from de_resources.promises import NEEDS, NoSuchPromise, gates_of, needed

pytestmark = pytest.mark.pattern("aligned_fan_in")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-06")
KEYS = DAYS.get_partition_keys()
BAD = KEYS[2]
GOOD = [key for key in KEYS if key != BAD]
EASY = {"a": ["is_whole"]}


def computed(
    name: str, *deps: str, needs: Mapping[str, Collection[str]] | None = None, **more: Any
) -> dg.AssetsDefinition:
    """An asset that says which of its keys it computes, and that is requested as those of the blog are."""

    @dg.asset(
        name=name,
        deps=list(deps),
        partitions_def=DAYS,
        metadata={HELD: LEFT_OUT, **({NEEDS: needs} if needs is not None else {})},
        automation_condition=late_cascade(needs=needs) if deps else None,
        backfill_policy=dg.BackfillPolicy.single_run(),
        **more,
    )
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"keys": own_keys(context)})

    return asset


def gate(asset: dg.AssetsDefinition, name: str, bad: Collection[str]) -> dg.AssetChecksDefinition:
    """A gate that refuses these keys."""
    spec = spec_for(asset, name, description="", blocking=True, metadata={})

    @dg.multi_asset_check(name=f"{asset.key.to_python_identifier()}_{name}", specs=[spec], can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        def judge(found: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
            return {key: Verdict(key not in bad, "") for key in found}

        yield from evaluate(context, spec, judge)

    return check


def world(
    unique: Collection[str] = (), whole: Collection[str] = (), needs: Mapping[str, Collection[str]] = EASY, **of_a: Any
) -> dg.Definitions:
    """The graph; `unique` and `whole` are the keys that its gates refuse."""
    a = computed("a", **of_a)
    behind = [computed("strict", "a"), computed("easy", "a", needs=needs), computed("after", "easy")]
    return dg.Definitions([a, *behind], asset_checks=[gate(a, "is_unique", unique), gate(a, "is_whole", whole)])


Run = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as silent:
        yield silent


@pytest.fixture
def run(instance: dg.DagsterInstance) -> Run:
    """One run of the graph over one key, or from one to another."""

    def execute(
        graph: dg.Definitions, first: str, last: str | None = None, only: Collection[str] = ()
    ) -> dg.ExecuteInProcessResult:
        job = graph.resolve_implicit_global_asset_job_def()
        ends = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last or first}
        return job.execute_in_process(
            instance=instance,
            partition_key=None if last else first,
            tags=ends if last else {},
            asset_selection=[dg.AssetKey(name) for name in only] or None,
            raise_on_error=False,
        )

    return execute


def written(result: dg.ExecuteInProcessResult) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for event in result.get_asset_materialization_events():
        assert event.asset_key is not None
        found.setdefault(event.asset_key.to_user_string(), []).append(event.partition)
    return found


def test_in_a_run_of_one_partition_the_sibling_goes_on_and_who_needs_it_says_what_failed(run: Run) -> None:
    done = run(world(unique=[BAD]), BAD)
    assert written(done) == {"a": [BAD], "easy": [BAD], "after": [BAD]}
    (failed,) = done.get_step_failure_events()
    assert failed.step_key == "strict"
    assert f"({BAD}: a {BAD}, is_unique)" in str(failed.step_failure_data.error)
    assert not done.success, "the run is red, for something that it was for was not computed"


def test_what_both_need_stops_both(run: Run) -> None:
    done = run(world(whole=[BAD]), BAD)
    assert written(done) == {"a": [BAD]}
    both = run(world(unique=[BAD], whole=[BAD]), BAD)
    assert written(both) == {"a": [BAD]}, "the other gate stops nobody else, and lets nobody through"


def test_in_a_range_each_branch_leaves_out_what_its_own_promises_refuse(run: Run) -> None:
    done = run(world(unique=[BAD], whole=[KEYS[0]]), KEYS[0], KEYS[-1])
    assert done.success
    assert written(done) == {"a": KEYS, "strict": [KEYS[1], *KEYS[3:]], "easy": KEYS[1:], "after": KEYS[1:]}


def test_a_range_of_bad_partitions_alone_goes_on_for_who_does_not_need_them(run: Run) -> None:
    done = run(world(unique=KEYS), KEYS[0], KEYS[-1])
    assert written(done) == {"a": KEYS, "easy": KEYS, "after": KEYS}
    assert [event.step_key for event in done.get_step_failure_events()] == ["strict"]


def test_verdicts_of_runs_before_stop_the_same_ones(run: Run) -> None:
    graph = world(unique=[BAD])
    run(graph, KEYS[0], KEYS[-1], only=["a"])
    assert written(run(graph, KEYS[0], KEYS[-1], only=["strict", "easy"])) == {"strict": GOOD, "easy": KEYS}


def test_who_needs_nothing_of_it_is_stopped_by_no_gate(run: Run) -> None:
    graph = world(unique=[BAD], whole=[BAD], needs={"a": []})
    assert written(run(graph, BAD)) == {"a": [BAD], "easy": [BAD], "after": [BAD]}


def test_de_run_holds_back_the_same(instance: dg.DagsterInstance) -> None:
    graph = world(unique=[KEYS[0], BAD], whole=[KEYS[0]])
    outcomes = {each.unit.name: each for each in fill(units([graph]), instance, look=lambda _: FillState(), absent={})}
    assert outcomes["strict"].written == {KEYS[1], *KEYS[3:]}
    assert outcomes["easy"].written == outcomes["after"].written == {*KEYS[1:]}
    assert outcomes["strict"].held_back.keys() == {KEYS[0], BAD}
    assert outcomes["easy"].held_back.keys() == {KEYS[0]}


def test_automation_requests_who_does_not_need_it_and_the_other_when_it_is_mended(
    instance: dg.DagsterInstance, run: Run
) -> None:
    graph = world(unique=[BAD])
    cursor = dg.evaluate_automation_conditions(graph, instance).cursor
    run(graph, KEYS[0], KEYS[-1], only=["a"])
    tick = dg.evaluate_automation_conditions(graph, instance, cursor=cursor)
    assert tick.get_requested_partitions(dg.AssetKey("easy")) == {*KEYS}
    assert tick.get_requested_partitions(dg.AssetKey("strict")) == {*GOOD}
    run(world(), BAD, only=["a"])
    mended = dg.evaluate_automation_conditions(graph, instance, cursor=tick.cursor)
    assert BAD in mended.get_requested_partitions(dg.AssetKey("strict"))


def test_automation_stops_who_needs_it(instance: dg.DagsterInstance, run: Run) -> None:
    graph = world(whole=[BAD])
    cursor = dg.evaluate_automation_conditions(graph, instance).cursor
    run(graph, KEYS[0], KEYS[-1], only=["a"])
    tick = dg.evaluate_automation_conditions(graph, instance, cursor=cursor)
    for name in ("easy", "strict"):
        assert tick.get_requested_partitions(dg.AssetKey(name)) == {*GOOD}, name


def test_who_waits_names_only_the_gates_that_it_needs(instance: dg.DagsterInstance, run: Run) -> None:
    graph = world(unique=[BAD])
    run(graph, KEYS[0], KEYS[-1], only=["a"])
    waits = Waits(instance, [graph])
    assert ["is_unique" in cause.told for cause in waits.causes("strict", BAD)] == [True]
    assert ["is_unique" in cause.told for cause in waits.causes("easy", BAD)] == [False]


@pytest.mark.pattern("unaligned_fan_in")
def test_who_gathers_what_is_there_takes_what_does_not_pass_a_gate_that_it_does_not_need(
    instance: dg.DagsterInstance, run: Run
) -> None:
    graph = world(unique=[BAD])
    run(graph, KEYS[0], KEYS[-1], only=["a"])
    gathered = {
        name: inputs_of(instance, graph.resolve_asset_graph(), dg.AssetKey(name), dg.AssetKey("a"), KEYS)
        for name in ("strict", "easy")
    }
    assert gathered["strict"].missing == {BAD: "refused by is_unique"}
    assert gathered["easy"].is_complete


def test_a_promise_that_no_gate_guards_is_refused() -> None:
    graph = world(needs={"a": ["is_hole"]}).resolve_asset_graph()
    with pytest.raises(
        NoSuchPromise, match=r"`easy` needs is_hole of `a`, whose blocking checks are is_unique, is_whole"
    ):
        needed(graph, [dg.AssetKey("easy")], dg.AssetKey("a"))


def test_what_the_blog_declares_exists_and_its_conditions_know_it() -> None:
    """A condition is evaluated without the metadata, and would wait for all gates, or for one that nobody has."""
    declared = 0
    for location in load_locations():
        graph = location.resolve_asset_graph()
        for key in graph.materializable_asset_keys:
            for parent, names in (graph.get(key).metadata.get(NEEDS) or {}).items():
                declared += 1
                above = dg.AssetKey.from_user_string(parent)
                assert above in graph.get(key).parent_keys, key
                assert {*names} < {gate.name for gate in gates_of(graph, above)}, key
                told = repr(graph.get(key).automation_condition)
                for name in names:
                    assert repr(dg.AssetCheckKey(above, name)) in told, (key, name)
    assert declared > 0, "something carries it"
