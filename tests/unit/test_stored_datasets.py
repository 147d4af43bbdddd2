"""Where a run looks for a dataset: what is not found is computed again each time."""

from pathlib import Path

import pyarrow as pa
import pytest
from dagster import AssetKey
from deltalake import write_deltalake

from de_assets.catalogue import load_locations
from de_assets.filling.stores import Stores
from de_resources.settings import Settings


def test_a_dataset_is_found_where_its_writer_puts_it(tmp_path: Path) -> None:
    settings = Settings.from_environment({"LAKE_ROOT": f"{tmp_path}/l", "DE_STAGING_ROOT": f"{tmp_path}/s"})
    rows = pa.table({"n": [1]})
    write_deltalake(f"{tmp_path}/l/gold/sessions", rows)
    write_deltalake(f"{tmp_path}/s/staging/visits", rows)
    day = tmp_path / "l/serving/visits_csv/2026-11-23.json"
    day.parent.mkdir(parents=True)
    day.write_text("{}")
    stores = Stores(settings, frozenset())
    for name in ("gold/sessions", "staging/visits", "serving/visits_csv"):
        assert stores.has(AssetKey(name.split("/"))), name
    for name in ("staging/sessions", "gold/visits", "serving/visits_export"):
        assert not stores.has(AssetKey(name.split("/"))), name


def test_what_lies_in_the_database_is_told_by_its_kind() -> None:
    kept = {key.to_user_string() for key in Stores.of(Settings.from_environment({}), load_locations()).in_database}
    in_days = {"daily_traffic", "daily_traffic_by_country", "weekly_visits", "partner_feed"}
    assert {f"serving/{name}" for name in in_days} <= kept
    assert kept.isdisjoint({"gold/sessions", "silver/visits", "serving/visits_csv", "serving/page_counts"})


def test_a_database_that_is_not_there_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    key = AssetKey(["serving", "daily_traffic"])
    assert not Stores(Settings.from_environment(), frozenset({key})).has(key)
