"""A small lake, filled by `de run`, and Dagster's own webserver over it: started once for all tests of this folder."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from web_ui import PROJECT, Daemons, DagsterProcess, WebUI, free_port, until

from de_resources.local import LocalServices
from de_resources.settings import Settings

VISITS = 400


@pytest.fixture(scope="session")
def lakehouse() -> Iterator[dict[str, str]]:
    """The environment of a home whose graph is materialised for one day on the shared engine, without database and broker."""
    home = Path(tempfile.mkdtemp(prefix="de-ui-"))
    home.chmod(0o711)
    places = {"DE_HOME": home, "DE_JARS": Path(os.environ["DE_JARS"]), "DAGSTER_HOME": home / "dagster"}
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    with _engine(environment):
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
def _engine(environment: dict[str, str]) -> Iterator[None]:
    """The home's Spark Connect server, to which every run of these tests connects, and its pages."""
    services = LocalServices(Settings.from_environment(environment))
    services.up(["spark_connect", "pages"])
    try:
        yield
    finally:
        services.down()


@pytest.fixture(scope="session")
def web(lakehouse: dict[str, str]) -> Iterator[WebUI]:
    """The webserver over both code locations; nothing of it is left afterwards."""
    port = free_port()
    arguments = ["dagster_webserver", "-w", str(PROJECT / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)]
    with DagsterProcess(arguments, lakehouse) as process:
        web = WebUI(port, process)
        until(web.answers, 180, lambda: f"the webserver answers; it said: {process.output()}")
        yield web


@pytest.fixture(scope="session")
def daemons(lakehouse: dict[str, str], web: WebUI, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Starts the daemon for the first test that needs one, and again after a test that has killed it."""
    daemons = Daemons(lakehouse, web, tmp_path_factory.mktemp("death") / "next")
    yield daemons
    daemons.stop()


@pytest.fixture
def daemon(daemons: Daemons) -> DagsterProcess:
    """The daemon of all tests, which takes launched runs from the queue."""
    return daemons.one()
