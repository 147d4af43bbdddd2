"""Runs over a range with a bad partition, on tiny graphs without an engine: what goes on, what is left out, and what stops."""

import ast
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest

from de_assets.catalogue import load_locations
from de_checks.per_key import Key, Materialized, Verdict, evaluate, spec_for
from de_resources.held_back import HELD, LEFT_OUT, own_keys

pytestmark = pytest.mark.pattern("aligned_fan_in")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
REGIONS = dg.StaticPartitionsDefinition(["eu", "us", "asia", "africa"])
KEYS = [f"2024-01-0{n}" for n in range(1, 6)]
BAD = KEYS[2]
GOOD = [key for key in KEYS if key != BAD]
LEAVES_OUT = {HELD: LEFT_OUT}


def computed(
    name: str, *deps: str, partitions: dg.PartitionsDefinition | None = DAYS, metadata: Mapping[str, str] = LEAVES_OUT
) -> dg.AssetsDefinition:
    """An asset that says which of its keys it computes."""

    @dg.asset(name=name, deps=list(deps), partitions_def=partitions, metadata=metadata)
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        keys = own_keys(context) if metadata else list(context.partition_keys)
        return dg.MaterializeResult(metadata={"keys": keys})

    return asset


def gate(
    asset: dg.AssetsDefinition,
    bad: Collection[str],
    *,
    name: str = "is_good",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetChecksDefinition:
    """A gate for which these keys are bad."""
    spec = spec_for(asset, name, description="", blocking=True, metadata={})

    @dg.multi_asset_check(name=f"{asset.key.to_python_identifier()}_{name}", specs=[spec], can_subset=True)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        def judge(found: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
            return {key: Verdict(key not in bad, "", severity=severity) for key in found}

        yield from evaluate(context, spec, judge)

    return check


Run = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def run() -> Iterator[Run]:
    """Materialise over a range, in one instance."""
    with dg.DagsterInstance.ephemeral() as instance:

        def materialize(
            *parts: dg.AssetsDefinition | dg.AssetChecksDefinition,
            keys: tuple[str, str] = (KEYS[0], KEYS[-1]),
            selection: list[str] | None = None,
            **tags: str,
        ) -> dg.ExecuteInProcessResult:
            ends = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[1]}
            return dg.materialize(
                parts, instance=instance, selection=selection, tags={**ends, **tags}, raise_on_error=False
            )

        yield materialize


def written(result: dg.ExecuteInProcessResult, name: str) -> list[str | None]:
    return [e.partition for e in result.get_asset_materialization_events() if e.asset_key == dg.AssetKey(name)]


def judged(result: dg.ExecuteInProcessResult, name: str) -> dict[str | None, bool]:
    return {e.partition: e.passed for e in result.get_asset_check_evaluations() if e.asset_key == dg.AssetKey(name)}


def test_what_passed_goes_on_and_each_branch_leaves_out_what_waits_for_its_own_gates(run: Run) -> None:
    a, b, c, d, e = (
        computed("a"),
        computed("b", "a"),
        computed("c", "a"),
        computed("d", "b", "c"),
        computed("beside"),
    )
    done = run(a, gate(a, [BAD]), b, gate(b, [KEYS[0]]), c, d, e)
    assert done.success
    assert written(done, "a") == KEYS
    assert written(done, "b") == written(done, "c") == GOOD
    assert written(done, "d") == GOOD[1:], "it waits for the gate of `b` as well, which `c` does not know"
    assert written(done, "beside") == KEYS
    told = next(e for e in done.get_asset_materialization_events() if e.asset_key == dg.AssetKey("d"))
    assert told.step_materialization_data.materialization.metadata["keys"].value == GOOD[1:], "the function knows"
    assert judged(done, "b") == {key: key != KEYS[0] for key in GOOD}, "what was left out is not judged"


def test_a_range_without_a_good_partition_stops(run: Run) -> None:
    a, b = computed("a"), computed("b", "a")
    done = run(a, gate(a, KEYS), b)
    assert not done.success
    assert written(done, "b") == []


def test_what_does_not_say_that_it_leaves_out_stops_the_run_as_it_always_did(run: Run) -> None:
    a, b, c = computed("a"), computed("b", "a"), computed("c", "b", metadata={})
    done = run(a, gate(a, [BAD]), b, c)
    assert not done.success
    assert (written(done, "b"), written(done, "c")) == ([], [])


def test_a_gate_that_only_warns_holds_nothing_back(run: Run) -> None:
    a, b = computed("a"), computed("b", "a")
    done = run(a, gate(a, [BAD], severity=dg.AssetCheckSeverity.WARN), b)
    assert done.success
    assert written(done, "b") == KEYS


def test_gates_of_runs_before_hold_back_too_until_they_pass(run: Run) -> None:
    """A backfill whose assets do not fit into one run; and a second one after the repair."""
    bad = [BAD]
    a, b, c = computed("a"), computed("b", "a"), computed("c", "b")
    parts = (a, gate(a, bad), b, c)
    assert not run(*parts, selection=["a"]).success, "nothing of the run waits behind it: the run is red"
    assert written(run(*parts, selection=["b"]), "b") == GOOD
    assert written(run(*parts, selection=["c"]), "c") == GOOD, "what is missing in between is held by the same gate"
    one = run(*parts, selection=["b"], keys=(BAD, BAD), **{"dagster/backfill": "abc"})
    (failed,) = one.get_step_failure_events()
    assert f"({BAD}: a {BAD}, is_good)" in str(failed.step_failure_data.error)
    bad.clear()
    assert run(*parts).success
    assert written(run(*parts, selection=["c"]), "c") == KEYS


def test_what_reads_itself_waits_from_the_first_held_partition_on(run: Run) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1, allow_nonexistent_upstream_partitions=True)

    @dg.asset(
        name="b",
        deps=["a", dg.AssetDep("b", partition_mapping=before)],
        partitions_def=DAYS,
        metadata=LEAVES_OUT,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def carried(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"keys": own_keys(context)})

    a, c = computed("a"), computed("c", "b")
    done = run(a, gate(a, [BAD]), carried, c)
    assert done.success
    assert written(done, "b") == written(done, "c") == KEYS[:2], "what is carried passes through no gap"


