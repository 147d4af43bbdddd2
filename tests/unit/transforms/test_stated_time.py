"""The result does not depend on the day it runs: texts against a strict parser that knows no clock."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from examples import generated
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.error_management.stated_time import stated_time

pytestmark = pytest.mark.pattern("dead_letter")

Read = Callable[[list[str]], list[datetime | None]]

# A date that is not of today, whatever today is; offsets as far as the engine takes them.
MOMENTS = st.datetimes(min_value=datetime(1583, 1, 1), max_value=datetime(2020, 12, 31))
OFFSETS = st.integers(-18 * 60, 18 * 60).map(lambda minutes: timedelta(minutes=minutes))


def offset_text(offset: timedelta) -> str:
    minutes = abs(offset) // timedelta(minutes=1)
    return f"{'-' if offset < timedelta(0) else '+'}{minutes // 60:02}:{minutes % 60:02}"


@st.composite
def stated(draw: st.DrawFn) -> tuple[str, datetime]:
    """A text in one of the usual forms, and the moment that it states; without a zone it is in the session's, UTC."""
    moment, parts = draw(MOMENTS), draw(st.sampled_from(["days", "minutes", "seconds", "auto"]))
    if parts == "days":
        return moment.date().isoformat(), datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    text = moment.isoformat(sep=draw(st.sampled_from(["T", " "])), timespec=parts)
    kept = datetime.fromisoformat(text).replace(tzinfo=UTC)
    if draw(st.booleans()):
        return text, kept
    offset = draw(OFFSETS)
    zone = draw(st.sampled_from(["Z", " UTC"])) if not offset else offset_text(offset)
    return text + zone, kept - offset


# Pieces of times, in any order: what a clock would have to complete.
PIECES = st.sampled_from(
    ["2019", "10", "05", "7", "1", "T", " ", ":", "-", "+", ".", "123", "Z", "UTC", "GMT", "+01:00"]
)
CLIPPED = stated().flatmap(lambda said: st.integers(0, len(said[0])).map(lambda at: said[0][at:]))
ANY = st.lists(PIECES, max_size=12).map("".join) | CLIPPED | st.text("0123456789:-+TZ. ", max_size=20)
DATED = re.compile(r"([+-]?\d{4}-\d{2}-\d{1,2})(?!\d)")


def said_date(text: str) -> datetime | None:
    """The date with which a text begins."""
    found = DATED.match(text)
    try:
        year, month, day = map(int, found[1].split("-")) if found else (0, 0, 0)
        return datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> Read:
    """The engine's reading of many texts at once."""

    def moments(texts: list[str]) -> list[datetime | None]:
        rows = spark.createDataFrame(list(enumerate(texts)), "number int, said string")
        micros = rows.select("number", F.unix_micros(stated_time(F.col("said"))).alias("micros")).collect()
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        found = {row.number: row.micros for row in micros}
        return [None if found[n] is None else epoch + timedelta(microseconds=found[n]) for n in range(len(texts))]

    return moments


def test_a_text_with_a_date_is_the_moment_that_it_states(read: Read) -> None:
    said = dict(generated(stated(), 1500))
    assert dict(zip(said, read([*said]), strict=True)) == said


def test_a_time_without_seconds_has_a_zone_as_any_other(read: Read) -> None:
    """ISO 8601 lets seconds out; the engine by itself reads a zone behind seconds only."""
    at = datetime(2026, 1, 5, 10, 5, tzinfo=UTC)
    hour = timedelta(hours=1)
    said = {
        "2026-01-05T10:05": at,
        "2026-01-05T10:05Z": at,
        "2026-01-05 10:05Z": at,
        "2026-01-05T10:05 UTC": at,
        "2026-01-05T10:05+01:00": at - hour,
        "2026-01-05T10:05-01:00": at + hour,
        "2026-01-05T10:05+0100": at - hour,
        "2026-01-05T10:5Z": None,
        "2026-01-05T10Z": None,
        "2026-01-05T10:05+": None,
        "2026-01-05T10:65Z": None,
        "2026-01-05T10:05Zzz": None,
    }
    assert dict(zip(said, read([*said]), strict=True)) == said


def test_a_text_is_read_by_the_date_that_it_begins_with_or_not_at_all(read: Read) -> None:
    texts = [
        "10:05",
        "T10:05",
        "2024",
        "2024-10",
        "10:05:07+01:00",
        "1:05-10-10",
        "T1:5-01-01",
        "now",
        "today",
        "epoch",
    ]
    texts += generated(ANY, 2000)
    for text, moment in zip(texts, read(texts), strict=True):
        date = said_date(text)
        if moment is not None:
            assert date is not None, text
            # A day, and 18 hours of another zone on either side of it.
            assert timedelta(hours=-18) <= moment - date <= timedelta(hours=24 + 18), text
