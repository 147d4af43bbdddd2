"""A contract's rules and its key on any frame, in one pass: for notebooks, tests, and frames that no table holds yet.

In the graph the rules are counted by the write itself, and `key_is_unique` looks at the table. A frame that nobody has written
has neither; judged rule by rule, a plan that costs minutes costs them each time. Pattern *Constraints Enforcer*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyspark.sql.types as T
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_checks.keys import Repeated, example_of, repeated_by_key, values_to_compare
from de_checks.violations import Count, count_by_key
from de_resources.contract import Contract
from de_resources.contract.rules import Rule
from de_resources.engine.arrow_counts import MASK_BITS, arrow_counts, figures
from de_resources.sql.balanced import balanced

_FLAT = (
    T.BinaryType,
    T.BooleanType,
    T.IntegralType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


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

    The frame is computed once, in two Spark jobs besides those of its own plan: rows are brought together by the key, and a
    Python worker per shuffle partition, which needs this package, counts both (`engine/arrow_counts`). It holds the distinct
    keys of its share: a hundred million keys want more `spark.sql.shuffle.partitions` than the two of one machine. A contract
    without a key, and one whose key only Spark can compare (fractions, nested values, text of a collation), is counted in a
    pass for the rules and one for the key. `Repeated.example` is one of those keys, not masked.
    """
    if not contract.key or not all(_is_flat(frame.schema[name].dataType) for name in contract.key):
        repeated = repeated_by_key(frame, None, contract.key).get(None) if contract.key else None
        return Judged(count_by_key(frame, None, contract)[None], repeated or Repeated())
    shares = _counts(frame, contract).collect()

    def total(figure: str) -> int:
        return sum(share[figure] for share in shares)

    violations = {rule.name: total(f"rule_{n}") for n, rule in enumerate(contract.rules)}
    example = min((share["example"] for share in shares if share["keys"]), default="")
    return Judged(Count(total("rows"), violations), Repeated(total("keys"), total("in_rows"), example))


def _is_flat(kind: T.DataType) -> bool:
    """Whether values are equal for Arrow just where they are for Spark."""
    return isinstance(kind, _FLAT) or kind == T.StringType()


def _counts(frame: DataFrame, contract: Contract) -> DataFrame:
    """The figures of each partition that has rows, with one of the keys that come more than once."""
    key = [column.alias(f"key_{n}") for n, column in enumerate(values_to_compare(frame, contract.key))]
    own = [f"key_{n}" for n in range(len(key))]
    rules = contract.rules
    masks = [_mask(rules[at : at + MASK_BITS]).alias(f"mask_{at}") for at in range(0, len(rules), MASK_BITS)]
    told = T.StructType(
        [T.StructField(at, frame.schema[name].dataType) for at, name in zip(own, contract.key, strict=True)]
        + [T.StructField(figure, T.LongType()) for figure in figures(len(rules))]
    )
    together = frame.select(*key, *masks).repartition(*own)
    counted = together.mapInArrow(arrow_counts(len(own), len(rules)), told)
    return counted.select(*figures(len(rules)), example_of(contract.key).alias("example"))


def _mask(rules: Sequence[Rule]) -> Column:
    """A bit for each rule that the row breaks."""
    bits = (F.when(F.expr(rule.violated), F.lit(1 << n)).otherwise(0).cast("long") for n, rule in enumerate(rules))
    return balanced(Column.bitwiseOR, bits)
