"""Release notifications: which are read, which are another's business, and what is said about the others."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from de_assets.sources.releases import LARGEST_EVENT, ReleaseEvent, UnreadableEvent, read_event
from de_assets.sources.simulator import World, announcements

pytestmark = pytest.mark.pattern("external_trigger")

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "r-1",
    "source": "/blog/releases",
    "type": "blog.feature.released",
    "time": "2024-10-10T11:00:00+02:00",
    "dataschema": "feature-released/1",
    "data": {"feature": "dark_mode", "version": "1.2.0", "title": "Dark mode", "rollout_percent": 25},
}


def read(**changes: Any) -> ReleaseEvent | None:
    said = {**EVENT, **changes}
    return read_event(json.dumps({name: value for name, value in said.items() if value is not ...}).encode())


def test_an_event_is_its_envelope_and_its_release() -> None:
    event = read()
    assert event is not None
    assert event.identity == "/blog/releases#r-1"
    assert event.event_time == datetime(2024, 10, 10, 9, tzinfo=UTC)
    assert event.envelope() == {name: value for name, value in EVENT.items() if name != "data"}
    assert event.data.model_dump() == EVENT["data"]


def test_extension_attributes_and_further_data_are_passed_over() -> None:
    assert read(traceparent="00-1", data={**EVENT["data"], "team": "web"}) == read()


def test_events_of_another_type_are_nobodys_business_here_whatever_they_hold() -> None:
    assert read(type="blog.feature.planned") is None
    assert read(type="blog.feature.planned", data=None, id=7, dataschema="anything/9") is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": ...}, "id"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"type": ...}, "type"),
        ({"type": 7}, "type"),
        ({"specversion": "0.3"}, "specversion"),
        ({"dataschema": "feature-released/2"}, "dataschema"),
        ({"time": "tomorrow"}, "time"),
        ({"time": "2024-10-10T09:00:00"}, "time"),
        ({"time": "0001-01-01T00:00:00+14:00"}, "time"),
        ({"time": "9999-12-31T23:59:59-01:00"}, "time"),
        ({"time": "2262-01-01T00:00:00Z"}, "time"),
        ({"data": None}, "data"),
        ({"data": {"version": "1"}}, "data.feature"),
        ({"data": {**EVENT["data"], "rollout_percent": 101}}, "data.rollout_percent"),
        ({"data": {**EVENT["data"], "rollout_percent": "some"}}, "data.rollout_percent"),
    ],
)
def test_the_field_that_is_to_blame_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UnreadableEvent) as unreadable:
        read(**changes)
    assert unreadable.value.field == field
    assert unreadable.value.reason


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "no value"),
        (b"", "no JSON"),
        (json.dumps(EVENT).encode()[:-9], "no JSON"),
        (b"[1]", "no JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 20_000, "no JSON"),
        (b"{" + b" " * LARGEST_EVENT + b"}", "more than the 32768"),
    ],
)
def test_what_is_no_event_is_said_without_its_text(payload: bytes | None, reason: str) -> None:
    with pytest.raises(UnreadableEvent, match=reason):
        read_event(payload)


def test_a_reason_never_repeats_a_value() -> None:
    with pytest.raises(UnreadableEvent) as unreadable:
        read(data={"feature": "x", "version": "1", "rollout_percent": "someone@example.org"})
    assert "someone" not in str(unreadable.value)


def test_the_simulators_notifications_are_what_its_truth_says() -> None:
    start = datetime(2024, 10, 10, 9, tzinfo=UTC)
    told = announcements(World(seed=3), [start + timedelta(days=day) for day in range(9)])
    assert told.messages == announcements(World(seed=3), [start + timedelta(days=day) for day in range(9)]).messages

    found: list[ReleaseEvent] = []
    irrelevant, unreadable = 0, []
    for message in told.messages:
        try:
            event = read_event(message.value)
        except UnreadableEvent:
            unreadable.append(message.value)
            continue
        found += [event] if event else []
        irrelevant += event is None
    assert {event.id: event.model_dump() for event in found} == told.released
    assert len(found) - len(told.released) == told.redelivered == 3
    assert (irrelevant, unreadable) == (told.irrelevant, told.unreadable)
    assert len(unreadable) == 6
