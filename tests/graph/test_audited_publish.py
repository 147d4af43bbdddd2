"""Audit-Write-Audit-Publish: readers see what the audits let pass, and never anything else."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.errors import DagsterAssetCheckFailedError
from dagster_delta import DeltaLakePyarrowIOManager, LocalConfig
from io_manager_support import NOTED, ORDER, ORDERS, SEALED, Shop, asset
from other_reader import rows_of
from pyspark.sql import DataFrame

from de_checks.contract import contract_check
from de_checks.publication import NAME, publication_check
from de_resources.compat.checks import PartitionKeyFilter
from de_resources.delta.asset_settings import NotAtRunTime
from de_resources.delta.publish import InputRows, KeepsContract, Measured, NullShare, ReconcilesWithInput, Rows, Within
from de_resources.delta.publish.audits import NoAudits
from de_resources.delta.publish.decisions import publish_held, roll_back
from de_resources.delta.publish.staging import REJECTED, NotBySlice, staged_rows
from de_resources.delta.publish.writer import NotAudited
from de_resources.delta.slices import make_slice
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.crash_points import at
from de_resources.delta.write.frames import SchemaMismatch
from de_resources.errors import PlatformError
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-06")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"
WRITER = "de_resources.delta.publish:AuditedPublish"

Amounts = dict[str, Sequence[float | None]]


def orders(shop: Shop, amounts: Amounts, **metadata: Any) -> dg.AssetsDefinition:
    """The asset `silver/orders`, one order per amount in each of these days."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        found = [(n, date.fromisoformat(k), a, "ann@x.org") for k in context.partition_keys for n, a in rows(k)]
        return shop.frame(found, ORDER)

    def rows(key: str) -> list[tuple[int, float | None]]:
        return list(enumerate(amounts.get(key, ())))

    settings = {"contract": ORDERS, "partition_expr": "day", "writer": WRITER}
    return asset("orders", make, partitions=DAYS, **{**settings, **metadata})


def row(key: str, n: int, amount: float | None) -> tuple[Any, ...]:
    return n, date.fromisoformat(key), amount, "ann@x.org"


def table(shop: Shop) -> Table:
    return Table("silver.orders", shop.uri("orders"))


