"""A feed to a real partner over HTTP, who takes part of a batch, is away, dies, and answers nonsense: each key in its order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
import requests
import warm_process
from outbox_client import feed, outbox_of
from platform_world import kill_service
from waiting import PATIENCE

from de_resources.delivery.bin_pack_orderer import Patience
from de_resources.delivery.errors import (
    AnswerNotUnderstood,
    DeliveryStalled,
    FeedBusy,
    PlanRefused,
    ReceiverRefuses,
    ReceiverUnavailable,
)
from de_resources.delivery.outbox import FeedRow
from de_resources.delivery.receiver import BulkReceiver
from de_resources.delivery.records import Outcome
from de_resources.delta.write.crash_points import at
from de_resources.local import LocalServices
from de_resources.local.partner import Behaviour
from de_resources.postgres import PostgresDatabase
from de_resources.secrets import UnknownSecret

pytestmark = [pytest.mark.services, pytest.mark.pattern("bin_pack_orderer")]


def shops(seed: int, number: int = 300, keys: int = 17) -> dict[tuple[str, int], int]:
    """Totals of shops, of which some have much more to tell than others."""
    random = Random(seed)  # noqa: S311 - rows, not secrets
    drawn = [f"s{min(random.randrange(keys), random.randrange(keys))}" for _ in range(number)]
    return {(shop, moment): random.randrange(1000) for moment, shop in enumerate(drawn)}


DEATHS = {
    "before the plan": "before_commit:{}",
    "after the plan": "after_commit:{}",
    "before the note": "before_commit:{}:receipts",
    "after the note": "after_commit:{}:receipts",
}
"""Where a run dies, by what it has not done or has just done."""


@dataclass
class World:
    """A feed of its own, and the partner who gets it."""

    services: LocalServices
    name: str = field(default_factory=lambda: f"shop_{uuid4().hex[:8]}.orders")

    def behave(self, **how: Any) -> None:
        """From now on the partner is like this."""
        Behaviour(**{"per_second": 1e6, **how}).behave(self.services.settings.home / "partner")

    def told(self) -> dict[str, Any]:
        """What the partner says of the stream: its own record."""
        endpoint = self.services.endpoint("partner")
        assert endpoint is not None
        (stream,) = self.query("SELECT DISTINCT stream::text FROM {}_outbox") or [("none",)]
        answer = requests.get(
            f"http://{endpoint.address}/v1/streams/{stream[0]}?arrivals",
            headers={"Authorization": f"Bearer {endpoint.password.get_secret_value()}"},
            timeout=PATIENCE,
        )
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement.format(self.name))
            return cursor.fetchall()

    def view(self) -> dict[tuple[str, int], int]:
        """What readers of the view take for delivered."""
        return {(shop, moment): total for shop, moment, total in self.query("SELECT * FROM {}")}

    def arrived(self) -> dict[str, list[tuple[int, str, int | None]]]:
        """By key what the partner got, in the order of first arrivals: sequence, position, total."""
        found: dict[str, list[tuple[int, str, int | None]]] = {}
        for key, sequence, body, repeated in self.told()["arrivals"]:
            if not repeated:
                values = body["values"]
                found.setdefault(key, []).append((sequence, body["position"], values and values["total"]))
        return found


@pytest.fixture
def world(at_home: LocalServices) -> Iterator[World]:
    made = World(at_home)
    made.behave(rejects=0.0)
    yield made
    (at_home.settings.home / "partner" / "behaviour.json").unlink()
    made.query("DROP SCHEMA IF EXISTS " + made.name.partition(".")[0] + " CASCADE; SELECT 1")


def in_order(rows: dict[tuple[str, int], int]) -> dict[str, list[tuple[int, str, int | None]]]:
    """What a partner has to have got: computed from the rows alone."""
    expected: dict[str, list[tuple[int, str, int | None]]] = {}
    for (shop, moment), total in sorted(rows.items(), key=lambda each: each[0][1]):
        line = expected.setdefault(shop, [])
        line.append((len(line) + 1, f"{moment:04}", total))
    return expected


def test_a_partner_who_takes_part_of_a_batch_gets_every_key_in_order_complete_and_once(world: World) -> None:
    world.behave(rejects=0.4, records=20)
    rows = shops(7)
    done = feed({"1": rows}, world.name)
    assert world.arrived() == in_order(rows)
    told = world.told()
    assert (told["received"], told["repeated"], told["overtaken"], told["gaps"]) == (300, 0, 0, 0)
    assert told["requests"] == done.requests
    assert done.outcomes[Outcome.ACCEPTED] == 300
    assert done.outcomes[Outcome.REJECTED] > 100, "the partner took part of the batches"
    assert world.view() == rows
    assert done.metadata("1")["delivery/delivered"] == done.metadata("1")["delivery/records"] == 300


def test_a_rerun_sends_nothing_and_what_has_changed_is_a_later_record_of_its_key(world: World) -> None:
    first = shops(1, 60, 5)
    second = {(shop, moment + 500): total for (shop, moment), total in shops(2, 40, 5).items()}
    feed({"1": first, "2": second}, world.name)
    before = world.told()
    again = feed({"1": first, "2": second}, world.name)
    assert (again.planned, again.requests) == ({"1": 0, "2": 0}, 0)
    assert world.told() == before, "not even a request"

    changed, gone, late = list(first)[3], list(first)[5], ("s0", 9000)
    mended = {**first, changed: 5000, late: 1}
    del mended[gone]
    assert feed({"1": mended}, world.name).planned == {"1": 3}
    now = world.arrived()
    for key, expected in {changed: [first[changed], 5000], gone: [first[gone], None], late: [1]}.items():
        assert [total for _, position, total in now[key[0]] if position == f"{key[1]:04}"] == expected
    assert world.told()["overtaken"] == world.told()["gaps"] == 0
    assert sorted(world.query("SELECT shop, moment, total FROM {}")) == sorted(
        (shop, moment, total) for each in (mended, second) for (shop, moment), total in each.items()
    )


def test_an_empty_slice_plans_nothing_and_one_that_becomes_empty_is_withdrawn(world: World) -> None:
    assert feed({"1": {}}, world.name).requests == 0
    rows = shops(3, 10, 3)
    feed({"1": rows}, world.name)
    assert feed({"1": {}}, world.name).planned == {"1": 10}
    assert world.view() == {}
    assert world.told()["received"] == 20


def test_requests_whose_answer_is_lost_are_repeated_and_known_again(world: World) -> None:
    world.behave(rejects=0.2, records=30, lost=1)
    rows = shops(4)
    done = feed({"1": rows}, world.name)
    told = world.told()
    assert done.outcomes[Outcome.REPEATED] == told["repeated"] > 10
    assert told["received"] == 300
    assert world.arrived() == in_order(rows)


@pytest.mark.faults
@pytest.mark.parametrize("point", DEATHS.values(), ids=DEATHS)
def test_after_a_kill_nothing_is_missing_and_what_came_twice_is_one_request(
    world: World, point: str, tmp_path: Path
) -> None:
    world.behave(rejects=0.3, records=25)
    rows = shops(5, 120, 6)
    listed = [("1", shop, moment, total) for (shop, moment), total in rows.items()]
    environment = {**os.environ, "DE_KILL_AT": point.format(world.name)}
    process = warm_process.start(
        "outbox_client:main", world.name, listed, environment=environment, output=tmp_path / "said"
    )
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "said").read_text()
    was_sent = point.endswith("receipts")
    assert (world.told()["received"] > 0) == was_sent

    feed({"1": rows}, world.name)
    assert world.arrived() == in_order(rows)
    assert world.view() == rows
    # The one request whose answers were not noted, and only what had been taken of it.
    repeated = world.told()["repeated"]
    assert (0 < repeated <= 6) if point.endswith("}:receipts") and point.startswith("before") else repeated == 0


@pytest.mark.faults
def test_an_outbox_that_is_gone_begins_another_stream_and_everything_is_told_again(world: World) -> None:
    """What was sent is not known any more: nothing is taken for sent, and nothing for what the partner has already."""
    rows = shops(16, 30, 4)
    feed({"1": rows}, world.name)
    (before,) = world.query("SELECT DISTINCT stream FROM {}_outbox")
    world.query("DROP TABLE {}_outbox CASCADE; SELECT 1")
    done = feed({"1": rows}, world.name)
    (after,) = world.query("SELECT DISTINCT stream FROM {}_outbox")
    assert before != after
    assert (done.planned, done.outcomes[Outcome.ACCEPTED], done.outcomes[Outcome.REPEATED]) == ({"1": 30}, 30, 0)
    assert world.arrived() == in_order(rows)
    assert world.view() == rows


@pytest.mark.faults
def test_what_is_planned_later_never_overtakes_what_a_dead_run_has_left(world: World) -> None:
    world.behave(rejects=0.0, busy=-1)
    first, second = shops(6, 50, 4), shops(8, 50, 4)
    with pytest.raises(ReceiverUnavailable, match="status 503"):
        feed({"1": first}, world.name, receiver=BulkReceiver(attempts=2, first_pause=0.01, longest_pause=1))
    world.behave(rejects=0.3)
    feed({"2": second}, world.name)
    positions = {key: [position for _, position, _ in line] for key, line in world.arrived().items()}
    for key, line in positions.items():
        of_first = [f"{m:04}" for shop, m in sorted(first, key=lambda each: each[1]) if shop == key]
        assert line[: len(of_first)] == of_first
    assert world.told()["received"] == 100


@pytest.mark.faults
def test_a_partner_who_dies_and_one_who_is_away_for_a_while_cost_time_only(world: World) -> None:
    world.behave(rejects=0.2, records=10, busy=1)
    rows, killed = shops(9, 120, 6), Event()

    def kill(feed_: str) -> None:
        if feed_.endswith(":receipts") and not killed.is_set():
            killed.set()
            kill_service(world.services, "partner")

    with at("after_commit", kill):
        feed({"1": rows}, world.name)
    assert killed.is_set()
    assert world.arrived() == in_order(rows)


@pytest.mark.faults
def test_who_asks_too_often_comes_back_when_told(world: World) -> None:
    world.behave(rejects=0.0, records=3, per_second=9)
    rows = shops(10, 36, 12)
    feed({"1": rows}, world.name)
    assert world.arrived() == in_order(rows)
    assert world.told()["repeated"] == 0


@pytest.mark.parametrize("nonsense", ["html", "missing", "unknown"])
@pytest.mark.faults
def test_an_answer_that_is_none_stops_the_delivery_and_nothing_is_lost(world: World, nonsense: str) -> None:
    world.behave(rejects=0.0, nonsense=nonsense)
    rows = shops(11, 40, 4)
    with pytest.raises(AnswerNotUnderstood, match="not understood"):
        feed({"1": rows}, world.name)
    assert world.view() == {}
    world.behave(rejects=0.0)
    done = feed({"1": rows}, world.name)
    assert done.outcomes[Outcome.REPEATED] == 4, "the first bin had arrived"
    assert world.arrived() == in_order(rows)


def test_a_record_that_is_refused_holds_its_key_and_no_other_until_a_person_gives_it_up(world: World) -> None:
    world.behave(rejects=0.2, refuses=["s1"])
    rows = shops(12, 80, 5)
    of_s1 = [key for key in rows if key[0] == "s1"]
    standing = feed({"1": rows}, world.name).standing["1"]
    assert (standing.refused, standing.held, standing.pending) == (1, len(of_s1) - 1, 0)
    expected = in_order(rows)
    assert world.arrived() == {key: line for key, line in expected.items() if key != "s1"}
    assert world.query("SELECT key, sequence, said FROM {}_outbox WHERE state = 'refused'") == [
        ("s1", 1, "not wanted here")
    ]

    world.behave(rejects=0.2)
    assert feed({"1": rows}, world.name).requests == 0, "held until somebody decides"
    standing = feed({"1": rows}, world.name, release=["s1"]).standing["1"]
    assert (standing.refused, standing.held) == (0, 0)
    assert world.arrived()["s1"] == expected["s1"][1:]
    assert world.told()["gaps"] == 1, "the partner sees what it refused"


def test_rows_without_a_key_are_set_aside_and_rows_that_no_text_can_hold_are_named(world: World) -> None:
    outbox = outbox_of(world.name)
    with outbox.alone():
        rows = [FeedRow(None, "1", {"shop": None, "moment": 1}), FeedRow("a", "1", {"shop": "a", "moment": 1})]
        assert outbox.plan("1", rows, "run") == 2
        assert outbox.plan("1", rows, "run") == 0, "nor again"
        assert [record.key for record in outbox.due(10)] == ["a"]
        assert outbox.standing("1").refused == 1
        for bad in (
            FeedRow("a\x00", "2", {}),
            FeedRow("a", "2", {"shop": "\x00"}),
            FeedRow("a", "2", {"n": float("nan")}),
        ):
            with pytest.raises(PlanRefused, match=r"Nothing was planned"):
                outbox.plan("2", [bad], "run")
        with pytest.raises(PlanRefused, match="same key and position"):
            outbox.plan("2", [rows[1], rows[1]], "run")


def test_one_that_is_always_rejected_stalls_the_run_and_is_tried_by_the_next(world: World) -> None:
    world.behave(rejects=1.0)
    rows = shops(13, 20, 2)
    with pytest.raises(DeliveryStalled, match="3 times"):
        feed({"1": rows}, world.name, patience=Patience(attempts=3, first_pause=0.001))
    world.behave(rejects=0.0)
    feed({"1": rows}, world.name)
    assert world.arrived() == in_order(rows)
    assert world.query("SELECT max(attempts) FROM {}_outbox") == [(4,)]


def test_a_second_sender_waits_for_the_first(world: World, beside: ThreadPoolExecutor) -> None:
    rows, planned, go_on = shops(14, 60, 4), Event(), Event()

    def hold(feed_: str) -> None:
        if feed_ == world.name and not planned.is_set():
            planned.set()
            assert go_on.wait(PATIENCE)

    with at("after_commit", hold):
        first = beside.submit(feed, {"1": rows}, world.name)
        assert planned.wait(PATIENCE)
        with pytest.raises(FeedBusy, match="two senders"), outbox_of(world.name).alone(0.2):
            pass
        second = beside.submit(feed, {"1": rows}, world.name)
        go_on.set()
        assert first.result(PATIENCE).planned == {"1": 60}
        assert second.result(PATIENCE).planned == {"1": 0}
    assert world.arrived() == in_order(rows)
    assert world.told()["repeated"] == 0


def test_a_wrong_login_is_refused_and_never_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = world.services.endpoint("partner")
    assert endpoint is not None
    address = f"http://{endpoint.address}"
    monkeypatch.setenv("DE_SECRET_OTHERS", "a-token-of-somebody-else")
    with pytest.raises(ReceiverRefuses, match="401") as refused:
        feed({"1": shops(15, 5, 2)}, world.name, receiver=BulkReceiver(url=address, token="secret://others"))
    assert "somebody" not in str(refused.value)
    with pytest.raises(UnknownSecret), BulkReceiver(url=address, token="secret://nowhere").open():
        pass
    own = world.services.settings.secrets / "partner_token"
    monkeypatch.setenv("DE_SECRET_OURS", own.read_text())
    feed({"1": shops(15, 5, 2)}, world.name, receiver=BulkReceiver(url=address, token="secret://ours"))
    assert world.told()["received"] == 5


def test_the_partner_takes_no_batch_that_is_too_large_or_none(world: World, over_http: Callable[..., int]) -> None:
    world.behave(records=2, bytes=100)
    record = {"id": "x-1", "stream": "x", "key": "k", "sequence": 1, "body": {}}
    assert over_http({"records": [record] * 3}) == 413
    assert over_http({"records": [{**record, "body": "x" * 200}]}) == 413
    assert over_http({"rows": []}) == 400
    assert over_http({"records": [record]}) == 207
    assert over_http({"records": [record]}, host="elsewhere.example") == 400


@pytest.fixture
def over_http(world: World) -> Callable[..., int]:
    """Post something to the partner; the status of its answer."""
    endpoint = world.services.endpoint("partner")
    assert endpoint is not None
    token = f"Bearer {endpoint.password.get_secret_value()}"

    def post(body: Any, host: str | None = None) -> int:
        headers = {"Authorization": token, **({"Host": host} if host else {})}
        return requests.post(
            f"http://{endpoint.address}/v1/records", json=body, headers=headers, timeout=PATIENCE
        ).status_code

    return post
