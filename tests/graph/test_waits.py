"""Which hour a day waits for: what is missing above it is told down to its first cause, and nothing else is."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from de_assets.automation.triggers.waiting import UNCHANGED, held, waiting
from de_assets.cli.application import application
from de_assets.filling.waits import Cause, NoSuchAsset, NoSuchPartition, Reason, Waits
from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict

pytestmark = pytest.mark.pattern("aligned_fan_in")

BEGIN, END = datetime(2026, 1, 5), datetime(2026, 1, 7)
hours = dg.HourlyPartitionsDefinition(BEGIN, end_date=END)
days = dg.DailyPartitionsDefinition(BEGIN, end_date=END)
KEYS = [f"{BEGIN + timedelta(hours=n):%Y-%m-%d-%H:%M}" for n in range(24)]
DAY = "2026-01-05"
ONE_RUN = dg.BackfillPolicy.single_run()


@dg.asset(key=["bronze", "sales"], partitions_def=hours, backfill_policy=ONE_RUN)
def raw(context: dg.AssetExecutionContext) -> None:
    if "breaks" in context.run.tags:
        raise ValueError("the source is damaged")


@dg.asset(key=["silver", "sales"], partitions_def=hours, deps=[raw], backfill_policy=ONE_RUN)
def valid(context: dg.AssetExecutionContext) -> None:
    if "breaks" in context.run.tags:
        raise ValueError("a defect")


@dg.asset(key=["silver", "shops"])
def shops(context: dg.AssetExecutionContext) -> None:
    if "breaks" in context.run.tags:
        raise ValueError("the shop is closed")


@dg.asset(key=["gold", "sales"], partitions_def=days, deps=[valid, shops], backfill_policy=ONE_RUN)
def per_day() -> None: ...


def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
    wrong = run.context.run.tags.get("wrong", "")
    return {key: Verdict(key is not None and key not in wrong.split(), "It adds up, or not.") for key in materialized}


adds_up = check_per_key(valid, "adds_up", judge, description="All rows add up.", blocking=True)

DEFS = dg.Definitions([raw, valid, shops, per_day], asset_checks=[adds_up])
JOB = DEFS.resolve_implicit_global_asset_job_def()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def run(instance: dg.DagsterInstance, asset: dg.AssetsDefinition, keys: list[str], **tags: str) -> str:
    """One run of the asset and its gate for the range of keys; its identity."""
    ends = {f"dagster/asset_partition_range_{end}": key for end, key in (("start", keys[0]), ("end", keys[-1]))}
    done = JOB.execute_in_process(
        asset_selection=[asset.key], instance=instance, tags={**tags, **ends}, raise_on_error=False
    )
    return done.run_id


def causes(instance: dg.DagsterInstance, asset: str = "gold/sales", key: str = DAY) -> list[Cause]:
    return Waits(instance, [DEFS]).causes(asset, key)


def test_a_day_names_the_hours_that_failed_never_came_or_did_not_pass(instance: dg.DagsterInstance) -> None:
    """Hour 3 never came, hour 7 failed in silver, hour 11 is held, hour 20 failed in bronze."""
    dg.materialize([shops], instance=instance)
    run(instance, raw, KEYS[:3])
    run(instance, raw, KEYS[4:20])
    bronze = run(instance, raw, KEYS[20:21], breaks="1")
    run(instance, raw, KEYS[21:])
    run(instance, valid, KEYS[:3])
    run(instance, valid, KEYS[4:7])
    silver = run(instance, valid, KEYS[7:8], breaks="1")
    run(instance, valid, KEYS[8:20], wrong=KEYS[11])
    run(instance, valid, KEYS[21:])

    assert causes(instance) == [
        Cause("silver/sales", (KEYS[11],), Reason.NOT_PASSED, "`adds_up`"),
        Cause("silver/sales", (KEYS[7],), Reason.FAILED, f"run {silver}"),
        Cause("bronze/sales", (KEYS[3],), Reason.NOT_BROUGHT),
        Cause("bronze/sales", (KEYS[20],), Reason.FAILED, f"run {bronze}"),
    ]
    told = Waits(instance, [DEFS])
    assert told.open("silver/sales")[:3] == [KEYS[3], KEYS[7], KEYS[20]]
    assert [each.asset for each in causes(instance, "silver/sales", KEYS[3])] == ["bronze/sales"]

    # Each is mended, and the day waits for nothing; then it is there.
    for key in (KEYS[3], KEYS[7], KEYS[11], KEYS[20]):
        run(instance, raw, [key])
        run(instance, valid, [key])
    assert causes(instance) == [Cause("gold/sales", (DAY,), Reason.READY)]
    run(instance, per_day, [DAY])
    assert causes(instance) == []
    assert told.open("gold/sales") == ["2026-01-06"]


def test_what_has_no_partitions_and_was_never_computed_is_named(instance: dg.DagsterInstance) -> None:
    run(instance, raw, KEYS)
    run(instance, valid, KEYS)
    assert causes(instance) == [Cause("silver/shops", ("",), Reason.NOT_BROUGHT)]
    failed = dg.materialize([shops], instance=instance, tags={"breaks": "1"}, raise_on_error=False)
    for _ in range(21):  # other runs since then
        run(instance, raw, KEYS[:1])
    assert causes(instance) == [Cause("silver/shops", ("",), Reason.FAILED, f"run {failed.run_id}")]


def test_a_run_that_is_at_work_is_no_failure(instance: dg.DagsterInstance) -> None:
    dg.materialize([shops], instance=instance)
    run(instance, raw, KEYS)
    run(instance, valid, KEYS[1:])
    job = DEFS.resolve_implicit_global_asset_job_def()
    planned = instance.create_run_for_job(
        job.get_subset(asset_selection={valid.key}),
        tags={"dagster/partition": KEYS[0]},
        asset_selection=frozenset({valid.key}),
        status=dg.DagsterRunStatus.STARTED,
    )
    assert causes(instance) == [Cause("silver/sales", (KEYS[0],), Reason.RUNNING, f"run {planned.run_id}")]


def test_a_partition_that_is_there_and_did_not_pass_says_so_itself(instance: dg.DagsterInstance) -> None:
    run(instance, raw, KEYS)
    run(instance, valid, KEYS, wrong=KEYS[5])
    assert causes(instance, "silver/sales", KEYS[5]) == [
        Cause("silver/sales", (KEYS[5],), Reason.NOT_PASSED, "`adds_up`")
    ]
    assert causes(instance, "silver/sales", KEYS[6]) == []


class Looks:
    """The sensor, tick after tick, and what its ticks have told."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance, self._sensor, self._cursor = instance, waiting(lambda: [DEFS]), None

    def look(self) -> list[tuple[str, str, int]] | None:
        """Asset, partition and number of missing ones; None: the tick was passed over."""
        with dg.build_sensor_context(self._instance, self._cursor) as context:
            result = self._sensor.evaluate_tick(context)
        if result.skip_message == UNCHANGED:
            return None
        self._cursor = result.cursor
        for event in result.asset_events:
            self._instance.report_runless_asset_event(event)
        return [
            (event.asset_key.to_user_string(), str(event.partition), int(str(event.metadata["waits/missing"].value)))
            for event in result.asset_events
        ]


