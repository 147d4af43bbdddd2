"""One rule per operator of the analysed plan: the columns that go in, the columns that come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest

from de_resources.lineage.attributes import Columns, OperatorWalk, OutputColumn
from de_resources.lineage.expressions import (
    arguments_of,
    columns,
    first_attributes,
    inside,
    references,
    split_arguments,
    split_lists,
)
from de_resources.lineage.model import NOWHERE, DependencyKind, LineageKind, Origins, merged
from de_resources.lineage.tree import PlanNode

Rule = Callable[[OperatorWalk], Columns]


def leaf(step: OperatorWalk) -> Columns:
    """Columns of a relation: those of the input under whose alias it stands, else of nowhere."""
    text = step.text
    if step.node.operator.startswith("Streaming"):
        found = columns(first_attributes(text))
    else:
        is_plain = step.node.operator in {"Relation", "LogicalRDD", "LocalRelation"}
        start = text.find("[") if is_plain else text.rfind("[")
        # Behind the columns stands the format, which may have brackets of its own: `JDBCRelation(visits) [numPartitions=1]`.
        end = text.rfind("] ") if step.node.operator == "Relation" and "] " in text else text.rfind("]")
        found = columns(text[start + 1 : end], "," if step.node.operator == "Relation" else ", ")
    return tuple(OutputColumn(name, identity, _read(step, name)) for name, identity in found)


def _read(step: OperatorWalk, column: str) -> Origins:
    return step.node.input.origins(column) if step.node.input else NOWHERE


def sequence_leaf(step: OperatorWalk) -> Columns:
    """`Range` has the one column `id`, which is not printed."""
    return (OutputColumn("id", None, _read(step, "id")),)


def view(step: OperatorWalk) -> Columns:
    """A view that is read as an input stands for itself: its own columns are the sources, not those of its tables."""
    if step.node.input is None:
        return step.passed
    return tuple(OutputColumn(column.name, column.id, _read(step, column.name)) for column in step.passed)


def passing(step: OperatorWalk) -> Columns:
    """An operator that changes neither columns nor, in a way that data decides, rows."""
    return step.passed


def project(step: OperatorWalk) -> Columns:
    """A select list."""
    return tuple(step.selected(inside(step.text)))


def aggregate(step: OperatorWalk) -> Columns:
    """Grouping expressions stay what they are; everything else in the select list is computed over the group's rows."""
    if "], [" not in step.text:
        return tuple(step.selected(inside(step.text), LineageKind.AGGREGATED))
    grouping, select_list = split_lists(step.text)
    step.depends(grouping, DependencyKind.GROUP)
    keys = set(split_arguments(grouping))
    by_key = {item.id for item in step.items(select_list) if item.expression in keys}
    return tuple(
        row if row.id in by_key else over_rows
        for row, over_rows in zip(
            step.selected(select_list), step.selected(select_list, LineageKind.AGGREGATED), strict=True
        )
    )


def window(step: OperatorWalk) -> Columns:
    """The input's columns and the window functions, whose partition and order keys count as sources."""
    functions, _specification = split_lists(step.text)
    return (*step.passed, *step.selected(functions, LineageKind.AGGREGATED))


def join(step: OperatorWalk) -> Columns:
    """Columns of both sides; of the left one only when the right one just decides about rows."""
    step.depends(step.text, DependencyKind.JOIN)
    return step.input(0) if step.text.startswith(("LeftSemi", "LeftAnti")) else step.passed


def lateral_join(step: OperatorWalk) -> Columns:
    """Columns of the left side and of the subquery that runs for each of its rows."""
    _subquery, _, condition = step.text.partition(" ")
    step.depends(condition, DependencyKind.JOIN)
    return (*step.passed, *(column for part in step.subqueries for column in part))


def union(step: OperatorWalk) -> Columns:
    """Columns of the first input, each with the origins of the columns in its place."""
    if len({len(part) for part in step.inputs}) > 1:
        step.doubt("has inputs of different widths.")
    return tuple(
        OutputColumn(place[0].name, place[0].id, merged(column.origins for column in place if column))
        for place in zip_longest(*step.inputs)
        if place[0]
    )


def comparison(step: OperatorWalk) -> Columns:
    """`Intersect` and `Except` keep rows of the first input, by comparison with all columns of the others."""
    step.depends_on(merged(column.origins for column in step.passed), DependencyKind.FILTER)
    return step.input(0)


def generate(step: OperatorWalk) -> Columns:
    """The input's columns and those of a generator such as `explode`."""
    generator, _, output = step.text.rpartition("[")
    origins = step.origins(generator)
    return (*step.passed, *(OutputColumn(name, identity, origins) for name, identity in columns(output.rstrip("]"))))


