"""The suite's parts run side by side. A test that fails beside others and passes alone is told, and holds nothing up; one
that fails twice does."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import passes
import pytest
import suite

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
UNREADABLE = "import nothing_of_this_name\n"
KILLED = "import os\n\ndef test_that_is_killed(): os.kill(os.getpid(), 9)\n"
MEETS = """
import os
from pathlib import Path
from time import sleep

def test_that_meets_the_other_part():
    Path("{me}").write_text(os.environ["DE_TEST_TIMINGS"])
    while not Path("{other}").exists():
        sleep(0.01)
"""
INTERRUPTED = 2
"""Status of a pytest that was."""
ALONE = "test_that_fails_once[a page.md: with spaces]"
Files = dict[str, str]
CASES: dict[str, tuple[int, Files, Files, int, list[str]]] = {
    "one passes alone": (1, {"a": ONCE, "b": PASSES}, {"c": PASSES}, 0, [f"a.py::{ALONE}"]),
    "none is allowed": (0, {"a": ONCE}, {"c": PASSES}, 1, []),
    "of more modules than allowed, both parts together": (1, {"a": ONCE}, {"b": ONCE}, 1, []),
    "one fails twice": (2, {"a": ONCE}, {"b": FAILS}, 1, []),
    "a module that cannot be read is no failure of a test": (2, {"a": ONCE}, {"b": UNREADABLE}, 2, []),
    "so is a process that is killed": (1, {"a": KILLED}, {"b": PASSES}, 137, []),
    "a part without tests": (1, {"a": PASSES}, {"b": ""}, 5, []),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plugins that are installed take half of the start of a pytest, and have nothing to do here."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", passes.__name__)
    monkeypatch.setenv("PYTHONPATH", str(Path(passes.__file__).parent))
    monkeypatch.setattr(suite, "state_of_the_code", lambda: "as it is")
    monkeypatch.chdir(tmp_path)
    Path("pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(
    folder: Path, one: Files, two: Files, modules: int = 0, how: tuple[str, ...] = (), *, some: bool = False
) -> tuple[int, list[str]]:
    """The status of two parts, and what is told as unsteady."""
    for name, text in (one | two).items():
        Path(f"{name}.py").write_text(text)
    cache = folder / "cache"
    parts = [
        suite.Part(name, (*how, *(f"{file}.py" for file in files)), cache / name)
        for name, files in (("one", one), ("two", two))
    ]
    status = suite.main(parts, ["-q"], cache, modules, some=some)
    report = cache / suite.REPORT
    return status, report.read_text().splitlines() if report.exists() else []


def kept(folder: Path) -> dict[str, object]:
    """What passed, for `make sabotage`."""
    return dict(json.loads((folder / "cache" / suite.ALL_PASSED).read_text()))


@pytest.mark.parametrize(("modules", "one", "two", "status", "told"), CASES.values(), ids=CASES)
def test_what_fails_is_run_once_more_alone(
    folder: Path, modules: int, one: Files, two: Files, status: int, told: list[str]
) -> None:
    assert run(folder, one, two, modules) == (status, told)


def test_what_was_distributed_by_groups_is_found_again_in_its_part(folder: Path) -> None:
    distributed = ("-p", "xdist", "-n", "2", "--dist", "loadgroup")
    found = run(folder, {"a": ONCE, "b": PASSES}, {"c": ONCE}, 2, distributed)
    assert found == (0, [f"a.py::{ALONE}", f"c.py::{ALONE}"])
    assert kept(folder)["tests"] == ["b.py::test_that_passes"]


def test_what_failed_an_earlier_time_is_not_taken_for_a_failure(folder: Path) -> None:
    for text, failed in ((FAILS, ["a.py::test_that_fails"]), (PASSES, [])):
        assert run(folder, {"a": text}, {"b": PASSES}) == (len(failed), [])
        assert suite.Part("one", (), folder / "cache" / "one").failed() == failed


def test_parts_run_at_the_same_time_are_timed_apart_and_shown_one_after_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(suite.TIMINGS, "timings")
    one, two = ({name: MEETS.format(me=f"{name}.met", other=f"{other}.met")} for name, other in ("ab", "ba"))
    assert run(folder, one, two, how=("-v",)) == (0, [])
    assert [Path(f"{name}.met").read_text() for name in "ab"] == ["timings/one", "timings/two"]
    said = capfd.readouterr().out
    assert said.index("a.py") < said.index("1 passed") < said.index("b.py") < said.rindex("1 passed")


def test_who_interrupts_it_interrupts_both_parts_and_it_ends_after_them(folder: Path) -> None:
    for name in "ab":
        Path(f"{name}.py").write_text(MEETS.format(me=f"{name}.met", other="nothing"))
    parts = [word for name in "ab" for word in ("--part", name, f"{name}.py")]
    command = [sys.executable, suite.__file__, "cache", *parts, "--", "-q"]
    environment = {**os.environ, suite.TIMINGS: "timings"}
    with subprocess.Popen(command, start_new_session=True, env=environment, stdout=subprocess.DEVNULL) as running:
        while not (Path("a.met").exists() and Path("b.met").exists()):
            sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
    assert running.returncode == INTERRUPTED
    assert ["KeyboardInterrupt" in (folder / "cache" / name / "said.txt").read_text() for name in "ab"] == [True, True]


def test_of_tests_that_were_chosen_a_part_may_have_none_but_not_all(folder: Path) -> None:
    assert run(folder, {"a": PASSES}, {"b": ""}, some=True) == (0, [])
    assert run(folder, {"a": ""}, {"b": ""}, some=True) == (suite.NO_TESTS, [])


CASES_OF_ONE = """
import pytest

@pytest.mark.parametrize("case", [1, 2])
def test_of_two_cases(case): assert case == 1

@pytest.fixture
def leaves_a_mess():
    yield
    assert False

def test_that_cannot_be_cleared_away(leaves_a_mess): pass

def test_that_is_skipped(): pytest.skip("here")
"""


def test_what_passed_in_all_cases_is_kept_with_the_state_of_the_code(folder: Path) -> None:
    run(folder, {"a": CASES_OF_ONE, "b": ONCE}, {"c": PASSES}, 3)
    assert kept(folder) == {"code": "as it is", "tests": ["c.py::test_that_passes"]}, "what passed alone is unsteady"


def test_nothing_is_kept_of_code_that_changed_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(folder, {"a": PASSES}, {"b": PASSES})
    states = iter(["before", "after"])
    monkeypatch.setattr(suite, "state_of_the_code", lambda: next(states))
    run(folder, {"a": PASSES}, {"b": PASSES})
    assert not (folder / "cache" / suite.ALL_PASSED).exists()