def test_a_day_says_on_its_page_which_hours_it_waits_for_once_until_that_changes(instance: dg.DagsterInstance) -> None:
    dg.materialize([shops], instance=instance)
    run(instance, raw, KEYS)
    run(instance, valid, KEYS, wrong=KEYS[11])
    looks, second = Looks(instance), ("gold/sales", "2026-01-06", 24)
    assert looks.look() == [], "what may pass by itself is not told at the first look"
    assert looks.look() == [("gold/sales", DAY, 1), second]
    assert looks.look() == []
    assert looks.look() is None, "nothing has happened"
    (told,) = instance.fetch_observations(dg.AssetRecordsFilter(per_day.key, asset_partitions=[DAY]), limit=5).records
    assert told.asset_observation is not None
    assert told.asset_observation.description == (
        f"Waits for silver/sales {KEYS[11]}: a blocking check has not passed on what is there (`adds_up`)"
    )

    # It fails now, which is another reason; then it is mended.
    broken = run(instance, raw, KEYS[20:21], breaks="1")
    assert (looks.look(), looks.look()) == ([], None), f"bronze is there still, so that {broken} holds nothing"
    run(instance, valid, KEYS[11:13], wrong=f"{KEYS[11]} {KEYS[12]}")
    assert (looks.look(), looks.look()) == ([], [("gold/sales", DAY, 2)])
    run(instance, valid, KEYS[11:13])
    assert (looks.look(), looks.look()) == ([], None), "the day is ready, and that is no wait"


