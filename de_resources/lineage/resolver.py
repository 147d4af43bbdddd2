"""The walk over the plan, from the leaves to the root, and what it adds up to."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from de_resources.lineage.attributes import Columns, OperatorWalk, WalkFindings
from de_resources.lineage.model import ColumnSource, Lineage, Origins, merged
from de_resources.lineage.operators import rule_of
from de_resources.lineage.reads import is_read, unnamed_read
from de_resources.lineage.tree import PlanNode, parse_tree

_TRUNCATED = re.compile(r"\.\.\. \d+ more (?:fields|characters)")


def lineage_of_plan(plan: str, names: Sequence[str], sources: Collection[str]) -> Lineage:
    """Return the lineage of a frame with the columns `names` and the analysed `plan`.

    Raises PlanFormatError when `plan` is not drawn as Spark draws plans.
    """
    findings = WalkFindings()
    if _TRUNCATED.search(plan):
        findings.doubt("The plan is cut off: raise spark.sql.debug.maxToStringFields.")
    root = parse_tree(plan, frozenset(sources))
    output = _output(root, findings)
    read = [node for node in root if is_read(node)]
    if [column.name for column in output] != list(names):
        findings.doubt("The columns of the plan are not those of the frame.")
    return Lineage(
        columns=_columns(output, names),
        dependencies=tuple(sorted(findings.dependencies)),
        complete=not findings.reasons,
        reasons=tuple(findings.reasons),
        inputs=tuple(sorted({node.input.source for node in root if node.input and not node.children})),
        unnamed=tuple(dict.fromkeys(unnamed_read(node) for node in read if node.input is None)),
    )


def _output(root: PlanNode, findings: WalkFindings) -> Columns:
    resolved: dict[int, Columns] = {}
    for node in root:
        inputs = [resolved.pop(id(child)) for child in node.children]
        subqueries = [resolved.pop(id(subquery)) for subquery in node.subqueries]
        resolved[id(node)] = rule_of(node)(OperatorWalk(node, inputs, subqueries, findings))
    return resolved[id(root)]


def _columns(output: Columns, names: Sequence[str]) -> dict[str, tuple[ColumnSource, ...]]:
    """Sources by the frame's names; columns that share a name are one entry, as no table can keep them apart."""
    origins: dict[str, Origins] = {name: {} for name in names}
    for column in output:
        if column.name in origins:
            origins[column.name] = merged([origins[column.name], column.origins])
    return {name: _sources(found) for name, found in origins.items()}


def _sources(origins: Origins) -> tuple[ColumnSource, ...]:
    return tuple(sorted(ColumnSource(source, name, kind) for (source, name), kind in origins.items()))
