"""Patterns that stand for a few texts: exactly these, and nothing for a pattern that has to be matched."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_resources.sql.regexes import texts

pytestmark = [pytest.mark.pattern("constraints_enforcer")]

CHARACTERS = "ab.:?"
ALL = ["".join(chosen) for length in range(5) for chosen in product(CHARACTERS, repeat=length)]


@pytest.mark.parametrize(
    ("pattern", "few"),
    [
        ("@", ["@"]),
        ("https?://", ["http://", "https://"]),
        (r"example\.org", ["example.org"]),
        ('it\'s "a"; --', ['it\'s "a"; --']),
        ("ä?b?", ["", "b", "ä", "äb"]),
    ],
)
def test_a_plain_pattern_is_its_texts(pattern: str, few: list[str]) -> None:
    assert texts(pattern) == few


@pytest.mark.parametrize(
    "pattern",
    ["", "a.b", "a*", "a+", "a??", "a{2}", "[ab]", "a|b", "(a)", "^a", "a$", r"\d", r"\Qa", "\\", r"a\ b", "a?b?c?"],
)
def test_what_has_to_be_matched_has_no_texts(pattern: str) -> None:
    assert texts(pattern) == []


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(["a", "b", ":", r"\.", r"\?", "a?", ":?", r"\.?", ".", "+"]), max_size=4).map("".join))
def test_they_are_what_the_pattern_matches(pattern: str) -> None:
    few = texts(pattern)
    if few:
        assert {text for text in ALL if re.fullmatch(pattern, text)} == set(few)