def test_an_asset_without_partitions_waits_for_all_of_the_run(run: Run) -> None:
    a, b, report = computed("a"), computed("b", "a"), computed("report", "b", partitions=None)
    done = run(a, gate(a, [BAD]), b, report)
    assert not done.success
    assert written(done, "b") == GOOD
    (failed,) = done.get_step_failure_events()
    assert failed.step_key == "report"


def test_partitions_that_are_no_times_are_left_out_by_their_mapping(run: Run) -> None:
    a, b = computed("a", partitions=REGIONS), computed("b", "a", partitions=REGIONS)
    done = run(a, gate(a, ["us"]), b, keys=("eu", "africa"))
    assert done.success
    assert {*written(done, "b")} == {"eu", "asia", "africa"}


def test_what_waits_for_a_gate_asks_which_partitions_are_its_own() -> None:
    """`context.partition_keys` would name those that are held as well."""
    for location in load_locations():
        graph = location.resolve_asset_graph()
        for key in graph.materializable_asset_keys:
            node = graph.get(key)
            upstream = {each for each in node.parent_keys if graph.get(each).is_materializable}
            if not (node.is_partitioned and any(graph.get(each).is_partitioned for each in upstream)):
                continue
            assert node.metadata.get(HELD) == LEFT_OUT, key
            for op in node.assets_def.node_def.iterate_op_defs():
                tree = ast.parse(Path(inspect.getsourcefile(op.compute_fn.decorated_fn) or "").read_text())  # type: ignore[union-attr]
                asked = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
                assert not asked & {"partition_keys", "partition_time_window", "partition_key_range"}, key
