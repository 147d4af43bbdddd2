"""The verdict on a reader of a topic, and on a capture: from measurements that are written down here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from de_checks.lag.capture import judge_slot
from de_checks.lag.judgement import judge_topic
from de_checks.per_key import Verdict
from de_resources.capture import CaptureSource
from de_resources.capture.lag import SlotLag
from de_resources.kafka.lag import PartitionLag, TopicLag

pytestmark = pytest.mark.pattern("lag_detector")

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
Part = tuple[int, int, int | None, timedelta | None]
"""Begin, end, position, and how long ago what is read next was written."""


def lag(*parts: Part, kept: timedelta | None = 7 * DAY, anew: bool = False, now: datetime = NOW) -> TopicLag:
    found = tuple(
        PartitionLag(number, begin, end, position, None if age is None else now - age)
        for number, (begin, end, position, age) in enumerate(parts)
    )
    return TopicLag("orders", "t1", found, any(p.position is not None for p in found), anew, kept)


def judged(found: TopicLag, *earlier: Mapping[str, Any], now: datetime = NOW) -> Verdict:
    return judge_topic(found, 2 * HOUR, now, earlier)


def measured(ago: timedelta, *parts: Part) -> Mapping[str, Any]:
    """An earlier verdict's figures, as they were told then."""
    return judged(lag(*parts, now=NOW - ago), now=NOW - ago).metadata


LEVEL: Part = (0, 100, 100, None)


def test_a_reader_that_is_level_is_on_time() -> None:
    verdict = judged(lag(LEVEL, LEVEL))
    assert verdict.passed
    assert (verdict.metadata["lag/offsets_max"], verdict.metadata["lag/seconds_max"]) == (0, 0)


def test_one_partition_that_stands_still_makes_the_reader_late() -> None:
    """Eleven partitions are level; in the mean it would be fifteen minutes late and on time."""
    stuck: Part = (0, 100, 40, 3 * HOUR)
    verdict = judged(lag(*[LEVEL] * 11, stuck))
    assert not verdict.passed
    assert verdict.metadata["lag/offsets_max"] == 60
    assert verdict.metadata["lag/seconds_max"] == 3 * 3600
    assert (verdict.metadata["lag/offsets_p90"], verdict.metadata["lag/offsets_p95"]) == (0, 60)


def test_not_started_is_not_without_a_lag() -> None:
    verdict = judged(lag((10, 100, None, 5 * HOUR)))
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert verdict.description.startswith("90 offsets and 5 h behind")
    assert "has not started" in verdict.description
    assert verdict.metadata["lag/started"] is False


def test_not_started_on_an_empty_topic_is_no_fault() -> None:
    verdict = judged(lag((0, 0, None, None)))
    assert verdict.passed
    assert verdict.metadata["lag/started"] is False


def test_ends_of_transactions_are_nothing_to_read() -> None:
    assert judged(lag((0, 101, 100, None))).metadata["lag/offsets_max"] == 0


def test_a_deleted_group_is_an_error_and_no_start() -> None:
    verdict = judged(lag((0, 100, None, HOUR)), measured(HOUR, LEVEL))
    assert (verdict.passed, verdict.severity) == (False, ERROR)
    assert "position is gone" in verdict.description


def test_a_position_beyond_the_end_tells_of_another_topic() -> None:
    verdict = judged(lag((0, 30, 100, None)))
    assert (verdict.passed, verdict.severity) == (False, ERROR)
    assert "made again" in verdict.description
    assert verdict.metadata["lag/offsets_max"] == 0, "never a negative number"


def test_a_topic_made_anew_is_told_also_where_it_is_longer() -> None:
    assert "made again" in judged(lag((0, 500, 100, HOUR), anew=True)).description


def test_records_removed_unread_are_an_error() -> None:
    verdict = judged(lag((60, 100, 40, HOUR)))
    assert (verdict.passed, verdict.severity) == (False, ERROR)
    assert "20 offsets" in verdict.description


def test_beyond_the_promise_a_stopped_reader_is_an_error_with_the_time_left() -> None:
    """Level a day ago, nothing read since: what is a day old goes in six days."""
    verdict = judged(lag((0, 200, 100, DAY)), measured(DAY, LEVEL))
    assert (verdict.passed, verdict.severity) == (False, ERROR)
    assert verdict.metadata["lag/lost_in_seconds"] == 6 * 86_400
    assert verdict.description.endswith("removed unread in 6 d.")