def told(shop: Shop, key: str) -> dict[str, Any]:
    """The metadata of the newest materialisation of a day."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(["silver", "orders"]), asset_partitions=[key])
    (record,) = shop.instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    return {name: value.value for name, value in record.asset_materialization.metadata.items()}


JUDGED = [
    KeepsContract(only=("small",), reaction="dispatch"),
    KeepsContract(only=("id_present", "amount_greater_than_or_equal_to")),
]
DEAR = 5000.0
"""What the rule `small` sorts out."""


@dataclass
class Judged:
    """A run of three days over a table that was there before it was audited: of one a row is sorted out, the next is bad."""

    shop: Shop
    files_before_the_switch: set[Path]


def files(shop: Shop) -> set[Path]:
    return set(Path(shop.uri("orders")).rglob("*.parquet"))


@pytest.fixture(scope="module")
def judged(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """One run for all that is only looked at."""
    shop = Shop(engine, tmp_path_factory.mktemp("judged") / "lake")
    shop.seed("orders", [row(D1, 0, 1.0), row(D2, 0, 2.0)], ORDER)
    amounts: Amounts = {D1: [10.0, DEAR], D2: [20.0, -1.0], D3: [30.0]}
    definition = orders(shop, amounts, audits=f"{__name__}:JUDGED")
    met: list[set[Path]] = []
    with at("before_switch", lambda _: met.append(files(shop))), pytest.raises(DagsterAssetCheckFailedError):
        shop.run(definition, publication_check(definition), keys=(D1, D3))
    (found,) = met
    return Judged(shop, found)


def test_a_range_publishes_the_good_days_and_holds_the_bad_one(judged: Judged) -> None:
    shop = judged.shop
    # What was there before the asset was audited is shown until it is published over.
    expected = [row(D1, 0, 10.0), row(D2, 0, 2.0), row(D3, 0, 30.0)]
    assert shop.rows("orders") == expected
    assert shop.rows_by_the_engine("orders") == expected
    assert [told(shop, key)["publication/state"] for key in (D1, D2, D3)] == ["published", "held", "published"]
    # What is held is kept for inspection.
    staged = [tuple(r) for r in staged_rows(shop.spark, table(shop)).where(f"day = DATE'{D2}'").collect()]
    assert sorted(staged) == [row(D2, 0, 20.0), row(D2, 1, -1.0)]
    assert told(shop, D2)["dagster/partition_row_count"] == 2
    assert "amount_greater_than_or_equal_to: 1" in told(shop, D2)["publication/verdict"]


def test_who_reads_by_dagster_delta_sees_what_is_published(judged: Judged) -> None:
    seen: list[tuple[str, float]] = []

    @dg.asset(ins={"orders": dg.AssetIn(["silver", "orders"])})
    def report(orders: pa.Table) -> None:
        seen.extend((str(each["day"]), each["amount"]) for each in orders.to_pylist())

    reader = DeltaLakePyarrowIOManager(root_uri=str(judged.shop.root), storage_options=LocalConfig())
    upstream = dg.AssetSpec(["silver", "orders"]).with_io_manager_key("io_manager")
    assert dg.materialize([upstream, report], instance=judged.shop.instance, resources={"io_manager": reader}).success
    assert sorted(seen) == [(D1, 10.0), (D2, 2.0), (D3, 30.0)]


def test_publishing_adds_names_of_files_and_no_file(judged: Judged) -> None:
    shop = judged.shop
    assert judged.files_before_the_switch == files(shop)
    shown = told(shop, D1)
    # The newest file is shown: which of the run's rows it has is left to the engine's tasks.
    assert any(f"| {amount} |" in shown["preview"] for amount in (10.0, 20.0, -1.0, 30.0)), "what was staged is shown"
    assert "ann@x.org" not in shown["preview"], "personal values are masked, as in any other table"
    assert [c.description for c in shown["dagster/column_schema"].columns if c.name == "email"] == ["Who ordered"]
    (commit,) = shop.log("orders").commits(1)
    assert commit.metrics["numOutputBytes"] == "0"
    assert shop.log("orders").rows_by_partition() == {(date.fromisoformat(day),): 1 for day in (D1, D2, D3)}


def test_the_verdict_is_on_the_materialisation_of_the_staged_version_that_was_judged(judged: Judged) -> None:
    shop, key = judged.shop, dg.AssetCheckKey(dg.AssetKey(["silver", "orders"]), NAME)
    for day, passed, amounts in ((D1, True, [10.0]), (D2, False, [-1.0, 20.0])):
        wanted = dg.AssetRecordsFilter(asset_key=key.asset_key, asset_partitions=[day])
        newest = shop.instance.fetch_materializations(wanted, limit=1).records[0]
        (record, *_) = shop.instance.event_log_storage.get_asset_check_execution_history(
            key, limit=1, partition_filter=PartitionKeyFilter(key=day)
        )
        verdict = record.evaluation
        assert verdict is not None
        assert verdict.target_materialization_data is not None
        assert (verdict.passed, verdict.target_materialization_data.storage_id) == (passed, newest.storage_id)
        staged = verdict.metadata["staged_version"].value
        assert staged == told(shop, day)["publication/staged_version"]
        at_version = staged_rows(shop.spark, table(shop), int(str(staged))).where(f"day = DATE'{day}'")
        assert sorted(r["amount"] for r in at_version.collect()) == amounts


def test_before_the_first_publication_a_reader_finds_an_empty_table(shop: Shop) -> None:
    shop.run(orders(shop, {D1: [-1.0]}), key=D1)
    assert shop.rows("orders") == shop.rows_by_the_engine("orders") == []
    shop.run(orders(shop, {D1: [1.0]}), key=D1)
    assert shop.rows("orders") == [row(D1, 0, 1.0)]


def test_a_published_slice_can_become_empty_and_others_stay(shop: Shop) -> None:
    shop.run(orders(shop, {D1: [1.0], D2: [2.0]}), keys=(D1, D2))
    shop.run(orders(shop, {D2: [2.0]}), keys=(D1, D3))
    assert shop.rows("orders") == [row(D2, 0, 2.0)]


def test_dispatch_publishes_without_the_bad_rows_which_are_kept_apart(judged: Judged) -> None:
    shop = judged.shop
    assert shop.rows("orders") == [row(D1, 0, 10.0), row(D2, 0, 2.0), row(D3, 0, 30.0)]
    assert [tuple(r) for r in staged_rows(shop.spark, table(shop), kind=REJECTED).collect()] == [row(D1, 1, DEAR)]
    assert [told(shop, day)["publication/rejected"] for day in (D1, D2, D3)] == [1, 0, 0]
    assert told(shop, D1)["dagster/partition_row_count"] == 1


ANNOTATING = [KeepsContract(reaction="annotate")]


def test_annotate_publishes_with_the_verdict(shop: Shop) -> None:
    shop.run(orders(shop, {D1: [1.0, -1.0]}, audits=f"{__name__}:ANNOTATING"), key=D1)
    assert shop.rows("orders") == [row(D1, 0, 1.0), row(D1, 1, -1.0)]
    assert told(shop, D1)["publication/state"] == "published"
    assert "break 1 rule" in told(shop, D1)["publication/verdict"]
    (commit,) = shop.log("orders").commits(1)
    (finding,) = commit.stamp["publication"]["keys"][D1]["findings"]
    assert not finding["passed"]


def test_a_retry_publishes_once_wherever_the_step_died(shop: Shop) -> None:
    for version, point in enumerate(("after_commit", "before_switch", "after_switch"), 1):
        died: list[str] = []

        def die_once(name: str, died: list[str] = died) -> None:
            if not died:
                died.append(name)
                raise RuntimeError("killed")

        with at(point, die_once):
            shop.run(orders(shop, {D1: [float(version)], D2: [-2.0]}, retries=2), keys=(D1, D2))
        assert died == ["silver.orders"], point
        assert shop.rows("orders") == [row(D1, 0, float(version))], point
        assert (shop.version("orders"), shop.log("orders/_staged").version) == (version, version - 1), point
        assert [told(shop, key)["publication/state"] for key in (D1, D2)] == ["published", "held"], point


AUDITS = [
    Rows(at_least=1, ratio=(0.5, 2.0)),
    NullShare(column="amount", at_most=0.25),
    Within(column="amount", low=0, high=100),
    Measured(what="mean", sql="avg(amount)", low=0, high=50, ratio=(0.1, 10)),
]


RANGE = [Within(column="amount", low=0, high=100)]


def test_a_value_of_which_the_files_have_no_bounds_is_not_published_unseen(shop: Shop) -> None:
    # A NaN takes the bounds of the file with it.
    amounts: Amounts = {D1: [math.nan, 5.0], D2: [math.nan, 101.0], D3: [5.0, None]}
    shop.run(orders(shop, amounts, audits=f"{__name__}:RANGE", contract=None), keys=(D1, D3))
    assert shop.rows("orders") == [row(D3, 0, 5.0), row(D3, 1, None)]
    verdicts = [told(shop, day)["publication/verdict"] for day in (D1, D2)]
    assert [f"range of amount: {n} of 2 rows" in said for n, said in zip((1, 2), verdicts, strict=True)] == [True, True]


def test_each_day_of_a_range_is_held_by_the_audit_that_is_there_for_it(shop: Shop) -> None:
    amounts: Amounts = {
        "2024-01-02": [3.0] * 5,
        "2024-01-03": [2.0, None],
        "2024-01-04": [2.0, 101.0],
        "2024-01-05": [0.1, 0.1],
    }
    audits = f"{__name__}:AUDITS"
    shop.run(orders(shop, {D1: [1.0, 3.0]}, audits=audits), key=D1)
    shop.run(orders(shop, amounts, audits=audits), keys=("2024-01-02", "2024-01-05"))
    assert shop.rows("orders") == [row(D1, 0, 1.0), row(D1, 1, 3.0)]
    why = ("rows: 5 rows", "nulls of amount: 1 of 2", "range of amount: 1 of 2 rows", "mean: It is 0.1,")
    for day, by in zip(amounts, why, strict=True):
        assert by in told(shop, day)["publication/verdict"]


INPUT_AUDITS = [
    InputRows(table="silver.orders", at_least=1, ratio=(0.5, 2.0)),
    ReconcilesWithInput(table="silver.orders", sql="sum(orders)"),
]


def totals(counts_twice: bool = False) -> dg.AssetsDefinition:
    @dg.asset(
        key=["silver", "totals"],
        ins={"found": dg.AssetIn(["silver", "orders"])},
        partitions_def=DAYS,
        metadata={"partition_expr": "day", "writer": WRITER, "audits": f"{__name__}:INPUT_AUDITS"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def definition(found: DataFrame) -> DataFrame:
        both = found.unionAll(found) if counts_twice else found
        return both.groupBy("day").agg({"*": "count"}).withColumnRenamed("count(1)", "orders")

    return definition


def test_an_input_is_audited_before_anything_is_computed(shop: Shop) -> None:
    plain = {"writer": []}
    shop.run(orders(shop, {D1: [1.0, 2.0], D3: [1.0] * 9}, **plain), keys=(D1, D3))
    shop.run(orders(shop, {D1: [1.0, 2.0], D3: [1.0] * 9}, **plain), totals(), keys=(D1, D3), select=[totals().key])
    # Of the day without an input nothing is computed.
    published = [(date(2024, 1, 1), 2), (date(2024, 1, 3), 9)]
    assert rows_of(shop.uri("totals")) == published
    files = sorted(Path(shop.uri("totals")).rglob("*.parquet"))
    shop.run(orders(shop, {}, **plain), totals(), key=D2, select=[totals().key])
    assert sorted(Path(shop.uri("totals")).rglob("*.parquet")) == files
    # Nor of one whose input is four times that of the day that was published before it.
    shop.run(orders(shop, {}, **plain), totals(), key=D3, select=[totals().key])
    assert sorted(Path(shop.uri("totals")).rglob("*.parquet")) == files
    # Rows that are counted twice do not reconcile.
    shop.run(orders(shop, {}, **plain), totals(counts_twice=True), key=D1, select=[totals().key])
    assert rows_of(shop.uri("totals")) == published


LAX = [KeepsContract(reaction="annotate")]


def test_a_run_cannot_choose_its_audits(shop: Shop) -> None:
    def make(context: dg.AssetExecutionContext) -> DataFrame:
        context.add_output_metadata({"audits": f"{__name__}:LAX"})
        return shop.frame([(1, None, -1.0, "ann@x.org")], ORDER)

    settings = {"contract": ORDERS, "writer": WRITER}
    assert isinstance(shop.failure(asset("orders", make, **settings)), NotAtRunTime)
    assert not shop.root.exists()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"mode": "append"}, NotAudited),
        ({"schema_mode": "merge"}, NotAudited),
        ({"audits": "nowhere:AUDITS"}, NoAudits),
        ({"audits": f"{__name__}:WRITER"}, NoAudits),
        ({"contract": None}, NoAudits),
    ],
)
def test_what_cannot_be_audited_is_refused_before_anything_is_written(
    shop: Shop, settings: dict[str, Any], error: type[PlatformError]
) -> None:
    assert isinstance(shop.failure(orders(shop, {D1: [1.0]}, **settings), key=D1), error)
    assert not Path(shop.uri("orders"), "_delta_log").exists()


def test_a_table_that_is_not_stored_by_its_partitions_cannot_show_one_of_them(shop: Shop) -> None:
    failed = shop.failure(orders(shop, {D1: [1.0]}, partitioned_by=[]), key=D1)
    assert isinstance(failed, NotBySlice)
    assert shop.rows("orders") == []


def test_an_asset_without_partitions_is_published_as_a_whole(shop: Shop) -> None:
    amounts = [1.0, 2.0]

    def make(_: dg.AssetExecutionContext) -> DataFrame:
        return shop.frame([(n, date.fromisoformat(D1), a, "ann@x.org") for n, a in enumerate(amounts)], ORDER)

    settings = {"contract": ORDERS, "writer": WRITER}
    shop.run(asset("orders", make, **settings))
    amounts[:] = [-1.0]
    held = shop.run(asset("orders", make, **settings))
    assert shop.rows("orders") == [row(D1, 0, 1.0), row(D1, 1, 2.0)]
    assert shop.metadata(held, "orders")["publication/state"] == "held"
    amounts[:] = [5.0]
    shop.run(asset("orders", make, **settings))
    assert shop.rows("orders") == [row(D1, 0, 5.0)]


def noted(shop: Shop, amounts: Amounts, **metadata: Any) -> dg.AssetsDefinition:
    """`orders` under a later contract, which has the optional column `note` as well."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        found = [(n, date.fromisoformat(k), a, None, "n") for k in context.partition_keys for n, a in rows(k)]
        return shop.frame(found, f"{ORDER}, note string")

    def rows(key: str) -> list[tuple[int, float | None]]:
        return list(enumerate(amounts.get(key, ())))

    settings = {"contract": NOTED, "partition_expr": "day", "writer": WRITER}
    return asset("orders", make, partitions=DAYS, **{**settings, **metadata})


