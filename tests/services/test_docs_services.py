"""The snippets of docs/patterns that talk to database or broker run as they stand."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from documentation import Snippet, snippets

from de_resources.local import LocalServices
from de_resources.spark import close_connections

pytestmark = pytest.mark.services

SNIPPETS = snippets("patterns/*/*.md", "services")


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    close_connections()


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_a_pattern_in_a_project_of_ones_own(
    snippet: Snippet, at_home: LocalServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_ROOT", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    snippet.execute()  # it ends with what it promises, as an assertion
