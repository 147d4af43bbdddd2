"""The snippets of the documentation run as they are printed."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from documentation import Snippet, snippets

from de_resources.spark import SparkEngine

PATTERNS = snippets("patterns/*.md")


@pytest.mark.pattern("data_overwrite")
def test_the_io_manager_page(lake: Path, engine: SparkEngine) -> None:
    assert engine.spark_session is not None
    (snippet,) = snippets("io-managers.md")
    module = snippet.execute(lake=str(lake))
    assert module.result.success
    rows = DeltaTable(f"{lake}/silver/orders").to_pyarrow_table().to_pylist()
    assert [row["email"] for row in rows] == ["0@example.org"]
    (event,) = module.result.asset_materializations_for_node("silver__orders")
    assert "example.org" not in str(event.metadata)


@pytest.mark.parametrize("snippet", PATTERNS, ids=str)
def test_a_pattern_in_a_project_of_ones_own(
    snippet: Snippet, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.spark_session is not None
    monkeypatch.setenv("DE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKE_ROOT", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    snippet.execute()  # it ends with what it promises, as an assertion
