"""Plan text to a tree, by the drawing that Spark indents it with.

A child hangs one level (three characters) below its parent. The plan of a subquery inside an expression hangs two
levels below, before the children:

    Filter id#1 IN (list#9 [])
    :  +- Project [id#5]        <- subquery
    :     +- Relation [id#5] parquet
    +- Relation [id#1] parquet  <- child
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from de_resources.lineage.inputs import InputAlias

_DRAWING = re.compile(r"(?P<levels>(?:[ :] {2})*)[+:]- (?P<text>.*)", re.DOTALL)
_OPERATOR = re.compile(r"~?(?P<operator>[A-Za-z]\w*)\s?(?P<arguments>.*)", re.DOTALL)


class PlanFormatError(ValueError):
    """The text is not a plan as Spark draws it."""


@dataclass(eq=False)
class PlanNode:
    """One operator. `input` is the nearest enclosing input alias, which says whose columns a leaf has."""

    operator: str
    arguments: str
    children: list[PlanNode] = field(default_factory=list)
    subqueries: list[PlanNode] = field(default_factory=list)
    input: InputAlias | None = None

    def __iter__(self) -> Iterator[PlanNode]:
        """Children and subqueries before their parent. Without recursion: a plan may be deeper than Python's stack."""
        pending = [(self, False)]
        while pending:
            node, is_expanded = pending.pop()
            if is_expanded:
                yield node
                continue
            pending.append((node, True))
            pending.extend((part, False) for part in reversed([*node.subqueries, *node.children]))


def parse_tree(text: str, sources: frozenset[str] = frozenset()) -> PlanNode:
    """Return the root of the plan drawn in `text`. Raises PlanFormatError when the drawing cannot be followed."""
    root, *entries = [(level, _node(line)) for level, line in _entries(text)]
    root[1].input = _alias(root[1], sources)
    path: list[PlanNode | None] = [root[1]]
    for level, node in entries:
        del path[level:]
        path.extend([None] * (level - len(path)))
        parent = _attach(node, path)
        node.input = _alias(node, sources) or parent.input
        path.append(node)
    return root[1]


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """Level and text of each operator. A line without the drawing belongs to a literal or a name with a line feed."""
    level, parts = 0, [""]
    for number, line in enumerate(text.strip("\n").split("\n")):
        drawn = _DRAWING.fullmatch(line)
        if drawn:
            yield level, "\n".join(parts)
            level, parts = len(drawn["levels"]) // 3 + 1, [drawn["text"]]
        elif number == 0:
            parts = [line]
        else:
            parts.append(line)
    yield level, "\n".join(parts)


def _node(line: str) -> PlanNode:
    match = _OPERATOR.fullmatch(line)
    if match is None:
        raise PlanFormatError("A line of the plan does not start with the name of an operator.")
    return PlanNode(match["operator"], match["arguments"])


def _attach(node: PlanNode, path: list[PlanNode | None]) -> PlanNode:
    """Hang `node` below the end of `path`, which has one entry per level above it, and return its parent."""
    parent = path[-1]
    if parent is not None:
        parent.children.append(node)
        return parent
    owner = path[-2]
    if owner is None:
        raise PlanFormatError("An operator of the plan hangs below nothing.")
    owner.subqueries.append(node)
    return owner


def _alias(node: PlanNode, sources: frozenset[str]) -> InputAlias | None:
    if node.operator != "SubqueryAlias":
        return None
    name = node.arguments.strip()
    if name.startswith("`") and name.endswith("`"):
        name = name[1:-1].replace("``", "`")
    return InputAlias.of(name, sources)
