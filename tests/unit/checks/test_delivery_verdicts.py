"""What is said of a delivery."""

import pytest

from de_checks.delivery import judged

pytestmark = pytest.mark.pattern("bin_pack_orderer")


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ({}, "All of 9"),
        ({"delivery/undeliverable": 1, "delivery/held": 2}, "1 refused for good, 2 held"),
        ({"delivery/waiting": 3}, "3 not sent yet"),
    ],
)
def test_it_passes_where_nothing_is_left(left: dict[str, int], said: str) -> None:
    verdict = judged({"delivery/records": 9, "delivery/delivered": 9 - sum(left.values()), "delivery/held": 0, **left})
    assert verdict.passed == (not left)
    assert said in verdict.description


def test_a_materialisation_that_says_nothing_does_not_pass() -> None:
    assert not judged({}).passed
