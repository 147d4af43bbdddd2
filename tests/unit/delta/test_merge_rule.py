"""Merge rules from metadata, in our terms and in `dagster_delta`'s."""

from __future__ import annotations

from typing import Any

import pytest
from dagster_delta import MergeConfig, MergeType

from de_resources.delta.write.merge import MergeRule
from de_resources.delta.write.merge_rule import merge_rule
from de_resources.errors import PermanentError

pytestmark = pytest.mark.pattern("merger")


def test_our_terms() -> None:
    metadata = {"merge_keys": ["a", "b"], "merge_order": "seq", "merge_deleted": "gone", "merge_vanished": "delete"}
    assert merge_rule(metadata, None, None) == MergeRule(("a", "b"), "seq", "gone", "delete")
    assert merge_rule(metadata | {"merge_ties": "replace"}, None, None).ties == "replace"


@pytest.mark.parametrize(
    ("predicate", "key"),
    [("s.id = t.id", ("id",)), ("source.a=target.a  and  target.b = source.b", ("a", "b"))],
)
def test_predicates_of_equalities_name_the_key(predicate: str, key: tuple[str, ...]) -> None:
    assert merge_rule({"merge_predicate": predicate}, None, None).key == key
    assert merge_rule({}, None, MergeConfig(merge_type=MergeType.upsert, predicate=predicate)).key == key


@pytest.mark.parametrize(
    "predicate", ["s.id > t.id", "s.id = t.other", "s.id = s.id", "s.id = t.id OR 1=1", "s.id = t.id; DROP TABLE x", ""]
)
def test_other_predicates_are_refused_or_no_key(predicate: str) -> None:
    if predicate:
        with pytest.raises(PermanentError, match="not an equality"):
            merge_rule({"merge_predicate": predicate}, None, None)
    else:
        assert merge_rule({"merge_predicate": predicate}, None, None).key == ()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (MergeType.upsert, {}),
        (MergeType.update_only, {"insert": False}),
        (MergeType.deduplicate_insert, {"update": False}),
        (MergeType.replace_delete_unmatched, {"vanished": "delete"}),
    ],
)
def test_merge_types(kind: MergeType, expected: dict[str, Any]) -> None:
    assert merge_rule({"merge_keys": ["id"]}, None, MergeConfig(merge_type=kind)) == MergeRule(("id",), **expected)


def test_custom_clauses_and_unknown_words_are_refused() -> None:
    with pytest.raises(PermanentError, match="custom"):
        merge_rule({}, None, MergeConfig(merge_type=MergeType.custom))
    with pytest.raises(PermanentError, match="`keep` or `delete`"):
        merge_rule({"merge_vanished": "drop"}, None, None)
    with pytest.raises(PermanentError, match="`refuse` or `replace`"):
        merge_rule({"merge_ties": "keep"}, None, None)
