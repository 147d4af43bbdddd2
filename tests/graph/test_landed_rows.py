"""`landed_rows_are_accounted_for`: tables with planted rows, runs as materialisations tell them, no engine.

The truth of each day is what was planted; the same check on the blog's own assets is in `test_landed_visits`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_delta import LocalConfig
from deltalake import CommitProperties, DeltaTable, write_deltalake

from de_assets.contracts.traffic import VisitsCubeDaily
from de_checks.reconciliation import (
    Carried,
    Growth,
    NoChain,
    NotByTime,
    Rejoined,
    Step,
    Total,
    reconciliation_check,
)
from de_resources.contract import Contract
from de_resources.delta.metadata import FILTER_CONDITIONS
from de_resources.delta.publish.writer import HELD, STATE
from de_resources.delta.read_versions import READ
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("dynamic_late_data_integrator")

HOURS = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-06-00:00")
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-06")
SOON = datetime(2024, 1, 6, tzinfo=UTC)
LANDED, LETTERS, VALID, LATE, CUBE, LOOSE = (
    dg.AssetKey(["shop", name]) for name in ("landed", "letters", "valid", "late", "cube", "loose")
)
SPECS = [
    *(
        dg.AssetSpec(key, partitions_def=HOURS, metadata={"partition_expr": "hour"})
        for key in (LANDED, LETTERS, VALID, LATE)
    ),
    dg.AssetSpec(
        CUBE, partitions_def=DAYS, metadata={"partition_expr": "day", "contract": Contract.of(VisitsCubeDaily).path}
    ),
    dg.AssetSpec(LOOSE),
]
STEPS = [
    Step(LANDED, VALID, apart={"late": LATE}, removed={"copies": "first_copy"}),
    Step(VALID, CUBE, total=Total("visits", where={"grouping": 7})),
]


def moment(hour: int) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour)


@dataclass
class World:
    """A lake in a folder, and an instance that remembers what was said to have run."""

    root: Path
    instance: dg.DagsterInstance

    def put(self, key: dg.AssetKey, hour: int, rows: int) -> None:
        """An hour with so many rows, replaced as a run does."""
        hours = pa.array([moment(hour)] * rows, pa.timestamp("us", "UTC"))
        self._write(key, pa.table({"hour": hours, "id": pa.array(range(rows), pa.int64())}), "hour", moment(hour))

    def cube(self, day: int, visits: int) -> None:
        """A day of the answer: its total, and a part of it that is in the total already."""
        at = date(2024, 1, day)
        columns = {"day": [at, at], "grouping": [7, 0], "visits": [visits, visits - 1]}
        self._write(CUBE, pa.table(columns), "day", at)

    def ran(self, key: dg.AssetKey, partition: str, source: dg.AssetKey | None = None, **metadata: Any) -> None:
        """A run ended that had read its source as it is now."""
        if source is not None:
            table = DeltaTable(self.uri(source))
            metadata[READ] = {f"shop.{source.path[-1]}": {"version": table.version(), "id": str(table.metadata().id)}}
        told = {
            name: value if isinstance(value, str) else dg.MetadataValue.json(value) for name, value in metadata.items()
        }
        self.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition, metadata=told))

    def land(self, hour: int, valid: int, late: int = 0, copies: int = 0, dead: int = 0) -> None:
        """An hour that landed and was taken in."""
        self.put(LANDED, hour, valid + late + copies)
        self.put(LETTERS, hour, dead)
        self.take_in(hour, valid, late, copies)

    def take_in(self, hour: int, valid: int, late: int, copies: int) -> None:
        self.put(LATE, hour, late)
        self.put(VALID, hour, valid)
        removed = {FILTER_CONDITIONS: {"first_copy": {"first": copies}, "not_late": {"first": late}}}
        self.ran(VALID, f"{moment(hour):%Y-%m-%d-%H:%M}", LANDED, **removed)

    def count(self, day: int, visits: int) -> None:
        self.cube(day, visits)
        self.ran(CUBE, f"2024-01-{day:02}", VALID)

    def judge(
        self, now: datetime = SOON, hours: dg.PartitionsDefinition[str] = HOURS, **options: Any
    ) -> dg.AssetCheckEvaluation:
        specs = [*(spec.replace_attributes(partitions_def=hours) for spec in SPECS[:4]), *SPECS[4:]]
        check = reconciliation_check(specs[4], steps=STEPS, beside={"dead": LETTERS}, now=lambda: now, **options)
        lake = Lake(root_uri=str(self.root), storage_options=LocalConfig(), spark=SparkEngine())
        job = dg.define_asset_job("look", dg.AssetSelection.all_asset_checks())
        defs = dg.Definitions(specs, asset_checks=[check], jobs=[job], resources={"lake": lake})
        done = defs.resolve_job_def("look").execute_in_process(instance=self.instance)
        (found,) = done.get_asset_check_evaluations()
        return found

    def read(self, *keys: dg.AssetKey) -> dict[str, dict[str, Any]]:
        """The versions that these tables have now, as a run tells them."""
        tables = {key: DeltaTable(self.uri(key)) for key in keys}
        return {f"shop.{k.path[-1]}": {"version": t.version(), "id": str(t.metadata().id)} for k, t in tables.items()}

    def uri(self, key: dg.AssetKey) -> str:
        return str(self.root.joinpath(*key.path))

    def _write(self, key: dg.AssetKey, rows: pa.Table, column: str, at: date) -> None:
        text = f"{at:%Y-%m-%dT%H:%M:%SZ}" if isinstance(at, datetime) else f"{at}"
        replaced = {"mode": "overwrite", "predicate": f"{column} = '{text}'"} if Path(self.uri(key)).exists() else {}
        write_deltalake(self.uri(key), rows, partition_by=[column], **replaced)  # type: ignore[call-overload]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two days, of which the second has an hour without a valid row; days three to five are empty."""
    with dg.DagsterInstance.ephemeral() as instance:
        made = World(tmp_path, instance)
        made.land(5, valid=6, late=2, copies=1, dead=3)
        made.land(20, valid=4)
        made.land(30, valid=5, copies=2)
        made.land(31, valid=0, late=1)
        made.count(1, 10)
        made.count(2, 5)
        yield made


