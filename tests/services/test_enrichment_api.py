"""The client of an API that is paid for by the value, against the real service: it is the service that counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from geo_world import GeoWorld, geo_in, networks
from waiting import PATIENCE

from de_resources.enrichment.api import EnrichmentApi, Quota, _seconds
from de_resources.enrichment.circuit import CircuitFile
from de_resources.enrichment.errors import (
    ApiMisconfigured,
    ApiRefuses,
    ApiUnavailable,
    CircuitOpen,
    NonsenseAnswer,
    QuotaTooSmall,
)
from de_resources.local import LocalServices
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.local.geo import country_of
from de_resources.settings import Settings

pytestmark = [pytest.mark.services, pytest.mark.pattern("static_joiner")]

FIELDS = {"country": "[A-Z]{2}"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    home = tmp_path_factory.mktemp("geo")
    with geo_in(LocalServices(Settings.from_environment({"DE_HOME": str(home)}))) as services:
        yield services


@pytest.fixture
def world(running: LocalServices, monkeypatch: pytest.MonkeyPatch) -> Iterator[GeoWorld]:
    monkeypatch.setenv("DE_HOME", str(running.settings.home))
    yield GeoWorld(running)
    for circuit in _circuits(running.settings.home):
        circuit.unlink()


def _circuits(home: Path) -> list[Path]:
    return list((home / "circuits").glob("*.json"))


class Clock:
    """Waits in no time, and remembers how long."""

    def __init__(self) -> None:
        self.naps: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.naps.append(seconds)


def asked(values: list[str], size: int = 3, *, clock: Clock | None = None, **how: Any) -> dict[str, Any]:
    with EnrichmentApi(**how).open(clock or Clock()) as api:
        return {value: found for part in api.in_bulk(values, size, FIELDS) for value, found in part.items()}


def true_of(values: list[str]) -> dict[str, Any]:
    """The service's own rule."""
    return {value: {"country": country} if (country := country_of(value)) else None for value in values}


def test_each_distinct_value_is_asked_for_once_and_in_bulk(world: GeoWorld) -> None:
    values = networks(70)
    found = asked([*values, *values[:20]], 30)
    assert found == true_of(values)
    assert None in found.values(), "some are not known, and that is an answer"
    assert world.charged == values
    assert world.requests() == 3


def test_a_busy_service_is_given_the_time_it_asks_for_and_opens_no_circuit(world: GeoWorld) -> None:
    world.behave(busy=9, retry_after="3")
    clock, values = Clock(), networks(3)
    assert asked(values, clock=clock, failures=2, patience=1e6) == true_of(values)
    assert world.charged == values
    assert (world.requests(), len(clock.naps)) == (10, 9)
    assert all(nap >= 3 for nap in clock.naps)
    assert max(clock.naps) > 3, "its own pause grows beyond that"


def test_pauses_grow_and_are_jittered(world: GeoWorld) -> None:
    def naps() -> list[float]:
        world.behave(away=5, retry_after="")
        clock, values = Clock(), networks(1)
        assert asked(values, clock=clock) == true_of(values)
        return clock.naps

    first, second = naps(), naps()
    for nap, least in zip(first, (0.5, 1, 2, 4, 8), strict=True):
        assert least <= nap <= least + 0.5
    assert first != second


def test_requests_that_fail_at_random_are_survived(world: GeoWorld) -> None:
    world.behave(errors=0.3)
    values = networks(60)
    assert asked(values, 2, patience=1e6) == true_of(values)
    assert world.charged == values, "what failed was not paid for"
    assert world.requests() > 30


def test_an_answer_that_is_lost_was_paid_for_and_is_paid_for_again(world: GeoWorld) -> None:
    """What remains possible: nobody can tell whether the first request arrived."""
    world.behave(lost=1)
    values = networks(5)
    assert asked(values, 3) == true_of(values)
    assert world.charged == [*values[:3], *values]


def test_what_is_waited_in_all_is_bounded(world: GeoWorld) -> None:
    world.behave(busy=-1, retry_after="20")
    clock = Clock()
    with pytest.raises(ApiUnavailable, match="status 429") as raised:
        asked(networks(3), clock=clock, patience=60)
    assert not isinstance(raised.value, CircuitOpen)
    assert not raised.value.soon, "a step that has waited does not begin again"
    assert sum(clock.naps) <= 60
    assert raised.value.requests == world.requests() == 4
    world.behave(busy=-1, retry_after="3600")
    with pytest.raises(ApiUnavailable):
        asked(networks(3), clock=(clock := Clock()))
    assert clock.naps == [], "nobody waits an hour"


