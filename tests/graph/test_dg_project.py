"""`[tool.dg]` of `pyproject.toml`: Dagster's tools find the code location in the project's folder without being told."""

import json
import os
import subprocess
import sys
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


def dg_says(home: Path, *arguments: str) -> str:
    """What the real tool prints in the project's folder, without the notices that come before."""
    environment = {
        **os.environ,
        "DE_HOME": str(home),
        "PYTHONWARNINGS": "ignore",
        "DAGSTER_HOME": str(home / "dagster"),
    }
    (home / "dagster").mkdir(parents=True)
    command = [str(Path(sys.executable).with_name("dg")), *arguments]
    done = subprocess.run(command, cwd=PYPROJECT.parent, env=environment, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tool_itself_lists_what_is_defined(tmp_path: Path) -> None:
    listed = json.loads(dg_says(tmp_path, "list", "defs", "--json"))
    keys = {asset["asset_key"] for asset in listed["assets"]}
    assert keys == {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert {job["name"] for job in listed["jobs"]} >= {"maintenance", "offline_observer"}


def test_the_tool_itself_finds_nothing_wrong(tmp_path: Path) -> None:
    assert "All definitions loaded successfully" in dg_says(tmp_path, "check", "defs")