FIRST = {"landed": 16, "counted": 10, "dead": 3, "late": 2, "copies": 1, "waiting": 0, "too old": 0, "unexplained": 0}
SECOND = {"landed": 8, "counted": 5, "dead": 0, "late": 1, "copies": 2, "waiting": 0, "too old": 0, "unexplained": 0}


def days(found: dg.AssetCheckEvaluation) -> dict[str, dict[str, int]]:
    """The table, read as a person does."""
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in _text(found).splitlines()]
    read = {row[0]: dict(zip(head[1:], (int(cell.replace(",", "")) for cell in row[1:]), strict=True)) for row in rows}
    for figures in read.values():
        assert figures["landed"] == sum(count for name, count in figures.items() if name != "landed")
    return read


def _text(found: dg.AssetCheckEvaluation) -> str:
    return str(found.metadata["days"].value)


def left_over(found: dg.AssetCheckEvaluation) -> list[tuple[str, str, int, str]]:
    told: Any = found.metadata["left_over"].value
    return [(each["into"], each["partition"], each["rows"], each["why"]) for each in told]


def test_every_row_that_was_planted_is_where_it_was_planted(world: World) -> None:
    found = world.judge()
    assert found.passed
    assert days(found) == {"2024-01-02": SECOND, "2024-01-01": FIRST}
    assert left_over(found) == []
    assert found.metadata["landed"].value == 24
    assert days(world.judge()) == days(found), "a rerun says the same"


def test_a_calendar_that_begins_in_the_middle_of_a_day_has_that_day(world: World) -> None:
    found = world.judge(hours=dg.HourlyPartitionsDefinition("2024-01-01-05:00", end_date="2024-01-06-00:00"))
    assert found.passed
    assert days(found) == {"2024-01-02": SECOND, "2024-01-01": FIRST}


