"""The list of planted defects is alive: each has its place in the code, is code, and has tests that must notice it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import psutil
import pytest
from own_modules import functions, proved
from processes import living
from sabotage import trial
from sabotage.__main__ import main
from sabotage.defects import FAULTS, PROJECT, Claims, Defect, defects, plain, rows
from sabotage.hunt import green_in_suite
from sabotage.memory import Memory, Verdict, passed_in_suite, state_of_the_code
from sabotage.trial import run
from sabotage.workplace import Workplace
from waiting import PATIENCE, until

from de_assets.catalogue.patterns import PATTERNS, Family

pytestmark = pytest.mark.xdist_group("imports")

LIST = defects()
BUILT = (Family.DATA_INGESTION, Family.ERROR_MANAGEMENT, Family.IDEMPOTENCY)
"""Families of which every pattern is at work in the graph."""


@pytest.fixture(scope="module")
def claims() -> Claims:
    return Claims(proved(), rows())


@pytest.mark.parametrize("defect", LIST, ids=lambda defect: defect.name)
def test_a_defect_has_one_place_is_code_and_is_asked_of_a_test_that_claims_it(defect: Defect, claims: Claims) -> None:
    right = (PROJECT / defect.file).read_text(encoding="utf-8")
    wrong = defect.planted(right)
    assert wrong != right
    if defect.file.endswith(".py"):
        compile(wrong, defect.file, "exec")
    assert set(defect.patterns) <= set(PATTERNS)
    assert plain(defect.noticed_by) in {plain(test) for test in claims.of(defect)}


def test_the_tests_that_are_asked_first_exist() -> None:
    named = {defect.noticed_by for defect in LIST}
    modules = {name.partition("::")[0] for name in named}
    there = {f"{module}::{test}" for module in modules for test in functions(PROJECT / module)}
    assert {name.partition("[")[0] for name in named} - there == set()


def test_names_are_unique_and_there_are_enough() -> None:
    assert [name for name, count in Counter(defect.name for defect in LIST).items() if count > 1] == []
    assert len(LIST) >= 60


def test_every_built_pattern_has_two_defects_and_every_fault_one() -> None:
    of_patterns = Counter(pattern for defect in LIST for pattern in defect.patterns)
    built = [name for name, pattern in PATTERNS.items() if pattern.family in BUILT or of_patterns[name]]
    assert len(built) >= 22
    assert [name for name in built if of_patterns[name] < 2 or name not in proved()] == []
    assert set(rows()) - {defect.fault for defect in LIST} == set(), f"a row of {FAULTS.name} without a defect"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    copy = Workplace(tmp_path_factory.mktemp("sabotage") / "copy")
    # What all tests share takes a second and a half of each call of pytest, and is not the question.
    (copy.folder / "tests" / "conftest.py").unlink()
    return copy


def test_the_defect_is_what_is_imported_and_is_gone_afterwards(workplace: Workplace) -> None:
    """The environment of the tests imports the project from elsewhere."""
    weeks = "de_resources/iso_week.py"
    defect = Defect("a", weeks, "LENGTH = timedelta(days=7)", "LENGTH = timedelta(days=9)", "")
    question = "from de_resources import iso_week as w; print(w.LENGTH.days, w.__file__)"

    def imported() -> str:
        command = [sys.executable, "-c", question]
        told = subprocess.run(
            command, cwd=workplace.folder, env=workplace.environment, check=True, capture_output=True, text=True
        )
        return told.stdout.strip()

    place = workplace.folder / weeks
    for _ in range(2):
        assert imported() == f"7 {place}"
        with workplace.with_defect(defect):
            assert imported() == f"9 {place}", "of the same size, within the same second"
    assert place.read_text() == (PROJECT / weeks).read_text()
    assert "days=7" in (PROJECT / weeks).read_text()


def test_a_failure_is_a_notice_and_what_cannot_run_is_none(workplace: Workplace) -> None:
    weeks, hint = "de_resources/iso_week.py", "tests/unit/test_iso_week.py"
    with workplace.with_defect(Defect("a", weeks, "timedelta(days=7)", "timedelta(days=8)", hint)):
        noticed = run(workplace, [hint])
    assert len(noticed.failed) == 1, "the first one is enough"
    assert noticed.broken is None
    with workplace.with_defect(Defect("a", weeks, "LENGTH = ", "import nothing_of_this_name\nLENGTH = ", hint)):
        assert run(workplace, [hint]).broken == "pytest ended with 2"
    assert run(workplace, [f"{hint}::test_that_nobody_wrote"]).broken == "pytest ended with 4"


def test_who_interrupts_does_not_wait_for_the_tests_that_run(workplace: Workplace) -> None:
    test, begun = workplace.folder / "tests" / "unit" / "test_that_lasts.py", workplace.folder / "begun"
    test.write_text(f"""
