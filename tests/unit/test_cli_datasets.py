"""The commands know no dataset by its name: which there are, what they read and what is asked of them, the graph says."""

import ast
from collections.abc import Iterator
from pathlib import Path

from de_assets.catalogue import load_locations

COMMANDS = Path(__file__).parents[2] / "de_assets" / "cli"


def test_no_name_of_a_dataset_stands_in_a_command() -> None:
    keys = {spec.key for location in load_locations() for spec in location.resolve_all_asset_specs()}
    names = {separator.join(key.path) for key in keys if len(key.path) > 1 for separator in "/."}
    assert len(names) > 100
    found = {file.name: told for file in COMMANDS.rglob("*.py") if (told := [*_naming(file.read_text(), names)])}
    assert found == {}


def test_a_name_would_be_found() -> None:
    source = 'f(Argument(help="Such as silver/visits."), "silver/visits", f"{root}/silver/visits")'
    assert [*_naming(source, {"silver/visits"})] == ["silver/visits", "/silver/visits"]


def _naming(source: str, names: set[str]) -> Iterator[str]:
    """Texts with a name of a dataset in them, except what stands in the help as an example."""
    tree = ast.parse(source)
    helps = {id(part) for node in ast.walk(tree) if _is_help(node) for part in ast.walk(node)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in helps)
    for text in (node.value for node in texts):
        if isinstance(text, str) and any(name in text for name in names):
            yield text


def _is_help(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "help"