def expand(step: OperatorWalk) -> Columns:
    """Several rows out of one (grouping sets, unpivot): a column has the origins of its place in every projection."""
    projections, _, output = inside(step.text).rpartition("]], [")
    rows = [split_arguments(row) for row in projections.lstrip("[").split("], [")]
    names = columns(output)
    if any(len(row) != len(names) for row in rows):
        step.doubt("has projections that could not be told apart.")
    return tuple(
        OutputColumn(name, identity, merged(_place(step, row[place]) for row in rows if place < len(row)))
        for place, (name, identity) in enumerate(names)
    )


def _place(step: OperatorWalk, expression: str) -> Origins:
    same = step.attribute(expression)
    return same.origins if same else step.origins(expression)


def python_function(step: OperatorWalk) -> Columns:
    """`mapInPandas`, `applyInPandas` and the like: every column that comes out may depend on all that went in."""
    calls = (found for found in references(step.text) if found.is_call and step.find(found) is None)
    call = next(calls, None)
    if call is None:
        step.doubt("shows no function.")
        return ()
    head = step.text[: arguments_of(call).start]
    for key in _group_keys(step, head):
        step.depends_on(key, DependencyKind.GROUP)
    rest = step.text[len(call.before) :]
    start = rest.find("[")
    origins = step.origins(f"{call.before}#{call.id}")
    return tuple(OutputColumn(name, identity, origins) for name, identity in columns(rest[start + 1 : rest.rfind("]")]))


def _group_keys(step: OperatorWalk, head: str) -> Iterable[Origins]:
    """Keys that stand before the function: as a list, or for cogroups as how many of each input's first columns."""
    if head.startswith("["):
        return [step.origins(head)]
    counts = [int(word) for word in head.split(", ")[: len(step.inputs)] if word.isdecimal()]
    return [column.origins for part, count in zip(step.inputs, counts, strict=False) for column in part[:count]]


def definition(step: OperatorWalk) -> Columns:
    """A common table expression, kept under its number for the places that refer to it."""
    step.findings.shared[step.text.partition(",")[0]] = step.passed
    return step.passed


def definition_reference(step: OperatorWalk) -> Columns:
    """A use of a common table expression: its columns in their places, under new ids."""
    shared = step.findings.shared.get(step.text.partition(",")[0], ())
    names = columns(inside(step.text))
    if len(names) != len(shared):
        step.doubt("refers to a common table expression with other columns.")
    return tuple(
        OutputColumn(name, identity, origin.origins) for (name, identity), origin in zip(names, shared, strict=False)
    )


def with_definitions(step: OperatorWalk) -> Columns:
    """Common table expressions, then the query that uses them."""
    return step.input(-1)


def deciding(kind: DependencyKind) -> Rule:
    """Rule of an operator that passes all columns while its expressions decide about rows."""

    def rule(step: OperatorWalk) -> Columns:
        step.depends(step.text, kind)
        return step.passed

    return rule


def unknown(step: OperatorWalk) -> Columns:
    """An operator without a rule: taken to pass its input, with a doubt."""
    step.doubt("is an operator that has no rule of lineage.")
    return step.passed


def _same(rule: Rule, operators: Iterable[str]) -> dict[str, Rule]:
    return dict.fromkeys(operators, rule)


RULES: dict[str, Rule] = {
    "Project": project,
    "View": view,
    "Aggregate": aggregate,
    "Window": window,
    "LateralJoin": lateral_join,
    "Union": union,
    "Generate": generate,
    "Expand": expand,
    "Range": sequence_leaf,
    "CTERelationDef": definition,
    "CTERelationRef": definition_reference,
    "WithCTE": with_definitions,
    "Filter": deciding(DependencyKind.FILTER),
    "Sort": deciding(DependencyKind.SORT),
    **_same(deciding(DependencyKind.DEDUPLICATE), ("Deduplicate", "DeduplicateWithinWatermark")),
    **_same(join, ("Join", "AsOfJoin")),
    **_same(comparison, ("Intersect", "Except")),
    **_same(
        python_function,
        (
            "MapInPandas",
            "MapInArrow",
            "FlatMapGroupsInPandas",
            "FlatMapGroupsInArrow",
            "FlatMapGroupsInPandasWithState",
            "FlatMapCoGroupsInPandas",
            "FlatMapCoGroupsInArrow",
            "TransformWithStateInPandas",
            "TransformWithStateInPySpark",
        ),
    ),
    **_same(
        passing,
        (
            "SubqueryAlias",
            "CollectMetrics",
            "EventTimeWatermark",
            "GlobalLimit",
            "LocalLimit",
            "Offset",
            "Tail",
            "Sample",
            "ResolvedHint",
            "Repartition",
            "RepartitionByExpression",
            "RebalancePartitions",
        ),
    ),
}


def rule_of(node: PlanNode) -> Rule:
    """The rule of an operator. What has no children and no rule is a relation."""
    return RULES.get(node.operator, unknown if node.children else leaf)
