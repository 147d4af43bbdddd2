"""A column gets another name, step by step: old and new code write and read in every phase, and nothing is lost on the way."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from deltalake import DeltaTable
from io_manager_support import Shop, asset
from other_reader import rows_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.maintenance.migrations import migration_job
from de_checks.migration import migration_check
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.crash_points import at
from de_resources.lake import Lake
from de_resources.migrations import rename
from de_resources.migrations.dual_write import under_migration
from de_resources.migrations.progress import Phase
from de_resources.migrations.readers import ColumnReader, readers_of
from de_resources.migrations.steps import Migrator, SidesDiffer, StillRead, WrongPhase

pytestmark = pytest.mark.pattern("schema_migrator")

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
D1, D2, D3 = "2024-01-01", "2024-01-02", "2024-01-03"
ADDRESS = rename("address_for_page", "page", "address", T.StringType())
PATH = f"{__name__}:ADDRESS"
KEY = dg.AssetKey(["silver", "views"])
RESTARTS = {"expand": 1, "migrate": 0, "contract": 2}
"""What the page tells people: so often a step stops a stream, which its supervisor then starts again."""


class OldViews(pa.DataFrameModel):
    """One row per view, as the old code declares it."""

    id: T.LongType = pa.Field(nullable=False, description="Identity")
    day: T.DateType = pa.Field(nullable=False, description="Day")
    page: T.StringType = pa.Field(nullable=False, description="Where", metadata={"personal": True})

    class Config:
        """The dataset as a whole."""

        name = "silver.views"
        metadata = {"key": ["id"], "partitioned_by": ["day"]}  # noqa: RUF012


OLD = f"{__name__}:OldViews"


def views(shop: Shop, column: str, *pages: str, contract: str | None = None, **metadata: Any) -> dg.AssetsDefinition:
    """The asset `silver/views` by code that knows one side: a row per page in each partition of the run."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        rows = [(n, date.fromisoformat(key), p) for key in context.partition_keys for n, p in enumerate(pages)]
        return shop.frame(rows, f"id long, day date, {column} string")

    settings = {"partition_expr": "day", "mode": "overwrite", **under_migration(PATH), **metadata}
    return asset("views", make, partitions=DAYS, **settings, **({"contract": contract} if contract else {}))


def migrator(shop: Shop) -> Migrator:
    table = Table("silver.views", shop.uri("views"), partitioned_by=("day",))
    stamp = CommitInfo("silver.views", "test", "all", "run", "run", "attempt")
    return Migrator(shop.spark, table, ADDRESS, stamp)


def stored(shop: Shop, *columns: str) -> set[tuple[Any, ...]]:
    """The live rows by an engine that knows neither us nor Spark."""
    rows = DeltaTable(shop.uri("views")).to_pyarrow_table().to_pylist()
    return {tuple(str(row[c]) for c in columns) for row in rows}


def around(shop: Shop, key: str, page: str) -> None:
    """An old writer that knows nothing of the platform adds a row."""
    frame = shop.frame([(9, date.fromisoformat(key), page)], "id long, day date, page string")
    frame.write.format("delta").mode("append").save(shop.uri("views"))


def test_a_rename_in_steps_and_old_and_new_code_write_and_read_in_every_phase(shop: Shop) -> None:
    shop.run(views(shop, "page", "/a", contract=OLD), keys=(D1, D2))
    migrating = migrator(shop)
    with pytest.raises(WrongPhase):
        migrating.backfill()

    assert migrating.expand().phase is Phase.EXPANDED
    shop.run(views(shop, "page", "/b", contract=OLD), key=D2)
    shop.run(views(shop, "address", "/c"), key=D3)
    both = {(D1, "/a", "None"), (D2, "/b", "/b"), (D3, "/c", "/c")}
    assert stored(shop, "day", "page", "address") == both

    done = migrating.backfill()
    assert (done.phase, done.commits) == (Phase.MIGRATED, 1)  # two of three days were written twice over already
    assert stored(shop, "day", "page", "address") == {(D1, "/a", "/a"), (D2, "/b", "/b"), (D3, "/c", "/c")}
    for as_side, column in ((ADDRESS.as_old, "page"), (ADDRESS.as_new, "address")):
        frame = as_side(migrating.table.read(shop.spark))
        assert {row[column] for row in frame.collect()} == {"/a", "/b", "/c"}

    assert migrating.contract([]).phase is Phase.CONTRACTED
    assert DeltaTable(shop.uri("views")).schema().to_arrow().names == ["id", "day", "address"]
    assert stored(shop, "day", "address") == {(D1, "/a"), (D2, "/b"), (D3, "/c")}
    shop.run(views(shop, "page", "/d"), key=D1)  # code that was rolled back
    assert stored(shop, "day", "address") == {(D1, "/d"), (D2, "/b"), (D3, "/c")}

    assert migrating.rollback().phase is Phase.MIGRATED
    assert stored(shop, "day", "page", "address") == {(D1, "/d", "/d"), (D2, "/b", "/b"), (D3, "/c", "/c")}
    assert [migrating.rollback().phase for _ in range(2)] == [Phase.EXPANDED, Phase.NOT_STARTED]
    assert rows_of(shop.uri("views")) == [
        (0, date.fromisoformat(key), page) for key, page in ((D1, "/d"), (D2, "/b"), (D3, "/c"))
    ]


