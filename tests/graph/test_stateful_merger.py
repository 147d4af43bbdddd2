"""Stateful Merger on an asset: running totals that read their own state, backfills that meet, and what is refused.

Every test with totals begins with a copy of one table that holds three days.
"""

import shutil
import threading
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from io_manager_support import Shop, asset
from pyspark.sql import DataFrame

from de_checks.contract import contract_check
from de_checks.replay import replay_check
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.merge_state import MergeState, ReplayFirst
from de_resources.delta.write.stateful_plan import NoOrder, StateMoved
from de_resources.errors import PermanentError, PlatformError
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("stateful_merger")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")
DAY_BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
STATEFUL: dict[str, Any] = {"mode": "merge", "stateful": True}


class Totals(pa.DataFrameModel):
    """What each customer spent so far."""

    id: T.LongType = pa.Field(nullable=False, description="The customer")
    spent: T.LongType = pa.Field(nullable=False, lt=1000, description="In total")

    class Config:
        """The dataset as a whole."""

        name = "silver.totals"
        metadata = {"key": ["id"]}  # noqa: RUF012


def day(number: int) -> str:
    return f"2024-01-{number:02}"


class Till:
    """The asset `silver/totals`, what customers spend each day, and what the totals have to be."""

    def __init__(self, engine: SparkEngine, lake: Path) -> None:
        self.shop = Shop(engine, lake)
        self.spent: dict[int, dict[int, int]] = {n: {n: 10, 0: n} for n in range(1, 11)}
        self.totals = self.define()

    def define(self, days: dg.PartitionsDefinition[str] = DAYS) -> dg.AssetsDefinition:
        @dg.asset(
            key=["silver", "totals"],
            partitions_def=days,
            metadata={**STATEFUL, "contract": f"{__name__}:Totals"},
            ins={"before": dg.AssetIn(["silver", "totals"], partition_mapping=DAY_BEFORE)},
        )
        def totals(context: dg.AssetExecutionContext, before: DataFrame) -> DataFrame:
            rows = list(self.spent[date.fromisoformat(context.partition_key).day].items())
            today = self.shop.frame(rows, "id long, today long")
            joined = today.join(before, "id", "left")
            return joined.selectExpr("id", "coalesce(spent, 0L) + today AS spent")

        return totals

    def run(self, number: int) -> dict[str, Any]:
        return self.shop.metadata(self.shop.run(self.totals, key=day(number)), "totals")

    def expected(self, *days: int) -> list[tuple[int, int]]:
        totals: Counter[int] = Counter()
        for number in days:
            totals.update(self.spent[number])
        return sorted(totals.items())

    @property
    def state(self) -> MergeState:
        return MergeState.of(self.shop.log("totals"), "silver/totals")


@pytest.fixture(scope="module")
def three_days(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Till:
    """The table from which all others are copied."""
    till = Till(engine, tmp_path_factory.mktemp("three_days"))
    for number in (1, 2, 3):
        told = till.run(number)
        assert (told["stateful/taken_back"], told["stateful/replay"], told["slice"]) == ("not", [], day(number))
    assert till.shop.rows("totals") == till.expected(1, 2, 3)
    operations = [commit.operation for commit in till.shop.log("totals").commits(9)[::-1]]
    assert operations == ["WRITE", "MERGE", "MERGE"], "a normal run restores nothing"
    return till


@pytest.fixture
def till(three_days: Till, engine: SparkEngine, lake: Path) -> Till:
    shutil.copytree(three_days.shop.uri("totals"), lake / "silver" / "totals")
    return Till(engine, lake)


@pytest.mark.red_check("nothing_awaits_replay")
def test_totals_after_a_corrected_day_and_its_replay_are_those_of_a_clean_run(till: Till) -> None:
    lake = Lake(root_uri=str(till.shop.root), spark=till.shop.engine)
    check = replay_check(till.totals)

    def verdict() -> dg.AssetCheckEvaluation:
        done = dg.materialize(
            [till.totals, check],
            instance=till.shop.instance,
            resources={"lake": lake, "io_manager": till.shop.manager},
            selection=dg.AssetSelection.checks(check),
        )
        (found,) = done.get_asset_check_evaluations()
        return found

    till.spent[2] = {2: 500, 7: 1}
    told = till.run(2)
    assert told["stateful/taken_back"] == "to version 0"
    assert told["stateful/after"] == day(1)
    assert told["stateful/replay"] == [day(3)]
    assert told["dagster/row_count"] == len(till.expected(1, 2))
    assert till.shop.rows("totals") == till.expected(1, 2)
    incomplete = verdict()
    assert not incomplete.passed
    assert incomplete.metadata["stateful/replay"].value == [day(3)]

    error = till.shop.failure(till.totals, key=day(4))
    assert isinstance(error, ReplayFirst)
    assert error.missing == (day(3),)
    till.run(3)
    assert till.shop.rows("totals") == till.expected(1, 2, 3)
    assert verdict().passed


def test_totals_begin_anew_where_another_calendar_takes_the_place(till: Till) -> None:
    """As when a log is landed in a home in which days were simulated: the totals are of the log alone, and nothing is red."""
    other = Till(till.shop.engine, till.shop.root)
    other.totals = other.define(dg.DailyPartitionsDefinition("2015-05-03", end_date="2015-05-06"))
    other.shop.run(other.totals, key="2015-05-03")
    assert other.shop.rows("totals") == other.expected(3)
    check = replay_check(other.totals)
    done = dg.materialize(
        [other.totals, check],
        instance=other.shop.instance,
        resources={
            "lake": Lake(root_uri=str(other.shop.root), spark=other.shop.engine),
            "io_manager": other.shop.manager,
        },
        selection=dg.AssetSelection.checks(check),
    )
    (found,) = done.get_asset_check_evaluations()
    assert (found.passed, found.metadata["stateful/partitions"].value) == (True, 1)


@pytest.mark.faults
def test_two_backfills_at_once_end_with_the_rows_of_one(till: Till, engine: SparkEngine, lake: Path) -> None:
    """The second starts while the first has taken the table back and not yet merged."""
    other = Till(engine, lake)
    refused: list[PlatformError] = []

    def backfill(who: Till) -> None:
        try:
            who.run(2)
        except Exception as error:  # noqa: BLE001 - judged below
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, PlatformError):
                cause = cause.__cause__
            refused.append(cause or PlatformError(repr(error)))

    second = threading.Thread(target=backfill, args=[other])

    def start(_: str) -> None:
        if second.ident is None:
            second.start()

    with at("after_commit", start):
        backfill(till)
        second.join()
    assert all(isinstance(error, ReplayFirst | StateMoved) for error in refused), refused
    for key in till.state.replay:
        till.run(date.fromisoformat(key).day)
    assert till.shop.rows("totals") == till.expected(1, 2, 3)
    commits = [c for c in till.shop.log("totals").commits(100) if c.stamp][::-1]
    restores = [n for n, c in enumerate(commits) if c.operation == "RESTORE"]
    assert restores
    for n in restores:
        assert (commits[n + 1].operation, commits[n + 1].stamp["run"]) == ("MERGE", commits[n].stamp["run"])


