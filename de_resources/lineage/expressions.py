"""Operator text to its parts. Spark quotes neither names nor literals, so `#` and an id are the only firm ground.

An attribute is printed as `name#12`, `name#12L` for a bigint, `name#12-T600000ms` with a watermark; a new column as
`expression AS name#13`. Commas, brackets and ` AS ` may be part of a name or of a literal: the known attributes and
the balance of brackets decide between the readings.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_ID = r"#(?P<id>0|[1-9]\d*)L?(?:-T\d+ms)?(?!\w)"
_REFERENCE = re.compile(_ID)
_AS = " AS "
_LOOKAHEAD = 8
"""How many ` AS ` an item may hold before its brackets count as beyond repair; keeps wide lists linear."""
_ITEM_END = re.compile(_ID + r"(?=, |$)")
_SUBQUERY = re.compile(r"(?:scalar-subquery|lateral-subquery|exists|list)$")
_OUTER = re.compile(r"outer\([^()]*$")
_LAMBDA_VARIABLE = re.compile(r"lambda [^(),#]+$")
_CLOSING = {")": "(", "]": "["}


@dataclass(frozen=True)
class Reference:
    """One `…#id` in an expression; `before` is the text up to the `#`, of which the name is the last part."""

    before: str
    id: int
    end: int

    def is_called(self, name: str) -> bool:
        """True when the text before the id ends with `name`; Spark resolves names without regard to case."""
        return self.before[-len(name) :].casefold() == name.casefold() if name else True

    @property
    def is_outer(self) -> bool:
        """A correlated reference inside a subquery; the expression that holds the subquery prints it once more."""
        return _OUTER.search(self.before) is not None

    @property
    def is_subquery(self) -> bool:
        """The result of a subquery, whose plan hangs below the operator."""
        return _SUBQUERY.search(self.before) is not None

    @property
    def is_lambda_variable(self) -> bool:
        """The variable of a higher-order function, which ranges over one of its other arguments."""
        return _LAMBDA_VARIABLE.search(self.before) is not None

    @property
    def is_text(self) -> bool:
        """Part of a literal such as `order #12`: an attribute has its name right before the `#`."""
        return self.before[-1:] in {"", " ", ",", "=", "(", "["}

    @property
    def is_call(self) -> bool:
        """The result of a call of a Python function: only those carry an id of their own behind the bracket."""
        return self.before.endswith(")")


@dataclass(frozen=True)
class NamedExpression:
    """`expression AS name#id`; for a bare attribute, the expression is the attribute."""

    expression: str
    name: str
    id: int


def references(expression: str) -> Iterator[Reference]:
    """All `…#id` of an expression, in the order of the text."""
    return (
        Reference(expression[: match.start()], int(match["id"]), match.end())
        for match in _REFERENCE.finditer(expression)
    )


def sole_reference(text: str) -> Reference | None:
    """The reference that ends with `text`, of which all before the `#` may be the name."""
    before, _, _ = text.rpartition("#")
    match = _REFERENCE.fullmatch(text, len(before))
    return Reference(before, int(match["id"]), match.end()) if match else None


def arguments_of(call: Reference) -> range:
    """Positions of a call's arguments; all that stands before it when brackets in a literal hide the beginning."""
    depth = 0
    for position in range(len(call.before) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(call.before[position], 0)
        if depth == 0:
            return range(position, len(call.before))
    return range(len(call.before))


def is_balanced(text: str) -> bool:
    """True when every bracket closes the one that was opened last."""
    opened: list[str] = []
    for character in text:
        if character in "([":
            opened.append(character)
        elif character in _CLOSING and (not opened or opened.pop() != _CLOSING[character]):
            return False
    return not opened


def columns(text: str, separator: str = ", ") -> list[tuple[str, int]]:
    """Names and ids of a list of attributes: `a#1, b#2`, or `a#1,b#2` in relations."""
    result, start = [], 0
    for match in re.finditer(rf"{_ID}(?:{separator}(?! )|$)", text):
        result.append((text[start : match.start()], int(match["id"])))
        start = match.end()
    return result


def named_expressions(text: str, known: Collection[range]) -> Iterator[NamedExpression]:
    """Items of a select list; `known` says where in `text` the input's attributes stand.

    An item is a known attribute, else `expression AS name#id`. Of several readings the one with the shortest balanced
    expression is taken: when it is wrong the name comes out too long, which whoever refers to the column notices.
    """
    ends = [(match.start(), match.end(), int(match["id"])) for match in _ITEM_END.finditer(text)]
    separators = [found.start() for found in re.finditer(_AS, text) if not any(found.start() in at for at in known)]
    start = 0
    while ends:
        taken, separator = _first_item(text, start, ends, separators, known)
        name_end, end, identity = ends[taken]
        if separator is None:
            yield NamedExpression(text[start:end], text[start:name_end], identity)
        else:
            yield NamedExpression(text[start:separator], text[separator + len(_AS) : name_end], identity)
        ends, start = ends[taken + 1 :], end + len(", ")


def _first_item(
    text: str, start: int, ends: list[tuple[int, int, int]], separators: list[int], known: Collection[range]
) -> tuple[int, int | None]:
    """Which of `ends` is the end of the item at `start`, and where its ` AS ` is; None for a bare attribute."""
    unbalanced = None
    for taken, (name_end, end, _) in enumerate(ends):
        if range(start, end) in known:
            return taken, None
        possible = separators[bisect_right(separators, start) : bisect_left(separators, name_end)]
        if len(possible) > _LOOKAHEAD:
            break
        balanced = next((at for at in possible if is_balanced(text[start:at])), None)
        if balanced is not None:
            return taken, balanced
        if possible and unbalanced is None:
            unbalanced = taken, possible[0]
    return unbalanced or (0, None)


def inside(text: str) -> str:
    """What stands between the first `[` and the last `]`."""
    return text[text.find("[") + 1 : text.rfind("]")]


def split_lists(text: str) -> tuple[str, str]:
    """Two neighbouring lists `[…], […]` without their outer brackets; more lists stay in the second."""
    content = inside(text)
    separators = [match.start() for match in re.finditer(re.escape("], ["), content)]
    if not separators:
        return content, ""
    at = next((position for position in separators if is_balanced(content[:position])), separators[0])
    return content[:at], content[at + len("], [") :]


def split_arguments(text: str) -> list[str]:
    """Items of a list of expressions without names, divided at the commas outside all brackets."""
    items, start = [], 0
    for match in re.finditer(", ", text):
        if is_balanced(text[start : match.start()]):
            items.append(text[start : match.start()])
            start = match.end()
    return [*items, text[start:]]
