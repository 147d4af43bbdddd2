"""The book of alerts: states instead of storms, over channels that are away, and over deaths in the middle."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from de_assets.cli.application import application
from de_resources.alerts import book as module
from de_resources.alerts.book import EVERYTHING, AlertBook, AlertCondition, Body, UnknownAlert
from de_resources.errors import TransientError

pytestmark = pytest.mark.pattern("sla_misses_detector")

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
SAID = {"text": "ERROR: it failed"}


class Channel:
    """Keeps what it was told, unless it is away."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.away: Exception | None = None

    def __call__(self, body: Body) -> None:
        if self.away:
            raise self.away
        self.told.append(f"{body['event']} {body['subject']}")


def bad(subject: str, *parts: str, severity: str = "ERROR") -> AlertCondition:
    return AlertCondition(subject, SAID, frozenset(parts or {""}), severity=severity)


def good(subject: str, *parts: str) -> AlertCondition:
    return AlertCondition(subject, SAID, good=frozenset(parts) if parts else EVERYTHING)


@pytest.fixture
def book(tmp_path: Path) -> AlertBook:
    return AlertBook.of_home(tmp_path)


def events(book: AlertBook, *conditions: AlertCondition) -> list[str]:
    return [f"{each['event']} {each['subject']}" for each in book.observe(conditions, [], NOW)]


def test_one_alert_on_opening_and_one_on_recovery(book: AlertBook) -> None:
    storm = [bad("a") for _ in range(100)]
    assert events(book, good("a"), *storm, good("a"), good("a")) == ["opened a", "recovered a"]
    assert events(book, bad("a")) == ["opened a"], "the next time is news again"


def test_an_alert_is_open_until_the_last_of_its_parts_is_good(book: AlertBook) -> None:
    assert events(book, bad("a", "mon", "tue"), bad("a", "wed"), good("a", "mon", "wed")) == ["opened a"]
    (opened,) = book.open_alerts()
    assert opened.members == ("tue",)
    assert events(book, good("a", "thu")) == []
    assert events(book, good("a", "tue")) == ["recovered a"]
    assert book.open_alerts() == []


def test_what_gets_worse_is_told_once(book: AlertBook) -> None:
    warn = bad("a", severity="WARN")
    assert events(book, warn, warn, bad("a"), bad("a"), warn) == ["opened a", "worse a"]
    assert book.open_alerts()[0].severity == "ERROR"


def test_what_was_told_has_an_identity_of_its_own(book: AlertBook) -> None:
    first = [each["id"] for each in book.observe([bad("a"), good("a")], [], NOW)]
    second = [each["id"] for each in book.observe([bad("a")], [], NOW + timedelta(seconds=1))]
    assert len({*first, *second}) == 3


def test_a_channel_that_is_away_loses_nothing_and_blocks_nobody(book: AlertBook) -> None:
    mail, log = Channel(), Channel()
    channels: dict[str, Callable[[Body], None]] = {"mail": mail, "log": log}
    mail.away = TransientError("The server is away.")
    now = NOW
    for subject in "abc":
        book.observe([bad(subject)], channels, now)
        assert book.deliver(channels, now) == {"mail": "The server is away."}
        now += timedelta(seconds=1)
    assert log.told == ["opened a", "opened b", "opened c"]
    assert [(each.channel, each.waiting, each.attempts) for each in book.pending()] == [("mail", 3, 1)]
    mail.away = None
    assert book.deliver(channels, now) == {"mail": "The server is away."}, "not before its pause is over"
    assert book.deliver(channels, NOW + timedelta(seconds=30)) == {}
    assert mail.told == log.told
    assert book.pending() == []


