"""`[tool.dg]` of `pyproject.toml`: Dagster's tools find the code location in the project's folder without being told."""

import tomllib
from pathlib import Path

import dagster as dg
from dagster._core.workspace.load_target import PyProjectFileTarget

from de_assets.definitions import defs

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# As documented: docs.dagster.io/api/clis/dg-cli/dg-cli-configuration
PROJECT_SETTINGS = {
    "root_module",
    "defs_module",
    "code_location_name",
    "code_location_target_module",
    "registry_modules",
    "autoload_defs",
}


def test_the_table_has_what_the_tools_know() -> None:
    table = tomllib.loads(PYPROJECT.read_text())["tool"]["dg"]
    assert table.keys() == {"directory_type", "project"}
    assert table["directory_type"] == "project"
    assert table["project"].keys() <= PROJECT_SETTINGS
    assert "root_module" in table["project"]


def test_dagster_finds_the_code_location_by_it() -> None:
    (origin,) = PyProjectFileTarget(str(PYPROJECT)).create_origins()
    assert origin.location_name == "de_assets"
    module = origin.loadable_target_origin.module_name
    assert module == "de_assets.definitions"
    assert isinstance(defs, dg.Definitions), f"what {module} holds"
