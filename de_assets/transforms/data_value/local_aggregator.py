"""Records that lie together by key, aggregated where they lie: no row is moved to another one. Pattern: Local Aggregator.

Whoever wrote the records has put all of a key into one part: a partition of a topic, a folder, a file. The engine does not know
it, and would move every record to its key. Each part is therefore a frame of its own, in one task. What is promised of the
parts is not believed: `keys_in_several_parts` looks at the result, which has a row for each key and part.

Source: pattern *Local Aggregator*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_resources.sql.identifiers import identifier


class NoParts(ValueError):
    """Nothing to aggregate, not even an empty frame: there is nothing that says of which type the key and the measures are."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"There is no part to aggregate by `{key}`, and so no frame that says what columns there are. Where the source has "
            "no partition, no file or no folder yet, give one empty frame with its columns: the result is then empty, too."
        )


def aggregate_parts(parts: Sequence[DataFrame], key: str, measures: Mapping[str, Column]) -> DataFrame:
    """A row for each key of each part: `key` and the measures. The key null is one of them.

    The plan has no exchange: a frame in one partition is grouped where it is. As many tasks as there are parts. Parts without
    rows add none. Raises `NoParts`.
    """
    if not parts:
        raise NoParts(key)
    named = [measure.alias(name) for name, measure in measures.items()]
    return reduce(
        DataFrame.unionByName, (part.coalesce(1).groupBy(F.col(identifier(key))).agg(*named) for part in parts)
    )


def keys_in_several_parts(aggregated: DataFrame, key: str, at_most: int) -> list[str]:
    """Keys that have more than one row, some of them. Moves a key for each row, and no record."""
    repeated = (
        aggregated.where(F.col(identifier(key)).isNotNull()).groupBy(F.col(identifier(key))).count().where("count > 1")
    )
    return sorted(str(row[key]) for row in repeated.limit(at_most).collect())
