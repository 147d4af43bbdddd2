"""Long proofs: each round with another seed, the same ones for the same call, going on where it stopped."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PROOFS = """
from pathlib import Path
import pytest

LOG = Path(__file__).with_name("seeds.txt")

@pytest.fixture(scope="module")
def dear():
    with LOG.open("a") as log:
        print("made", file=log)

def note(name, seed):
    with LOG.open("a") as log:
        print(name, seed, file=log)
"""
ONE = PROOFS + "\ndef test_one(dear, soak_seed, tmp_path): note('one', soak_seed)\ndef test_other(): assert False\n"
TWO = ONE + "\ndef test_two(dear, soak_seed): note('two', soak_seed)\n"
FAILING = PROOFS + "\ndef test_one(soak_seed): note('one', soak_seed); assert LOG.read_text().count('one') < 3\n"
SECOND = 1 / 60


@pytest.fixture
def proofs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    import soaking

    monkeypatch.setattr(soaking, "STATE", pytester.path / "soak.json")
    # Each call would look five times for garbage before it ends.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:unraisableexception")
    return pytester


def seeds(proofs: pytest.Pytester) -> list[str]:
    log = Path(proofs.path) / "seeds.txt"
    return log.read_text().splitlines() if log.exists() else []


def soak(proofs: pytest.Pytester, module: str, *arguments: str) -> pytest.RunResult:
    proofs.makepyfile(test_proofs=module)
    return proofs.runpytest_inprocess("-p", "soaking", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("module", [ONE, TWO], ids=["one proof", "two proofs"])
def test_rounds_differ_and_share_what_is_dear(proofs: pytest.Pytester, module: str) -> None:
    done = soak(proofs, module, "--soak", str(SECOND))
    assert done.ret == 0, done.outlines
    found = seeds(proofs)
    rounds = [line for line in found if line.startswith("one ")]
    assert len(rounds) > 1
    assert len(set(rounds)) == len(rounds), "every round has another seed"
    assert found.count("made") == 1, "a module's fixtures are kept"


def test_the_same_call_goes_on_and_another_seed_begins_anew(proofs: pytest.Pytester) -> None:
    soak(proofs, ONE, "--soak", "0", "--seed", "a")
    soak(proofs, ONE, "--soak", "0", "--seed", "a")
    soak(proofs, ONE, "--soak", "0", "--seed", "b")
    first, second, other = (line for line in seeds(proofs) if line.startswith("one "))
    assert len({first, second, other}) == 3
    (proofs.path / "soak.json").unlink()
    (proofs.path / "seeds.txt").unlink()
    soak(proofs, ONE, "--soak", "0", "--seed", "a")
    assert seeds(proofs)[-1] == first


def test_the_seed_says_whose_turn_is_first_and_short_calls_come_to_all(proofs: pytest.Pytester) -> None:
    """With no time at all a call completes one proof."""
    folder = proofs.path
    for name in "ab":
        (folder / f"test_{name}.py").write_text(ONE.replace("'one'", f"'{name}'"))
    for seed in range(12):
        arguments = ("-p", "soaking", "-p", "no:cacheprovider", "--soak", "0", "--seed", str(seed))
        assert proofs.runpytest_inprocess(*arguments).ret == 0
    found = [line.split()[0] for line in seeds(proofs) if line != "made"]
    assert len(found) == 12
    assert set(found) == {"a", "b"}


def test_a_failure_names_the_command_that_repeats_it(proofs: pytest.Pytester) -> None:
    done = soak(proofs, FAILING, "--soak", "1")
    assert done.ret != 0
    failed = seeds(proofs)[-1].split()[1]
    done.stdout.fnmatch_lines(
        [f"*once more with the same seed: pytest 'test_proofs.py::test_one' --soak-seed {failed}"]
    )
    again = soak(proofs, FAILING, "--soak-seed", failed)
    assert again.ret != 0
    assert seeds(proofs)[-1].split()[1] == failed


def test_an_ordinary_run_has_no_long_proofs(proofs: pytest.Pytester) -> None:
    done = soak(proofs, TWO)
    done.assert_outcomes(failed=1, deselected=2)
    assert seeds(proofs) == []
