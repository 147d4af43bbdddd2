"""A contract's rules and its key on any frame, in one pass: for notebooks, tests, and frames that no table holds yet.

In the graph the rules are counted by the write itself, and `key_is_unique` looks at the table. A frame that nobody has written
has neither; judged rule by rule, a plan that costs minutes costs them each time. Pattern *Constraints Enforcer*.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyspark.sql.types as T
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from de_checks.keys import Repeated, example_of, repeated_by_key, values_to_compare
from de_checks.violations import Count, count_by_key
from de_resources.contract import Contract
from de_resources.contract.rules import Rule
from de_resources.engine.digest_counts import (
    DIGESTS,
    FIRST_BITS,
    LOT,
    LOTS_SCHEMA,
    MASK_BITS,
    counted,
    figures,
    in_lots,
)
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
_SALTS = [secrets.randbits(63) for _ in DIGESTS]
"""Of this process: nobody can prepare keys that share their digests, and the engine compiles one plan once."""


@dataclass(frozen=True)
class Judged:
    """Rows and violations by rule, and the values of the key that several rows have."""

    counted: Count
    repeated: Repeated
    """How many; which, by `example()`."""
    _look: Callable[[], str] = field(default=str, compare=False, repr=False)

    @property
    def passed(self) -> bool:
        """Whether no row breaks a rule, and no key comes twice."""
        return not self.counted.total and not self.repeated.keys

    def example(self) -> str:
        """One of the keys that come more than once, as text and not masked; looks for it in the frame, up to its first row."""
        return self.repeated.example or self._look()


def judge(frame: DataFrame, contract: Contract) -> Judged:
    """How many rows break each rule, and how many keys come more than once (null is a value as any other). Changes nothing.

    The frame is computed once, in two Spark jobs besides those of its own plan. Keys are compared by salted digests (xxHash64)
    of 112 bits together, so that none that comes twice is missed, and of *n* different ones two count as one with a probability
    below *n*² / 2¹¹³ (the birthday bound): 10⁻¹⁶ for a billion. Python workers, which need this package, count both
    (`engine/digest_counts`). A contract without a key, and one whose key only Spark can compare (fractions, nested values, text
    of a collation), is counted in a pass for the rules and one for the key.
    """
    if not contract.key or not all(_is_flat(frame.schema[name].dataType) for name in contract.key):
        repeated = repeated_by_key(frame, None, contract.key).get(None) if contract.key else None
        return Judged(count_by_key(frame, None, contract)[None], repeated or Repeated())
    digests = _digests(frame, contract.key)
    shares = _counts(frame, digests, contract.rules).collect()

    def total(figure: str) -> int:
        return sum(share[figure] for share in shares)

    violations = {rule.name: total(f"rule_{n}") for n, rule in enumerate(contract.rules)}
    several = next((share for share in shares if share["keys"]), None)
    look = partial(_key_with, frame, contract.key, digests, several) if several else str
    return Judged(Count(total("rows"), violations), Repeated(total("keys"), total("in_rows")), look)


def _is_flat(kind: T.DataType) -> bool:
    """Whether values are equal for the engine just where their bytes are the same."""
    return isinstance(kind, _FLAT) or kind == T.StringType()


def _digests(frame: DataFrame, key: Sequence[str]) -> list[Column]:
    """Two numbers that are the same where the key is; the second leaves its last bits to a mask."""
    # The hash passes over a null, so that ('a', null) and (null, 'a') had one digest without the marks.
    marked = [part for column in values_to_compare(frame, key) for part in (column.isNull(), column)]
    first, second = (F.xxhash64(F.lit(salt), *marked) for salt in _SALTS)
    return [first, F.shiftleft(second, FIRST_BITS)]


def _counts(frame: DataFrame, digests: Sequence[Column], rules: Sequence[Rule]) -> DataFrame:
    """The figures of each partition of lots, with the digests of one of the keys that come more than once."""
    first, second = digests
    masks = [_mask(rules[at : at + MASK_BITS]) for at in range(FIRST_BITS, len(rules), MASK_BITS)]
    told_with = second.bitwiseOR(_mask(rules[:FIRST_BITS])) if rules else second
    named = (column.alias(f"c{n}") for n, column in enumerate((first, told_with, *masks)))
    lots = frame.select(*named).mapInArrow(in_lots(len(rules)), LOTS_SCHEMA)
    told = ", ".join(f"{name} LONG" for name in (*DIGESTS, *figures(len(rules))))
    return lots.repartition(LOT).mapInArrow(counted(len(rules)), told)


def _mask(rules: Sequence[Rule]) -> Column:
    """A bit for each rule that the row breaks."""
    bits = (F.when(F.expr(rule.violated), F.lit(1 << n)).otherwise(0).cast("long") for n, rule in enumerate(rules))
    return balanced(Column.bitwiseOR, bits)


def _key_with(frame: DataFrame, key: Sequence[str], digests: Sequence[Column], told: Row) -> str:
    """The key that has the digests which were told, as text."""
    first, second = (column == F.lit(told[name]) for column, name in zip(digests, DIGESTS, strict=True))
    own = [column.alias(f"key_{n}") for n, column in enumerate(values_to_compare(frame, key))]
    found = frame.where(first & second).select(*own).limit(1).select(example_of(key)).first()
    return str(found[0]) if found else ""
