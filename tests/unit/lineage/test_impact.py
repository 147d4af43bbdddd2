"""What depends on a column: told from recorded lineage, beside a walk over the same edges in plain Python."""

from __future__ import annotations

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from de_resources.lineage.impact import NoSuchColumn, NoSuchDataset, Target, impact, target_of
from de_resources.lineage.record import COLUMN_LINEAGE, LINEAGE_CONDITIONS, LINEAGE_INCOMPLETE
from de_resources.lineage.recorded import Field, Lineages, RecordedDataset, RecordedLineage

pytestmark = pytest.mark.pattern("fine_grained_tracker", "dataset_tracker")


def fields(*said: str) -> frozenset[Field]:
    found = (each.rpartition(".") for each in said)
    return frozenset((dataset, column) for dataset, _, column in found)


def dataset(
    columns: dict[str, list[str]], *conditions: str, parents: str = "", owner: str = "", complete: bool = True
) -> RecordedDataset:
    lineage = RecordedLineage({c: fields(*of) for c, of in columns.items()}, fields(*conditions), complete)
    return RecordedDataset(lineage, frozenset(parents.split()), (owner,) if owner else (), tuple(columns))


BLOG = Lineages(
    {
        "s/topic": RecordedDataset(owners=("team:web",)),
        "b/visits": dataset({"id": ["s/topic.value"], "user": ["s/topic.value"], "page": ["s/topic.value"]}),
        "v/visits": dataset(
            {"id": ["b/visits.id"], "user": ["b/visits.user"], "page": ["b/visits.page"]},
            "b/visits.id",
            parents="b/visits",
            owner="team:web",
        ),
        "g/sessions": dataset(
            {"user": ["v/visits.user"], "pages": ["v/visits.page"]}, "v/visits.user", parents="v/visits", owner="team:a"
        ),
        "g/activity": dataset(
            {"user": ["v/visits.user", "g/activity.user"], "seen": ["g/activity.seen", "v/visits.page"]},
            parents="v/visits g/activity",
            owner="team:b",
        ),
        "d/page": RecordedDataset(parents=frozenset({"g/sessions"}), owners=("team:c",)),
        "x.y/odd": dataset({"a.b": ["v/visits.page"], "a": ["v/visits.id"]}, parents="v/visits"),
    }
)


def told(asked: str, lineages: Lineages = BLOG) -> dict[str, tuple[tuple[str, ...], bool, bool, str]]:
    found = impact(target_of(asked, lineages), lineages)
    return {each.asset: (each.columns, each.rows, each.breaks, each.known) for each in found}


def test_values_rows_and_those_that_would_break_are_told_apart():
    assert told("v/visits.user") == {
        "g/sessions": (("user",), True, True, "recorded"),
        "g/activity": (("user",), False, True, "recorded"),
        "d/page": ((), True, False, "graph"),
    }
    assert told("v/visits.page") == {
        "g/sessions": (("pages",), False, True, "recorded"),
        "g/activity": (("seen",), False, True, "recorded"),
        "x.y/odd": (("a.b",), False, True, "recorded"),
        "d/page": ((), True, False, "graph"),
    }


def test_the_nearest_come_first_and_everybody_has_an_owner():
    found = impact(Target("b/visits", "page"), BLOG)
    assert [(each.asset, each.distance) for each in found] == [
        ("v/visits", 1), ("g/activity", 2), ("g/sessions", 2), ("x.y/odd", 2), ("d/page", 3),
    ]  # fmt: skip
    assert {each.asset: each.owners for each in found}["d/page"] == ("team:c",)
    assert [each.asset for each in found if each.breaks] == ["v/visits"]


def test_of_a_whole_dataset_every_reader_breaks():
    found = told("v/visits")
    assert {name for name, each in found.items() if each[2]} == {"g/sessions", "g/activity", "x.y/odd"}
    assert found["x.y/odd"] == (("a", "a.b"), True, True, "recorded")


def test_a_dataset_that_reads_itself_or_a_circle_ends():
    circle = Lineages({"a/x": dataset({"c": ["a/y.c"]}), "a/y": dataset({"c": ["a/x.c"], "d": ["a/y.c"]})})
    assert told("a/x.c", circle) == {"a/y": (("c", "d"), False, True, "recorded")}
    assert told("a/y.c", circle) == {
        "a/x": (("c",), False, True, "recorded"),
        "a/y": (("d",), False, False, "recorded"),
    }