def test_only_what_gathers_several_partitions_waits_for_some(instance: dg.DagsterInstance) -> None:
    assert Waits(instance, [DEFS]).fan_ins() == ["gold/sales"]


def test_a_year_of_open_days_tells_the_newest(instance: dg.DagsterInstance) -> None:
    year = dg.DailyPartitionsDefinition("2025-01-01", end_date="2026-01-01")

    @dg.asset(
        key=["silver", "year"],
        partitions_def=dg.HourlyPartitionsDefinition("2025-01-01-00:00", end_date="2026-01-01-00:00"),
    )
    def of_hours() -> None: ...

    @dg.asset(key=["gold", "year"], partitions_def=year, deps=[of_hours])
    def of_days() -> None: ...

    found = list(held(Waits(instance, [dg.Definitions([of_hours, of_days])])))
    assert [key for _, key, _ in found] == [f"2025-12-{day}" for day in range(25, 32)]
    assert [[len(cause.keys) for cause in causes] for _, _, causes in found] == [[24]] * 7


def test_a_look_at_many_days_asks_the_event_log_once_about_each_asset(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these questions reads a row for every partition that the asset ever had."""
    dg.materialize(
        [raw, valid, adds_up],
        instance=instance,
        partition_key=KEYS[0],
        tags={"wrong": KEYS[0]},
        raise_on_error=False,
    )
    storage, asked = instance.event_log_storage, Counter[str]()
    for question in (
        "get_latest_asset_partition_materialization_attempts_without_materializations",
        "get_latest_storage_id_by_partition",
        "get_asset_check_partition_info",
    ):

        def counted(about: object, *more: object, question: str = question, **named: object) -> object:
            asked[f"{question} {about}"] += 1
            return getattr(type(storage), question)(storage, about, *more, **named)

        monkeypatch.setattr(storage, question, counted)
    found = [causes for _, _, causes in held(Waits(instance, [DEFS]))]
    assert len(found) == 2
    assert len(asked) > 3
    assert set(asked.values()) == {1}


def test_hours_that_wait_for_the_same_are_one_cause(instance: dg.DagsterInstance) -> None:
    dg.materialize([shops], instance=instance)
    assert causes(instance) == [Cause("bronze/sales", tuple(KEYS), Reason.NOT_BROUGHT)]


def test_names_that_do_not_exist_are_refused(instance: dg.DagsterInstance) -> None:
    with pytest.raises(NoSuchAsset, match="Is it `bronze/sales`"):
        causes(instance, "sales")
    with pytest.raises(NoSuchPartition, match="newest one that is over is 2026-01-06"):
        causes(instance, key="2027-01-01")
    with pytest.raises(NoSuchPartition):
        causes(instance, "silver/shops", DAY)


def test_the_command_says_it_and_ends_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    told = CliRunner().invoke(application(), ["waits", "silver/devices"])
    assert (told.exit_code, "bronze/devices" in told.output) == (1, True), told.output
    refused = CliRunner().invoke(application(), ["waits", "silver/nothing"])
    assert refused.exit_code == 1
    assert "No code location computes" in refused.output
