"""Looking for the rows that break a contract: how many per partition key, and a few of them to show.

Used only where the write's own counters do not answer. Both queries read the slice and nothing else of the table; Delta
skips the files of other partitions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_checks.per_key import Key
from de_resources.contract import ROWS, Contract
from de_resources.contract.rules import Rule
from de_resources.delta.attribution import KeyGroups
from de_resources.delta.slices import Slice
from de_resources.delta.write.frames import counters
from de_resources.sql.balanced import balanced
from de_resources.sql.identifiers import identifier

MAX_KEYS_WITH_EXAMPLES = 10


@dataclass(frozen=True)
class Count:
    """Rows of one key (None: not known), and how many of them break each rule."""

    rows: int | None
    violations: Mapping[str, int]

    @property
    def total(self) -> int:
        """Violations of all rules together; a row that breaks two rules counts twice."""
        return sum(self.violations.values())


@dataclass(frozen=True)
class Example:
    """A row that breaks `rules`: the values that identify it, and those that its key's broken rules are about."""

    rules: Sequence[str]
    row: Mapping[str, Any]


def count_by_key(frame: DataFrame, slice_: Slice | None, contract: Contract) -> dict[Key, Count]:
    """Rows and violations per key of the slice, by one grouped query. A key without rows has zeros."""
    rules = [r.name for r in contract.rules]
    groups = KeyGroups(slice_.by_key, frame.schema) if slice_ else None
    by = [F.expr(expression) for expression in groups.expressions] if groups else []
    found: dict[Key, Counter[str]] = defaultdict(Counter)
    for row in _inside(frame, slice_).groupBy(*by).agg(*counters(contract)).collect():
        key = groups.key_of(row[: len(by)]) if groups else None
        found[key].update(dict(zip([ROWS, *rules], row[len(by) :], strict=True)))
    keys: Sequence[Key] = slice_.keys if slice_ else [None]
    return {key: Count(found[key][ROWS], {rule: found[key][rule] for rule in rules}) for key in keys}


def examples_by_key(
    frame: DataFrame, slice_: Slice | None, contract: Contract, broken: Mapping[Key, Sequence[Rule]], limit: int
) -> dict[Key, list[Example]]:
    """At most `limit` rows per key that break one of the key's `broken` rules, by one query. Values are not redacted.

    Keys beyond the first `MAX_KEYS_WITH_EXAMPLES` have none.
    """
    examples: dict[Key, list[Example]] = {key: [] for key in list(broken)[:MAX_KEYS_WITH_EXAMPLES]}
    columns = _columns_to_show(contract, [rule for key in examples for rule in broken[key]])
    shown = [F.col(identifier(c)) for c in columns if c in frame.columns]
    parts = []
    for key in examples:
        rows = frame if slice_ is None or key is None else frame.where(F.expr(slice_.key_predicate(key, frame.schema)))
        violating = rows.where(balanced(Column.__or__, (F.expr(r.violated) for r in broken[key])))
        parts.append(violating.limit(limit).select(_literal(key), _broken(broken[key]), *shown))
    together = balanced(DataFrame.unionAll, parts)
    for key, rules, *values in together.collect():
        examples[key].append(Example(rules, dict(zip(together.columns[2:], values, strict=True))))
    return examples


def _columns_to_show(contract: Contract, rules: Sequence[Rule]) -> list[str]:
    # A row rule does not say which columns it is about.
    about = [c for rule in rules for c in (rule.columns or contract.column_names)]
    return list(dict.fromkeys([*contract.key, *about]))


def _broken(rules: Sequence[Rule]) -> Column:
    return F.array_compact(F.array(*(F.when(F.expr(r.violated), r.name) for r in rules)))


def _inside(frame: DataFrame, slice_: Slice | None) -> DataFrame:
    return frame if slice_ is None else frame.where(F.expr(slice_.predicate(frame.schema)))


def _literal(key: Key) -> Column:
    return F.lit(key).cast("string")
