"""Which branch a partition takes: by its key, by the columns of the source, and never by chance."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from de_resources import exclusive_choice
from de_resources.exclusive_choice import (
    ExclusiveChoice,
    NoBranch,
    NothingToChoose,
    OtherForm,
    SchemaUnknown,
    SeveralBranches,
    When,
)

pytestmark = pytest.mark.pattern("exclusive_choice")

AT = "2026-03-01"
BY_DAY = ExclusiveChoice("serving/sales", {"old": When(before=AT), "new": When(since=AT)})
BY_SCHEMA = ExclusiveChoice("serving/sales", {"old": When(lacks={"currency"}), "new": When(has={"currency"})})
DAYS = st.dates().map(str)


def test_the_day_of_the_cut_over_is_the_first_of_the_new_side() -> None:
    assert BY_DAY.choose(["2026-02-28", AT, "2026-03-02"], None) == {"old": ["2026-02-28"], "new": [AT, "2026-03-02"]}


@given(st.lists(DAYS, min_size=1, unique=True))
def test_every_day_has_one_branch_and_the_branches_follow_time(days: list[str]) -> None:
    chosen = BY_DAY.choose(days, None)
    assert sorted(day for own in chosen.values() for day in own) == sorted(days)
    assert all(own for own in chosen.values()), "who has no partition has no output"
    assert {day for day in days if day < AT} == {*chosen.get("old", [])}


@pytest.mark.parametrize(
    ("columns", "branch"), [(["id"], "old"), (["id", "currency"], "new"), ([], "old"), (["CURRENCY"], "old")]
)
def test_the_schema_decides_alone(columns: list[str], branch: str) -> None:
    assert BY_SCHEMA.choose(["2026-01-01"], columns) == {branch: ["2026-01-01"]}


def test_a_schema_that_nobody_knows_is_no_schema_without_columns() -> None:
    with pytest.raises(SchemaUnknown, match="`old`"):
        BY_SCHEMA.choose(["2026-01-01"], None)


def test_the_schema_is_asked_for_only_where_the_day_leaves_it_open() -> None:
    both = ExclusiveChoice("s", {"old": When(before=AT), "new": When(since=AT, has={"currency"})})
    assert both.choose(["2026-02-28"], None) == {"old": ["2026-02-28"]}
    with pytest.raises(SchemaUnknown):
        both.choose(["2026-02-28", AT], None)


def test_of_a_partition_that_no_branch_is_for_each_says_why() -> None:
    gap = ExclusiveChoice("s", {"old": When(before="2026-02-01"), "new": When(since=AT, has={"b", "a"}, lacks={"x"})})
    with pytest.raises(NoBranch) as caught:
        gap.choose(["2026-02-10"], [])
    assert caught.value.reasons == {
        "old": "it is for partitions before 2026-02-01",
        "new": f"it is for partitions since {AT}",
    }
    with pytest.raises(NoBranch, match="the source has no `a`, `b`"):
        gap.choose([AT], ["x"])
    with pytest.raises(NoBranch, match="the source has `x`"):
        gap.choose([AT], ["a", "b", "x"])


def test_two_branches_for_a_partition_are_refused() -> None:
    overlap = ExclusiveChoice("s", {"old": When(before="2026-03-02"), "new": When(since=AT)})
    assert overlap.choose(["2026-02-28"], None) == {"old": ["2026-02-28"]}
    with pytest.raises(SeveralBranches) as caught:
        overlap.choose([AT], None)
    assert (caught.value.key, caught.value.branches) == (AT, ("old", "new"))


@pytest.mark.parametrize("key", ["2026-3-1", "2026-03-01-05:00", "", "march"])
def test_a_key_of_another_form_is_not_compared(key: str) -> None:
    with pytest.raises(OtherForm):
        BY_DAY.choose([key], None)


def test_a_run_that_names_no_partition_is_refused() -> None:
    with pytest.raises(NothingToChoose):
        BY_DAY.choose([], ["id"])


def test_the_conditions_are_told_in_words() -> None:
    assert str(When()) == "always"
    choice = ExclusiveChoice("s", {"old": When(before=AT), "new": When(since=AT, has={"b"}, lacks={"a"})})
    assert choice.markdown.splitlines()[2:] == [
        f"| old | before {AT} |",
        f"| new | since {AT}, and the source has `b`, and the source has no `a` |",
    ]


def test_the_choice_cannot_reach_an_engine() -> None:
    """It reads metadata only, for it knows nothing else."""
    tree = ast.parse(Path(exclusive_choice.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert not {name for name in imported if name and name.split(".")[0] in {"pyspark", "deltalake", "pyarrow"}}
    assert {name for name in imported if name and name.startswith("de_")} == {"de_resources.errors"}
