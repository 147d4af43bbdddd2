"""The snippets of the documentation run as they are printed."""

import re
import sys
import types
from pathlib import Path

import pytest
from deltalake import DeltaTable

from de_resources.spark import SparkEngine

DOCS = Path(__file__).resolve().parents[2] / "docs"


def snippets(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.pattern("data_overwrite")
def test_the_io_manager_page(lake: Path, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.spark_session is not None
    (snippet,) = snippets("io-managers.md")
    module = types.ModuleType("shop")
    module.__dict__["lake"] = str(lake)
    monkeypatch.setitem(sys.modules, "shop", module)
    exec(compile(snippet, "io-managers.md", "exec"), module.__dict__)  # noqa: S102 - our own page
    assert module.result.success
    rows = DeltaTable(f"{lake}/silver/orders").to_pyarrow_table().to_pylist()
    assert [row["email"] for row in rows] == ["0@example.org"]
    (event,) = module.result.asset_materializations_for_node("silver__orders")
    assert "example.org" not in str(event.metadata)
