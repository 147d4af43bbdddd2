"""The heartbeat of a long-running job: alive without data, dead, hanging, ended in order; clocks that jump."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from de_resources.heartbeat import Beat, Heartbeat, UnusableName, beating, last_beat

pytestmark = pytest.mark.pattern("flow_interruption_detector")

NOON = datetime(2024, 1, 8, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Clock:
    now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heart(tmp_path: Path, clock: Clock) -> Heartbeat:
    return Heartbeat("relay.users", tmp_path, clock=clock)


def test_a_job_lives_though_nothing_comes_to_it(heart: Heartbeat, clock: Clock, tmp_path: Path) -> None:
    heart.beat(data=True)
    for _ in range(60):
        clock.now += SECOND
        heart.beat()
    assert last_beat("relay.users", tmp_path) == Beat("relay.users", NOON + 60 * SECOND, data_at=NOON)


def test_a_beat_is_written_once_per_interval_however_often_the_job_goes_around(heart: Heartbeat, clock: Clock) -> None:
    seen = set()
    for _ in range(1000):
        clock.now += SECOND / 50
        heart.beat()
        seen.add(heart.file.stat().st_ino)
        assert [file.name for file in heart.folder.iterdir()] == [heart.file.name], "a reader never sees half of one"
    beat = last_beat(heart.job, heart.folder)
    assert beat is not None
    assert NOON + 10 * SECOND <= beat.at <= NOON + 20 * SECOND
    assert len(seen) <= 3


def test_a_clock_that_was_set_back_does_not_silence_the_heart(heart: Heartbeat, clock: Clock, tmp_path: Path) -> None:
    heart.beat()
    clock.now -= timedelta(days=1)
    heart.beat()
    beat = last_beat("relay.users", tmp_path)
    assert beat is not None
    assert beat.at == clock.now


def test_an_orderly_end_takes_the_sign_away_and_a_death_leaves_it(heart: Heartbeat, tmp_path: Path) -> None:
    with beating(heart):
        assert last_beat("relay.users", tmp_path) is not None
    assert last_beat("relay.users", tmp_path) is None
    with pytest.raises(OSError, match="gone"), beating(heart):
        raise OSError("the database is gone")
    assert last_beat("relay.users", tmp_path) is not None


@pytest.mark.parametrize("said", ["", "{", "[]", '{"at": 7}', '{"at": "yesterday"}', "{}"])
def test_what_nobody_can_read_is_no_beat(said: str, heart: Heartbeat, tmp_path: Path) -> None:
    heart.file.write_text(said)
    assert last_beat("relay.users", tmp_path) is None


@pytest.mark.parametrize("name", ["../relay", "", "a/b", "Relay", ".hidden", "x" * 101, "a\nb"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnusableName):
        Heartbeat(name, tmp_path)
