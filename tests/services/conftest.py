"""The services of the process (`tests/shared_services.py`), running, and fed with a small simulated world."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from first_lake import reduce_nothing, serve_nothing
from platform_world import Lakehouse, Platform

from de_assets.sources.capture import CAPTURES, USERS_CAPTURE
from de_assets.sources.simulator import create_tables
from de_assets.sources.topics import TOPICS
from de_resources.capture import prepare
from de_resources.local import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.spark import close_connections


@pytest.fixture(scope="session")
def shared_platform(own_platform: Platform) -> Platform:
    """All services, running. Tests stop some of them, so that others ask for `services` or `platform`."""
    own_platform.up()
    return own_platform


@pytest.fixture
def services(shared_platform: Platform) -> LocalServices:
    """All of them, running, whatever the test before has done to them: stop nothing here."""
    shared_platform.up()
    return shared_platform.services


@pytest.fixture
def lone_services(new_services: Callable[[], LocalServices]) -> Iterator[LocalServices]:
    """Services that belong to one test, nothing started."""
    own = new_services()
    yield own
    own.down()


@pytest.fixture
def quiet_services(lone_services: LocalServices, monkeypatch: pytest.MonkeyPatch) -> LocalServices:
    """Database, broker and capture as the platform prepares them, and nothing has happened; found by the environment."""
    lone_services.up(["postgres", "kafka", "capture"], topics=TOPICS, captures=CAPTURES)
    monkeypatch.setenv("DE_HOME", str(lone_services.settings.home))
    with closing(PostgresDatabase().open()) as connection:
        create_tables(connection)
    prepare(PostgresDatabase(), USERS_CAPTURE)
    return lone_services


@pytest.fixture
def all_quiet_services(quiet_services: LocalServices) -> LocalServices:
    """With those of partner and geo: all that the whole graph asks for."""
    quiet_services.up(["partner", "geo"])
    return quiet_services


@pytest.fixture
def reduced_anew(at_home: LocalServices) -> None:
    """Nobody has written `visits_reduced` yet: tests of a process share the topic, and each has a lake, with a checkpoint."""
    reduce_nothing()


@pytest.fixture
def at_home(services: LocalServices, monkeypatch: pytest.MonkeyPatch) -> LocalServices:
    """Resources find the shared services by the environment, as in a Dagster process."""
    monkeypatch.setenv("DE_HOME", str(services.settings.home))
    return services


@pytest.fixture
def nothing_served(at_home: LocalServices) -> Iterator[None]:
    """What the graph serves is gone before the test and after it: lakes are many, the database is one."""
    serve_nothing()
    yield
    close_connections()
    serve_nothing()


@pytest.fixture
def over_connect(at_home: LocalServices) -> Callable[..., str]:
    """Run a client of the shared engine with its arguments and return what it printed; its failure fails the test.

    In a process of its own, for one may not have a classic and a Connect session at once.
    """
    endpoint = at_home.endpoint("spark_connect")
    assert endpoint is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = endpoint.password.get_secret_value()

    def run(client: Path, *arguments: str) -> str:
        command = [sys.executable, str(client), f"sc://{endpoint.address}", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """Threads for what happens at the same time."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture(scope="session")
def fed_platform(shared_platform: Platform) -> Platform:
    """The platform, fed with a small simulated world."""
    shared_platform.up()
    shared_platform.feed()
    return shared_platform


@pytest.fixture
def platform(fed_platform: Platform) -> Platform:
    """The fed platform with all services running, whatever the test before has done to them."""
    fed_platform.up()
    return fed_platform


@pytest.fixture
def lakehouse(platform: Platform, tmp_path: Path) -> Lakehouse:
    """An empty lake on the platform."""
    return Lakehouse(platform.services, tmp_path)
