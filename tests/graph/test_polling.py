"""Polls: nothing new, no run; what is under way is not doubled; what fails is tried less and less often. No engine."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from instances import silent_instance

from de_assets.automation.triggers.polling import FIRST_WAIT, LONGEST_WAIT, POLL, poll
from de_assets.bronze import devices
from de_assets.sources.landing import DEVICES, MARKER, folder_look
from de_assets.sources.landing_zone import LandingZone
from de_assets.staging import devices_raw
from de_resources.local.endpoints import ServiceUnavailable

KEY = "mirror"


@dg.asset
def mirror(context: dg.AssetExecutionContext) -> None:
    if "breaks" in context.run.tags:
        raise dg.Failure("broken on purpose")


@dataclass
class World:
    """A source, and an instance with the runs that it has caused."""

    instance: dg.DagsterInstance
    news: str | None = None
    away: bool = False
    asked: int = field(default=0)

    def tick(self, after: timedelta = timedelta(), renewed_after: timedelta | None = None) -> str | None:
        """Ask once: why a run is requested, None where none is."""
        schedule = poll(mirror, "*/5 * * * *", self._look, resources=[], renewed_after=renewed_after)
        context = dg.build_schedule_context(self.instance, scheduled_execution_time=datetime.now(UTC) + after)
        answer = schedule(context)
        if isinstance(answer, dg.SkipReason):
            self.skipped = answer.skip_message
            return None
        assert isinstance(answer, dg.RunRequest)
        assert answer.tags[POLL] == KEY
        return answer.tags["poll/why"]

    def run(self, *, breaks: bool = False) -> None:
        tags = {POLL: KEY, **({"breaks": ""} if breaks else {})}
        assert dg.materialize([mirror], instance=self.instance, tags=tags, raise_on_error=False).success is not breaks

    def _look(self, _context: dg.ScheduleEvaluationContext) -> str | None:
        self.asked += 1
        if self.away:
            raise ServiceUnavailable("kafka", "this machine", "start it")
        return self.news


@pytest.fixture
def world() -> Iterator[World]:
    with silent_instance() as instance:
        yield World(instance)


def test_a_source_that_is_where_it_was_left_causes_no_run(world: World) -> None:
    assert [world.tick(), world.tick()] == [None, None]
    world.news = "3 records"
    assert world.tick() == "3 records"
    world.run()
    world.news = None
    assert [world.tick(), world.tick()] == [None, None]


def test_news_are_not_forgotten_until_a_run_has_read_them(world: World) -> None:
    """A tick that was missed, or a request whose run never came: the next tick sees the same."""
    world.news = "3 records"
    assert [world.tick(), world.tick()] == ["3 records"] * 2


def test_while_a_run_is_under_way_nobody_is_asked(world: World) -> None:
    world.news = "3 records"
    run = world.instance.create_run_for_job(
        dg.Definitions([mirror]).resolve_implicit_global_asset_job_def(), asset_selection={mirror.key}
    )
    assert world.tick() is None
    assert run.run_id[:8] in world.skipped
    world.instance.report_run_canceled(run)
    assert world.tick() == "3 records"


def test_a_source_that_is_away_is_said_and_causes_no_run(world: World) -> None:
    world.away = True
    assert world.tick() is None
    assert "kafka" in world.skipped


def test_what_fails_is_tried_less_and_less_often_until_it_succeeds(world: World) -> None:
    world.news = "3 records"
    moment = timedelta(minutes=1)
    for failures in range(8):
        world.run(breaks=True)
        wait = min(FIRST_WAIT * 2**failures, LONGEST_WAIT)
        assert world.tick(wait - moment) is None
        assert f"{failures + 1} runs failed one after the other" in world.skipped
        assert world.tick(wait + moment) == "3 records"
    world.run()
    assert world.tick() == "3 records"


def test_a_position_that_would_be_forgotten_is_renewed(world: World) -> None:
    days = timedelta(days=1)
    assert world.tick(9 * days, renewed_after=3 * days) is None, "there is no position yet"
    world.run()
    assert world.tick(2 * days, renewed_after=3 * days) is None
    assert "renewed" in (world.tick(4 * days, renewed_after=3 * days) or "")


@pytest.mark.pattern("full_loader")
@pytest.mark.parametrize(
    ("asked", "key"),
    [(devices.polls[0], devices.devices.key), (devices_raw.polls[0], devices_raw.devices_raw.key)],
    ids=["bronze", "staging"],
)
def test_a_dump_is_loaded_once_and_again_when_it_was_landed_anew(
    asked: dg.ScheduleDefinition, key: dg.AssetKey, tmp_path: Path
) -> None:
    folder = tmp_path / DEVICES
    with silent_instance() as instance:

        def tick() -> bool:
            moment = datetime(2024, 10, 11, 4, tzinfo=UTC)
            zone = {"landing": LandingZone(root=str(tmp_path))}
            with dg.build_schedule_context(instance, scheduled_execution_time=moment, resources=zone) as context:
                return bool(asked.evaluate_tick(context).run_requests)

        def loaded() -> None:
            told = {"source/look": folder_look(folder) or ""}
            instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=told))

        assert not tick(), "there is no drop folder"
        folder.mkdir()
        (folder / "devices.json").write_text("{}\n")
        assert not tick(), "a dump without its marker is not complete"
        (folder / MARKER).touch()
        assert tick()
        loaded()
        assert [tick(), tick()] == [False, False]
        (folder / MARKER).unlink()
        (folder / "devices.json").write_text('{"a": 1}\n')
        (folder / MARKER).touch()
        assert tick()