def test_a_reader_that_catches_up_in_time_is_a_warning_that_says_when() -> None:
    """In an hour 1,000 were read and 100 came: 2,700 are read at a gain of 900 in the hour."""
    verdict = judged(lag((0, 5_000, 2_300, 5 * HOUR)), measured(HOUR, (0, 4_900, 1_300, 8 * HOUR)))
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert verdict.metadata["lag/caught_up_in_seconds"] == pytest.approx(3 * 3600)
    assert "lag/lost_in_seconds" not in verdict.metadata


def test_within_the_promise_the_saw_tooth_of_a_scheduled_reader_is_no_news() -> None:
    assert judged(lag((0, 200, 100, HOUR)), measured(HOUR, LEVEL), measured(2 * HOUR, LEVEL)).passed


def test_what_is_never_removed_is_never_lost() -> None:
    verdict = judged(lag((0, 200, 100, 300 * DAY), kept=None), measured(DAY, LEVEL))
    assert (verdict.passed, verdict.severity) == (False, WARN)


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        ([], "an empty history"),
        ([measured(-HOUR, LEVEL)], "a measurement from the future: the clock was set back"),
        ([{**measured(DAY, LEVEL), "lag/topic_id": "t0"}], "offsets of another topic"),
        ([{"lag/started": False}], "a measurement without a position"),
    ],
)
def test_without_a_speed_that_means_something_there_is_no_forecast(
    earlier: Sequence[Mapping[str, Any]], why: str
) -> None:
    verdict = judged(lag((0, 200, 100, DAY)), *earlier)
    assert (verdict.passed, verdict.severity) == (False, WARN), why
    assert "lag/lost_in_seconds" not in verdict.metadata


def test_a_record_from_the_future_is_no_negative_lag() -> None:
    verdict = judged(lag((0, 200, 100, -HOUR)))
    assert verdict.passed
    assert verdict.metadata["lag/seconds_max"] == 0
    assert verdict.metadata["lag/clock_ahead_seconds"] == 3600


USERS = CaptureSource("users", ("public.users",), "users")
Slot = tuple[int, int | None, int | None]
"""Newest, confirmed, room."""


def slot(newest: int, confirmed: int, room: int | None = None, **more: bool) -> SlotLag:
    return SlotLag(newest, confirmed, room, more.get("is_lost", False), is_read=True)


def slot_judged(found: SlotLag | None, *earlier: Mapping[str, Any], now: datetime = NOW) -> Verdict:
    return judge_slot(found, USERS, HOUR, now, earlier)


def slot_measured(ago: timedelta, found: SlotLag) -> Mapping[str, Any]:
    return slot_judged(found, now=NOW - ago).metadata


def test_a_capture_without_a_slot_has_not_started() -> None:
    verdict = slot_judged(None)
    assert (verdict.passed, verdict.severity, verdict.metadata["lag/started"]) == (False, WARN, False)


def test_bytes_alone_do_not_make_a_capture_late() -> None:
    assert slot_judged(slot(9_000_000, 1_000_000)).passed


def test_a_capture_is_as_late_as_the_oldest_log_that_it_did_not_confirm() -> None:
    earlier = [slot_measured(ago * HOUR, slot(newest, 1_000)) for ago, newest in ((1, 5_000), (2, 4_000), (3, 1_000))]
    verdict = slot_judged(slot(6_000, 1_000), *earlier)
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert (verdict.metadata["lag/bytes_max"], verdict.metadata["lag/seconds_max"]) == (5_000, 2 * 3600)


def test_a_capture_that_confirms_is_on_time_whatever_the_others_write() -> None:
    earlier = [slot_measured(ago * HOUR, slot(newest, newest)) for ago, newest in ((1, 5_000), (2, 4_000))]
    assert slot_judged(slot(9_000, 8_500), *earlier).metadata["lag/seconds_max"] == 0


def test_the_room_that_is_left_says_when_the_slot_is_given_up() -> None:
    """3,000 bytes more in two hours, and room for 6,000."""
    earlier = [slot_measured(2 * HOUR, slot(4_000, 2_000))]
    verdict = slot_judged(slot(7_000, 2_000, room=6_000), *earlier)
    assert (verdict.passed, verdict.severity) == (False, ERROR)
    assert verdict.metadata["lag/lost_in_seconds"] == pytest.approx(4 * 3600)


@pytest.mark.parametrize("found", [slot(9_000, 1_000, is_lost=True), slot(1_000, 9_000)], ids=["lost", "restored"])
def test_a_slot_that_is_lost_or_ahead_is_an_error(found: SlotLag) -> None:
    verdict = slot_judged(found)
    assert (verdict.passed, verdict.severity) == (False, ERROR)
    assert verdict.metadata["lag/bytes_max"] >= 0
