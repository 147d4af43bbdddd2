"""How many rows there are of each integer, as one aggregate: an `Observation` takes aggregates, and no grouping.

`histogram_numeric` is approximate only where it has more values than bins. It merges the nearest bins first, and equal
values that met in different tasks are nearest of all: as long as the distinct values are fewer than the bins, every count
is exact. Source: Ben-Haim and Tom-Tov, A Streaming Parallel Decision Tree Algorithm, JMLR 11 (2010).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, Observation
from pyspark.sql import functions as F

BINS = 4_000


def histogram(value: Column) -> Column:
    """The aggregate. `value` is an integer of at most 53 bits; nulls are not counted."""
    return F.histogram_numeric(value.cast("double"), F.lit(BINS))


def counts(bins: Iterable[tuple[float, float]] | None) -> Counter[int] | None:
    """The counts from the aggregate's result; None where there were too many different values to be exact."""
    found: Counter[int] = Counter()
    for value, count in bins or ():
        found[round(value)] += int(count)  # the mean of equal values may be off by a last bit
    return found if len(found) < BINS else None


def observed_counts(observation: Observation, name: str) -> Counter[int] | None:
    """The counts of a histogram that was observed under `name`, after the job; see `counts`.

    Where the engine found out while planning that no row can come, it leaves the observation out: nothing was counted.
    """
    try:
        return counts(observation.get.get(name))
    except Py4JJavaError as error:
        # In a classic session the row of an observation that was left out has no schema, which PySpark does not expect.
        if error.java_exception.getClass().getName() != "java.lang.AssertionError":
            raise
        return Counter()
