"""The snippets of the documentation run as they are printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from documentation import Snippet, snippets

from de_resources.settings import Settings
from de_resources.spark import SparkEngine

PATTERNS = snippets("patterns/*/*.md")
NAMING = [*PATTERNS, *snippets("io-managers.md", "engine")]


@pytest.mark.pattern("data_overwrite")
def test_the_io_manager_page_in_an_empty_folder(tmp_path: Path) -> None:
    """As a reader would: a file with what is printed, a process of its own, nothing but the installed package."""
    (snippet,) = snippets("io-managers.md")
    (tmp_path / "orders.py").write_text(snippet.code + _TOLD)
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LAKE_ROOT", "DE_SPARK")}
    done = subprocess.run(
        [sys.executable, "orders.py"],
        cwd=tmp_path,
        env={**own, "DE_HOME": str(tmp_path / ".de"), "DE_JARS": str(Settings.from_environment().jars)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = DeltaTable(f"{tmp_path}/lake/silver/orders").to_pyarrow_table().to_pylist()
    assert [row["email"] for row in rows] == ["0@example.org"]
    told = done.stdout.rpartition("MATERIALISED ")[2]
    assert "dagster/column_schema" in told
    assert "example.org" not in told


def test_the_observatory_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (snippet,) = snippets("observatory.md")
    snippet.execute()


_TOLD = """
(event,) = result.asset_materializations_for_node("silver__orders")
print("MATERIALISED", result.success, event.metadata)
"""


@pytest.mark.parametrize("snippet", NAMING, ids=str)
def test_what_a_snippet_names_is_there(snippet: Snippet) -> None:
    """Of all of them, also of those that only `make soak` runs."""
    assert snippet.misnamed() == []


def test_a_name_that_is_not_there_is_found() -> None:
    code = "import json\nfrom textwrap import indent\njson.dump\njson.dumpz({})\nindent('', prefix='')\nindent('', prefx='')\n"
    snippet = Snippet(PATTERNS[0].file, 1, "none", frozenset(), code)
    assert sorted(snippet.misnamed()) == ["indent(prefx=…)", "json.dumpz"]


@pytest.mark.parametrize("snippet", PATTERNS, ids=str)
def test_a_pattern_in_a_project_of_ones_own(
    snippet: Snippet, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.spark_session is not None
    monkeypatch.setenv("DE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKE_ROOT", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    snippet.execute()  # it ends with what it promises, as an assertion
