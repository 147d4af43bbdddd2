"""Contract checks on real Delta tables: who is held back, what is shown, and what it costs."""

from datetime import timedelta

import dagster as dg
import pytest
from checks_world import (
    CANARY,
    DAYS,
    GATED,
    World,
    days,
    good,
    jobs_run,
    queries_of,
    red,
    verdicts,
)
from dagster import AssetKey
from pyspark.sql import SparkSession

from de_checks.contract import NoContract, contract_check
from de_checks.freshness import completeness_check, newest_event_check
from de_checks.skew import skew_check
from de_checks.volume import volume_check
from de_resources.spark import SparkEngine

CHECK = "rows_meet_contract"
VISITS = AssetKey(["silver", "visits"])


@pytest.fixture
def world(spark: SparkSession, engine: SparkEngine, tmp_path) -> World:
    return World(spark, engine, tmp_path / "lake")


def downstream(seen: list[str], condition: dg.AutomationCondition | None = None) -> dg.AssetsDefinition:
    @dg.asset(
        key=["gold", "report"],
        deps=[VISITS],
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        automation_condition=condition,
    )
    def report(context: dg.AssetExecutionContext) -> None:
        seen.extend(context.partition_keys)

    return report


@pytest.mark.pattern("constraints_enforcer")
def test_a_bad_row_fails_the_run_and_keeps_downstream_from_starting(world: World) -> None:
    seen: list[str] = []
    visits = world.visits()
    world.define(visits, contract_check(visits), downstream(seen))
    world.data["2024-01-01"] = [*good("2024-01-01"), (None, "nobody", -1, "eu"), ("x", None, -2, "eu")]

    result = world.run("2024-01-01")

    assert not result.success
    assert seen == []
    evaluation = verdicts(result, CHECK)["2024-01-01"]
    assert evaluation.blocking
    # All violations at once, each counted by its own rule; a null e-mail is allowed.
    assert evaluation.metadata["violations"].value == {
        "visit_id_present": 1,
        "email_str_contains": 1,
        "pages_greater_than_or_equal_to": 2,
    }
    assert evaluation.metadata["rows"].value == 4
    assert "| visit_id_present | `` `visit_id` IS NOT NULL `` | silver.visits.visit_id | 1 |" in str(
        evaluation.metadata["rules"].value
    )


@pytest.mark.pattern("online_observer")
def test_good_rows_are_judged_without_a_single_job(world: World, spark: SparkSession) -> None:
    visits = world.visits()
    world.define(visits, contract_check(visits))
    world.data |= {day: good(day) for day in days(3)}
    at_start = jobs_run(spark)
    assert world.run(*days(3), checks=False).success
    before = jobs_run(spark)
    assert before > at_start
    result = world.run(*days(3), only="checks")

    assert result.success
    assert jobs_run(spark) == before
    assert red(result, CHECK) == []
    assert {e.metadata["rows"].value for e in verdicts(result, CHECK).values()} == {2}
    assert set(verdicts(result, CHECK)) == set(days(3))


@pytest.mark.pattern("constraints_enforcer", "audit_write_audit_publish")
@pytest.mark.red_check("rows_meet_contract")
def test_a_bad_day_in_the_middle_of_a_range_is_held_back_and_released_by_its_fix(world: World) -> None:
    keys, bad = days(7), "2024-01-04"
    visits = world.visits()
    world.define(visits, contract_check(visits), downstream([], GATED))
    world.data |= {day: good(day) for day in keys} | {bad: [*good(bad), ("x", CANARY, -1, None)]}
    report = AssetKey(["gold", "report"])
    tick = dg.evaluate_automation_conditions(world.definitions, world.instance)

    result = world.run(*keys, only="visits")
    tick = dg.evaluate_automation_conditions(world.definitions, world.instance, cursor=tick.cursor)

    assert not result.success
    assert set(verdicts(result, CHECK)) == set(keys)
    assert red(result, CHECK) == [bad]
    assert verdicts(result, CHECK)[bad].metadata["violations"].value == {"pages_greater_than_or_equal_to": 1}
    assert tick.get_requested_partitions(report) == set(keys) - {bad}

    # Nothing changed: nothing more is requested, the bad day least of all.
    tick = dg.evaluate_automation_conditions(world.definitions, world.instance, cursor=tick.cursor)
    assert tick.total_requested == 0

    world.data[bad] = good(bad)
    assert world.run(bad, only="visits").success
    tick = dg.evaluate_automation_conditions(world.definitions, world.instance, cursor=tick.cursor)
    assert tick.get_requested_partitions(report) == {bad}


def test_the_gate_is_closed_for_bad_and_for_unjudged_keys_only_and_the_check_alone_repeats_its_verdict(
    world: World,
) -> None:
    keys, bad, unjudged, missing = days(3), "2024-01-02", "2024-01-03", "2024-01-04"
    visits = world.visits()
    gate = dg.AutomationCondition.all_deps_blocking_checks_passed()
    world.define(visits, contract_check(visits), downstream([], gate))
    world.data |= {day: good(day) for day in keys} | {bad: [("x", None, -1, None)]}
    world.run(*keys, only="visits")
    world.run(unjudged, only="visits", checks=False)

    assert _open(world, keys) == {"2024-01-01"}
    assert world.run(unjudged, only="checks").success
    assert _open(world, keys) == {"2024-01-01", unjudged}

    again = world.run(bad, unjudged, missing, only="checks")
    assert red(again, CHECK) == [bad, missing]
    assert verdicts(again, CHECK)[bad].metadata["rows"].value == 1
    assert "Never materialised" in (verdicts(again, CHECK)[missing].description or "")
    assert _open(world, keys) == {"2024-01-01", unjudged}