def test_the_new_side_of_a_personal_column_is_masked(shop: Shop) -> None:
    old = views(shop, "page", "/secret", contract=OLD)
    # A table with both columns is under migration, whoever has added them.
    shop.seed("views", [(0, date.fromisoformat(D1), "/secret", None)], "id long, day date, page string, address string")
    (event,) = shop.run(old, key=D1).asset_materializations_for_node("silver__views")
    assert "/secret" not in str(event.metadata["preview"].value)
    assert stored(shop, "page", "address") == {("/secret", "/secret")}


def checked(shop: Shop) -> dg.AssetCheckEvaluation:
    definition = views(shop, "page", "/a")
    lake = Lake(root_uri=str(shop.root), spark=shop.engine)
    result = dg.materialize(
        [definition, migration_check(definition, ADDRESS)],
        instance=shop.instance,
        resources={"lake": lake, "io_manager": shop.manager},
        selection=dg.AssetSelection.checks(dg.AssetCheckKey(KEY, "both_sides_agree")),
        raise_on_error=False,
    )
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


@pytest.mark.red_check("both_sides_agree")
def test_writes_around_the_platform_are_found_and_hold_the_contraction_back(shop: Shop) -> None:
    shop.run(views(shop, "page", "/a"), keys=(D1, D2))
    migrating = migrator(shop)
    assert checked(shop).passed
    migrating.expand()
    migrating.backfill()
    assert checked(shop).passed

    around(shop, D2, "/x")  # fills the old side only
    found = checked(shop)
    assert (found.passed, found.metadata["migration/old_alone"].value) == (False, 1)
    assert found.metadata["migration/partitions"].value == [D2]
    with pytest.raises(SidesDiffer):
        migrating.contract([])
    assert migrating.backfill().phase is Phase.MIGRATED
    assert checked(shop).passed

    shop.spark.sql(f"UPDATE delta.`{shop.uri('views')}` SET page = '/y' WHERE id = 9")  # leaves the new side as it was
    found = checked(shop)
    assert (found.passed, found.metadata["migration/differing"].value) == (False, 1)
    for step in (migrating.backfill, lambda: migrating.contract([])):
        with pytest.raises(SidesDiffer) as error:
            step()
        assert error.value.differing == 1
    assert ("/y", "/x") in stored(shop, "page", "address")  # nobody has guessed which one is right


class Killed(Exception):
    """The end of a process, as far as the table can tell."""


def test_a_backfill_that_was_killed_goes_on_beside_writers(shop: Shop) -> None:
    shop.run(views(shop, "page", "/a"), keys=(D1, D3))
    migrating = migrator(shop)
    migrating.expand()
    turns = iter(range(9))

    def die(_table: str) -> None:
        if next(turns) == 1:
            raise Killed

    with at("after_commit", die), pytest.raises(Killed):
        migrating.backfill()
    filled = {(D1, "/a"), (D2, "/a"), (D3, "None")}
    assert stored(shop, "day", "address") == filled
    around(shop, D1, "/x")
    done = migrating.backfill()
    assert (done.phase, done.commits) == (Phase.MIGRATED, 2)
    assert stored(shop, "day", "page", "address") == {
        (D1, "/a", "/a"),
        (D1, "/x", "/x"),
        (D2, "/a", "/a"),
        (D3, "/a", "/a"),
    }


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_contraction_that_was_killed_is_taken_again(shop: Shop, point: str) -> None:
    shop.run(views(shop, "page", "/a"), key=D1)
    migrating = migrator(shop)
    migrating.expand()
    migrating.backfill()

    def die(_table: str) -> None:
        raise Killed

    with at(point, die), pytest.raises(Killed):
        migrating.contract([])
    shop.run(views(shop, "page", "/b"), key=D2)
    assert migrating.contract([]).phase is Phase.CONTRACTED
    assert stored(shop, "day", "address") == {(D1, "/a"), (D2, "/b")}
    configuration = DeltaTable(shop.uri("views")).metadata().configuration
    assert configuration["delta.columnMapping.mode"] == "none"


def downstream(shop: Shop, column: str, *, by_filter: bool) -> dg.AssetsDefinition:
    @dg.asset(key=["gold", "pages"], ins={"views": dg.AssetIn(KEY)})
    def pages(views: DataFrame) -> DataFrame:
        if by_filter:
            return views.where(F.col(column) != "/z").select("id")
        return views.select("id", F.upper(column).alias("place"))

    return pages


