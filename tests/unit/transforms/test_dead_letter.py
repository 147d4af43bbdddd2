"""What was decided about lines, when they are read again."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_assets.transforms.error_management.dead_letter import (
    CLOSED,
    DeadLetterKind,
    close,
    identify,
    letter_id,
    status,
    told_by_window,
    was_dead_lettered,
    with_decisions,
)

pytestmark = pytest.mark.pattern("dead_letter")

HOUR = datetime(2026, 1, 31, 7, tzinfo=UTC)
NEXT = datetime(2026, 1, 31, 8, tzinfo=UTC)
PAYLOADS = [b"plain", b"\xff\xfe", "Grüße\t✓".encode(), b""]


def lines(spark: SparkSession, payloads: list[bytes], hour: datetime = HOUR) -> DataFrame:
    rows = [(bytearray(payload), "visits/part", hour) for payload in payloads]
    return spark.createDataFrame(rows, "payload BINARY, source_file STRING, landing_hour TIMESTAMP")


def read_again(
    spark: SparkSession, payloads: list[bytes], *decisions: tuple[str, DeadLetterKind, int, str | None]
) -> list[tuple]:
    """The lines after a parser that understands what begins with `good`."""
    schema = (
        "letter_id STRING, kind STRING, attempt INT, raw STRING, why STRING, source_file STRING, landing_hour TIMESTAMP"
    )
    landed = spark.createDataFrame(
        [(i, str(k), n, raw, "why", "repairs/f", HOUR) for i, k, n, raw in decisions], schema
    )
    joined = with_decisions(lines(spark, payloads), landed, window="landing_hour")
    text = F.col("payload").cast("string")
    parsed = close(joined.withColumn("error", F.when(~text.startswith("good"), F.lit("broken"))), "error")
    fate = F.when(F.col("error").isNull(), F.when(was_dead_lettered(), "back").otherwise("valid")).otherwise(status())
    return sorted(tuple(r) for r in parsed.select(text, fate, "error", "attempts", "repair_of").fillna("-").collect())


def test_a_line_has_the_same_identity_in_both_languages(spark: SparkSession) -> None:
    own = lines(spark, PAYLOADS).withColumn("repair_of", F.lit(None).cast("string"))
    repaired = lines(spark, PAYLOADS).withColumn("repair_of", F.lit("0123456789abcdef"))
    for frame, origin in ((own, None), (repaired, "0123456789abcdef")):
        found = {bytes(r[0]): r[1] for r in frame.select("payload", letter_id("landing_hour")).collect()}
        assert found == {payload: identify(HOUR, payload, origin) for payload in PAYLOADS}
    assert identify(HOUR, b"x") != identify(NEXT, b"x")


def test_without_decisions_the_lines_stay_as_they_are(spark: SparkSession) -> None:
    found = with_decisions(lines(spark, [b"good", b"bad"]), None, window="landing_hour")
    assert sorted(r.payload for r in found.collect()) == ["bad", "good"]
    assert {(r.repair_of, r.attempts, r.decision, r.why) for r in found.collect()} == {(None, 0, None, None)}


def test_each_line_is_counted_once_whatever_was_decided(spark: SparkSession) -> None:
    bad, worse, junk = (identify(HOUR, payload) for payload in (b"bad", b"worse", b"junk"))
    found = read_again(
        spark,
        [b"bad", b"worse", b"worse", b"junk", b"good", b"other"],
        (bad, DeadLetterKind.REPAIRED, 1, "good bad"),
        (worse, DeadLetterKind.REPAIRED, 1, "good worse"),
        (worse, DeadLetterKind.REPAIRED, 1, "still worse"),
        (junk, DeadLetterKind.DISCARDED, 0, None),
        ("of a line that is gone", DeadLetterKind.DISCARDED, 0, None),
    )
    assert found == [
        ("bad", "replayed", "broken", 1, "-"),
        ("good", "valid", "-", 0, "-"),
        ("good bad", "back", "-", 1, bad),
        ("good worse", "back", "-", 1, worse),
        ("junk", "discarded", "broken", 0, "-"),
        ("other", "open", "broken", 0, "-"),
        ("still worse", "open", "broken", 1, worse),
        ("worse", "replayed", "broken", 1, "-"),
        ("worse", "replayed", "broken", 1, "-"),
    ]


def test_after_the_parser_was_mended_a_retried_line_is_back_and_a_closed_one_is_not(spark: SparkSession) -> None:
    again, replaced, given_up = (identify(HOUR, payload) for payload in (b"good 1", b"good 2", b"good 3"))
    found = read_again(
        spark,
        [b"good 1", b"good 2", b"good 3"],
        (again, DeadLetterKind.RETRIED, 1, None),
        (replaced, DeadLetterKind.RETRIED, 1, None),
        (replaced, DeadLetterKind.REPAIRED, 2, "good repair"),
        (given_up, DeadLetterKind.RETRIED, 1, None),
        (given_up, DeadLetterKind.DISCARDED, 1, None),
    )
    assert found == [
        ("good 1", "back", "-", 1, "-"),
        ("good 2", "replayed", CLOSED, 2, "-"),
        ("good 3", "discarded", CLOSED, 1, "-"),
        ("good repair", "back", "-", 2, replaced),
    ]


def test_the_hour_tells_how_many_letters_are_in_which_status() -> None:
    seconds = int(HOUR.timestamp())
    told = told_by_window({seconds * 3: 4, seconds * 3 + 2: 1, (seconds + 3600) * 3 + 1: 2})
    assert told == {
        HOUR: {"dead_letters/open": 4, "dead_letters/replayed": 0, "dead_letters/discarded": 1},
        NEXT: {"dead_letters/open": 0, "dead_letters/replayed": 2, "dead_letters/discarded": 0},
    }
