"""Long proofs with seeds: `make soak MINUTES=10 SEED=7` repeats every test that asks for `soak_seed`, each time with another
seed, until the time is up. They are no part of any other run. Tests without a seed that `make test` leaves out
(`long_proofs`) have their turn among them. The seed also says whose turn is first, so that short calls with many seeds come
to all of them.

Every seed follows from the one that was given, the test and its round, so that the same call makes the same rounds. Where it
stopped is kept in `.de/soak.json`: the same call goes on there. A failure names the command that repeats it.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from long_proofs import is_long

STATE = Path(__file__).resolve().parent.parent / ".de" / "soak.json"
_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak", "long proofs with seeds")
    group.addoption("--soak", type=float, metavar="MINUTES", help="Repeat the long proofs for this long.")
    group.addoption("--seed", default="0", help="Where the seeds of all rounds come from; default: 0.")
    group.addoption("--soak-seed", type=int, help="One round of the long proofs with exactly this seed.")


def _is_soaking(config: pytest.Config) -> bool:
    return config.getoption("--soak") is not None or config.getoption("--soak-seed") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long proofs and nothing else; or everything else, and those that have no seed."""
    if _is_soaking(config):
        chosen = [item for item in items if _has_seed(item) or is_long(item)]
    else:
        chosen = [item for item in items if not _has_seed(item)]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def _has_seed(item: pytest.Item) -> bool:
    return "soak_seed" in getattr(item, "fixturenames", ())


@pytest.fixture
def soak_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this round, from which everything random in a long proof comes."""
    seed = request.config.getoption("--soak-seed")
    if seed is None:
        seed = request.config.stash[_SEED]
    print(f"once more with the same seed: pytest '{request.node.nodeid}' --soak-seed {seed}")
    return int(seed)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Round after round while there is time; one proof at least is completed."""
    minutes = session.config.getoption("--soak")
    if minutes is None or session.config.option.collectonly or session.testsfailed:
        return None
    end = time.monotonic() + minutes * 60
    given = session.config.getoption("--seed")
    rounds = _Rounds(str(given))
    # What a module's proofs share is made once per round: they stay together.
    items = sorted(session.items, key=lambda item: _hashed(f"{given}/{item.nodeid.partition('::')[0]}"))
    while items and (not rounds.passed_now or time.monotonic() < end):
        for item, following in zip(items, [*items[1:], items[0]], strict=True):
            if rounds.passed_now and time.monotonic() > end:
                break
            session.config.stash[_SEED] = rounds.seed(item.nodeid)
            item._initrequest()  # type: ignore[attr-defined]  # fixtures of a test function are made again
            item._report_sections.clear()  # what earlier rounds printed
            # A test that followed itself would not be set up again: of its own, only its module stays.
            session.config.hook.pytest_runtest_protocol(
                item=item, nextitem=item.parent if following is item else following
            )
            if session.testsfailed:
                raise session.Failed(f"seed {given}: see the command above")
            rounds.passed(item.nodeid)
    return True


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


class _Rounds:
    """How many rounds of each test passed with the seed that was given, in this call and those before it."""

    def __init__(self, given: str) -> None:
        self.passed_now = 0
        self._given = given
        self._known: dict[str, dict[str, int]] = json.loads(STATE.read_text()) if STATE.exists() else {}
        self._mine = self._known.setdefault(given, {})

    def seed(self, test: str) -> int:
        return _hashed(f"{self._given}/{test}/{self._mine.get(test, 0)}")

    def passed(self, test: str) -> None:
        self.passed_now += 1
        self._mine[test] = self._mine.get(test, 0) + 1
        STATE.parent.mkdir(exist_ok=True)
        draft = STATE.with_suffix(".draft")
        draft.write_text(json.dumps(self._known, indent=1))
        draft.replace(STATE)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how far it came."""
    if config.getoption("--soak") is not None and STATE.exists():
        done = json.loads(STATE.read_text()).get(str(config.getoption("--seed")), {})
        terminalreporter.write_line(f"soak, seed {config.getoption('--seed')}: rounds passed by now")
        for test, rounds in sorted(done.items()):
            terminalreporter.write_line(f"  {rounds:5} {test}")
