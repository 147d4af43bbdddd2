"""What red checks tell of rows that break everything: which columns, how many, an example of each, and nobody's data."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest
from io_manager_support import Shop

from de_checks.contract import contract_check
from de_checks.keys import reference_check, unique_key_check
from de_checks.shadow import Shadow, shadow_check
from de_checks.volume import volume_check
from de_resources.contract import REDACTED
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("constraints_enforcer", "online_observer")

PERSONAL: dict[str, Any] = {"metadata": {"personal": True}}


class People(pa.DataFrameModel):
    """One row per person and day, all of it personal but the day and the pages."""

    login: T.StringType = pa.Field(nullable=False, description="Who", **PERSONAL)
    email: T.StringType = pa.Field(nullable=True, str_contains="@", description="Address", **PERSONAL)
    phone: T.LongType = pa.Field(nullable=True, ge=0, description="Number", **PERSONAL)
    born: T.DateType = pa.Field(nullable=True, description="Birthday", **PERSONAL)
    pages: T.IntegerType = pa.Field(nullable=False, ge=0, description="Pages read")
    day: T.DateType = pa.Field(nullable=False, description="Day")

    class Config:
        """The dataset as a whole."""

        name = "silver.people"
        metadata = {  # noqa: RUF012
            "owner": "team:web",
            "key": ["login", "day"],
            "partitioned_by": ["day"],
            "rules": {"an_adult": "born < DATE '2010-01-01'"},
        }


SCHEMA = "login string, email string, phone long, born date, pages int, day date"
DAY = date(2024, 1, 1)
CANARIES = ("canary-login", "canary-other", "canary-mail", -771234567890, date(2011, 11, 17))
LOGIN, OTHER, MAIL, PHONE, BORN = CANARIES
ROWS = [(LOGIN, MAIL, PHONE, BORN, -1, DAY), (LOGIN, MAIL, PHONE, BORN, -1, DAY), (OTHER, MAIL, PHONE, BORN, -1, DAY)]
KNOWN = dg.AssetKey(["silver", "known"])


@pytest.fixture
def shop(engine: SparkEngine, lake: Path) -> Iterator[Shop]:
    shop = Shop(engine, lake)
    yield shop
    shop.instance.dispose()


def test_red_checks_of_personal_rows_tell_nobodys_data(shop: Shop) -> None:
    @dg.asset(
        key=["silver", "people"],
        partitions_def=dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03"),
        metadata={"contract": f"{__name__}:People", "partition_expr": "day"},
    )
    def people() -> None:
        """Written before."""

    shop.seed("people", ROWS, SCHEMA)
    told_by_the_write = {"delta/version": 0, "dagster/partition_row_count": len(ROWS)}
    shop.instance.report_runless_asset_event(
        dg.AssetMaterialization(people.key, partition=str(DAY), metadata=told_by_the_write)
    )
    other = [(LOGIN, "canary-mail@else", PHONE, BORN, -1, DAY)]
    checks = [
        contract_check(people, blocking=False),
        unique_key_check(people, blocking=False),
        reference_check(people, "login", KNOWN, "login", blocking=False),
        shadow_check(people, lambda _resources, _key: Shadow(shop.frame(other, SCHEMA)), resources=set()),
        volume_check(people, tolerance=(0.5, 2.0), min_rows=100),
    ]
    shop.seed("known", [("somebody",)], "login string", partitioned_by=None)
    resources = {
        "io_manager": shop.manager,
        "spark": shop.engine,
        "lake": Lake(root_uri=str(shop.root), storage_options=shop.manager.storage_options, spark=shop.engine),
    }
    location = dg.Definitions([people, dg.AssetSpec(KNOWN)], asset_checks=checks, resources=resources)
    job = location.resolve_implicit_global_asset_job_def()
    alone = job.get_subset(asset_selection=set(), asset_check_selection=job.asset_layer.asset_graph.asset_check_keys)
    run = alone.execute_in_process(partition_key="2024-01-01", instance=shop.instance, raise_on_error=False)

    found = run.get_asset_check_evaluations()
    assert {each.check_name for each in found if not each.passed} == {
        spec.name for check in checks for spec in check.check_specs
    }
    told = "\n".join(f"{each.description} {each.metadata}" for each in found)
    recorded = "\n".join(str(entry) for entry in shop.instance.all_logs(run.run_id))
    assert told.count(REDACTED) >= len(CANARIES), "examples were shown"
    for canary in ("canary", *map(str, CANARIES), repr(BORN), "771234567890"):
        assert canary not in told
        assert canary not in recorded
