"""A contract's rules and its key on any frame, in one pass: for notebooks, tests, and frames that no table holds yet.

In the graph the rules are counted by the write itself, and `key_is_unique` looks at the table. A frame that nobody has written
has neither; judged rule by rule, a plan that costs minutes costs them each time. Pattern *Constraints Enforcer*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from de_checks.keys import Repeated, example_of, values_to_compare
from de_checks.violations import Count, count_by_key
from de_resources.contract import Contract
from de_resources.contract.rules import Rule
from de_resources.sql.balanced import balanced

_BITS = 6
_FIELDS = 10
"""Counters of six bits, ten of them in a LONG: a key that comes more often than they can count is counted again."""
_MOST = 2**_BITS - 1


@dataclass(frozen=True)
class Judged:
    """Rows and violations by rule, and the values of the key that several rows have."""

    counted: Count
    repeated: Repeated

    @property
    def passed(self) -> bool:
        """Whether no row breaks a rule, and no key comes twice."""
        return not self.counted.total and not self.repeated.keys


def judge(frame: DataFrame, contract: Contract) -> Judged:
    """How many rows break each rule, and which keys come more than once (null is a value as any other). Changes nothing.

    The frame is computed once, in two Spark jobs besides those of its own plan: rows are grouped by the key, and each group
    carries the violations of its rows. A contract without a key, and a frame in which a key comes more than 63 times, is
    computed once more, or counted without the key. `Repeated.example` is not masked.
    """
    if not contract.key:
        return Judged(count_by_key(frame, None, contract)[None], Repeated())
    every, notable = (Observation(f"{name}_{uuid4().hex}") for name in ("judged", "notable"))
    packs = [contract.rules[at : at + _FIELDS] for at in range(0, len(contract.rules), _FIELDS)]
    grouped = _by_key(frame, contract.key, packs)
    counted = grouped.observe(every, F.sum("times").alias("rows"), F.max("times").alias("most"))
    # What is observed leaves the generated code: only the groups of which there is more to tell go on.
    broken = (F.col(f"pack_{n}") != 0 for n in range(len(packs)))
    told = counted.where(balanced(Column.__or__, [F.col("times") > 1, *broken]))
    told.observe(notable, *_repeated(contract.key), *_violations(packs)).write.format("noop").mode("overwrite").save()
    rows, figures = every.get, notable.get
    repeated = Repeated(int(figures["keys"]), int(figures["in_rows"] or 0), figures["example"] or "")
    if (rows["most"] or 0) > _MOST:
        return Judged(count_by_key(frame, None, contract)[None], repeated)
    return Judged(Count(int(rows["rows"] or 0), _by_rule(contract.rules, figures)), repeated)


def _by_key(frame: DataFrame, key: Sequence[str], packs: Sequence[Sequence[Rule]]) -> DataFrame:
    """A row per value of the key: how often it comes, and the packed counters of its rows."""
    own = [column.alias(f"key_{n}") for n, column in enumerate(values_to_compare(frame, key))]
    narrow = frame.select(*own, *(_pack(pack).alias(f"pack_{n}") for n, pack in enumerate(packs)))
    # A sum that leaves the LONG is that of a key which comes too often; it is not used.
    sums = (F.try_sum(f"pack_{n}").alias(f"pack_{n}") for n in range(len(packs)))
    by = [f"key_{n}" for n in range(len(own))]
    grouped = narrow.groupBy(*by).agg(F.count(F.lit(1)).alias("times"), *sums)
    return grouped.withColumns({f"pack_{n}": F.coalesce(f"pack_{n}", F.lit(-1)) for n in range(len(packs))})


def _pack(rules: Sequence[Rule]) -> Column:
    fields = (F.when(F.expr(r.violated), F.lit(1 << _BITS * n)).otherwise(0) for n, r in enumerate(rules))
    return balanced(Column.__add__, fields).cast("long")


def _repeated(key: Sequence[str]) -> list[Column]:
    several = F.col("times") > 1
    return [
        F.count_if(several).alias("keys"),
        F.sum(F.when(several, F.col("times"))).alias("in_rows"),
        F.min(F.when(several, example_of(key))).alias("example"),
    ]


def _violations(packs: Sequence[Sequence[Rule]]) -> list[Column]:
    return [
        F.sum(F.shiftright(f"pack_{p}", _BITS * n).bitwiseAND(_MOST)).alias(f"rule_{p * _FIELDS + n}")
        for p, pack in enumerate(packs)
        for n in range(len(pack))
    ]


def _by_rule(rules: Sequence[Rule], figures: Mapping[str, Any]) -> dict[str, int]:
    return {rule.name: int(figures[f"rule_{n}"] or 0) for n, rule in enumerate(rules)}
