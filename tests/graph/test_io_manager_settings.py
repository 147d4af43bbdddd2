"""Settings of dagster-delta, configured, defined or said by the run: followed, or refused by name."""

from typing import Any

import dagster as dg
import pytest
from dagster_delta import ClientConfig, MergeConfig, MergeType
from io_manager_support import Shop, asset
from pyspark.sql import DataFrame

from de_resources.delta.asset_settings import NotAtRunTime, UnsupportedSetting
from de_resources.delta.log import TableLog
from de_resources.delta.write.frames import SchemaMismatch


def saying(shop: Shop, rows: list[Any], schema: str, said: dict[str, Any], **metadata: Any) -> dg.AssetsDefinition:
    """The asset `silver/users`, whose run adds metadata to its output."""

    def make(context: dg.AssetExecutionContext) -> DataFrame:
        context.add_output_metadata(said)
        return shop.frame(rows, schema)

    return asset("users", make, **metadata)


@pytest.mark.pattern("data_overwrite")
def test_a_run_changes_the_mode_of_its_write(shop: Shop) -> None:
    shop.seed("users", [(1,)], "id long", None)
    shop.run(saying(shop, [(2,)], "id long", {"mode": "overwrite"}, mode="append"))
    assert shop.rows("users") == [(2,)]
    shop.run(saying(shop, [(3,)], "id long", {"mode": "append"}))
    assert shop.rows("users") == [(2,), (3,)]


def test_a_run_lets_its_table_gain_a_column(shop: Shop) -> None:
    shop.seed("users", [(1,)], "id long", None)
    wider = ([(1, "a")], "id long, name string")
    assert isinstance(shop.failure(saying(shop, *wider, {})), SchemaMismatch)
    shop.run(saying(shop, *wider, {"schema_mode": "merge"}))
    assert shop.rows("users") == [(1, "a")]


@pytest.mark.pattern("merger")
def test_a_run_names_the_keys_of_its_merge(shop: Shop) -> None:
    shop.config = {"merge_config": MergeConfig(merge_type=MergeType.upsert)}
    shop.seed("users", [(1, "a")], "id long, name string", None)
    said = {"merge_predicate": "s.name = t.name"}
    shop.run(saying(shop, [(1, "b")], "id long, name string", said, mode="merge", merge_keys=["id"]))
    assert shop.rows("users") == [(1, "a"), (1, "b")]


@pytest.mark.pattern("data_overwrite")
@pytest.mark.parametrize("setting", ["writer_properties", "commit_properties", "merge_operations_config"])
@pytest.mark.parametrize("by_run", [False, True], ids=["defined", "said by the run"])
def test_a_setting_that_nobody_would_follow_is_refused_by_name(shop: Shop, setting: str, by_run: bool) -> None:
    value: dict[str, Any] = {setting: {"compression": "ZSTD"}}
    error = shop.failure(saying(shop, [(1,)], "id long", *([value] if by_run else [{}]), **({} if by_run else value)))
    assert isinstance(error, UnsupportedSetting)
    assert error.setting == setting
    assert f"`silver/users` sets `{setting}`" in str(error)
    assert not shop.root.exists()


@pytest.mark.parametrize("setting", ["writer_properties", "commit_properties", "parquet_read_options"])
def test_a_managers_setting_that_nobody_would_follow_is_refused_by_name(shop: Shop, setting: str) -> None:
    shop.config = {setting: {"compression": "ZSTD"}}
    error = shop.failure(asset("users", lambda _: shop.frame([(1,)], "id long")))
    assert isinstance(error, UnsupportedSetting)
    assert f"`SparkDeltaIOManager` sets `{setting}`" in str(error)
    assert not shop.root.exists()


def test_a_run_cannot_change_what_only_a_definition_can_say(shop: Shop) -> None:
    error = shop.failure(saying(shop, [(1,)], "id long", {"merge_vanished": "delete"}))
    assert isinstance(error, NotAtRunTime)
    assert error.setting == "merge_vanished"
    assert "Set it in the asset's `metadata`" in str(error)
    assert not shop.root.exists()
    shop.run(saying(shop, [(1,)], "id long", {"root_name": "people", "note": "new"}, root_name="people"))
    assert shop.rows("people") == [(1,)]


def test_properties_of_a_table_are_those_of_its_asset_and_then_the_managers(shop: Shop) -> None:
    shop.config = {"table_config": {"delta.logRetentionDuration": "interval 7 days"}}
    wanted = {"delta.appendOnly": "true", "delta.logRetentionDuration": "interval 9 days"}
    shop.run(asset("users", lambda _: shop.frame([(1,)], "id long"), mode="append", table_configuration=wanted))
    found = shop.log("users").table.metadata().configuration
    assert found["delta.appendOnly"] == "true"
    assert found["delta.logRetentionDuration"] == "interval 7 days"


def test_values_of_another_type_are_refused_whatever_the_manager_says_of_them(shop: Shop) -> None:
    shop.seed("users", [(1,)], "id long", None)
    shop.config = {"error_on_type_mismatch": False}
    error = shop.failure(asset("users", lambda _: shop.frame([("2",)], "id string")))
    assert isinstance(error, SchemaMismatch)
    assert error.mistyped == {"id": ("string", "bigint")}
    assert shop.rows("users") == [(1,)]


def test_the_log_is_read_with_the_options_of_the_client(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    opened = TableLog.open

    def opening(uri: str, storage_options: Any = None) -> TableLog | None:
        asked.append(storage_options)
        return opened(uri, storage_options)

    monkeypatch.setattr(TableLog, "open", opening)
    shop.config = {"client_options": ClientConfig(timeout="7s")}
    shop.run(asset("users", lambda _: shop.frame([(1,)], "id long")))
    assert {tuple(options.items()) for options in asked} == {(("timeout", "7s"),)}
