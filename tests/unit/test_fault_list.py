"""The list of faults names tests that exist, and none of the faults that are promised is without one."""

import re
from pathlib import Path

import pytest
from own_modules import plain_tests

pytestmark = pytest.mark.xdist_group("imports")

TESTS = Path(__file__).resolve().parent.parent
LINES = [
    line for line in (TESTS.parent / "docs" / "faults.md").read_text().splitlines() if re.match(r"\| \d+ \|", line)
]
PROMISED = {*range(1, 17), 18, *range(21, 25), *range(29, 34)}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("|")[1].strip())
def test_every_fault_names_tests_that_exist(line: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", line)
    assert named
    assert [(m, t) for m, t in named if not (TESTS / m).exists() or t not in plain_tests(TESTS / m)] == []


def test_no_promised_fault_is_missing() -> None:
    assert {int(line.split("|")[1]) for line in LINES} >= PROMISED