def test_what_landed_late_waits_until_the_answer_has_it(world: World) -> None:
    world.put(LANDED, 5, 12)
    found = world.judge()
    assert found.passed
    assert days(found)["2024-01-01"] == {**FIRST, "landed": 19, "waiting": 3}
    assert left_over(found) == [("shop/valid", "2024-01-01-05:00", 3, "waiting")]
    world.take_in(5, valid=9, late=2, copies=1)
    found = world.judge()
    assert left_over(found) == [("shop/cube", "2024-01-01", 3, "waiting")]
    world.count(1, 13)
    found = world.judge()
    assert days(found)["2024-01-01"] == {**FIRST, "landed": 19, "counted": 13}
    assert left_over(found) == []


def test_what_came_after_the_age_of_the_contract_is_too_old_and_told(world: World) -> None:
    world.put(LANDED, 20, 6)
    world.take_in(20, valid=6, late=0, copies=0)
    in_time = SOON + timedelta(days=27)  # 31 after the end of the day, which is what the cube's contract says
    assert days(world.judge(in_time))["2024-01-01"] == {**FIRST, "landed": 18, "waiting": 2}
    found = world.judge(in_time + timedelta(seconds=1))
    assert found.passed
    assert days(found)["2024-01-01"] == {**FIRST, "landed": 18, "too old": 2}
    assert "2 too old" in str(found.description)


def test_a_row_that_is_lost_between_two_steps_is_named(world: World) -> None:
    world.cube(1, 9)
    found = world.judge()
    assert not found.passed
    assert days(found) == {"2024-01-01": {**FIRST, "counted": 9, "unexplained": 1}, "2024-01-02": SECOND}
    assert "`shop/cube` 2024-01-01: 1 of `shop/valid` missing" in str(found.description)
    assert left_over(world.judge()) == [("shop/cube", "2024-01-01", 1, "unexplained")], "it stays red"


def test_a_row_that_is_counted_twice_is_named_though_a_copy_was_removed_in_its_hour(world: World) -> None:
    world.put(VALID, 5, 7)
    found = world.judge()
    assert not found.passed
    assert left_over(found) == [
        ("shop/valid", "2024-01-01-05:00", -1, "unexplained"),
        ("shop/cube", "2024-01-01", 1, "waiting"),
    ]
    assert "1 more than `shop/landed` has" in str(found.description)


def test_a_row_too_many_in_one_hour_does_not_hide_the_one_that_another_lost(world: World) -> None:
    world.put(VALID, 5, 5)
    world.put(VALID, 20, 5)
    found = world.judge()
    assert not found.passed
    assert days(found)["2024-01-01"] == FIRST, "the day comes out even, and is wrong all the same"
    assert [each[1:3] for each in left_over(found)] == [("2024-01-01-05:00", 1), ("2024-01-01-20:00", -1)]


def test_what_is_held_from_readers_waits(world: World) -> None:
    world.put(LANDED, 40, 2)
    world.take_in(40, valid=2, late=0, copies=0)
    world.ran(CUBE, "2024-01-02", VALID, **{STATE: HELD})
    found = world.judge()
    assert found.passed
    assert left_over(found) == [("shop/cube", "2024-01-02", 2, "waiting")]


def test_hours_that_nobody_computed_wait(world: World) -> None:
    world.put(LANDED, 60, 2)
    found = world.judge()
    assert found.passed
    assert days(found)["2024-01-03"] == {**dict.fromkeys(FIRST, 0), "landed": 2, "waiting": 2}


def test_a_table_that_is_gone_is_named(world: World) -> None:
    rmtree(world.uri(VALID))
    found = world.judge()
    assert not found.passed
    assert "There is no table of `shop/valid`" in str(found.description)


