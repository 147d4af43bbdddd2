"""Attributes of an expression, resolved against the columns that an operator gets from its inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from de_resources.lineage.expressions import (
    NamedExpression,
    Reference,
    Spans,
    arguments_of,
    named_expressions,
    references,
    sole_reference,
)
from de_resources.lineage.model import NOWHERE, Dependency, DependencyKind, LineageKind, Origins, is_mark, merged
from de_resources.lineage.tree import PlanNode


@dataclass(frozen=True)
class OutputColumn:
    """One output column of an operator. Where Spark prints no id (`Range`), it is None and the name decides."""

    name: str
    id: int | None
    origins: Origins = field(default_factory=dict)


Columns = tuple[OutputColumn, ...]
_ONLY_WHERE = re.compile(r"CASE WHEN (?P<decision>.+) THEN (?P<value>.+) END", re.DOTALL)


@dataclass
class WalkFindings:
    """What the walk collects besides columns."""

    dependencies: set[Dependency] = field(default_factory=set)
    reasons: dict[str, None] = field(default_factory=dict)
    shared: dict[str, Columns] = field(default_factory=dict)
    """Columns of common table expressions, by their number."""

    def doubt(self, reason: str) -> None:
        """Note why the lineage may be incomplete."""
        self.reasons[reason] = None


class OperatorWalk:
    """One operator with the columns of its inputs: resolves expressions and notes dependencies and doubts."""

    def __init__(self, node: PlanNode, inputs: list[Columns], subqueries: list[Columns], findings: WalkFindings):
        self.node = node
        self.inputs = inputs
        self.subqueries = subqueries
        self._results = _subquery_results(node.arguments, subqueries)
        self.findings = findings
        self._by_id = {column.id: column for part in [*subqueries, *inputs] for column in part}
        self._without_id = [column for part in inputs for column in part if column.id is None]

    @property
    def text(self) -> str:
        """The operator's arguments."""
        return self.node.arguments

    @property
    def passed(self) -> Columns:
        """All input columns, one input after the other."""
        return tuple(column for part in self.inputs for column in part)

    def doubt(self, reason: str) -> None:
        """Note why this operator may hide lineage."""
        self.findings.doubt(f"{self.node.operator} {reason}")

    def input(self, place: int) -> Columns:
        """Columns of one input; none, with a doubt, when the operator has no inputs at all."""
        if self.inputs:
            return self.inputs[place]
        self.doubt("has no input.")
        return ()

    def depends(self, expression: str, kind: DependencyKind) -> None:
        """Note the sources of `expression` as dependencies."""
        self.depends_on(self.origins(expression, marks=True), kind)

    def depends_on(self, origins: Origins, kind: DependencyKind) -> None:
        """Note `origins` as dependencies, unless the operator is part of reading an input."""
        if self.node.input is None:
            self.findings.dependencies.update(Dependency(source, name, kind) for source, name in origins)

    def origins(
        self, expression: str, at_least: LineageKind = LineageKind.TRANSFORMED, *, marks: bool = False
    ) -> Origins:
        """Sources of all that `expression` refers to; inputs of Python functions are opaque.

        `marks` are left out unless they are asked for, as for what decides about rows and for another mark.
        """
        found = [(reference, self.find(reference)) for reference in references(expression)]
        names = Spans(range(at.start - len(column.name), at.start) for at, column in found if column)
        calls = Spans(arguments_of(at) for at, column in found if column is None and at.is_call)
        parts = []
        for at, column in found:
            if column is None and names.cover(at.start):
                continue  # a `#1` that is part of a column's name
            if column is not None and is_mark(column.name) and not marks:
                continue
            kind = LineageKind.OPAQUE if calls.cover(at.start) else at_least
            parts.append(merged([column.origins if column else self._without_column(at)], kind))
        return merged(parts)

    def items(self, select_list: str) -> Iterator[NamedExpression]:
        """Expressions of a select list with their names."""
        found = ((reference, self.find(reference)) for reference in references(select_list))
        known = Spans(range(at.start - len(column.name), at.end) for at, column in found if column)
        return named_expressions(select_list, known)

    def selected(self, select_list: str, at_least: LineageKind = LineageKind.TRANSFORMED) -> Iterator[OutputColumn]:
        """Columns of a select list; a bare, renamed or marked attribute keeps its origins as they are."""
        for item in self.items(select_list):
            same = self.attribute(self._unmarked(item))
            origins = same.origins if same else self.origins(item.expression, at_least, marks=is_mark(item.name))
            yield OutputColumn(item.name, item.id, origins)
            if same is None and "outer(" in item.expression:
                self.doubt("hands a column of an outer query through a subquery.")

    def attribute(self, text: str) -> OutputColumn | None:
        """The input column that is printed as `text` from its first to its last character."""
        reference = sole_reference(text)
        column = self.find(reference) if reference else None
        return column if reference and column and reference.start == len(column.name) else None

    def _unmarked(self, item: NamedExpression) -> str:
        """The value of `when(mark, value)`: what it is in the rows that stay. Of other items the expression as it is."""
        matched = _ONLY_WHERE.fullmatch(item.expression)
        if matched is None:
            return item.expression
        decided_by = [self.find(reference) for reference in references(matched["decision"])]
        only_marks = bool(decided_by) and all(column is not None and is_mark(column.name) for column in decided_by)
        return matched["value"] if only_marks else item.expression

    def find(self, reference: Reference) -> OutputColumn | None:
        """The input column behind a reference; both its id and its name must agree."""
        column = self._by_id.get(reference.id)
        if column and reference.is_called(column.name):
            return column
        return next((column for column in self._without_id if reference.is_called(column.name)), None)

    def _without_column(self, reference: Reference) -> Origins:
        if reference.is_subquery:
            return merged(column.origins for column in self._results[reference.id])
        if not (reference.is_call or reference.is_lambda_variable or reference.is_outer or reference.is_text):
            self.doubt(f"refers to attribute #{reference.id}, which none of its inputs has.")
        return NOWHERE


def _subquery_results(expression: str, subqueries: list[Columns]) -> dict[int, Columns]:
    """Columns of each subquery under the id of its result: plans hang in the order in which expressions name them."""
    ids = [reference.id for reference in references(expression) if reference.is_subquery]
    if len(ids) == len(subqueries):
        return dict(zip(ids, subqueries, strict=True))
    return dict.fromkeys(ids, tuple(column for part in subqueries for column in part))
