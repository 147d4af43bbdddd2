"""The observatory over a real instance: what runs and checks recorded, in a number of queries that does not grow."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from de_assets.automation.alerting.alert import redacted
from de_assets.automation.observatory import Site, job, loaded_locations, schedule, write_observatory
from de_assets.definitions import defs as platform
from de_resources.alerts.book import EVERYTHING, AlertBook, AlertCondition
from de_resources.observatory.health import cells, health, problems
from de_resources.observatory.link import LINK, linked
from de_resources.observatory.model import ColumnRef, HealthVerdict
from de_resources.observatory.read import Limits, read_world

CANARY = "ann.canary@example.org"
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
NOW = datetime.now(UTC)
SCHEMA = dg.TableSchema([dg.TableColumn("id", "bigint"), dg.TableColumn("email", "string", tags={"personal": ""})])
ORDERS, BY_DAY = dg.AssetKey(["silver", "orders"]), dg.AssetKey(["gold", "by_day"])


def world_of(bad: set[str], failing: set[str]) -> dg.Definitions:
    """Orders by day and what is built on them, a check that fails, a run that fails, and a canary wherever text can be."""

    @dg.asset(
        key=ORDERS,
        partitions_def=DAYS,
        description="Orders.",
        owners=["team:shop"],
        group_name="silver",
        metadata={"dagster/column_schema": SCHEMA},
        deps=[dg.AssetKey(["sources", "shop"])],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def orders(context: dg.AssetExecutionContext) -> None:
        for n, key in enumerate(context.partition_keys):
            if key in failing:
                raise RuntimeError(f"Cannot read `{key}` of {CANARY}")
            context.add_asset_metadata(
                {
                    "dagster/partition_row_count": 10 + n,
                    "preview": dg.MetadataValue.md(f"| {CANARY} |"),
                    "who": CANARY,
                    "people": dg.MetadataValue.json({"last": CANARY}),
                    "observer/email/longest": 4242,
                },
                partition_key=key,
            )

    @dg.asset(key=BY_DAY, deps=[orders], owners=["team:analytics"], group_name="gold")
    def by_day(context: dg.AssetExecutionContext) -> None:
        lineage = dg.TableColumnLineage({"orders": [dg.TableColumnDep(ORDERS, "id")]})
        context.add_output_metadata({"dagster/row_count": 3, "dagster/column_lineage": lineage})

    spec = dg.AssetCheckSpec(
        "amounts_are_right", asset=orders, partitions_def=DAYS, metadata={"pattern/lag_detector": True}
    )

    @dg.multi_asset_check(specs=[spec], can_subset=True)
    def amounts(context: dg.AssetCheckExecutionContext) -> Iterator[Any]:
        for key in context.partition_keys:
            yield dg.AssetCheckEvaluation(
                asset_key=ORDERS,
                check_name=spec.name,
                partition=key,
                passed=key not in bad,
                description=f'1 row is wrong: "{CANARY}"',
                metadata={"lag/seconds": 7.5, "rows": dg.MetadataValue.md(CANARY), "email/max": 4242},
            )
        yield dg.Output(None, spec.get_python_identifier())

    shop = dg.AssetSpec(["sources", "shop"], owners=["team:checkout"], group_name="sources")
    return dg.Definitions(assets=[shop, orders, by_day], asset_checks=[amounts])


Run = Callable[..., None]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """In memory: the same tables and queries as on the disk, where `de run` is tried by the tests of the UI."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def materialize(instance: dg.DagsterInstance, definitions: dg.Definitions, first: str, last: str) -> None:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    selection = dg.AssetSelection.assets(ORDERS) | dg.AssetSelection.checks_for_assets(ORDERS)
    chosen = [d for d in definitions.assets or () if not isinstance(d, dg.AssetSpec)]
    dg.materialize(
        [*chosen, *(definitions.asset_checks or ())],  # type: ignore[list-item]
        selection=selection,
        instance=instance,
        tags=tags,
        raise_on_error=False,
    )


def written(instance: dg.DagsterInstance, definitions: dg.Definitions, home: Path) -> tuple[Site, dict[str, str]]:
    site = write_observatory(instance, home, NOW, lambda: ([definitions], []))
    place = site.index.parent
    return site, {str(file.relative_to(place)): file.read_text() for file in sorted(place.rglob("*.html"))}