@pytest.mark.parametrize("by_filter", [False, True])
def test_the_contraction_is_refused_by_the_names_of_those_who_read(shop: Shop, *, by_filter: bool) -> None:
    whole = asset("views", lambda _: shop.frame([(1, "/a")], "id long, page string"), **under_migration(PATH))
    gold = dg.AssetKey(["gold", "pages"])
    old_reader, new_reader = (downstream(shop, c, by_filter=by_filter) for c in ("page", "address"))
    shop.run(whole, old_reader)
    migrating = migrator(shop)
    migrating.expand()
    migrating.backfill()

    found = readers_of(shop.instance, KEY, ADDRESS.old_names, [gold])
    assert found == [ColumnReader("gold/pages", ("page",))]
    with pytest.raises(StillRead) as error:
        migrating.contract(found)
    assert "gold/pages" in str(error.value)
    assert stored(shop, "page", "address") == {("/a", "/a")}

    shop.run(whole, new_reader)
    assert readers_of(shop.instance, KEY, ADDRESS.old_names, [gold]) == []
    silent = dg.AssetKey(["gold", "never_materialised"])
    assert readers_of(shop.instance, KEY, ADDRESS.old_names, [gold, silent]) == [
        ColumnReader("gold/never_materialised", ())
    ]


def test_a_stream_that_reads_the_table_goes_on_after_each_step_and_sees_every_row_once(
    shop: Shop, tmp_path: Path
) -> None:
    """What a person does is all here: two options from the start on, a third one before the contraction, and restarts."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"skipChangeCommits": "true", "schemaTrackingLocation": str(checkpoint / "_schema")}

    def restarts() -> int:
        """Let the stream take in what there is; how often it had to be started again."""
        for attempt in range(5):
            reader = shop.spark.readStream.format("delta").options(**options)
            try:
                writer = reader.load(shop.uri("views")).writeStream.format("json").trigger(availableNow=True)
                writer.option("checkpointLocation", str(checkpoint)).start(str(out)).awaitTermination()
            except StreamingQueryException as error:
                if "DELTA_STREAMING_METADATA_EVOLUTION" not in str(error):
                    raise
            else:
                return attempt
        raise AssertionError("the stream does not go on")

    views_of = {column: views(shop, column, f"/{column}", mode="append") for column in ("page", "address")}
    shop.run(views_of["page"], key=D1)
    restarts()  # the first start writes the schema down
    migrating = migrator(shop)
    taken = {}
    steps = {"expand": migrating.expand, "migrate": migrating.backfill, "contract": lambda: migrating.contract([])}
    for (name, step), key in zip(steps.items(), (D2, D3, D3), strict=True):
        if name == "contract":
            options["allowSourceColumnDrop"] = "always"
        step()
        shop.run(views_of["address" if name == "contract" else "page"], key=key)
        taken[name] = restarts()
    seen = [(row["day"], row["page"], row["address"]) for row in shop.spark.read.json(str(out)).collect()]
    assert sorted(seen, key=repr) == [
        (D1, "/page", None),
        (D2, "/page", "/page"),
        (D3, "/page", "/page"),
        (D3, None, "/address"),
    ]
    assert taken == RESTARTS


class ByJob:
    """The job over `silver/views` and its reader, as the UI starts it."""

    def __init__(self, shop: Shop, contract: str) -> None:
        self.shop = shop
        given = shop.frame([(1, date(2024, 1, 1), "/a")], "id long, day date, page string")
        self.views = asset("views", lambda _: given, contract=contract, **under_migration(PATH)).map_asset_specs(
            lambda spec: spec.replace_attributes(kinds={"deltalake"}).merge_attributes(
                metadata={"dagster/table_name": "silver.views"}
            )
        )
        self.pages = downstream(shop, "page", by_filter=False)
        self.job = migration_job([self.views, self.pages])

    def take(self, step: str, **config: Any) -> str:
        """The phase after the step, or what the refusal says."""
        asked = {"table": "silver/views", "migration": ADDRESS.name, "step": step, **config}
        result = self.job.execute_in_process(
            run_config={"ops": {"take_step": {"config": asked}}},
            instance=self.shop.instance,
            resources={"lake": Lake(root_uri=str(self.shop.root), spark=self.shop.engine)},
            raise_on_error=False,
        )
        for event in result.get_step_failure_events():
            return str(event.step_failure_data.error)
        (output,) = (e for e in result.all_events if e.is_successful_output)
        return str(output.step_output_data.metadata["migration/phase"].value)


def test_a_person_takes_the_steps_by_the_job_which_asks_the_instance_who_reads(shop: Shop) -> None:
    old = ByJob(shop, OLD)
    shop.run(old.views)
    assert "names no migration `other`" in old.take("EXPAND", migration="other")
    assert old.take("EXPAND") == "expanded"
    assert old.take("MIGRATE") == "migrated"
    refused = old.take("CONTRACT")
    assert "`the contract of silver/views` reads page" in refused
    assert "`gold/pages` has not recorded what it reads" in refused
    shop.run(old.views, old.pages)
    assert "`gold/pages` reads page" in old.take(
        "CONTRACT", cleared=["gold/pages"]
    )  # who is known to read is not cleared
    assert stored(shop, "page", "address") == {("/a", "/a")}
    assert old.take("ROLLBACK") == "expanded"
    assert old.take("ROLLBACK", cleared=["gold/pages"]) == "not_started"
    assert rows_of(shop.uri("views")) == [(1, date(2024, 1, 1), "/a")]
