"""The services, started once for all tests of this folder, in a home of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from platform_world import WAITING_CAPTURE, Lakehouse, Platform

from de_resources.local import LocalServices, TopicSpec
from de_resources.settings import Settings

VISITS = TopicSpec("visits", partitions=3, config={"message.timestamp.type": "LogAppendTime"})


@pytest.fixture(scope="session")
def new_services() -> Iterator[Callable[[], LocalServices]]:
    """Makes services of an empty home each; whatever they started is stopped and removed at the end."""
    made: list[LocalServices] = []

    def make() -> LocalServices:
        # Not pytest's own temporary folder: the account of the database may not enter it.
        home = Path(tempfile.mkdtemp(prefix="de-services-"))
        home.chmod(0o711)
        made.append(LocalServices(Settings.from_environment({"DE_HOME": str(home), "DE_JARS": os.environ["DE_JARS"]})))
        return made[-1]

    yield make
    for services in made:
        services.down()
        shutil.rmtree(services.settings.home)


@pytest.fixture(scope="session")
def services(new_services: Callable[[], LocalServices]) -> LocalServices:
    """All of them, running, shared by the tests: stop nothing here."""
    running = new_services()
    running.up(topics=[VISITS], captures=[WAITING_CAPTURE])
    return running


@pytest.fixture
def lone_services(new_services: Callable[[], LocalServices]) -> Iterator[LocalServices]:
    """Services that belong to one test, nothing started."""
    own = new_services()
    yield own
    own.down()


@pytest.fixture
def at_home(services: LocalServices, monkeypatch: pytest.MonkeyPatch) -> LocalServices:
    """Resources find the shared services by the environment, as in a Dagster process."""
    monkeypatch.setenv("DE_HOME", str(services.settings.home))
    return services


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """Threads for what happens at the same time."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture(scope="session")
def fed_platform(new_services: Callable[[], LocalServices]) -> Platform:
    """Services of their own, fed with a small simulated world."""
    platform = Platform(new_services())
    platform.up()
    platform.feed()
    return platform


@pytest.fixture
def platform(fed_platform: Platform) -> Platform:
    """The fed platform with all services running, whatever the test before has done to them."""
    fed_platform.up()
    return fed_platform


@pytest.fixture
def lakehouse(platform: Platform, tmp_path: Path) -> Lakehouse:
    """An empty lake on the platform."""
    return Lakehouse(platform.services, tmp_path)
