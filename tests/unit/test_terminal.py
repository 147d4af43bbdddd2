"""The terminal prints what it is given: names and messages with brackets or colons stay as they are, and break nothing."""

import re
from pathlib import Path

import pytest
import typer
from rich.table import Table

from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError

PROJECT = Path(__file__).parents[2]
HOSTILE = ["log[abc].gz", "a message with [/abc]", "[bold]", ":warning: 2024-10-10-05:00", "\\[red]"]


@pytest.mark.parametrize("said", HOSTILE)
def test_an_error_is_told_in_its_own_words(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), explained():
        raise PermanentError(said)
    assert capsys.readouterr().err == f"PermanentError: {said}\n"


@pytest.mark.parametrize("said", HOSTILE)
def test_a_line_and_a_cell_are_what_was_given(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name")
    table.add_row(said)
    console.print(said)
    console.print(table)
    line, *cells = capsys.readouterr().out.splitlines()
    assert line == said
    assert any(said in cell for cell in cells)


def test_nothing_that_is_printed_is_markup() -> None:
    """A console or a progress of its own would read markup again, and an escaped text shows its backslashes."""
    for file in [*(PROJECT / "de_assets" / "cli").rglob("*.py"), PROJECT / "benchmarks" / "__main__.py"]:
        source = file.read_text()
        assert "rich.markup" not in source, file
        for made in re.findall(r"\b(?:Console|TextColumn)\(.*\)", source):
            assert "markup=False" in made, file
        assert not re.findall(r"\[/?(?:red|yellow|green|bold)\]", source), file