def _open(world: World, keys: list[str]) -> set[str]:
    tick = dg.evaluate_automation_conditions(world.definitions, world.instance)
    return set(tick.get_requested_partitions(AssetKey(["gold", "report"]))) & set(keys)


def test_a_check_that_does_not_block_lets_go_on_and_its_examples_show_the_broken_rules_but_no_personal_value(
    world: World,
) -> None:
    seen: list[str] = []
    visits = world.visits()
    world.define(visits, contract_check(visits, blocking=False), downstream(seen))
    world.data["2024-01-01"] = [("bell\x07|id", f"{CANARY}".replace("@", " at "), -7, None)] * 9 + good("2024-01-01")

    result = world.run("2024-01-01")

    assert result.success
    assert red(result, CHECK) == seen == ["2024-01-01"]
    table = verdicts(result, CHECK)["2024-01-01"].metadata["examples"].value
    lines = table.splitlines()
    assert lines[0] == "| broken rules | visit_id | email | pages |"
    assert len(lines) == 2 + 3
    assert lines[2] == "| email_str_contains, pages_greater_than_or_equal_to | bell ¦id | ••• | -7 |"
    recorded = world.everything_recorded()
    assert "bell ¦id" in recorded
    assert "canary.person" not in recorded
    assert "rows_meet_contract" in recorded


def test_a_check_without_a_partition_says_what_to_do(world: World) -> None:
    visits = world.visits()
    world.define(visits, contract_check(visits))

    result = world.run(only="checks")

    failure = next(e for e in result.all_events if e.is_step_failure)
    assert "Launch it for a partition" in str(failure.step_failure_data.error)


def test_writes_that_left_no_counters_are_counted_by_one_scan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    visits = world.visits()
    world.define(visits, contract_check(visits))
    world.data |= {"2024-01-01": good("2024-01-01", 3), "2024-01-02": [("x", None, -1, None)]}
    world.run(*days(2), checks=False)
    # What the IO manager records for a retry whose write is in the table already: a version, and no counters.
    skipped = {"delta/version": 0, "skipped": "already committed"}
    for day in days(2):
        world.instance.report_runless_asset_event(dg.AssetMaterialization(VISITS, partition=day, metadata=skipped))

    queries = queries_of(monkeypatch, "violations.py")
    result = world.run(*days(2), only="checks")
    assert queries == ["count_by_key", "examples_by_key"], "one counts all keys, one fetches examples"

    assert red(result, CHECK) == ["2024-01-02"]
    found = verdicts(result, CHECK)
    assert [found[day].metadata["rows"].value for day in days(2)] == [3, 1]
    assert {e.metadata["evidence"].value for e in found.values()} == {"a scan of the slice"}


def test_without_partitions_the_whole_table_is_judged_and_a_clean_append_cannot_hide_earlier_bad_rows(
    world: World,
) -> None:
    def run(mode: str) -> dg.AssetCheckEvaluation:
        visits = world.visits(None, mode=mode)
        world.define(visits, contract_check(visits))
        return verdicts(world.run(), CHECK)[None]

    world.data[None] = [("bad", None, -1, None)]
    assert not run("overwrite").passed
    world.data[None] = good("2024-01-02")
    still_bad = run("append")
    assert not still_bad.passed
    assert still_bad.metadata["rows"].value == 3
    replaced = run("overwrite")
    assert replaced.passed
    assert replaced.metadata["evidence"].value == "counters of the write"


def test_two_dimensions_are_judged_key_by_key(world: World) -> None:
    grid = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu", "us"])})
    visits = world.visits(grid, partition_expr={"day": "day", "region": "region"}, partitioned_by=["day", "region"])
    world.define(visits, contract_check(visits))
    keys = [f"{day}|{region}" for day in days(2) for region in ("eu", "us")]
    world.data |= {key: [(key, None, 1, key[-2:])] for key in keys}
    world.data["2024-01-02|eu"] = [("x", None, -1, "eu")]

    result = world.run(*keys)

    assert set(verdicts(result, CHECK)) == set(keys)
    assert red(result, CHECK) == ["2024-01-02|eu"]


def test_the_spec_names_the_patterns_and_the_rules(world: World) -> None:
    spec = next(iter(contract_check(world.visits()).check_specs))
    assert {"pattern/constraints_enforcer", "pattern/online_observer"} <= set(spec.metadata)
    assert spec.partitions_def == DAYS
    assert "pages_greater_than_or_equal_to" in (spec.description or "")


def test_an_asset_without_a_contract_is_refused() -> None:
    @dg.asset
    def plain() -> None: ...

    with pytest.raises(NoContract, match="plain"):
        contract_check(plain)


def test_checks_of_every_kind_load_together(world: World) -> None:
    visits = world.visits()
    world.define(
        visits,
        contract_check(visits),
        volume_check(visits, blocking=True),
        volume_check(visits, against="same_weekday", name="volume_is_stable_by_weekday"),
        skew_check(visits),
        completeness_check(visits),
        newest_event_check(visits, column="day", max_age=timedelta(days=2)),
    )
    dg.Definitions.validate_loadable(world.definitions)
