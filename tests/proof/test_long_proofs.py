"""What `make test` leaves to `make soak`: what is listed exists, is left out there, and has its turn here."""

import re
from collections import Counter
from collections.abc import Set
from pathlib import Path

import long_proofs
import pytest
import soaking
from own_modules import functions

pytest_plugins = ["pytester"]

TESTS = Path(long_proofs.FOLDER)
WITH_SERVICES = {"services", "ui"}
WITH_ENGINE = {module.relative_to(TESTS).parts[0] for module in TESTS.glob("*/**/test_*.py")} - WITH_SERVICES
MODULE = """
import pytest
def test_short(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_both(n): pass
@pytest.mark.parametrize("mail", ["a@x.org", "b"])
def test_one(mail): pass
def test_seeded(soak_seed): pass
"""
LISTED = ("test_module.py::test_both", "test_module.py::test_one[a@x.org]")


@pytest.fixture
def module(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    proofs = {test: long_proofs.LongProof(test, "test_short") for test in LISTED}
    monkeypatch.setattr(long_proofs, "listed", lambda: proofs)
    monkeypatch.setattr(soaking, "STATE", pytester.path / "soak.json")
    # Each call would look five times for garbage before it ends.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:unraisableexception")
    pytester.makepyfile(test_module=MODULE)
    return pytester


@pytest.mark.xdist_group("imports")
def test_what_is_listed_is_a_test() -> None:
    proofs = long_proofs.listed().values()
    assert proofs, "nobody could tell whether the list is read"
    places = [(proof.test.partition("[")[0].partition("::"), proof) for proof in proofs]
    lost = [proof.test for (file, _, test), proof in places if test not in functions(TESTS / file)]
    assert lost == [], "a test that has another name now is no longer left out"


def test_the_files_that_ask_the_same_question_exist() -> None:
    named = {file for proof in long_proofs.listed().values() for file in re.findall(r"[\w/]+\.py", proof.short)}
    assert len(named) > 5, "nobody could tell whether the words are read"
    assert sorted(file for file in named if not (TESTS / file).exists()) == []


def test_a_short_run_leaves_them_out_and_any_other_has_them(module: pytest.Pytester) -> None:
    plugins = ("-p", "grouping", "-p", "long_proofs", "-p", "soaking", "-p", "no:cacheprovider")
    module.runpytest_inprocess(*plugins, "--short").assert_outcomes(passed=2, deselected=4)
    module.runpytest_inprocess(*plugins).assert_outcomes(passed=5, deselected=1)


def test_they_have_their_turn_in_the_soak(module: pytest.Pytester) -> None:
    done = module.runpytest_inprocess("-p", "long_proofs", "-p", "soaking", "-p", "no:cacheprovider", "--soak", "0.02")
    assert done.ret == 0
    turns = [line.split()[-1].partition("::")[2] for line in done.outlines if "test_module.py::" in line]
    assert sorted(turns) == ["test_both[1]", "test_both[2]", "test_one[a@x.org]", "test_seeded"]


@pytest.mark.parametrize("folders", [WITH_ENGINE, WITH_SERVICES], ids=["engine", "services"])
def test_modules_of_one_call_have_names_of_their_own(folders: Set[str]) -> None:
    """`make soak` and `make test` each give these folders to one pytest, which knows a module by its name alone."""
    names = Counter(file.name for folder in folders for file in (TESTS / folder).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
