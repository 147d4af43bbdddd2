"""docs/second-day.md says of every check of the graph what it wants, and names commands that exist."""

import re
from pathlib import Path

import typer

from de_assets.catalogue import load_locations
from de_assets.cli.application import application

PAGE = (Path(__file__).parents[2] / "docs" / "second-day.md").read_text()


def test_every_check_has_a_line() -> None:
    checks = {key.name for location in load_locations() for key in location.resolve_asset_graph().asset_check_keys}
    (table,) = re.findall(r"^\| check \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    told = {name for row in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert told == checks


def test_the_commands_exist() -> None:
    known = typer.main.get_command(application())
    commands = set(known.list_commands(None))  # type: ignore[attr-defined]
    assert {name for name in re.findall(r"\bde ([a-z]+)", PAGE) if name not in {"seed"}} <= commands
