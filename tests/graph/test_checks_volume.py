"""Volume checks: both directions, seasons, no fatality loop. Rows come from metadata, so most tests need no engine."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from checks_world import World, days, good, red, verdicts
from pyspark.sql import SparkSession

from de_checks.baselines import NoSeason
from de_checks.seasons import WEEKEND, Tolerance
from de_checks.volume import ACCEPT_TAG, volume_check
from de_resources.spark import SparkEngine

CHECK = "volume_is_stable"
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
HOURLY = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-02-01-00:00")


@dataclass
class Loads:
    """An asset that records a number of rows per key, as the IO manager does, and writes nothing."""

    partitions: dg.PartitionsDefinition | None
    options: dict[str, Any]
    rows: dict[str | None, int | None] = field(default_factory=dict)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        @dg.asset(partitions_def=self.partitions, backfill_policy=dg.BackfillPolicy.single_run())
        def loads(context: dg.AssetExecutionContext) -> None:
            if self.partitions is None:
                context.add_asset_metadata({"dagster/row_count": self.rows[None]})
                return
            for key in map(str, context.partition_keys):
                if self.rows[key] is not None:
                    context.add_asset_metadata({"dagster/partition_row_count": self.rows[key]}, partition_key=key)

        @dg.asset_check(asset=loads, partitions_def=self.partitions, blocking=True)
        def gate(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed="broken" not in context.run.tags)

        gates = [gate] if self.options.pop("gate", False) else []
        checks = [volume_check(loads, **self.options), *gates]
        self.job = dg.Definitions(assets=[loads], asset_checks=checks).resolve_implicit_global_asset_job_def()

    def load(
        self, rows: dict[str | None, int | None], *, only_check: bool = False, tags: dict[str, str] | None = None
    ) -> dg.ExecuteInProcessResult:
        """Load the keys with these numbers of rows in one run, then check; or check them again."""
        self.rows |= rows
        keys = [k for k in rows if k is not None]
        start, end = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
        graph = self.job.asset_layer.asset_graph
        job = self.job.get_subset(
            asset_selection=set() if only_check else graph.get_all_asset_keys(),
            asset_check_selection=graph.asset_check_keys,
        )
        return job.execute_in_process(
            instance=self.instance,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags=({start: keys[0], end: keys[-1]} if len(keys) > 1 else {}) | (tags or {}),
            raise_on_error=False,
        )


def loads(partitions: dg.PartitionsDefinition | None = DAILY, **options: Any) -> Loads:
    return Loads(partitions, options)


@pytest.mark.pattern("skew_detector")
@pytest.mark.parametrize("together", [True, False], ids=["one range run", "a run per day"])
def test_a_bad_day_is_never_the_measure_of_the_next(together: bool) -> None:
    it, sizes = loads(), dict(zip(days(5), [100, 100, 1000, 110, 0], strict=True))
    results = [it.load(sizes)] if together else [it.load({day: rows}) for day, rows in sizes.items()]

    assert [key for result in results for key in red(result, CHECK)] == ["2024-01-03", "2024-01-05"]
    assert all(result.success for result in results)
    fourth = {k: e for r in results for k, e in verdicts(r, CHECK).items()}["2024-01-04"]
    assert fourth.metadata["baseline"].value == "2024-01-02"


def test_a_day_that_was_good_once_and_is_bad_now_is_no_measure() -> None:
    it = loads()
    it.load(dict.fromkeys(days(2), 100))
    assert red(it.load({"2024-01-02": 900}), CHECK) == ["2024-01-02"]
    assert verdicts(it.load({"2024-01-03": 100}), CHECK)["2024-01-03"].metadata["baseline"].value == "2024-01-01"


@pytest.mark.pattern("skew_detector")
def test_a_quiet_weekend_is_compared_with_the_weekend_before() -> None:
    # 2024-01-01 is a Monday.
    quiet_weekends = {day: 10 if n % 7 >= 5 else 1000 for n, day in enumerate(days(14))}
    assert red(loads(against="same_weekday").load(quiet_weekends), CHECK) == []
    assert red(loads(against="last").load(quiet_weekends), CHECK) == [
        "2024-01-06",
        "2024-01-07",
        "2024-01-13",
        "2024-01-14",
    ]

    assert red(loads(against="same_weekday").load(quiet_weekends | {"2024-01-14": 1000}), CHECK) == ["2024-01-14"]


@pytest.mark.pattern("skew_detector")
def test_a_weekend_may_have_a_tolerance_of_its_own() -> None:
    # 2024-01-06 is a Saturday.
    sizes = dict(zip(days(7), [1000, 1000, 1000, 1000, 1000, 300, 290], strict=True))
    strict = Tolerance((0.5, 2.0))
    assert red(loads(tolerance=strict).load(sizes), CHECK) == ["2024-01-06", "2024-01-07"]
    seasonal = Tolerance((0.5, 2.0), [(WEEKEND, (0.2, 2.0))])
    it = loads(tolerance=seasonal)
    assert red(it.load(sizes), CHECK) == []
    assert red(it.load({"2024-01-08": 300}), CHECK) == [], "as much as on the accepted Sunday before"
    assert red(it.load({"2024-01-09": 100}), CHECK) == ["2024-01-09"], "and on a working day the usual one holds"
    assert red(loads(tolerance=seasonal).load(sizes | {"2024-01-07": 30}), CHECK) == ["2024-01-07"]


@pytest.mark.pattern("skew_detector")
@pytest.mark.parametrize("partitions", [DAILY, None], ids=["days", "full loads"])
def test_what_another_gate_has_refused_is_no_measure(partitions: dg.PartitionsDefinition | None) -> None:
    """A load of the right size that breaks its contract was never accepted: its size teaches nothing."""
    it = loads(partitions, tolerance=(0.5, 2.0), gate=True)
    keys = days(3) if partitions else [None] * 3
    for key, rows in zip(keys[:2], [100, 190], strict=True):
        result = it.load({key: rows}, tags={"broken": ""} if rows == 190 else None)
        assert red(result, CHECK) == []
        assert result.success is (rows == 100)
    # 300 rows are less than twice the refused 190, and more than twice the accepted 100.
    assert red(it.load({keys[2]: 300}), CHECK) == [keys[2]]


def test_hours_are_compared_with_the_same_hour_of_the_week() -> None:
    it = loads(HOURLY, against="same_weekday")
    it.load({"2024-01-01-03:00": 10})
    it.load({"2024-01-07-03:00": 500})
    result = it.load({"2024-01-08-03:00": 11})
    assert verdicts(result, CHECK)["2024-01-08-03:00"].metadata["baseline"].value == "2024-01-01-03:00"


@pytest.mark.pattern("full_loader")
def test_a_full_load_is_blocked_by_a_changed_size_and_measured_against_the_last_good_load() -> None:
    it = loads(None, blocking=True, tolerance=(0.5, 2.0))
    assert it.load({None: 100}).success

    for size in (0, 40, 250, 250):
        result = it.load({None: size})
        assert not result.success
        assert red(result, CHECK) == [None]

    after = it.load({None: 120})
    assert after.success
    assert verdicts(after, CHECK)[None].metadata["baseline_rows"].value == 100

    # Checked again, a load is not compared with itself.
    again = it.load({None: 120}, only_check=True)
    assert verdicts(again, CHECK)[None].metadata["baseline_rows"].value == 100


def test_the_very_first_load_may_not_be_empty() -> None:
    assert not loads(None, blocking=True).load({None: 0}).success


@pytest.mark.red_check("volume_is_stable")
def test_a_person_accepts_a_new_level_once_and_the_reason_is_recorded() -> None:
    it = loads(blocking=True)
    assert not it.load({"2024-01-01": 100, "2024-01-02": 1000}).success

    accepted = it.load({"2024-01-02": 1000}, only_check=True, tags={ACCEPT_TAG: "campaign started"})

    assert accepted.success
    assert verdicts(accepted, CHECK)["2024-01-02"].metadata["accepted"].value == "campaign started"
    assert it.load({"2024-01-03": 1100}).success


def test_an_accepted_full_load_is_the_measure_of_the_next() -> None:
    it = loads(None, blocking=True)
    it.load({None: 100})
    assert not it.load({None: 1000}).success
    assert it.load({None: 1000}, only_check=True, tags={ACCEPT_TAG: "the provider added a catalogue"}).success
    assert verdicts(it.load({None: 1100}), CHECK)[None].metadata["baseline_rows"].value == 1000


def test_static_keys_are_compared_with_their_own_past() -> None:
    it = loads(dg.StaticPartitionsDefinition(["big", "small"]))
    assert red(it.load({"big": 1000, "small": 10}), CHECK) == []
    assert red(it.load({"big": 1000, "small": 100}), CHECK) == ["small"]


def test_the_other_dimension_stays_the_same() -> None:
    grid = dg.MultiPartitionsDefinition({"day": DAILY, "region": dg.StaticPartitionsDefinition(["eu", "us"])})
    it = loads(grid)
    it.load({"2024-01-01|eu": 1000})
    it.load({"2024-01-01|us": 10})
    result = it.load({"2024-01-02|us": 11})
    assert verdicts(result, CHECK)["2024-01-02|us"].metadata["baseline"].value == "2024-01-01|us"


@pytest.mark.pattern("skew_detector")
def test_counts_of_events_that_chance_explains_are_not_different() -> None:
    few = dict(zip(days(4), [3, 14, 0, 12], strict=True))
    assert red(loads().load(few), CHECK) == days(4)[1:]
    assert red(loads(events=True, min_rows=0).load(few), CHECK) == []
    many = dict(zip(days(4), [300, 1_700, 310, 0], strict=True))
    assert red(loads(events=True, min_rows=0).load(many), CHECK) == [days(4)[1], days(4)[3]]


@pytest.mark.pattern("skew_detector")
def test_a_window_of_which_a_part_is_covered_is_neither_judged_nor_a_measure() -> None:
    def whole(window: dg.TimeWindow) -> bool:
        return window.start.day not in (1, 4)

    sizes = dict(zip(days(5), [10, 100, 110, 5, 90], strict=True))
    assert red(loads().load(sizes), CHECK) == [days(5)[1], days(5)[2], days(5)[4]]
    result = loads(whole=whole).load(sizes)
    assert red(result, CHECK) == []
    assert verdicts(result, CHECK)[days(5)[4]].metadata["baseline"].value == days(5)[2]
    assert "a part of this window" in (verdicts(result, CHECK)[days(5)[0]].description or "")


def test_a_severity_is_that_of_the_verdict_and_warns_only() -> None:
    it = loads(severity=dg.AssetCheckSeverity.WARN, blocking=True)
    result = it.load(dict(zip(days(2), [100, 1_000], strict=True)))
    assert result.success
    assert verdicts(result, CHECK)[days(2)[1]].severity == dg.AssetCheckSeverity.WARN


def test_an_unknown_volume_is_reported_but_does_not_stop_the_run() -> None:
    result = loads(blocking=True).load({"2024-01-01": None})
    assert result.success
    assert red(result, CHECK) == ["2024-01-01"]


def test_a_definition_that_cannot_work_is_refused() -> None:
    with pytest.raises(NoSeason):
        loads(None, against="same_weekday")
    with pytest.raises(ValueError, match="must include the ratio 1"):
        loads(tolerance=(1.1, 2.0))


def test_the_rows_that_the_io_manager_records_are_those_that_are_judged(
    spark: SparkSession, engine: SparkEngine, tmp_path: Path
) -> None:
    world = World(spark, engine, tmp_path / "lake")
    visits = world.visits()
    world.define(visits, volume_check(visits))
    sizes = dict(zip(days(4), [4, 5, 1, 4], strict=True))
    world.data |= {day: good(day, rows) for day, rows in sizes.items()}

    result = world.run(*days(4))

    assert {k: e.metadata["rows"].value for k, e in verdicts(result, CHECK).items()} == sizes
    assert red(result, CHECK) == ["2024-01-03"]
