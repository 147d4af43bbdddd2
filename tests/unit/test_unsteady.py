"""A test that fails beside others and passes alone is told, and holds nothing up; one that fails twice does."""

from pathlib import Path

import pytest
import unsteady

PASSES = "def test_that_passes(): pass\n"
FAILS = "def test_that_fails(): assert False\n"
ONCE = """
from pathlib import Path
import pytest

@pytest.mark.xdist_group("of its own")
@pytest.mark.parametrize("what", ["a page.md: with spaces"])
def test_that_fails_once(what):
    mark = Path(__file__).with_suffix(".seen")
    seen = mark.exists()
    mark.touch()
    assert seen
"""
CASES = [
    ("one passes alone", 1, {"a": ONCE, "b": PASSES}, 0, ["a.py::test_that_fails_once[a page.md: with spaces]"]),
    ("none is allowed", 0, {"a": ONCE}, 1, []),
    ("of more modules than allowed", 1, {"a": ONCE, "b": ONCE}, 1, []),
    ("one fails twice", 2, {"a": ONCE, "b": FAILS}, 1, []),
    ("nothing fails", 1, {"b": PASSES}, 0, []),
    ("no module can be read", 1, {"a": "import nothing_of_this_name\n"}, 2, []),
]


@pytest.mark.parametrize(
    ("modules", "files", "status", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_fails_is_run_once_more_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: int, files: dict[str, str], status: int, told: list[str]
) -> None:
    assert run(tmp_path, monkeypatch, modules, files, "-p", "no:xdist") == (status, told)


def test_what_was_distributed_by_groups_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = ("-n", "2", "--dist", "loadgroup")
    assert run(tmp_path, monkeypatch, 1, {"a": ONCE, "b": PASSES}, *distributed) == (0, CASES[0][4])


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, modules: int, files: dict[str, str], *how: str
) -> tuple[int, list[str]]:
    """The status of the part, and what it tells as unsteady."""
    monkeypatch.chdir(folder)
    Path("pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        Path(f"{name}.py").write_text(text)
    status = unsteady.main(modules, folder / "cache", [*how, *(f"{name}.py" for name in files)], ["-q"])
    report = folder / "cache" / unsteady.REPORT
    return status, report.read_text().splitlines() if report.exists() else []


def test_what_failed_an_earlier_time_is_not_taken_for_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pytest.ini").write_text("[pytest]\n")
    for name, text in (("a", FAILS), ("b", PASSES)):
        Path(f"{name}.py").write_text(text)
        status = unsteady.main(1, tmp_path / "cache", [f"{name}.py"], ["-q", "-p", "no:xdist"])
    assert (status, unsteady.failed_tests(tmp_path / "cache")) == (0, [])