def test_where_nothing_landed_nothing_is_missing(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        found = World(tmp_path, instance).judge()
    assert found.passed
    assert found.description == "Nothing has landed yet."


def test_the_days_before_the_newest_are_counted_and_not_looked_at(world: World) -> None:
    world.cube(1, 9)
    found = world.judge(days=4)
    assert found.passed
    assert days(found) == {"2024-01-02": SECOND}
    assert found.metadata["days_left_out"].value == 1


def test_rows_of_an_earlier_calendar_are_not_of_this_one(world: World) -> None:
    world.put(LANDED, -3, 9)
    assert days(world.judge()) == {"2024-01-02": SECOND, "2024-01-01": FIRST}


def test_steps_that_lead_nowhere_are_refused() -> None:
    for steps in ([], STEPS[:1], STEPS[::-1], [STEPS[0], Step(LATE, CUBE)]):
        with pytest.raises(NoChain, match="one after the other"):
            reconciliation_check(SPECS[4], steps=steps)


def test_a_dataset_without_time_is_refused(world: World) -> None:
    check = reconciliation_check(SPECS[4], steps=[Step(LOOSE, CUBE)])
    lake = Lake(root_uri=str(world.root), storage_options=LocalConfig(), spark=SparkEngine())
    job = dg.define_asset_job("look", dg.AssetSelection.all_asset_checks())
    defs = dg.Definitions(SPECS, asset_checks=[check], jobs=[job], resources={"lake": lake})
    with pytest.raises(NotByTime, match="shop/loose"):
        defs.resolve_job_def("look").execute_in_process(instance=world.instance)


# What is carried on, what only grows, and what is refused by its moments: each of two days, written by hand.
OVER, OPEN, TOTALS, LATER = (dg.AssetKey(["shop", name]) for name in ("over", "open", "totals", "later"))
BY_DAY = [
    *(dg.AssetSpec(key, partitions_def=DAYS, metadata={"partition_expr": "day"}) for key in (OVER, OPEN)),
    dg.AssetSpec(TOTALS, partitions_def=DAYS),
]
BY_BOTH = dg.AssetSpec(LATER, partitions_def=HOURS, metadata={"partition_expr": "hour"})
FIRST_DAY, SECOND_DAY = date(2024, 1, 1), date(2024, 1, 2)


def judged(world: World, asset: dg.AssetSpec, steps: list[Step]) -> dg.AssetCheckEvaluation:
    check = reconciliation_check(asset, steps=steps, now=lambda: SOON)
    lake = Lake(root_uri=str(world.root), storage_options=LocalConfig(), spark=SparkEngine())
    job = dg.define_asset_job("look", dg.AssetSelection.all_asset_checks())
    specs = [SPECS[0], SPECS[2], *BY_DAY, BY_BOTH]
    defs = dg.Definitions(specs, asset_checks=[check], jobs=[job], resources={"lake": lake})
    (found,) = defs.resolve_job_def("look").execute_in_process(instance=world.instance).get_asset_check_evaluations()
    return found


def by_hand(world: World, key: dg.AssetKey, day: date, *visits: int, run: str = "") -> None:
    """Rows of a day, each of which stands for so many."""
    rows = pa.table({"day": [day] * len(visits), "visits": pa.array(visits, pa.int64())})
    replaced = {"mode": "overwrite", "predicate": f"day = '{day}'"} if Path(world.uri(key)).exists() else {}
    stamp = CommitProperties(custom_metadata={"userMetadata": json.dumps({"run": run})})
    write_deltalake(world.uri(key), rows, partition_by=["day"], commit_properties=stamp, **replaced)  # type: ignore[call-overload]


class TestCarried:
    STEPS = (Step(LANDED, OVER, total=Total("visits"), carried={"open": Carried(OPEN, "visits")}),)

    @pytest.fixture
    def shop(self, tmp_path: Path) -> Iterator[World]:
        """Five visits of a day, of which two are in a session that goes on; one more ends it the day after."""
        with dg.DagsterInstance.ephemeral() as instance:
            made = World(tmp_path, instance)
            made.put(LANDED, 20, 5)
            made.put(LANDED, 30, 1)
            for key, first, second in ((OPEN, [2], []), (OVER, [1, 2], [3])):
                by_hand(made, key, FIRST_DAY, *first)
                by_hand(made, key, SECOND_DAY, *second)
            for key in (OPEN, OVER):
                for day in (FIRST_DAY, SECOND_DAY):
                    made.ran(key, f"{day}", **{READ: made.read(LANDED, OPEN)})
            yield made

    def judge(self, shop: World) -> dg.AssetCheckEvaluation:
        return judged(shop, BY_DAY[0], list(self.STEPS))

    def test_what_is_open_at_midnight_counts_for_its_day_and_against_the_next(self, shop: World) -> None:
        found = self.judge(shop)
        assert found.passed, found.description
        rest = dict.fromkeys(("waiting", "too old", "unexplained"), 0)
        assert days(found) == {
            "2024-01-01": {"landed": 5, "counted": 3, "open": 2, **rest},
            "2024-01-02": {"landed": 1, "counted": 3, "open": -2, **rest},
        }

    def test_what_is_lost_at_midnight_is_missing_on_its_day_and_too_much_on_the_next(self, shop: World) -> None:
        DeltaTable(shop.uri(OPEN)).update({"visits": "1"})
        found = self.judge(shop)
        # Somebody else's commit: the next day has not read it, and waits for it.
        assert left_over(found) == [
            ("shop/over", "2024-01-01", 1, "unexplained"),
            ("shop/over", "2024-01-02", -1, "waiting"),
        ]

    def test_a_day_waits_that_was_computed_from_more_than_what_is_carried_knows(self, shop: World) -> None:
        """A late visit, taken in by one of the two tables and not yet by the other."""
        shop.put(LANDED, 20, 6)
        by_hand(shop, OVER, FIRST_DAY, 1, 2)
        shop.ran(OVER, f"{FIRST_DAY}", **{READ: shop.read(LANDED, OPEN)})
        assert left_over(self.judge(shop)) == [("shop/over", "2024-01-01", 1, "waiting")]
        by_hand(shop, OPEN, FIRST_DAY, 3)
        shop.ran(OPEN, f"{FIRST_DAY}", **{READ: shop.read(LANDED, OPEN)})
        assert left_over(self.judge(shop)) == [("shop/over", "2024-01-02", 1, "waiting")]

    def test_a_run_over_both_days_is_not_behind_what_it_wrote_itself(self, shop: World) -> None:
        """It wrote the first day after it had read what came before: the second day is as it should be, and has lost one."""
        read = shop.read(LANDED, OPEN)
        event = dg.AssetMaterialization(OPEN, partition=f"{SECOND_DAY}", metadata={READ: dg.MetadataValue.json(read)})
        run = run_of(shop.instance, event)
        by_hand(shop, OPEN, FIRST_DAY, 2, run=run)
        by_hand(shop, OPEN, SECOND_DAY, run=run)
        shop.ran(OVER, f"{SECOND_DAY}", **{READ: shop.read(LANDED, OPEN)})
        by_hand(shop, OVER, SECOND_DAY, 2)
        assert left_over(self.judge(shop)) == [("shop/over", "2024-01-02", 1, "unexplained")]


def run_of(instance: dg.DagsterInstance, event: dg.AssetMaterialization) -> str:
    """The id of a run that records the materialisation."""

    @dg.op(out=dg.Out(dg.Nothing))
    def tell(context) -> None:  # type: ignore[no-untyped-def]
        context.log_event(event)

    @dg.job
    def telling() -> None:
        tell()

    return telling.execute_in_process(instance=instance).run_id


class TestGrowth:
    STEPS = (Step(LANDED, TOTALS, total=Growth("visits")),)

    @pytest.fixture
    def shop(self, tmp_path: Path) -> Iterator[World]:
        """Two visitors, one of whom comes again."""
        with dg.DagsterInstance.ephemeral() as instance:
            made = World(tmp_path, instance)
            made.put(LANDED, 20, 5)
            made.put(LANDED, 30, 3)
            self.merge(made, "2024-01-01", 4, 1)
            self.merge(made, "2024-01-02", 6, 1, 1)
            yield made

    @staticmethod
    def merge(shop: World, key: str, *visits: int, after: int | None = None, step: str = "merge") -> None:
        """What a stateful merge leaves: all visitors so far, and a stamp that says which partition came in."""
        table = DeltaTable(shop.uri(TOTALS)) if Path(shop.uri(TOTALS)).exists() else None
        told = {"step": step, "after": table.version() if table and after is None else after, "replay": []}
        if step == "restore":
            told["replay"] = ["2024-01-02"]
        stamp = {"writer": "shop/totals", "slice": key, "origin": f"run of {key}", "stateful": told}
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(stamp)})
        rows = pa.table({"user": [f"u{n}" for n in range(len(visits))], "visits": pa.array(visits, pa.int64())})
        write_deltalake(shop.uri(TOTALS), rows, mode="overwrite", commit_properties=properties)
        shop.ran(TOTALS, key, LANDED)

    def judge(self, shop: World) -> dg.AssetCheckEvaluation:
        return judged(shop, BY_DAY[2], list(self.STEPS))

    def test_a_day_counts_by_how_much_the_totals_grew_with_it(self, shop: World) -> None:
        found = self.judge(shop)
        assert found.passed, found.description
        assert {day: figures["counted"] for day, figures in days(found).items()} == {"2024-01-01": 5, "2024-01-02": 3}

    def test_what_a_total_loses_is_missing_on_the_day_after_which_it_was_lost(self, shop: World) -> None:
        DeltaTable(shop.uri(TOTALS)).delete("user = 'u2'")
        found = self.judge(shop)
        assert left_over(found) == [("shop/totals", "2024-01-02", 1, "unexplained")]

    def test_of_days_whose_past_is_gone_nothing_is_said(self, shop: World) -> None:
        (old,) = DeltaTable(shop.uri(TOTALS), version=0).file_uris()
        Path(old.removeprefix("file://")).unlink()
        shop.put(LANDED, 60, 2)
        self.merge(shop, "2024-01-03", 6, 1, 2)
        found = self.judge(shop)
        assert left_over(found) == [("shop/totals", "2024-01-03", 1, "unexplained")]
        assert found.metadata["days_left_out"].value == 2