import subprocess
from pathlib import Path

def test_lasts():
    child = subprocess.Popen(["sleep", "600"])
    Path({str(begun)!r}).write_text(str(child.pid))
    child.wait()
""")
    interrupted = Event()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(run, workplace, [str(test)], interrupted=interrupted)
        until(lambda: begun.exists() and begun.read_text() != "", "the test runs")
        interrupted.set()
        outcome = asked.result(PATIENCE)
    assert (outcome.failed, outcome.passed, outcome.broken) == ((), (), "it did not end"), "no answer"
    child = int(begun.read_text())
    until(lambda: not psutil.pid_exists(child) or not living([psutil.Process(child)]), "its child has ended")


def test_what_does_not_end_behind_the_last_test_keeps_no_answer_back(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LINGERS", 0.0)
    test = workplace.folder / "tests" / "unit" / "test_that_leaves_a_thread.py"
    test.write_text("""
import threading

def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait).start()
""")
    outcome = run(workplace, [str(test)])
    assert (outcome.failed, len(outcome.passed), outcome.broken) == ((), 1, None), outcome.told


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    file, (one, other) = tmp_path / "verdicts.json", LIST[:2]
    noticed = Verdict(one.name, one.noticed_by, 1.0)
    Memory(file).remember(one, noticed)
    Memory(file).remember(other, Verdict(other.name, None, 1.0, broken="no test ran"))
    memory = Memory(file)
    assert memory.recall(one) == noticed
    assert memory.recall(other) is None, "what was no answer is asked again"
    changed = Defect(one.name, one.file, one.find, one.replace + " ", one.noticed_by, one.patterns, one.fault)
    assert memory.recall(changed) is None
    memory.forget([one.name])
    assert Memory(file).recall(one) is None


def test_what_passed_in_the_suite_is_believed_as_long_as_the_code_is_the_same(tmp_path: Path) -> None:
    left = tmp_path / "passed.json"
    assert passed_in_suite(left) == []
    left.write_text(json.dumps({"code": state_of_the_code(), "tests": ["tests/a.py::test_one"]}))
    assert passed_in_suite(left) == ["tests/a.py::test_one"]
    left.write_text(json.dumps({"code": state_of_the_code()[1:], "tests": ["tests/a.py::test_one"]}))
    assert passed_in_suite(left) == []


def test_a_test_has_passed_in_the_suite_if_one_of_its_cases_has() -> None:
    """Those that failed in another case are not among what the suite left."""
    passed = ["b.py::Class::test_one[1]", "a.py::test_one_more", "a.py::test_two", "b.py::test_two[1]"]
    asked = ["a.py::test_one", "a.py::test_two", "b.py::Class::test_one", "b.py::test_two[2]", "c.py::test_two"]
    assert list(green_in_suite(asked, passed)) == ["a.py::test_two", "b.py::Class::test_one"]


def test_a_run_without_time_says_what_is_left_and_that_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    assert main(["--minutes", "0", "--lanes", "1", LIST[0].name]) == 3
    assert "1 are not asked yet" in capsys.readouterr().out
