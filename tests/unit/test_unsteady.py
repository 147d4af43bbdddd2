"""A test that fails beside others and passes alone is told, and holds nothing up; one that fails twice does."""

from pathlib import Path

import pytest
import unsteady

PASSES = "def test_that_passes(): pass\n"
FAILS = "def test_that_fails(): assert False\n"
ONCE = """
from pathlib import Path

def test_that_fails_once():
    mark = Path(__file__).with_suffix(".seen")
    seen = mark.exists()
    mark.touch()
    assert seen
"""
CASES = [
    ("one passes alone", 1, {"a": ONCE, "b": PASSES}, 0, ["a.py::test_that_fails_once"]),
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
    tmp_path: Path, modules: int, files: dict[str, str], status: int, told: list[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    cache = tmp_path / "cache"
    places = [str(tmp_path / f"{name}.py") for name in files]
    assert (
        unsteady.main(modules, cache, ["-q", "-c", str(tmp_path / "pytest.ini"), "-p", "no:xdist", *places]) == status
    )
    report = cache / unsteady.REPORT
    assert (report.read_text().splitlines() if report.exists() else []) == told


def test_the_second_call_is_the_first_one_in_one_process() -> None:
    whole = ["-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder", "--short", "tests/ui"]
    assert unsteady.alone(whole)[:2] == ["--short", "tests/ui"]


def test_what_failed_an_earlier_time_is_not_taken_for_a_failure(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    cache = tmp_path / "cache"
    arguments = ["-q", "-c", str(tmp_path / "pytest.ini"), "-p", "no:xdist"]
    for name, text in (("a", FAILS), ("b", PASSES)):
        (tmp_path / f"{name}.py").write_text(text)
        status = unsteady.main(1, cache, [*arguments, str(tmp_path / f"{name}.py")])
    assert (status, unsteady.failed_tests(cache)) == (0, [])
