"""One expression of many, as deep as its logarithm."""

from math import ceil, log2

import pytest

from de_resources.sql.balanced import balanced


@pytest.mark.parametrize("number", [1, 2, 3, 7, 8, 44, 2_000])
def test_all_parts_in_their_order_and_no_deeper_than_needed(number: int) -> None:
    def depth(part: object) -> int:
        return 1 + max(map(depth, part)) if isinstance(part, tuple) else 0

    def leaves(part: object) -> list[object]:
        return [leaf for each in part for leaf in leaves(each)] if isinstance(part, tuple) else [part]

    tree: object = balanced(lambda one, other: (one, other), list[object](range(number)))
    assert leaves(tree) == list(range(number))
    assert depth(tree) == ceil(log2(number))