def test_what_never_ran_is_named_by_the_graph_with_all_that_it_declares():
    lineages = Lineages(
        {
            "a/x": RecordedDataset(fields=("c", "d")),
            "a/y": RecordedDataset(parents=frozenset({"a/x"}), fields=("e",)),
            "a/z": dataset({"f": ["a/y.e"]}),
        }
    )
    assert told("a/x.c", lineages) == {"a/y": (("e",), True, True, "graph"), "a/z": (("f",), True, False, "recorded")}
    assert told("a/x", lineages)["a/y"] == (("e",), True, True, "graph")


def test_lineage_that_may_lack_something_is_not_taken_for_none():
    lineages = Lineages(
        {"a/x": RecordedDataset(fields=("c",)), "a/y": dataset({"d": []}, parents="a/x", complete=False)}
    )
    assert told("a/x.c", lineages) == {"a/y": ((), False, False, "incomplete")}


class TestNames:
    def test_the_longest_key_wins_and_columns_may_have_dots(self):
        assert target_of("x.y/odd.a.b", BLOG) == Target("x.y/odd", "a.b")
        assert target_of("x.y/odd", BLOG) == Target("x.y/odd")

    def test_what_is_unknown_gets_a_suggestion(self):
        with pytest.raises(NoSuchDataset, match="Did you mean `v/visits`"):
            target_of("v/visitz.user", BLOG)
        with pytest.raises(NoSuchColumn, match="Did you mean `user`") as refused:
            target_of("v/visits.usr", BLOG)
        assert "Its columns: id, user, page" in str(refused.value)

    def test_a_source_outside_has_the_columns_that_somebody_reads(self):
        assert target_of("s/topic.value", BLOG) == Target("s/topic", "value")

    def test_a_removed_column_is_still_told_about_while_lineage_names_it(self):
        lineages = Lineages({"a/x": RecordedDataset(fields=("c",)), "a/y": dataset({"d": ["a/x.gone"]})})
        assert target_of("a/x.gone", lineages) == Target("a/x", "gone", removed=True)
        assert told("a/x.gone", lineages) == {"a/y": (("d",), False, True, "recorded")}


NAMES = [f"l/d{number}" for number in range(5)]
COLUMNS = ["a", "b", "c"]
FIELDS = st.sampled_from([(name, column) for name in NAMES for column in COLUMNS])


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=25), FIELDS)
def test_the_columns_are_those_of_a_plain_walk(edges: list[tuple[Field, Field]], asked: Field):
    reached = {asked}
    while more := {to for of, to in edges if of in reached} - reached:
        reached |= more
    lineage = {n: {c: frozenset(of for of, to in edges if to == (n, c)) for c in COLUMNS} for n in NAMES}
    lineages = Lineages(
        {n: RecordedDataset(RecordedLineage(columns), fields=tuple(COLUMNS)) for n, columns in lineage.items()}
    )
    found = impact(Target(*asked), lineages)
    assert {(each.asset, column) for each in found for column in each.columns} == reached - {asked}
    direct = {name for of, (name, _) in edges if of == asked and name != asked[0]}
    assert {each.asset for each in found if each.breaks} == direct


def test_lineage_comes_from_the_newest_materialisation_that_has_any_in_all_locations():
    x, y = dg.AssetKey(["a", "x"]), dg.AssetKey(["a", "y"])
    old, new = (dg.TableColumnLineage({"c": [dg.TableColumnDep(x, source)]}) for source in ("old", "new"))

    @dg.asset(key=x, owners=["team:x"])
    def made() -> None: ...

    elsewhere = dg.Definitions(assets=[dg.AssetSpec(x), dg.AssetSpec(y, deps=[x], owners=["team:y"])])
    with dg.DagsterInstance.ephemeral() as instance:
        doubts = {LINEAGE_INCOMPLETE: "why", LINEAGE_CONDITIONS: dg.MetadataValue.json({"a/x": ["where"]})}
        for metadata in ({COLUMN_LINEAGE: old}, {COLUMN_LINEAGE: new, **doubts}, {"restored": 1}):
            instance.report_runless_asset_event(dg.AssetMaterialization(y, metadata=metadata))
        found = Lineages.of(instance, [dg.Definitions(assets=[made]), elsewhere])
    assert found.datasets["a/y"].lineage == RecordedLineage(
        {"c": fields("a/x.new")}, fields("a/x.where"), complete=False
    )
    assert found.datasets["a/x"].owners == ("team:x",)
    assert found.fields("a/x") == ("new", "where")