def test_what_is_no_verdict_and_no_run_is_told_by_its_open_alert(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """A bad check is told by its evaluation, once; a service that died has no event, until its alert recovers."""
    book = AlertBook.of_home(tmp_path)
    died = AlertCondition("service kafka", {"text": "kafka died <b>"}, frozenset({""}))
    refused = AlertCondition("check silver/orders:amounts_are_right", {"text": "told twice"}, frozenset({"2024-01-03"}))
    book.observe([died, refused], [], NOW)
    _, pages = written(instance, world_of(set(), set()), tmp_path)
    assert pages["index.html"].count("kafka died &lt;b&gt;") == 1
    assert "told twice" not in pages["index.html"]
    book.observe([AlertCondition("service kafka", {"text": "kafka serves"}, good=EVERYTHING)], [], NOW)
    _, pages = written(instance, world_of(set(), set()), tmp_path)
    assert "kafka" not in pages["index.html"]


def test_what_runs_and_checks_have_recorded_is_shown(instance: dg.DagsterInstance) -> None:
    definitions = world_of({"2024-01-03"}, set())
    materialize(instance, definitions, "2024-01-01", "2024-01-05")
    failing = world_of(set(), {"2024-01-07"})
    materialize(instance, failing, "2024-01-07", "2024-01-07")
    world = read_world(instance, [definitions], NOW, mask=redacted)
    orders = world.datasets["silver/orders"]
    found = {cell.partition.key: cell.verdict for cell in cells(orders)}
    assert len(found) == 31
    assert found["2024-01-02"] is HealthVerdict.PASSED
    assert found["2024-01-03"] is HealthVerdict.FAILED
    assert found["2024-01-06"] is HealthVerdict.MISSING
    assert found["2024-01-07"] is HealthVerdict.FAILED
    assert [(p.what, p.partitions) for p in problems(orders)] == [
        ("amounts_are_right", ("2024-01-03",)),
        ("run failed", ("2024-01-07",)),
    ]
    assert {w.partition: w.figures["dagster/partition_row_count"] for w in orders.writes}["2024-01-04"] == 13
    assert orders.checks[0].patterns == ("lag_detector",)
    assert orders.checks[0].evaluations[0].figures == {"lag/seconds": 7.5}
    assert health(world.datasets["gold/by_day"]).verdict is HealthVerdict.MISSING
    assert health(world.datasets["sources/shop"]).verdict is HealthVerdict.OUTSIDE
    materialize(instance, definitions, "2024-01-07", "2024-01-07")
    again = read_world(instance, [definitions], NOW, mask=redacted).datasets["silver/orders"]
    assert [p.what for p in problems(again)] == ["amounts_are_right"], "what was written since is not open"


def test_column_lineage_is_that_of_the_newest_write_that_has_one(instance: dg.DagsterInstance) -> None:
    definitions = world_of(set(), set())
    dg.materialize(
        [d for d in definitions.assets or () if not isinstance(d, dg.AssetSpec)],
        selection=dg.AssetSelection.assets(BY_DAY),
        instance=instance,
    )
    instance.report_runless_asset_event(dg.AssetMaterialization(BY_DAY, metadata={"restored": True}))
    by_day = read_world(instance, [definitions], NOW).datasets["gold/by_day"]
    assert [(c.name, c.sources) for c in by_day.columns] == [("orders", (ColumnRef("silver/orders", "id"),))]


def test_nothing_personal_is_on_any_page(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    definitions = world_of({"2024-01-02"}, set())
    materialize(instance, definitions, "2024-01-01", "2024-01-03")
    materialize(instance, world_of(set(), {"2024-01-09"}), "2024-01-09", "2024-01-09")
    instance.report_runless_asset_event(
        dg.AssetObservation(ORDERS, description=CANARY, metadata={"who": CANARY, "n": 1})
    )
    recorded = json.dumps([repr(e) for e in instance.fetch_materializations(ORDERS, limit=9).records])
    assert CANARY in recorded, "the canary is there to be found"
    _, pages = written(instance, definitions, tmp_path)
    assert "1 row is wrong: •••" in pages["silver/orders.html"]
    for page in pages.values():
        assert CANARY not in page
        assert "canary" not in page
        assert not {"4242", "4,242"} & set(page.replace("<", " ").replace(">", " ").split()), "of a personal column"


@pytest.mark.parametrize("days", [3, 30])
def test_the_number_of_queries_does_not_grow_with_the_partitions(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    definitions = world_of(set(), set())
    materialize(instance, definitions, "2024-01-01", f"2024-01-{days:02}")
    asked: Counter[str] = Counter()
    storage = instance.event_log_storage
    connect = storage.index_connection

    def counting() -> Any:
        asked["connections"] += 1
        return connect()

    monkeypatch.setattr(storage, "index_connection", counting)
    read_world(instance, [definitions], NOW)
    assert 0 < asked["connections"] <= 40


def test_no_more_is_read_than_asked_for(instance: dg.DagsterInstance) -> None:
    definitions = world_of(set(), set())
    materialize(instance, definitions, "2024-01-01", "2024-01-20")
    read = read_world(instance, [definitions], NOW, limits=Limits(writes=5, evaluations=7))
    orders = read.datasets["silver/orders"]
    assert (len(orders.writes), len(orders.checks[0].evaluations), len(orders.materialized)) == (5, 7, 20)
    assert [cell.verdict for cell in cells(orders)].count(HealthVerdict.MISSING) == 11, (
        "older ones are there, and not missing"
    )


def test_a_clock_that_was_set_back_hides_nothing_and_one_set_forward_breaks_nothing(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    definitions = world_of({"2024-01-02"}, set())
    materialize(instance, definitions, "2024-01-01", "2024-01-03")
    for now in (NOW - timedelta(days=300), NOW, NOW + timedelta(days=300)):
        world = read_world(instance, [definitions], now)
        assert [p.what for p in problems(world.datasets["silver/orders"])] == ["amounts_are_right"]
    late = read_world(instance, [definitions], NOW + timedelta(days=3000)).datasets["silver/orders"]
    assert len(late.materialized) == 3
    assert [cell.verdict for cell in cells(late)].count(HealthVerdict.MISSING) == 28


def test_an_empty_instance_and_an_asset_that_is_gone_are_normal(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    definitions = world_of(set(), set())
    site, pages = written(instance, definitions, tmp_path)
    assert (site.datasets, set(pages)) == (
        3,
        {"index.html", "gold/by_day.html", "silver/orders.html", "sources/shop.html"},
    )
    instance.report_runless_asset_event(dg.AssetMaterialization(["old", "table"], metadata={"dagster/row_count": 5}))
    _, after = written(instance, definitions, tmp_path)
    assert "no longer declared" in after["index.html"]
    assert "old/table.html" in after


def test_a_code_location_that_does_not_load_is_told_and_the_others_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    import de_assets.catalogue as catalogue

    load = catalogue.load_locations

    def broken(modules: list[str]) -> list[dg.Definitions]:
        if modules == ["de_assets.dashboards.definitions"]:
            raise SyntaxError("half a line")
        return load(modules)

    monkeypatch.setattr(catalogue, "load_locations", broken)
    found, unreadable = loaded_locations()
    assert len(found) == 1
    assert unreadable == ["The code location `de_assets.dashboards.definitions` does not load: SyntaxError."]


def test_every_asset_of_every_location_is_linked_with_a_page_that_is_there(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    locations, _ = loaded_locations()
    site = write_observatory(instance, tmp_path, NOW, lambda: (locations, []))
    for location in locations:
        for spec in linked(location, tmp_path).resolve_all_asset_specs():
            assert Path(spec.metadata[LINK].value).is_relative_to(tmp_path / LINK)
            assert Path(spec.metadata[LINK].value).exists(), spec.key
    assert site.datasets > 40
    assert all(LINK in spec.metadata for location in locations for spec in location.resolve_all_asset_specs())


def test_the_job_writes_the_site_and_its_schedule_is_on(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path / "home"))
    result = platform.resolve_job_def(job.name).execute_in_process(instance=instance)
    (output,) = (event for event in result.all_events if event.is_successful_output)
    told = {name: value.value for name, value in output.step_output_data.metadata.items()}
    assert Path(told["observatory/index"]).read_text().startswith("<!doctype html>")
    assert told["observatory/datasets"] > 40
    assert (schedule.job_name, schedule.default_status) == (job.name, dg.DefaultScheduleStatus.RUNNING)
    assert schedule.name in {each.name for each in platform.get_repository_def().schedule_defs}
