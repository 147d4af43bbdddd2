"""Metadata Decorator on tables: a commit says which run of which version wrote, and the table's columns say nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from io_manager_support import Shop, asset

from de_assets import __version__
from de_assets.resources import resources
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("metadata_decorator")


def test_the_run_of_any_row_is_in_its_commit_and_in_no_column(engine: SparkEngine, lake: Path) -> None:
    runs = []
    rows = engine.spark_session.createDataFrame([(1,)], "n long")
    for version in ("7.1", "7.2"):
        shop = Shop(engine, lake, {"job_version": version})
        runs.append((version, shop.run(asset("rows", lambda _: rows, mode="append")).run_id))

    table = DeltaTable(shop.uri("rows"))
    assert [field.name for field in table.schema().fields] == ["n"], "what a business reader sees"
    told = {
        commit["version"]: json.loads(commit["userMetadata"])
        for commit in table.history()
        if commit.get("userMetadata", "").startswith("{")
    }
    assert [(told[n]["job_version"], told[n]["run"]) for n in sorted(told)] == runs
    assert set(told[1]) == {"writer", "slice", "run", "origin", "attempt", "job_version"}, "nothing of the rows"


def test_every_store_of_the_graph_tells_the_version_of_the_code(engine: SparkEngine, tmp_path: Path) -> None:
    made = resources(Settings.from_environment({"DE_HOME": str(tmp_path)}), engine)
    stores = {name: store for name, store in made.items() if name.endswith("io_manager") and name != "view_io_manager"}
    assert {name: store.job_version for name, store in stores.items()} == {
        "io_manager": __version__,
        "proxy_io_manager": __version__,
        "staging_io_manager": __version__,
    }
