"""Who serves a home notices that its calendar grew, once, whenever the webserver can hear of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from de_assets.calendar import Calendar, CalendarOrigin
from de_assets.cli.grown_calendar import GrownCalendar
from de_resources.errors import PermanentError
from de_resources.other_location import NotLoaded, OtherLocation, UIAway
from de_resources.settings import Settings

FIRST = Calendar.parse("2024-03-01T00/2024-03-02T00")
LONGER = Calendar.parse("2024-03-01T00/2024-03-03T00")


class Served:
    """A home and its webserver: what is recorded, and what every load found there."""

    def __init__(self) -> None:
        self.recorded: Calendar | PermanentError = FIRST
        self.refuses: list[Exception] = []
        self.loaded: list[Calendar] = []
        self.watch = GrownCalendar(self.now, self.load_again)

    def now(self) -> Calendar:
        if isinstance(self.recorded, PermanentError):
            raise self.recorded
        return self.recorded

    def load_again(self) -> None:
        if self.refuses:
            raise self.refuses.pop()
        self.loaded.append(self.now())


def test_a_calendar_that_grew_is_loaded_once() -> None:
    served = Served()
    assert not served.watch.look(), "it is as it was loaded"
    served.recorded = LONGER
    assert [served.watch.look() for _ in range(3)] == [True, False, False]
    served.recorded = LONGER.opened
    assert [served.watch.look() for _ in range(2)] == [True, False]
    assert served.loaded == [LONGER, LONGER.opened]


def test_a_webserver_that_does_not_answer_yet_is_asked_again() -> None:
    served = Served()
    served.recorded, served.refuses = LONGER, [UIAway("there"), UIAway("there")]
    assert [served.watch.look() for _ in range(4)] == [False, False, True, False]
    assert served.loaded == [LONGER]


def test_definitions_that_do_not_load_are_not_loaded_without_end() -> None:
    served = Served()
    served.recorded, served.refuses = LONGER, [NotLoaded("de_assets", "ImportError")]
    assert [served.watch.look() for _ in range(2)] == [True, False]
    assert not served.loaded


def test_a_record_that_nobody_can_read_is_no_growth_and_ends_nothing() -> None:
    served = Served()
    served.recorded = PermanentError("torn")
    assert not served.watch.look()
    served.recorded = FIRST
    assert not served.watch.look()


def test_any_other_error_is_not_hidden() -> None:
    served = Served()
    served.recorded, served.refuses = LONGER, [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        served.watch.look()


def test_the_record_of_a_home_and_a_webserver_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DE_CALENDAR", raising=False)
    settings = Settings.from_environment({"DE_HOME": str(tmp_path)})
    FIRST.save(settings, CalendarOrigin.LOGS)
    nobody = OtherLocation(location="de_assets", ui="http://127.0.0.1:9")
    watch = GrownCalendar(lambda: Calendar.load(settings), nobody.load_again)
    LONGER.save(settings, CalendarOrigin.LOGS)
    assert not watch.look()
    with pytest.raises(UIAway):
        nobody.load_again()
