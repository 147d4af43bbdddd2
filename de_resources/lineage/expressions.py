"""Operator text to its parts. Spark quotes neither names nor literals, so `#` and an id are the only firm ground.

An attribute is printed as `name#12`, `name#12L` for a bigint, `name#12-T600000ms` with a watermark; a new column as
`expression AS name#13`. Commas, brackets and ` AS ` may be part of a name or of a literal: the known attributes and
the balance of brackets decide between the readings.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

_ID = r"#(?P<id>0|[1-9]\d*)L?(?:-T\d+ms)?(?!\w)"
_REFERENCE = re.compile(_ID)
_AS = " AS "
_LOOKAHEAD = 8
"""How many ` AS ` an item may hold before its brackets count as beyond repair; keeps wide lists linear."""
_ITEM_END = re.compile(_ID + r"(?=, |$)")
_SUBQUERIES = ("scalar-subquery", "lateral-subquery", "exists", "list")
_NEAR = 1024
"""How many characters before an id may be its name and the word before that; no name of a column is as long."""
_OUTER = re.compile(r"outer\([^()]*$")
_LAMBDA_VARIABLE = re.compile(r"lambda [^(),#]+$")
_CLOSING = {")": "(", "]": "["}


@dataclass(frozen=True)
class Reference:
    """One `…#id` of `text`, from the `#` at `start` on; the name is the last part of what stands before it.

    It looks at its own surroundings only: an operator with thousands of columns has as many references.
    """

    text: str
    start: int
    id: int
    end: int

    @property
    def before(self) -> str:
        """All of the text up to the `#`."""
        return self.text[: self.start]

    def is_called(self, name: str) -> bool:
        """True when the text before the id ends with `name`; Spark resolves names without regard to case."""
        return self.text[max(0, self.start - len(name)) : self.start].casefold() == name.casefold() if name else True

    @property
    def is_outer(self) -> bool:
        """A correlated reference inside a subquery; the expression that holds the subquery prints it once more."""
        return _OUTER.search(self._near) is not None

    @property
    def is_subquery(self) -> bool:
        """The result of a subquery, whose plan hangs below the operator."""
        return self.text.endswith(_SUBQUERIES, 0, self.start)

    @property
    def is_lambda_variable(self) -> bool:
        """The variable of a higher-order function, which ranges over one of its other arguments."""
        return _LAMBDA_VARIABLE.search(self._near) is not None

    @property
    def is_text(self) -> bool:
        """Part of a literal such as `order #12`: an attribute has its name right before the `#`."""
        return self._last in {"", " ", ",", "=", "(", "["}

    @property
    def is_call(self) -> bool:
        """The result of a call of a Python function: only those carry an id of their own behind the bracket."""
        return self._last == ")"

    @property
    def _last(self) -> str:
        return self.text[self.start - 1] if self.start else ""

    @property
    def _near(self) -> str:
        return self.text[max(0, self.start - _NEAR) : self.start]


@dataclass(frozen=True)
class NamedExpression:
    """`expression AS name#id`; for a bare attribute, the expression is the attribute."""

    expression: str
    name: str
    id: int


def references(expression: str) -> Iterator[Reference]:
    """All `…#id` of an expression, in the order of the text."""
    return (
        Reference(expression, match.start(), int(match["id"]), match.end()) for match in _REFERENCE.finditer(expression)
    )


def sole_reference(text: str) -> Reference | None:
    """The reference that ends with `text`, of which all before the `#` may be the name."""
    before, _, _ = text.rpartition("#")
    match = _REFERENCE.fullmatch(text, len(before))
    return Reference(text, len(before), int(match["id"]), match.end()) if match else None


def arguments_of(call: Reference) -> range:
    """Positions of a call's arguments; all that stands before it when brackets in a literal hide the beginning."""
    depth = 0
    for position in range(call.start - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(call.text[position], 0)
        if depth == 0:
            return range(position, call.start)
    return range(call.start)


class Spans:
    """Stretches of a text, and whether a position is in one of them."""

    def __init__(self, spans: Iterable[range]) -> None:
        self._exact = set(spans)
        ordered = sorted(self._exact, key=lambda span: span.start)
        self._starts = [span.start for span in ordered]
        self._ends = list(accumulate((span.stop for span in ordered), max))

    def __contains__(self, span: range) -> bool:
        """Whether exactly this stretch is one of them."""
        return span in self._exact

    def cover(self, position: int) -> bool:
        """Whether the position is in any of them."""
        at = bisect_right(self._starts, position) - 1
        return at >= 0 and position < self._ends[at]


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


def named_expressions(text: str, known: Spans) -> Iterator[NamedExpression]:
    """Items of a select list; `known` says where in `text` the input's attributes stand.

    An item is a known attribute, else `expression AS name#id`. Of several readings the one with the shortest balanced
    expression is taken: when it is wrong the name comes out too long, which whoever refers to the column notices.
    """
    ends = [(match.start(), match.end(), int(match["id"])) for match in _ITEM_END.finditer(text)]
    separators = [found.start() for found in re.finditer(_AS, text) if not known.cover(found.start())]
    start = first = 0
    while first < len(ends):
        taken, separator = _first_item(text, start, ends, first, separators, known)
        name_end, end, identity = ends[taken]
        if separator is None:
            yield NamedExpression(text[start:end], text[start:name_end], identity)
        else:
            yield NamedExpression(text[start:separator], text[separator + len(_AS) : name_end], identity)
        first, start = taken + 1, end + len(", ")


def _first_item(
    text: str, start: int, ends: Sequence[tuple[int, int, int]], first: int, separators: list[int], known: Spans
) -> tuple[int, int | None]:
    """Which of `ends`, from the `first` on, ends the item at `start`, and where its ` AS ` is; None for a bare attribute."""
    unbalanced = None
    for taken in range(first, len(ends)):
        name_end, end, _ = ends[taken]
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
    return unbalanced or (first, None)


def inside(text: str) -> str:
    """What stands between the first `[` and the last `]`."""
    return text[text.find("[") + 1 : text.rfind("]")]


def first_attributes(text: str) -> str:
    """Content of the first `[…]` that lists attributes: a stream's source prints its options and an older self besides."""
    start = -1
    for place, character in enumerate(text):
        if character == "[":
            start = place + 1
        elif character == "]" and _ITEM_END.search(text[start:place][-_NEAR:]):
            return text[start:place]
    return ""


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
