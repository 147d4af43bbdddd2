"""What is loaded when a command starts, and when the code location does: counted, for seconds differ by machine."""

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

HEAVY = "dagster pyspark pandera pandas numpy pyarrow deltalake grpc confluent_kafka psycopg2 requests"
SUPERVISION = "de_resources.local.services de_resources.local.supervision supervisor xmlrpc rich requests typer"
HELP = 515
DEFINITIONS = 2400
"""Modules, with a little air: what is above imports something at the top that only few need."""


def loaded_after(program: str) -> set[str]:
    """Names of all modules that a fresh interpreter has after the program."""
    program += "; import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["dlq", "--help"]], ids=" ".join)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    modules = loaded_after(f"from de_assets.cli import app; app({arguments!r}, standalone_mode=False)")
    assert not modules & set(HEAVY.split())
    assert "de_assets.cli.run" in modules, "the commands are registered"
    assert len(modules) <= HELP


def test_every_command_explains_itself() -> None:
    """The lines of `de --help` come from the commands' own docstrings, although nothing heavy is loaded for them."""
    command = [str(Path(sys.executable).with_name("de")), "--help"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    for name in ("capture", "dlq", "doctor", "down", "jars", "logs", "patterns", "plan", "run", "seed", "status", "up"):
        assert any(f" {name} " in line and len(line.split()) > 4 for line in said.splitlines()), name


def test_the_code_location_loads_no_supervisor_and_no_terminal() -> None:
    """Services are looked for when something runs. Pandas and a Connect client come with pandera's models themselves."""
    modules = loaded_after("import de_assets.definitions")
    assert "de_assets.definitions" in modules
    assert not modules & set(SUPERVISION.split())
    assert len(modules) <= DEFINITIONS