def test_readers_and_checks_get_the_state_after_their_partition(till: Till) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}

    @dg.asset(partitions_def=DAYS, ins={"totals": dg.AssetIn(["silver", "totals"])})
    def daily(context: dg.AssetExecutionContext, totals: DataFrame) -> None:
        seen[context.partition_key] = sorted((r.id, r.spent) for r in totals.collect())

    @dg.asset(ins={"totals": dg.AssetIn(["silver", "totals"])})
    def whole(totals: DataFrame) -> None:
        seen["all"] = sorted((r.id, r.spent) for r in totals.collect())

    lake = Lake(root_uri=str(till.shop.root), spark=till.shop.engine)
    check = contract_check(till.totals)
    till.spent[4] = {99: 2000}
    verdicts = []
    for number in (4, 5):
        done = dg.materialize(
            [till.totals, check],
            instance=till.shop.instance,
            resources={"lake": lake, "io_manager": till.shop.manager},
            partition_key=day(number),
            raise_on_error=False,
        )
        verdicts += [(e.partition, e.passed, e.metadata["rows"].value) for e in done.get_asset_check_evaluations()]
    assert verdicts == [(day(4), False, 5), (day(5), False, 6)], "the wrong row is still there"
    till.shop.run(till.totals, daily, key=day(1), select=[daily])
    till.shop.run(till.totals, whole, select=[whole])
    assert seen == {day(1): till.expected(1), "all": till.expected(1, 2, 3, 4, 5)}


@pytest.mark.parametrize(
    ("options", "partitions", "keys", "reason"),
    [
        (STATEFUL, DAYS, (day(1), day(3)), r"this run has 3\. Backfill it with one run per partition"),
        ({"stateful": True}, DAYS, None, "only merges have a state"),
        ({**STATEFUL, "partition_expr": "id"}, DAYS, None, "no `partition_expr`"),
        (STATEFUL, None, None, "it needs partitions"),
        (STATEFUL, dg.DynamicPartitionsDefinition(name="shops"), None, "have no order"),
    ],
    ids=["a range", "no merge", "a column", "no partitions", "no order"],
)
def test_an_asset_that_cannot_be_stateful_says_why_and_writes_nothing(
    engine: SparkEngine, lake: Path, options: dict[str, Any], partitions: Any, keys: tuple[str, str] | None, reason: str
) -> None:
    shop = Shop(engine, lake)
    if isinstance(partitions, dg.DynamicPartitionsDefinition):
        shop.instance.add_dynamic_partitions("shops", [day(1)])
    users = asset("users", lambda _: shop.frame([(1,)], "id long"), partitions=partitions, merge_keys=["id"], **options)
    key = day(1) if partitions and not keys else None
    error = shop.failure(users, key=key, **({"keys": keys} if keys else {}))
    assert isinstance(error, NoOrder), error
    assert isinstance(error, PermanentError)
    with pytest.raises(NoOrder, match=reason):
        raise error
    assert not (lake / "silver" / "users").exists()
