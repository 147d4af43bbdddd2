"""The services of a process of the suite: one set for the tests of all folders that need some, each started when asked for.

`DE_TEST_SERVICES` names the home of a set that is kept between processes: it is used, started where it does not run, and
left running. Whoever sets it stops it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from platform_world import Platform

    from de_resources.local import LocalServices

KEPT = "DE_TEST_SERVICES"
SERVICES = str(Path(__file__).with_name("services"))


def _services_in(home: Path) -> LocalServices:
    from de_resources.local import LocalServices
    from de_resources.settings import Settings

    return LocalServices(Settings.from_environment({"DE_HOME": str(home), "DE_JARS": os.environ["DE_JARS"]}))


def _empty_home() -> Path:
    # Not pytest's own temporary folder: the account of the database may not enter it.
    home = Path(tempfile.mkdtemp(prefix="de-services-"))
    home.chmod(0o711)
    return home


@pytest.fixture(scope="session")
def home_with_database() -> Iterator[Path]:
    """A home whose database was initialised and stopped: a copy of it starts at once."""
    home = _empty_home()
    services = _services_in(home)
    services.up(["postgres"])
    services.down()
    yield home
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def new_services(home_with_database: Path) -> Iterator[Callable[[], LocalServices]]:
    """Makes services of a home each, in which nothing has happened; what they started is stopped and removed at the end."""
    made: list[LocalServices] = []

    def make() -> LocalServices:
        home = _empty_home()
        for kept in ("secrets", "postgres"):
            # Not `copytree`: the files belong to the database's account.
            subprocess.run(["cp", "-a", str(home_with_database / kept), str(home)], check=True)
        made.append(_services_in(home))
        return made[-1]

    yield make
    for services in made:
        services.down()
        shutil.rmtree(services.settings.home)


@pytest.fixture(scope="session")
def own_platform(new_services: Callable[[], LocalServices]) -> Platform:
    """The services of this process; nobody has started them yet."""
    if SERVICES not in sys.path:  # tests of another folder ask first
        sys.path.append(SERVICES)
    from platform_world import Platform

    kept = os.environ.get(KEPT)
    return Platform(_services_in(Path(kept)) if kept else new_services())