def nearly_a_day(landed: datetime, belongs: datetime) -> str | None:
    return "ahead" if belongs > landed else "too old" if landed - belongs > timedelta(hours=20) else None


class TestRefused:
    STEPS = (
        Step(LANDED, VALID, apart={"late": LATER}),
        Step(
            VALID,
            OVER,
            total=Total("visits"),
            rejoined=[Rejoined(LATER, "belongs", before="too old", after="ahead", refused=nearly_a_day)],
        ),
    )

    def test_what_the_moments_refuse_is_told_on_the_day_that_it_belongs_to(self, tmp_path: Path) -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            shop = World(tmp_path, instance)
            for hour, landed, valid in ((20, 5, 4), (30, 2, 0), (45, 2, 0)):
                shop.put(LANDED, hour, landed)
                shop.put(VALID, hour, valid)
            # In time; too old, twice; ahead; of before all days.
            moments = [(30, 20), (45, 20), (45, 20), (20, 30), (30, -2)]
            times = {
                name: pa.array([moment(each[n]) for each in moments], pa.timestamp("us", "UTC"))
                for n, name in enumerate(("hour", "belongs"))
            }
            rows = pa.table({**times, "id": pa.array(range(len(moments)), pa.int64())})
            write_deltalake(shop.uri(LATER), rows, partition_by=["hour", "belongs"])
            by_hand(shop, OVER, FIRST_DAY, 5)
            found = judged(shop, BY_DAY[0], list(self.STEPS))
        assert found.passed, found.description
        told = {day: {name: n for name, n in figures.items() if n} for day, figures in days(found).items()}
        assert told == {
            "2024-01-01": {"landed": 7, "counted": 5, "too old": 2},
            "2024-01-02": {"landed": 2, "too old": 1, "ahead": 1},
        }
