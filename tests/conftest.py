"""What all tests share: one engine, a lake of their own, and the rule that no test touches the developer's data."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engines import JAVA_OPTIONS, send_rows_as_they_are
from hypothesis import HealthCheck, settings
from instances import read_migrations_once
from pyspark.sql import SparkSession

from de_resources.engine.plans import interpret_plans
from de_resources.spark import SparkEngine

pytest_plugins = (
    "garbage",
    "grouping",
    "long_proofs",
    "passes",
    "patterns",
    "red_checks",
    "shared_services",
    "soaking",
    "timings",
)

PROJECT = Path(__file__).resolve().parent.parent
# How long an example takes says how busy the machine is. The same examples in every run: new ones are for `make soak`.
settings.register_profile(
    "suite", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshot", action="store_true", help="Accept the graph as it is now.")


def _own_home() -> Path:
    """Point every variable of the platform into a temporary folder; only the cache of jars is shared.

    Not a hook: the conftest modules of the folders below are imported before any hook runs, and with them the graph, which
    reads its calendar from the home.
    """
    for name in ("LAKE_ROOT", "DE_SPARK", "DE_CALENDAR", "DAGSTER_HOME"):
        os.environ.pop(name, None)
    home = Path(tempfile.mkdtemp(prefix="de-tests-"))
    os.environ["DE_HOME"] = str(home)
    os.environ.setdefault("DE_JARS", str(PROJECT / ".de" / "jars"))
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    return home


HOME = _own_home()
read_migrations_once()
send_rows_as_they_are()


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def home() -> Path:
    """DE_HOME of the test process."""
    return HOME


@pytest.fixture(scope="session")
def engine() -> SparkEngine:
    """The one classic engine of the test process."""
    return SparkEngine(url="local[2]", spark_config={"spark.log.level": "FATAL"})


@pytest.fixture(scope="session")
def spark(engine: SparkEngine) -> SparkSession:
    """Its session."""
    return engine.spark_session


@pytest.fixture
def compiled_plans(spark: SparkSession) -> Iterator[None]:
    """Plans are compiled meanwhile, as outside of tests: local times of another zone are asked of what a person gets."""
    interpret_plans(spark, False)
    yield
    interpret_plans(spark)


@pytest.fixture
def one_shuffle_partition(spark: SparkSession) -> Iterator[None]:
    """A stream with a state has one store meanwhile, and one Python worker for it, where there would be two of each."""
    name, before = "spark.sql.shuffle.partitions", spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set(name, "1")
    yield
    spark.conf.set(name, str(before))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An empty lake."""
    return tmp_path / "lake"


@pytest.fixture
def run_de(tmp_path: Path) -> Callable[..., str]:
    """Run the installed `de` in a home of the test's own and return what it printed; a failure fails the test with it."""

    def run(*arguments: str, home: str = "home") -> str:
        environment = {**os.environ, "DE_HOME": str(tmp_path / home), "COLUMNS": "240"}
        command = [str(Path(sys.executable).with_name("de")), *arguments]
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
