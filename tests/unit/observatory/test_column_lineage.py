"""From a column to where it begins, against a walk over all edges."""

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.observatory_world import NOW
from de_resources.observatory.lineage import MOST_NODES, LineageEdges
from de_resources.observatory.model import ColumnRef, ObservedColumn, ObservedDataset, ObservedWorld


def world(*datasets: ObservedDataset) -> ObservedWorld:
    return ObservedWorld(NOW, {dataset.name: dataset for dataset in datasets})


def table(name: str, *upstream: str, **columns: list[str]) -> ObservedDataset:
    """Columns with their sources as `dataset.column`."""
    made = [
        ObservedColumn(column, sources=tuple(ColumnRef(*source.rsplit(".", 1)) for source in sources))
        for column, sources in columns.items()
    ]
    return ObservedDataset(name, upstream=upstream, columns=tuple(made), owners=(f"team:{name}",))


BLOG = world(
    ObservedDataset("sources/log", external=True),
    ObservedDataset("sources/landed", upstream=("sources/log",), external=True),
    table("bronze/visits", "sources/landed", page=[], user=[]),
    table("silver/visits", "bronze/visits", page=["bronze/visits.page"], hour=[]),
    table("gold/pages", "silver/visits", page=["silver/visits.page"], visits=[]),
)


def reached(start: ColumnRef, edges: set[tuple[ColumnRef, ColumnRef]]) -> set[ColumnRef]:
    """All that lies above, by looking at every edge again until nothing is new."""
    found = {start}
    while more := {a for a, b in edges if b in found} - found:
        found |= more
    return found


def edges_of(lineage: LineageEdges, dataset: ObservedDataset) -> set[tuple[ColumnRef, ColumnRef]]:
    around = lineage.around(dataset)
    return {(around.nodes[a], around.nodes[b]) for a, b in around.edges}


def test_a_gold_column_begins_in_the_system_outside() -> None:
    edges = edges_of(LineageEdges(BLOG), BLOG.datasets["gold/pages"])
    assert reached(ColumnRef("gold/pages", "page"), edges) == {
        ColumnRef("gold/pages", "page"),
        ColumnRef("silver/visits", "page"),
        ColumnRef("bronze/visits", "page"),
        ColumnRef("sources/landed"),
        ColumnRef("sources/log"),
    }


def test_a_count_comes_from_the_rows_above() -> None:
    assert LineageEdges(BLOG).above(ColumnRef("gold/pages", "visits")) == (ColumnRef("silver/visits"),)


def test_the_text_of_a_file_is_no_end_where_its_system_is_known() -> None:
    """Who reads files names their text as a column, which the files themselves do not declare."""
    read = table("bronze/visits", "sources/landed", page=["sources/landed.value"])
    lineage = LineageEdges(world(*(BLOG.datasets[name] for name in ("sources/log", "sources/landed")), read))
    assert reached(ColumnRef("bronze/visits", "page"), edges_of(lineage, read)) == {
        ColumnRef("bronze/visits", "page"),
        ColumnRef("sources/landed", "value"),
        ColumnRef("sources/log"),
    }


def test_what_is_made_of_a_column_is_found_as_well() -> None:
    around = LineageEdges(BLOG).around(BLOG.datasets["bronze/visits"])
    assert {ColumnRef("silver/visits", "page"), ColumnRef("gold/pages", "page")} <= set(around.nodes)
    assert ColumnRef("gold/pages", "visits") not in around.nodes


def test_a_dataset_that_builds_on_itself_ends() -> None:
    own = table("gold/activity", "gold/activity", total=["gold/activity.total"])
    around = LineageEdges(world(own)).around(own)
    assert around.nodes == (ColumnRef("gold/activity", "total"),)
    assert around.edges == ()


def test_a_source_that_nobody_knows_any_more_is_named() -> None:
    made = table("silver/x", "bronze/gone", a=["bronze/gone.b"])
    assert ColumnRef("bronze/gone", "b") in LineageEdges(world(made)).around(made).nodes


def test_a_very_wide_neighbourhood_is_cut_and_says_so() -> None:
    wide = table("a", **{f"c{n}": [] for n in range(MOST_NODES)})
    made = table("b", "a", all=[f"a.c{n}" for n in range(MOST_NODES)])
    around = LineageEdges(world(wide, made)).around(made)
    assert (len(around.nodes), around.cut) == (MOST_NODES, True)
    assert all(a < MOST_NODES and b < MOST_NODES for a, b in around.edges)


@settings(max_examples=60)
@given(
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 7), st.integers(0, 3)), max_size=40),
    st.integers(0, 7),
)
def test_the_neighbourhood_has_all_that_a_walk_over_all_edges_reaches(
    pairs: set[tuple[int, int, int, int]], start: int
) -> None:
    above: dict[tuple[int, int], list[str]] = {}
    for d, c, e, f in pairs:
        above.setdefault((d, c), []).append(f"{e}.{f}")
    made = [table(str(d), **{str(c): above.get((d, c), []) for c in range(4)}) for d in range(8)]
    lineage = LineageEdges(world(*made))
    every = {(ColumnRef(str(e), str(f)), ColumnRef(str(d), str(c))) for d, c, e, f in pairs}
    own = [ColumnRef(str(start), str(c)) for c in range(4)]
    up = set().union(*(reached(ref, every) for ref in own))
    down = set().union(*(reached(ref, {(b, a) for a, b in every}) for ref in own))
    around = lineage.around(made[start])
    assert set(around.nodes) == up | down
    shown = {(around.nodes[a], around.nodes[b]) for a, b in around.edges}
    assert shown == {(a, b) for a, b in every if a != b and {a, b} <= set(around.nodes)}
