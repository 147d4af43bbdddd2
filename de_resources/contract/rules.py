"""Rules on rows: pandera's checks as SQL predicates, which counters, examples and constraints share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier
from de_resources.sql.literals import literal
from de_resources.sql.regexes import texts

_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'")
_NAME = re.compile(r"(?<![\w.`])(?:`([^`]+)`|([A-Za-z_]\w*)\b(?!\s*\())")
"""A name at the beginning of a path: what follows a dot is a field inside it, and what stands before a bracket a function."""

Predicate = Callable[[str, Mapping[str, Any]], str]
"""From a quoted column and the statistics of a pandera check to SQL."""


class UnknownRule(PermanentError):
    """A pandera check that has no counterpart as a SQL predicate."""

    def __init__(self, contract: str, column: str, check: str) -> None:
        self.contract, self.column, self.check = contract, column, check
        super().__init__(
            f"The contract `{contract}` uses the check `{check}` on `{column}`, which has no SQL form. "
            f"Use one of {', '.join(sorted(_PREDICATES))}, or a row rule in `Config.metadata['rules']`."
        )


@dataclass(frozen=True)
class Rule:
    """One named assertion on a row: `predicate` is SQL and true for a valid row; NULL counts as a violation."""

    name: str
    columns: tuple[str, ...]
    predicate: str
    label: str = ""
    """Short form for people, such as `≥ 0`; empty where another sign in the UI says it."""
    check: str = ""
    """Which check of a column it is (pandera's name, or `present`), for stores of another SQL; empty for a row rule."""
    statistics: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def violated(self) -> str:
        """SQL that is true for a row that breaks the rule. Never NULL."""
        return f"NOT coalesce({self.predicate}, FALSE)"

    @property
    def constraint(self) -> str:
        """SQL for a CHECK of a store, which would let a row pass whose condition is NULL. Never NULL."""
        # A column's own rule says what a null is; what a row rule makes of one nobody has said.
        return self.predicate if self.columns else f"coalesce({self.predicate}, FALSE)"

    def about(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of a dataset's columns that the rule is about; a rule on rows says them in its predicate only."""
        if self.columns:
            return self.columns
        said = {(quoted or plain).lower() for quoted, plain in _NAME.findall(_TEXT.sub("", self.predicate))}
        return tuple(name for name in names if name.lower() in said)


def column_rules(contract: str, name: str, column: Any) -> Iterable[Rule]:
    """The rules of one column of a pandera schema: presence, then its checks. Raises `UnknownRule`."""
    quoted = identifier(name)
    if not column.nullable:
        yield Rule(f"{name}_present", (name,), f"{quoted} IS NOT NULL", check="present")
    for check in column.checks:
        predicate = _PREDICATES.get(check.name)
        if predicate is None:
            raise UnknownRule(contract, name, check.name)
        # A null is the business of `…_present` alone, so that it is counted once.
        condition = f"({quoted} IS NULL OR {predicate(quoted, check.statistics)})"
        label = _LABELS[check.name](check.statistics)
        yield Rule(f"{name}_{check.name}", (name,), condition, label, check.name, check.statistics)


def _pattern(pattern: str | re.Pattern[str]) -> str:
    return pattern if isinstance(pattern, str) else pattern.pattern


def comparisons(literal: Callable[[Any], str]) -> Mapping[str, Predicate]:
    """Those checks that every SQL says in the same words, by pandera's names; `literal` writes a value for one of them."""

    def members(values: Iterable[Any]) -> str:
        return ", ".join(map(literal, values))

    def in_range(column: str, s: Mapping[str, Any]) -> str:
        low, high = (">=" if s["include_min"] else ">"), ("<=" if s["include_max"] else "<")
        return f"({column} {low} {literal(s['min_value'])} AND {column} {high} {literal(s['max_value'])})"

    return {
        "equal_to": lambda c, s: f"{c} = {literal(s['value'])}",
        "not_equal_to": lambda c, s: f"{c} <> {literal(s['value'])}",
        "greater_than": lambda c, s: f"{c} > {literal(s['min_value'])}",
        "greater_than_or_equal_to": lambda c, s: f"{c} >= {literal(s['min_value'])}",
        "less_than": lambda c, s: f"{c} < {literal(s['max_value'])}",
        "less_than_or_equal_to": lambda c, s: f"{c} <= {literal(s['max_value'])}",
        "in_range": in_range,
        "isin": lambda c, s: f"{c} IN ({members(s['allowed_values'])})",
        "notin": lambda c, s: f"{c} NOT IN ({members(s['forbidden_values'])})",
        "str_length": _length,
    }


def _length(column: str, s: Mapping[str, Any]) -> str:
    bounds = [
        f"length({column}) {sign} {int(s[name])}"
        for name, sign in (("min_value", ">="), ("max_value", "<="), ("exact_value", "="))
        if s.get(name) is not None
    ]
    return f"({' AND '.join(bounds) or 'TRUE'})"


def _begins(column: str, pattern: str) -> str:
    few = texts(pattern.removeprefix("^"))
    return _any_of("startswith", column, few) if few else f"{column} RLIKE {literal(f'^(?:{pattern})')}"


def _holds(column: str, pattern: str) -> str:
    few = texts(pattern)
    return _any_of("contains", column, few) if few else f"{column} RLIKE {literal(pattern)}"


def _any_of(function: str, column: str, few: Iterable[str]) -> str:
    return f"({' OR '.join(f'{function}({column}, {literal(text)})' for text in few)})"


_PREDICATES: Mapping[str, Predicate] = {
    **comparisons(literal),
    "str_matches": lambda c, s: _begins(c, _pattern(s["pattern"])),
    "str_contains": lambda c, s: _holds(c, _pattern(s["pattern"])),
    "str_startswith": lambda c, s: f"startswith({c}, {literal(s['string'])})",
    "str_endswith": lambda c, s: f"endswith({c}, {literal(s['string'])})",
}


def _range_label(s: Mapping[str, Any]) -> str:
    return f"{s['min_value']} {'≤' if s['include_min'] else '<'} x {'≤' if s['include_max'] else '<'} {s['max_value']}"


def _length_label(s: Mapping[str, Any]) -> str:
    if s.get("exact_value") is not None:
        return f"length {s['exact_value']}"
    low, high = s.get("min_value"), s.get("max_value")
    return f"length ≥ {low}" if high is None else f"length {low or 0}-{high}"


_LABELS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "equal_to": lambda s: f"= {s['value']}",
    "not_equal_to": lambda s: f"≠ {s['value']}",
    "greater_than": lambda s: f"> {s['min_value']}",
    "greater_than_or_equal_to": lambda s: f"≥ {s['min_value']}",
    "less_than": lambda s: f"< {s['max_value']}",
    "less_than_or_equal_to": lambda s: f"≤ {s['max_value']}",
    "in_range": _range_label,
    "isin": lambda s: f"one of {', '.join(map(str, s['allowed_values']))}",
    "notin": lambda s: f"none of {', '.join(map(str, s['forbidden_values']))}",
    "str_matches": lambda s: f"matches {_pattern(s['pattern'])}",
    "str_contains": lambda s: f"contains {_pattern(s['pattern'])}",
    "str_startswith": lambda s: f"starts with {s['string']}",
    "str_endswith": lambda s: f"ends with {s['string']}",
    "str_length": _length_label,
}
