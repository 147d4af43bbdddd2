"""Static Late Data Integrator: days are computed again for as long as late data may still change them.

Source: pattern *Static Late Data Integrator*. The window is fixed: what comes later than that is counted and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from de_resources.delta.observed_frame import MetadataByWindow, ObservedFrame
from de_resources.engine.exact_histogram import histogram, observed_counts

IS_LATE, EVENT_DATE = "is_late", "event_date"
IGNORED = "late/ignored"


def integrate_late(
    on_time: DataFrame, late: DataFrame, *, event_time: str, landing_time: str, days: Sequence[date], window_days: int
) -> ObservedFrame:
    """The rows of the events' `days`, those on time and those that came late within the window.

    A late row belongs to the day of its event, if it landed no more than `window_days` days after it. The columns are
    those of `on_time`, which `late` has too, with `event_date` and `is_late`. Rows that landed on one of the `days` and
    are older than the window are told per landing day as `late/ignored`. Rows dated in the future are not integrated:
    their clock is wrong. A rerun leaves the same rows.
    """
    landed_on = F.to_date(landing_time)
    dated = late.withColumn(EVENT_DATE, F.to_date(event_time))
    age = F.date_diff(landed_on, F.col(EVENT_DATE))
    observation = Observation(f"late_{uuid4().hex}")
    too_old = F.when(
        (age > window_days) & landed_on.isin(list(days)), F.unix_seconds(F.date_trunc("DAY", landing_time))
    )
    counted = dated.observe(observation, histogram(too_old).alias("ignored"))
    accepted = counted.where(age.between(0, window_days) & (F.col(event_time) < F.col(landing_time)))
    columns = [F.col(c) for c in on_time.columns]
    rows = (
        on_time.select(*columns, F.to_date(event_time).alias(EVENT_DATE), F.lit(False).alias(IS_LATE))
        .unionByName(accepted.select(*columns, EVENT_DATE, F.lit(True).alias(IS_LATE)))
        .where(F.col(EVENT_DATE).isin(list(days)))
    )

    def metadata() -> MetadataByWindow:
        ignored = observed_counts(observation, "ignored")
        if ignored is None:
            return {}
        starts = [datetime.combine(day, time(), UTC) for day in days]
        return {start: {IGNORED: ignored[int(start.timestamp())]} for start in starts}

    return ObservedFrame(rows, metadata)


def is_approximate(day: str, now: datetime, window_days: int) -> Column:
    """Whether late rows may still change the day: its window, counted from its end, is not over."""
    return F.date_add(F.col(day), window_days + 1) > F.lit(now.date())
