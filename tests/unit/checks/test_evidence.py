"""What the counters of a write prove, by kind of write and by what was judged before. An instance, no table."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_checks.evidence import SCAN, WRITE, evidence
from de_checks.per_key import Target, latest_materializations
from de_resources.contract import Contract


class Users(pa.DataFrameModel):
    """One row per user."""

    user_id: T.StringType = pa.Field(nullable=False)

    class Config:
        name = "silver.users"


ASSET = dg.AssetKey(["silver", "users"])
CHECK = dg.AssetCheckKey(ASSET, "rows_meet_contract")
CLEAN, BROKEN = {"user_id_present": 0}, {"user_id_present": 2}
OVERWRITE, MERGE = "WRITE", "MERGE"


@pytest.fixture
def instance() -> dg.DagsterInstance:
    return dg.DagsterInstance.ephemeral()


def wrote(
    instance: dg.DagsterInstance,
    operation: str,
    violations: Mapping[str, int] | None,
    key: str | None = None,
    **more: Any,
) -> None:
    counters = {} if violations is None else {"contract/violations": dg.MetadataValue.json(dict(violations))}
    metadata = {"delta/operation": operation, "dagster/row_count": 9, **counters, **more}
    instance.report_runless_asset_event(dg.AssetMaterialization(ASSET, partition=key, metadata=metadata))


def judged(instance: dg.DagsterInstance, passed: bool) -> None:
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=ASSET, check_name=CHECK.name, passed=passed, target_materialization_data=_target(instance)
        )
    )


def _target(instance: dg.DagsterInstance) -> Any:
    latest = latest_materializations(instance, ASSET, [None])[None]
    return Target(storage_id=latest.storage_id, run_id=latest.run_id, timestamp=latest.timestamp)


def source(instance: dg.DagsterInstance, key: str | None = None, mode: str | None = None) -> str:
    spec = dg.AssetSpec(ASSET, metadata={"mode": mode} if mode else {})
    write = latest_materializations(instance, ASSET, [key])[key]
    found = evidence(instance, spec, Contract.of(Users), CHECK, key, write)
    assert (found.count is None) is (found.source == SCAN)
    return found.source


@pytest.mark.pattern("online_observer")
@pytest.mark.parametrize("violations", [CLEAN, BROKEN])
def test_a_write_that_replaces_its_only_slice_counted_everything(
    instance: dg.DagsterInstance, violations: dict[str, int]
) -> None:
    wrote(instance, OVERWRITE, violations)
    assert source(instance) == WRITE


@pytest.mark.pattern("online_observer")
def test_counters_of_a_range_acquit_every_key_and_convict_none(instance: dg.DagsterInstance) -> None:
    wrote(instance, OVERWRITE, CLEAN, "a", slice="a…b (2)")
    assert source(instance, "a") == WRITE
    wrote(instance, OVERWRITE, BROKEN, "a", slice="a…b (2)")
    assert source(instance, "a") == SCAN
    wrote(instance, OVERWRITE, BROKEN, "a", slice="a")
    assert source(instance, "a") == WRITE


@pytest.mark.parametrize("violations", [None, {}, {"a_rule_of_last_year": 0}])
def test_rules_that_were_not_counted_need_a_scan(
    instance: dg.DagsterInstance, violations: dict[str, int] | None
) -> None:
    wrote(instance, OVERWRITE, violations)
    assert source(instance) == SCAN


@pytest.mark.parametrize(("operation", "mode"), [(MERGE, None), (OVERWRITE, "append"), ("none", "merge")])
def test_a_clean_merge_is_as_good_as_the_state_before_it(
    instance: dg.DagsterInstance, operation: str, mode: str | None
) -> None:
    wrote(instance, operation, CLEAN)
    assert source(instance, mode=mode) == WRITE  # the first rows of all

    wrote(instance, operation, CLEAN)
    assert source(instance, mode=mode) == SCAN  # nobody judged the first

    judged(instance, passed=False)
    wrote(instance, operation, CLEAN)
    assert source(instance, mode=mode) == SCAN  # the bad rows may still be there

    judged(instance, passed=True)
    wrote(instance, operation, CLEAN)
    assert source(instance, mode=mode) == WRITE


def test_violations_in_a_merge_may_not_have_landed(instance: dg.DagsterInstance) -> None:
    wrote(instance, MERGE, BROKEN)
    assert source(instance) == SCAN
