"""Broker and database away, in two ways: what needs them says so in time and writes nothing, the rest goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator

import psutil
import pytest
from platform_world import KEYS, Lakehouse, Platform, pid_of
from waiting import PATIENCE

pytestmark = [pytest.mark.services, pytest.mark.faults]

NEEDY = {
    "bronze/visits_stream": {"assets": ["bronze/visits_stream"]},
    "bronze/users_changes": {"assets": ["bronze/users_changes"]},
    "bronze/legacy_visits": {"assets": ["bronze/legacy_visits"], "first": KEYS[0], "last": KEYS[1]},
}
OTHER = {"assets": ["bronze/visits", "bronze/visits_dead_letter"], "first": KEYS[0], "last": KEYS[0]}
SERVICES = {"bronze/visits_stream": "kafka", "bronze/users_changes": "kafka", "bronze/legacy_visits": "postgres"}
SECONDS = PATIENCE
"""Of four attempts, each of which gives up after five seconds. Without these times it takes minutes, or for ever."""


@pytest.fixture(scope="module")
def lake(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Empty at first; the second test has what the first one left."""
    return Lakehouse(fed_platform.services, tmp_path_factory.mktemp("absent"))


@pytest.fixture
def killed(platform: Platform) -> Platform:
    """Broker and database are killed; the next test's platform starts them again."""
    for name in set(SERVICES.values()):
        service = psutil.Process(pid_of(platform.services, name))
        service.kill()
        service.wait(PATIENCE)
    return platform


@pytest.fixture
def frozen(platform: Platform) -> Iterator[Platform]:
    """Both still take connections and never answer, as a hanging host or a half-open connection does."""
    pids = [pid_of(platform.services, name) for name in set(SERVICES.values())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield platform
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_killed_services_are_named_and_the_rest_materialises(killed: Platform, lake: Lakehouse) -> None:
    report = lake.run(*NEEDY.values(), OTHER)

    _said_in_time(report.runs[:3], NEEDY)
    assert [run["success"] for run in report.runs[3:]] == [True]
    for table in NEEDY:
        assert not (lake.root / table).exists(), "nothing is half-written"

    killed.up()
    lake.run(*NEEDY.values()).succeeded()
    assert all(lake.rows(table) for table in NEEDY)


def test_frozen_services_are_given_up_in_time_and_tables_keep_their_rows(
    platform: Platform, lake: Lakehouse, request: pytest.FixtureRequest
) -> None:
    one_of_each = ("bronze/visits_stream", "bronze/legacy_visits")
    runs = [NEEDY[table] for table in one_of_each]
    if not lake.root.exists():  # alone, without the test before
        lake.run(*runs).succeeded()
    before = {table: (lake.log(table).version, lake.files(table)) for table in one_of_each}
    request.getfixturevalue("frozen")

    # At once: each attempt of each of them waits for an answer until its time is over.
    waiting = [lake.start(run) for run in runs]
    reports = [worker.end() for worker in waiting]

    _said_in_time([run for report in reports for run in report.runs], one_of_each)
    assert {table: (lake.log(table).version, lake.files(table)) for table in one_of_each} == before


def _said_in_time(runs: list[dict[str, object]], tables: Collection[str]) -> None:
    for run, table in zip(runs, tables, strict=True):
        service = SERVICES[table]
        assert not run["success"]
        failures = dict(run["failures"])  # type: ignore[call-overload]
        (reason,) = failures.values()
        assert reason.startswith("de_resources.local.endpoints.ServiceUnavailable"), (table, reason)
        assert service in reason
        assert f"`de up {service}`" in reason
        assert float(str(run["seconds"])) < SECONDS, (table, run["seconds"])