def notes(shop: Shop) -> list[tuple[str, float, str | None]]:
    """Day, amount and note of what readers see."""
    return sorted((str(day), amount, note) for _, day, amount, _, note in shop.rows("orders"))


@pytest.mark.pattern("schema_compatibility_enforcer")
def test_a_table_of_an_older_contract_gains_its_optional_column_and_older_days_have_nulls(shop: Shop) -> None:
    seen: list[tuple[str, str | None]] = []

    @dg.asset(
        key=["silver", "weeks"],
        ins={"found": dg.AssetIn(["silver", "orders"])},
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def weeks(found: DataFrame) -> None:
        seen.extend((str(day), note) for day, note in found.select("day", "note").collect())

    shop.run(orders(shop, {D1: [1.0], D3: [-3.0]}), keys=(D1, D3))
    # Whoever reads by the later contract goes on, also before a day was written by it.
    later = noted(shop, {D1: [10.0], D2: [2.0]})
    shop.run(later, weeks, keys=(D1, D3), select=[weeks.key])
    assert seen == [(D1, None)]
    shop.run(later, keys=(D1, D2))
    # What was staged and published under the older contract can be judged and decided about as before.
    check = contract_check(later, blocking=False)
    said = [each.metadata["violations"].value for each in shop.judged(check, later, D3)]
    assert said == [{"amount_greater_than_or_equal_to": 1}]
    stamp = CommitInfo("silver.orders", "silver/orders", D3, "p", "p", "p/1")
    publish_held(table(shop), make_slice([D3], DAYS, "day"), stamp, reason="looked at it")
    assert notes(shop) == [(D1, 10.0, "n"), (D2, 2.0, "n"), (D3, -3.0, None)]
    roll_back(table(shop), make_slice([D1], DAYS, "day"), stamp, reason="looked at it")
    assert notes(shop)[0] == (D1, 1.0, None)
    described = {f.name: f.metadata.get("comment") for f in shop.log("orders").table.schema().fields}
    assert described["note"] == "What was said"


@pytest.mark.pattern("schema_compatibility_enforcer")
def test_a_column_that_a_contract_came_to_require_is_not_invented_for_older_days(shop: Shop) -> None:
    shop.seed("orders", [row(D1, 0, 1.0)], ORDER)
    failed = shop.failure(noted(shop, {D2: [2.0]}, contract=SEALED), key=D2)
    assert isinstance(failed, SchemaMismatch)
    assert failed.unexpected == ["note"]
    assert (shop.version("orders"), Path(shop.uri("orders"), "_staged").exists()) == (0, False)
