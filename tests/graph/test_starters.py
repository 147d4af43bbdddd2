"""Nothing that lands waits for a person: every asset has something that starts it, and the list is read from the graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from de_assets.automation.starters import AGAIN_ONLY, BY_HAND, Starter, starters, waiting_for_a_person
from de_assets.automation.triggers.polling import poll
from de_assets.catalogue import load_locations
from de_assets.cli.application import application

ON, OFF = dg.DefaultSensorStatus.RUNNING, dg.DefaultSensorStatus.STOPPED


@pytest.fixture(scope="module")
def of_the_blog() -> dict[dg.AssetKey, Sequence[Starter]]:
    return {key: own for location in load_locations() for key, own in starters(location).items()}


def said(found: dict[dg.AssetKey, Sequence[Starter]], name: str) -> list[str]:
    return [str(starter) for starter in found[dg.AssetKey(name.split("/"))] if not starter.again_only]


def test_nothing_of_the_blog_waits_for_a_person(of_the_blog: dict[dg.AssetKey, Sequence[Starter]]) -> None:
    assert waiting_for_a_person(of_the_blog) == []
    everything = {
        key for location in load_locations() for key in location.resolve_asset_graph().materializable_asset_keys
    }
    assert set(of_the_blog) == everything


@pytest.mark.parametrize(
    ("asset", "starter"),
    [
        ("bronze/visits", "sensor visits_hour_landed"),
        ("bronze/features", "sensor feature_released"),
        ("bronze/legacy_visits", "sensor legacy_hours_due"),
        ("bronze/visits_stream", "poll bronze_visits_stream_poll (*/5 * * * *)"),
        ("silver/network_countries", "poll silver_network_countries_poll (20 * * * *)"),
        ("gold/referral_stats", "schedule referral_stats_daily (0 2 * * *)"),
        ("gold/user_activity", "condition computed_once"),
        ("gold/users_snapshot", "condition computed_once"),
        ("gold/daily_report", "sensor daily_report_due"),
        ("gold/visits_cube_daily", "condition late_cascade"),
        ("dashboards/daily_traffic", "condition on_news"),
    ],
)
def test_what_starts_an_asset(of_the_blog: dict[dg.AssetKey, Sequence[Starter]], asset: str, starter: str) -> None:
    assert said(of_the_blog, asset) == [starter]


@dg.asset
def forgotten() -> None: ...


def sensor(name: str, *, status: dg.DefaultSensorStatus = ON, again: bool = False) -> dg.SensorDefinition:
    tags = {AGAIN_ONLY: ""} if again else {}

    @dg.sensor(name=name, target=[forgotten], default_status=status, tags=tags)
    def planted() -> None: ...

    return planted


cascade = dg.AutomationConditionSensorDefinition("cascade", target="*", default_status=ON)
asked = poll(forgotten, "0 * * * *", lambda _context: None, resources=[])
hourly = dg.ScheduleDefinition(
    "hourly", target=[forgotten], cron_schedule="0 * * * *", default_status=dg.DefaultScheduleStatus.RUNNING
)


@dg.asset_check(asset=forgotten, name="is_well")
def is_well() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


@dg.sensor(target=dg.AssetSelection.checks(is_well), default_status=ON)
def looks_only() -> None: ...


@pytest.mark.pattern("dynamic_late_data_integrator")
@pytest.mark.parametrize(
    "location",
    [
        pytest.param(dg.Definitions([forgotten], sensors=[cascade]), id="nothing"),
        pytest.param(dg.Definitions([forgotten], sensors=[sensor("off", status=OFF)]), id="a sensor that is off"),
        pytest.param(dg.Definitions([forgotten], sensors=[sensor("late", again=True)]), id="a sensor for late data"),
        pytest.param(
            dg.Definitions([forgotten], asset_checks=[is_well], sensors=[looks_only]), id="a sensor over its checks"
        ),
        pytest.param(
            dg.Definitions(
                [dg.asset(name="forgotten", automation_condition=dg.AutomationCondition.eager())(lambda: None)]
            ),
            id="a condition that nobody evaluates",
        ),
        pytest.param(
            dg.Definitions([forgotten], jobs=[dg.define_asset_job("by_button", selection=[forgotten])]), id="a job"
        ),
    ],
)
def test_a_planted_asset_that_nothing_starts_is_found(location: dg.Definitions) -> None:
    assert waiting_for_a_person(starters(location)) == ["forgotten"]


@pytest.mark.parametrize(
    ("location", "starter"),
    [
        (dg.Definitions([forgotten], sensors=[sensor("landed")]), "sensor landed"),
        (dg.Definitions([forgotten], schedules=[hourly]), "schedule hourly (0 * * * *)"),
        (dg.Definitions([forgotten], schedules=[asked]), "poll forgotten_poll (0 * * * *)"),
        (
            dg.Definitions([dg.asset(name="forgotten", metadata={BY_HAND: "it costs money"})(lambda: None)]),
            "by hand: it costs money",
        ),
    ],
    ids=["sensor", "schedule", "poll", "by hand"],
)
def test_what_is_started_says_by_what(location: dg.Definitions, starter: str) -> None:
    found = starters(location)
    assert waiting_for_a_person(found) == []
    assert said(dict(found), "forgotten") == [starter]


def test_the_command_lists_every_asset(
    of_the_blog: dict[dg.AssetKey, Sequence[Starter]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    done = CliRunner().invoke(application(), ["starts"])
    assert done.exit_code == 0
    for key in of_the_blog:
        assert f" {key.to_user_string()} " in done.output
    assert f"{len(of_the_blog)} assets, none of them waits for a person." in done.output
