"""`de patterns`: the whole list, one entry, and the JSON that scripts read."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_modules import proved
from typer.testing import CliRunner, Result
from waiting import PATIENCE

import de_assets.cli.patterns  # noqa: F401 - registers the command
from de_assets import catalogue
from de_assets.cli.application import application

pytestmark = pytest.mark.xdist_group("imports")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(application(), ["patterns", *arguments])


def _words(text: str) -> str:
    """The text without frames and line breaks."""
    return re.sub(r"[\s│╭╮╰╯─━┃┏┓┗┛]+", " ", text)


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """The marks of all tests, which each call of the command reads; the console script does so for itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "tests", lambda _: proved())
        yield


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    """The whole catalogue in the form that scripts rely on."""
    carriers = [catalogue.carriers(location) for location in catalogue.load_locations()]
    return [
        {
            "name": s.pattern.name,
            "family": s.pattern.family.value,
            "carriers": [{"kind": c.kind, "name": c.name} for c in s.carriers],
            "tests": list(s.tests),
        }
        for s in catalogue.status(carriers, proved())
    ]


def test_the_console_script_prints_the_whole_catalogue_as_json_and_nothing_else(expected: list[dict[str, Any]]) -> None:
    script = Path(sys.executable).with_name("de")

    done = subprocess.run([script, "patterns", "--json"], capture_output=True, text=True, check=True, timeout=PATIENCE)

    assert json.loads(done.stdout) == expected


def test_json_of_one_entry_and_of_one_family(expected: list[dict[str, Any]]) -> None:
    entry, family = (
        json.loads(_run("merger", "--json").stdout),
        json.loads(_run("--json", "--family", "quality").stdout),
    )

    assert entry == [e for e in expected if e["name"] == "merger"]
    assert family == [e for e in expected if e["family"] == "quality"]


def test_the_list_shows_every_pattern_and_says_plainly_what_is_absent(expected: list[dict[str, Any]]) -> None:
    result = _run()
    absent = [e for e in expected if not e["carriers"] and not e["tests"]]
    carried = [e for e in expected if e["carriers"]]

    assert result.exit_code == 0
    shown = _words(result.stdout)
    assert [p.title for p in catalogue.PATTERNS.values() if p.title not in shown] == []
    assert result.stdout.count("not yet") >= 2 * len(absent)
    assert f"70 patterns: {len(carried)} carried by the graph" in shown


def test_a_family_is_shown_alone() -> None:
    shown = _words(_run("--family", "Error Management").stdout)

    assert "Dead-Letter" in shown
    assert "7 patterns:" in shown
    assert "Merger" not in shown


def test_another_name_shows_the_entry_with_what_it_adds() -> None:
    result = _run("quarantiner")

    assert result.exit_code == 0
    shown = _words(result.stdout)
    pattern = catalogue.PATTERNS["dead_letter"]
    (alias,) = (alias for alias in pattern.aliases if alias.title == "Quarantiner")
    assert pattern.title in shown
    assert pattern.promise in shown
    assert f"Quarantiner adds {alias.adds}" in shown
    assert "asset bronze/visits_dead_letter" in shown
    assert "de_assets/bronze/visits.py" in shown


def test_tests_are_listed_with_whole_ids() -> None:
    shown = re.sub(r"[\s│]+", "", _run("dead_letter").stdout)

    proofs = catalogue.tests(catalogue.PROJECT / "tests")["dead_letter"]

    assert proofs
    assert [test for test in proofs if test not in shown] == []


def test_the_committed_index_is_what_the_command_prints() -> None:
    committed = (catalogue.PROJECT / catalogue.PAGES / "README.md").read_text(encoding="utf-8")

    assert _run("--index").stdout == committed, f"tags, marks, modules or pages changed. Run: {catalogue.COMMAND}"


def test_the_index_has_every_pattern_once_and_stands_alone() -> None:
    printed = _run("--index").stdout

    named = re.findall(r"^(?:\| |- )\*\*\[?(.+?)(?:\]\([\w/.]+\))?\*\*", printed, re.MULTILINE)
    assert sorted(named) == sorted(p.title for p in catalogue.PATTERNS.values())
    for also in (["merger"], ["--json"], ["--family", "quality"]):
        assert _run("--index", *also).exit_code == 2


def test_a_place_that_belongs_to_no_single_pattern_is_named() -> None:
    assert "(see de_assets/contracts)" in _words(_run("Data Contract").stdout)


def test_an_unknown_name_is_explained() -> None:
    result = _run("meger")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "There is no pattern `meger`. Did you mean `merger`" in result.stderr


@pytest.mark.parametrize("family", ["ingestions", ""])
def test_an_unknown_family_is_explained_with_the_nine(family: str) -> None:
    result = _run("--family", family)

    assert result.exit_code == 2
    assert "'observability'" in result.stderr
