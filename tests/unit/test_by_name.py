"""Rows of two frames are put together by the names of their columns: by position, another order of them goes unnoticed."""

import ast
from pathlib import Path

import pytest

ASSETS = Path(__file__).resolve().parents[2] / "de_assets"
OF_DATASETS = ("bronze", "silver", "gold", "serving", "staging", "transforms")
BY_POSITION = {"union", "unionAll"}

pytestmark = pytest.mark.pattern("aligned_fan_in")


def frames_by_position(code: str) -> list[int]:
    """The lines that name Spark's union by position, called or handed on."""
    named = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute) and node.attr in BY_POSITION)
    return sorted(node.lineno for node in named)


def test_a_union_by_position_is_found_however_it_is_written() -> None:
    assert frames_by_position("a.unionByName(b)\na.union(b)\nreduce(DataFrame.unionAll, parts)") == [2, 3]


def test_no_dataset_is_put_together_by_position() -> None:
    modules = [path for room in OF_DATASETS for path in (ASSETS / room).rglob("*.py")]
    found = {str(path.relative_to(ASSETS)): frames_by_position(path.read_text(encoding="utf-8")) for path in modules}
    assert len(found) > 50
    assert {path: lines for path, lines in found.items() if lines} == {}
