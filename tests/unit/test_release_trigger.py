"""External Trigger: which runs the records of a tick ask for, and what these runs know."""

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import dagster as dg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from de_assets.automation.triggers.releases import answer, feature_released, run_requests, warnings
from de_assets.sources.simulator import World, announcements
from de_resources.kafka import KafkaBroker
from de_resources.kafka.reader import Batch
from de_resources.kafka.topic import Record, milliseconds

pytestmark = pytest.mark.pattern("external_trigger")

START = datetime(2024, 10, 10, 9, tzinfo=UTC)
NOW = START + timedelta(hours=1)
TOLD = announcements(World(seed=3), [START + timedelta(days=day) for day in range(5)])
RECORDS = [Record(0, 40 + i, message.key, message.value, milliseconds(NOW)) for i, message in enumerate(TOLD.messages)]


def test_each_release_asks_for_one_run_however_often_it_is_delivered() -> None:
    *releases, last = run_requests(RECORDS, NOW)
    assert [request.run_key for request in releases] == [f"/blog/releases#{name}" for name in TOLD.released]
    assert {request.job_name for request in releases} == {"features_release"}
    assert last.job_name == "features_set_aside"


def test_a_run_carries_its_event() -> None:
    request, (name, event) = run_requests(RECORDS, NOW)[0], next(iter(TOLD.released.items()))
    assert request.run_config == {"ops": {"bronze__features": {"config": {"event": event}}}}
    envelope = json.loads(request.tags.pop("trigger/envelope"))
    assert envelope == {key: value for key, value in event.items() if key != "data"}
    assert request.tags == {
        "trigger/event": f"/blog/releases#{name}",
        "trigger/event_time": "2024-10-10T09:00:00+00:00",
        "trigger/processing_time": "2024-10-10T10:00:00+00:00",
        "trigger/origin": "features/0@40",
        "trigger/version": "1",
    }


def test_what_cannot_be_read_is_set_aside_by_its_place_and_not_by_its_text() -> None:
    request = run_requests(RECORDS, NOW)[-1]
    places = request.run_config["ops"]["bronze__features_dead_letter"]["config"]["records"]
    by_place = {(record.partition, record.offset): record.value for record in RECORDS}
    assert [by_place[place["partition"], place["offset"]] for place in places] == TOLD.unreadable
    assert request.run_key == run_requests(RECORDS, NOW + timedelta(days=1))[-1].run_key, "also after a crash"


def test_nothing_happened_and_nothing_of_interest_happened_ask_for_nothing() -> None:
    plans = [record for record in RECORDS if b"blog.feature.planned" in (record.value or b"")]
    assert len(plans) == TOLD.irrelevant
    assert run_requests([], NOW) == run_requests(plans, NOW) == []


@pytest.mark.parametrize("interesting", [False, True], ids=["plans only", "releases"])
def test_the_next_tick_goes_on_behind_what_was_read_whether_it_asked_for_runs_or_not(interesting: bool) -> None:
    records = [record for record in RECORDS if interesting or b"blog.feature.planned" in (record.value or b"")]
    batch = Batch("t", records, {0: 60})
    told = answer(batch, NOW)
    assert bool(told.run_requests) == interesting
    assert told.cursor == batch.cursor
    assert json.loads(batch.cursor) == {"topic": "t", "offsets": {"0": 60}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TIMES = st.datetimes(timezones=st.timezones()).map(datetime.isoformat) | st.sampled_from(
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-23:59", "9999-12-31T24:00:00Z", "0001-W01-1T00:00Z"]
)
CHANGES = st.dictionaries(
    st.sampled_from(["id", "source", "type", "specversion", "dataschema", "data"]), JSON, max_size=2
)


@given(CHANGES, TIMES | JSON)
@example({}, "0001-01-01T00:00:00+14:00")
@example({"id": "\ud800"}, "2024-10-10T09:00:00Z")
def test_whatever_an_event_says_the_good_ones_beside_it_start_their_runs_and_the_next_tick_goes_on(
    changes: dict[str, Any], time: Any
) -> None:
    """Such a time has no form in UTC: whoever computed it stopped the sensor, and at the next tick again, for ever."""
    good = next(record for record in RECORDS if b"blog.feature.released" in (record.value or b""))
    odd = json.dumps({**json.loads(good.value or b""), "id": "odd", **changes, "time": time}).encode()
    told = answer(Batch("t", [Record(0, 1, None, odd, milliseconds(NOW)), good], {0: 3}), NOW)
    assert told.cursor == Batch("t", [], {0: 3}).cursor
    keys = [request.run_key for request in told.run_requests or ()]
    assert f"/blog/releases#{json.loads(good.value or b'')['id']}" in keys
    assert len(keys) <= 2
    for request in told.run_requests or ():
        json.dumps([request.tags, request.run_config], ensure_ascii=False).encode()  # as the daemon will store it


def test_while_the_broker_is_away_the_next_tick_goes_on_where_the_last_one_ended() -> None:
    """No broker runs in the home of the tests."""
    cursor = Batch("t", [], {0: 60}).cursor
    with dg.build_sensor_context(cursor=cursor, resources={"broker": KafkaBroker()}) as context:
        told = feature_released(context)
    assert isinstance(told, dg.SensorResult)
    assert told.cursor == cursor
    assert not told.run_requests
    assert "de up kafka" in str(told.skip_reason)


def test_records_that_could_not_be_seen_are_spoken_of() -> None:
    assert warnings(Batch("t", RECORDS, {0: 60})) == []
    (gone,) = warnings(Batch("t", [], {0: 60}, gone={0: 12}))
    assert "12 records were removed" in gone
    (anew,) = warnings(Batch("t", [], {0: 0}, anew=True))
    assert "made again" in anew


def test_a_week_of_ticks_with_a_daemon_that_dies_starts_each_event_once() -> None:
    """A tick a minute; the cursor is written with the requests, and a key that has a run gets no second one."""
    random = Random(7)  # noqa: S311 - the same week every time
    topic, told = [], announcements(World(seed=3), [START + timedelta(hours=hour) for hour in range(7 * 24)])
    waiting, offset, runs = list(told.messages), 0, list[str]()
    for minute in range(7 * 24 * 60):
        now = START + timedelta(minutes=minute)
        if waiting and random.random() < 0.05:  # announced, or delivered once more
            message = random.choice(told.messages) if topic and random.random() < 0.2 else waiting.pop(0)
            topic.append(Record(0, len(topic), message.key, message.value, milliseconds(now)))
        batch = topic[offset : offset + 3]
        requests = run_requests(batch, now)
        launched = requests[: random.randrange(len(requests) + 1)] if random.random() < 0.3 else requests
        runs += [request.run_key for request in launched if request.run_key not in runs]
        if launched == requests:  # else the daemon died before it wrote the cursor: the next tick reads the same again
            offset += len(batch)
    released = [key for key in runs if not key.startswith("unreadable@")]
    assert not waiting
    assert sorted(released) == sorted(f"/blog/releases#{name}" for name in told.released)
