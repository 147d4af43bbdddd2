"""Late rows join the day of their event within the window; older ones are counted, future ones are nobody's."""

from datetime import UTC, date, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from de_assets.transforms.error_management.static_late_data_integrator import integrate_late, is_approximate

pytestmark = pytest.mark.pattern("static_late_data_integrator")

ON_TIME, LATE = "id string, event_time timestamp", "id string, event_time timestamp, landed timestamp"
WINDOW = 2


def at(day: int, hour: int = 12) -> datetime:
    return datetime(2026, 1, day, hour)


LATE_ROWS = [
    ("hours late", at(5, 8), at(5, 11)),
    ("a day late", at(5), at(6, 0)),
    ("at the window's end", at(5, 0), at(7, 23)),
    ("too old", at(5, 23), at(8, 0)),
    ("much too old", at(1), at(8, 5)),
    ("of another day", at(7), at(8)),
    ("from the future", at(6), at(5)),
    ("from the next hour", at(5, 13), at(5, 12)),
]


def integrated(spark: SparkSession, *days: int) -> tuple[set[str], dict[int, int]]:
    on_time = spark.createDataFrame([("on time", at(5)), ("next day", at(6)), ("outside", at(4))], ON_TIME)
    told = integrate_late(
        on_time,
        spark.createDataFrame(LATE_ROWS, LATE),
        event_time="event_time",
        landing_time="landed",
        days=[date(2026, 1, day) for day in days],
        window_days=WINDOW,
    )
    rows = {f"{row.id}{' *' if row.is_late else ''}" for row in told.frame.collect()}
    return rows, {start.day: metadata["late/ignored"] for start, metadata in told.metadata().items() if start}


def test_a_day_has_what_came_on_time_and_what_came_late_within_the_window(spark: SparkSession) -> None:
    rows, ignored = integrated(spark, 5)
    assert rows == {"on time", "hours late *", "a day late *", "at the window's end *"}
    assert ignored == {5: 0}


def test_rows_older_than_the_window_are_told_on_the_day_they_came(spark: SparkSession) -> None:
    rows, ignored = integrated(spark, 7, 8)
    assert rows == {"of another day *"}
    assert ignored == {7: 0, 8: 2}


def test_where_nothing_came_nothing_was_ignored(spark: SparkSession) -> None:
    """The engine sees at planning time that there is nothing, and leaves the observation out."""
    nothing = spark.createDataFrame([], ON_TIME)
    told = integrate_late(
        nothing,
        spark.createDataFrame([], LATE),
        event_time="event_time",
        landing_time="landed",
        days=[date(2026, 1, 5)],
        window_days=WINDOW,
    )
    told.frame.groupBy("event_date").count().write.format("noop").mode("overwrite").save()
    assert told.metadata() == {datetime(2026, 1, 5, tzinfo=UTC): {"late/ignored": 0}}


def test_days_computed_together_are_the_days_computed_apart(spark: SparkSession) -> None:
    apart = [integrated(spark, day) for day in range(4, 9)]
    together, ignored = integrated(spark, *range(4, 9))
    assert together == set().union(*(rows for rows, _ in apart))
    assert sum(map(len, (rows for rows, _ in apart))) == len(together)
    assert ignored == {day: n for _, each in apart for day, n in each.items()}


def test_a_day_is_approximate_until_its_window_is_over(spark: SparkSession) -> None:
    end = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(days=1 + WINDOW)
    day = spark.sql("SELECT DATE '2026-01-05' AS day")
    for now, approximate in ((end - timedelta(seconds=1), True), (end, False)):
        assert day.select(is_approximate("day", now, WINDOW).alias("a")).first() == (approximate,)