def test_pauses_grow_up_to_an_hour(book: AlertBook) -> None:
    mail, tries = Channel(), []

    def away(body: Body) -> None:
        tries.append(now)
        raise OSError("secret address")

    now = NOW
    book.observe([bad("a")], ["mail"], now)
    while now < NOW + timedelta(hours=6):
        assert book.deliver({"mail": away}, now) == {"mail": "OSError"}, "words of others may be secrets"
        now += timedelta(seconds=10)
    pauses = [(b - a).total_seconds() for a, b in pairwise(tries)]
    assert pauses[:8] == [30, 60, 120, 240, 480, 960, 1920, 3600]
    assert set(pauses[8:]) == {3600}
    assert book.deliver({"mail": mail}, now + timedelta(hours=1)) == {}
    assert mail.told == ["opened a"]


def test_a_clock_that_was_set_back_makes_no_channel_mute(book: AlertBook) -> None:
    """It had failed once; a day earlier it is tried at once, and within its pause it is not."""
    mail = Channel()
    mail.away = TransientError("The server is away.")
    book.observe([bad("a")], ["mail"], NOW)
    book.deliver({"mail": mail}, NOW)
    mail.away = None
    assert book.deliver({"mail": mail}, NOW - timedelta(minutes=5)) == {"mail": "The server is away."}
    assert book.deliver({"mail": mail}, NOW - timedelta(days=1)) == {}
    assert mail.told == ["opened a"]


def test_what_waits_for_a_channel_that_was_removed_is_removed(book: AlertBook) -> None:
    book.observe([bad("a")], ["log", "pager"], NOW)
    book.deliver({"log": Channel()}, NOW)
    assert book.pending() == []


def test_a_death_while_the_states_change_leaves_neither_state_nor_news(
    book: AlertBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = module._changed

    def dies(session: sqlite3.Connection, condition: AlertCondition, now: datetime) -> Body | None:
        if condition.subject == "b":
            raise KeyboardInterrupt
        return kept(session, condition, now)

    monkeypatch.setattr(module, "_changed", dies)
    with pytest.raises(KeyboardInterrupt):
        book.observe([bad("a"), bad("b")], ["log"], NOW, {"runs": "7"})
    assert (book.open_alerts(), book.pending(), book.position("runs")) == ([], [], None)
    monkeypatch.undo()
    assert events(book, bad("a"), bad("b")) == ["opened a", "opened b"]


def test_a_death_after_delivery_repeats_the_alert_under_the_same_identity(book: AlertBook) -> None:
    told: list[str] = []

    def dies_behind(body: Body) -> None:
        told.append(str(body["id"]))
        if len(told) == 1:
            raise KeyboardInterrupt

    book.observe([bad("a")], ["log"], NOW)
    with pytest.raises(KeyboardInterrupt):
        book.deliver({"log": dies_behind}, NOW)
    book.deliver({"log": dies_behind}, NOW)
    assert len(told) == 2
    assert len(set(told)) == 1


def test_an_alert_that_was_taken_on_stays_open_and_says_so(book: AlertBook) -> None:
    book.observe([bad("a")], [], NOW)
    book.acknowledge("a", "the source's team knows")
    assert [each.acknowledged for each in book.open_alerts()] == ["the source's team knows"]
    assert events(book, bad("a")) == []
    with pytest.raises(UnknownAlert, match="Open are: a"):
        book.acknowledge("b", "")


def test_a_person_takes_an_alert_on_by_the_command_of_the_page(
    book: AlertBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))

    def de(*arguments: str) -> Result:
        return CliRunner().invoke(application(), ["alerts", *arguments])

    assert de().output.strip() == "No alert is open."
    book.observe([bad("a"), bad("b")], [], NOW)
    assert de("a", "--words", "the source's team knows").exit_code == 0
    told = {each["subject"]: each["acknowledged"] for each in json.loads(de("--json").output)}
    assert told == {"a": "the source's team knows", "b": None}
    refused = de("c")
    assert refused.exit_code != 0
    assert "Open are: a, b" in refused.output


def test_a_home_without_a_book_has_nothing_open(book: AlertBook) -> None:
    assert (book.open_alerts(), book.pending()) == ([], [])
    assert not book.path.exists()