def test_an_outage_opens_the_circuit_for_all_and_one_request_tries_it_after_the_rest(world: GeoWorld) -> None:
    world.behave(away=-1)
    how: dict[str, Any] = {"failures": 4, "rest_seconds": 600.0, "patience": 1e6}
    with pytest.raises(ApiUnavailable, match="status 503") as outage:
        asked(networks(9), **how)
    assert outage.value.requests == world.requests() == 4

    with pytest.raises(CircuitOpen, match="rests for 600 s"):
        asked(networks(9), **how)  # another connection, as of another process: the state is a file
    assert world.requests() == 4, "nobody was asked"

    (path,) = _circuits(world.home)
    kept = CircuitFile(path)
    assert (kept.state, kept.counter) == ("open", 4)
    kept.opened_at = datetime.now(UTC) - timedelta(seconds=601)
    with pytest.raises(ApiUnavailable, match="status 503"):
        asked(networks(9), **how)
    assert world.requests() == 5, "one tries it"
    with pytest.raises(CircuitOpen):
        asked(networks(9), **how)

    world.behave()
    kept.opened_at = datetime.now(UTC) - timedelta(seconds=601)
    values = networks(2)
    assert asked(values, **how) == true_of(values)
    assert (kept.state, kept.counter) == ("closed", 0)


def test_a_service_that_hangs_is_waited_for_no_longer_than_was_said_and_counts_as_away(world: GeoWorld) -> None:
    """It may work on all the same: what nobody waits for any more is paid for."""
    world.behave(seconds=2.0)
    how: dict[str, Any] = {"seconds": 0.5, "failures": 2, "patience": 1e6}
    values = networks(3)
    with pytest.raises(ApiUnavailable, match="Timeout") as raised:
        asked(values, **how)
    assert raised.value.requests == 2
    with pytest.raises(CircuitOpen):
        asked(values, **how)
    give_up = time.monotonic() + PATIENCE
    while len(world.charged) < 6 and time.monotonic() < give_up:
        time.sleep(0.1)
    assert world.charged == [*values, *values]
    assert world.requests() == 2


def test_a_circuit_file_that_cannot_be_read_is_a_closed_circuit(world: GeoWorld) -> None:
    asked(networks(1))
    world.behave(away=1)
    asked(networks(1))
    (path,) = _circuits(world.home)
    for damage in ("", "nonsense", "[]"):
        path.write_text(damage)
        values = networks(1)
        assert asked(values) == true_of(values)


@pytest.mark.parametrize(
    ("nonsense", "why"),
    [
        ("html", "no JSON"),
        ("missing", "1 value"),
        ("twice", "answered twice"),
        ("unasked", "1 that were not asked for"),
        ("type", "has another form"),
        ("form", "has another form"),
    ],
)
def test_nonsense_is_refused_as_a_whole_and_not_asked_for_again(world: GeoWorld, nonsense: str, why: str) -> None:
    world.behave(nonsense=nonsense)
    with pytest.raises(NonsenseAnswer, match=why) as raised:
        asked(networks(20), 20)
    assert not raised.value.soon
    assert world.requests() == 1


def test_the_quota_is_known_beforehand_and_costs_nothing(world: GeoWorld) -> None:
    asked(networks(2))
    paid = len(world.charged)
    world.behave(quota=10_000, values=7)
    with EnrichmentApi().open(Clock()) as api:
        quota = api.quota()
        assert quota.values == 7
        assert api.require_quota(quota.left) == Quota(quota.left, 7)
        with pytest.raises(QuotaTooSmall) as raised:
            api.require_quota(quota.left + 1)
    assert (raised.value.needed, raised.value.left) == (quota.left + 1, quota.left)
    assert len(world.charged) == paid
    assert world.requests("quota") == 3


def test_the_service_takes_no_addresses(world: GeoWorld) -> None:
    for value in ("198.18.0.1", "198.18.0.1/32", "198.18.0.0/25", "2001:db8::/64", "here"):
        with pytest.raises(ApiRefuses) as raised:
            asked([value])
        assert raised.value.status == 400
    assert world.charged == []


def test_a_wrong_login_and_none_are_named(world: GeoWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    endpoint = world.services.endpoint("geo")
    assert endpoint is not None
    url = f"http://{endpoint.address}"
    with pytest.raises(ApiMisconfigured):
        asked(networks(1), url=url)
    (world.home / "secrets" / "other").write_text("not it")
    with pytest.raises(ApiRefuses) as raised:
        asked(networks(1), url=url, token="secret://other")
    assert raised.value.status == 401
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    with pytest.raises(ServiceUnavailable, match="de up geo"):
        asked(networks(1))


def test_what_retry_after_says() -> None:
    assert _seconds("7") == 7
    moment = datetime.now(UTC) + timedelta(seconds=120)
    assert _seconds(f"{moment:%a, %d %b %Y %H:%M:%S} GMT") == pytest.approx(120, abs=30)
    assert [_seconds(said) for said in (None, "", "soon", "-3")] == [0, 0, 0, 0]
