"""`de dlq`: what it refuses before anything is read or decided."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import de_assets.cli.dlq  # noqa: F401 - registers the commands
from de_assets.cli.application import application

pytestmark = pytest.mark.pattern("dead_letter")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["inspect"], "There are no dead letters yet"),
        (["inspect", "--partition", "yesterday"], "`yesterday` is no hour of the calendar"),
        (["replay"], "Say what to replay"),
        (["replay", "--all", "--repaired", "file"], "Say what to replay"),
        (["replay", "--repaired", "file", "--reason", "r"], "names its letters itself"),
        (["replay", "--repaired", "nowhere.jsonl"], "nowhere.jsonl: it cannot be read"),
        (["discard", "--why", "w"], "Say what to discard"),
        (["discard", "--reason", "r", "--why", "w"], "Say what to discard"),
        (["discard", "0" * 16, "--partition", "2024-10-10-05:00", "--reason", "r"], "Say what to discard"),
    ],
)
def test_what_is_unclear_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    result = CliRunner().invoke(application(), ["dlq", *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "landing" / "visits_decisions").exists()
