"""A small lake, filled by `de run`, and Dagster's own webserver over it: started once for all tests of this folder."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from web_ui import PROJECT, Daemons, DagsterProcess, WebUI, code_servers, locations_of_the_project, webserver

from de_resources.local import LocalServices
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

if TYPE_CHECKING:
    from platform_world import Platform

HERE, VISITS = Path(__file__).parent, 400
_beside: list[Callable[[], None]] = []
"""Stops what runs beside the tests of the lake: it does its rounds for as long as it lives."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of the lake: other modules follow in the same process."""
    if _of_the_lake(item) and not _of_the_lake(nextitem):
        while _beside:
            _beside.pop()()


def _of_the_lake(item: pytest.Item | None) -> bool:
    # Tests of other folders have lakes of that name, too.
    return item is not None and item.path.parent == HERE and "lakehouse" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def engine_of_all(own_platform: "Platform") -> str:
    """The address of the process's Spark Connect server, which other folders' tests use as well."""
    own_platform.services.up(["spark_connect"])
    with own_platform.at_home():
        return SparkEngine().resolved_url()


@pytest.fixture(scope="session")
def lakehouse(engine_of_all: str) -> Iterator[dict[str, str]]:
    """The environment of a home whose graph is materialised for one day on the shared engine, without database and broker."""
    home = Path(tempfile.mkdtemp(prefix="de-ui-"))
    home.chmod(0o711)
    places = {"DE_HOME": home, "DE_JARS": Path(os.environ["DE_JARS"]), "DAGSTER_HOME": home / "dagster"}
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}, "DE_SPARK": engine_of_all}
    with _pages(environment):
        command = [str(Path(sys.executable).with_name("de")), "run", "--once", "--without-services"]
        done = subprocess.run(
            [*command, "--days", "1", "--visits", str(VISITS)],
            cwd=PROJECT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield environment
    shutil.rmtree(home)


@contextmanager
def _pages(environment: dict[str, str]) -> Iterator[None]:
    """The home's pages are served; in the end all services of the home are down, whoever has started them."""
    services = LocalServices(Settings.from_environment(environment))
    services.up(["pages"])
    _beside.append(services.down)
    try:
        yield
    finally:
        services.down()


@pytest.fixture(scope="session")
def workspace(lakehouse: dict[str, str]) -> Iterator[str]:
    """Both code locations of the project, each loaded once; the path of the workspace that names them."""
    with ExitStack() as started:
        workspace = started.enter_context(code_servers(locations_of_the_project(), lakehouse))
        _beside.append(started.close)
        yield workspace


@pytest.fixture(scope="session")
def web(lakehouse: dict[str, str], workspace: str) -> Iterator[WebUI]:
    """The webserver over both code locations; nothing of it is left afterwards."""
    with webserver(["-w", workspace], lakehouse) as web:
        _beside.append(web.process.stop)
        yield web


@pytest.fixture(scope="session")
def daemons(
    lakehouse: dict[str, str], web: WebUI, workspace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemons]:
    """Starts the daemon for the first test that needs one, and again after a test that has killed it."""
    daemons = Daemons(lakehouse, web, workspace, tmp_path_factory.mktemp("death") / "next")
    _beside.append(daemons.stop)
    yield daemons
    daemons.stop()


@pytest.fixture
def daemon(daemons: Daemons) -> DagsterProcess:
    """The daemon of all tests, which takes launched runs from the queue."""
    return daemons.one()
