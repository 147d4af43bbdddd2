"""The comparison of two sides: what differs, what is missing, what nobody asked for, each by name."""

from __future__ import annotations

import pytest

from de_checks.digest import SHOWN, compare

SOURCE = {"a": "1", "b": "2", "c": "3"}


@pytest.mark.pattern("passthrough_replicator")
@pytest.mark.parametrize(
    ("replica", "told"),
    [
        ({**SOURCE, "b": "x"}, {"differing": ["b"]}),
        ({"a": "1", "c": "3"}, {"missing": ["b"]}),
        ({**SOURCE, "z": "9"}, {"unexpected": ["z"]}),
        ({"a": "x", "z": "9"}, {"differing": ["a"], "missing": ["b", "c"], "unexpected": ["z"]}),
        ({}, {"missing": ["a", "b", "c"]}),
    ],
)
def test_every_difference_is_red_and_named(replica: dict[str, str], told: dict[str, list[str]]) -> None:
    verdict = compare(SOURCE, replica)

    assert not verdict.passed
    assert {k: v.value for k, v in verdict.metadata.items() if k != "compared"} == told
    assert all(f"`{name}`" in verdict.description for names in told.values() for name in names)


def test_equal_sides_are_green_and_say_how_much_was_compared() -> None:
    assert compare(SOURCE, dict(SOURCE)).passed
    assert compare(SOURCE, dict(SOURCE)).metadata["compared"] == 3
    assert compare({}, {}).description == "Both are empty."


def test_many_differences_are_cut_and_counted() -> None:
    verdict = compare({str(n): "x" for n in range(SHOWN + 2_000)}, {})

    assert "and 2,000 more" in verdict.description
    assert len(verdict.metadata["missing"].value) == SHOWN
