"""Part of the graph on a Spark standalone cluster, a master and two workers, with nothing changed but DE_SPARK."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from cluster import Cluster, standalone_cluster
from platform_world import HOURS, KEYS, PER_HOUR, RATES, WORLD, Lakehouse, Report, key_of

from de_assets.sources.simulator import Defect, Truth, devices, land_devices, land_visits
from de_resources.local import LocalServices
from de_resources.settings import Settings

pytestmark = pytest.mark.services

LAST = 3
RANGE = {"first": KEYS[0], "last": KEYS[LAST - 1]}
RUNS = [
    {"assets": ["bronze/devices", "silver/devices"]},
    {"assets": ["bronze/visits", "bronze/visits_dead_letter"], **RANGE},
    {"assets": ["silver/visits", "silver/visits_late"], **RANGE},
    {"assets": ["scratch/slow"], "key": "a", "graph": "scratch_assets"},
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def lake(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """No service runs; the world is landed in a home of its own."""
    home = tmp_path_factory.mktemp("home")
    settings = Settings.from_environment({"DE_HOME": str(home), "DE_JARS": os.environ["DE_JARS"]})
    land_visits(settings.landing, WORLD, HOURS[:LAST], per_hour=PER_HOUR, irregularities=RATES)
    land_devices(settings.landing, WORLD, HOURS[0])
    return Lakehouse(LocalServices(settings), home, {"DE_SPARK": cluster.url})


@pytest.fixture(scope="module")
def report(lake: Lakehouse) -> Report:
    """All of it as one application: a driver and its executors take longer to start than to work."""
    (lake.folder / "release").touch()
    return lake.run(*RUNS, SCRATCH_BLOCK=lake.folder).succeeded()


@pytest.mark.pattern("merger")
def test_the_devices_are_merged(lake: Lakehouse, report: Report) -> None:
    expected = {(device.type, device.version) for device in devices(WORLD, HOURS[0])}
    assert {(row["type"], row["version"]) for row in lake.rows("silver/devices")} == expected


@pytest.mark.pattern("dead_letter", "windowed_deduplicator", "late_data_detector")
def test_the_visits_are_those_of_the_truth(lake: Lakehouse, report: Report) -> None:
    truth = {key_of(hour): Truth(lake.services.settings.landing).hour(hour) for hour in HOURS[:LAST]}
    late = {key: t.counts[Defect.LATE] + t.counts[Defect.FUTURE] for key, t in truth.items()}
    assert lake.per_key("silver/visits_late", "landing_hour") == late
    assert lake.per_key("silver/visits", "event_hour") == {k: t.processable - late[k] for k, t in truth.items()}


def test_it_was_the_cluster_and_both_workers_that_worked(lake: Lakehouse, cluster: Cluster, report: Report) -> None:
    assert {m["engine"] for run in report.runs for m in run["materialised"]} == {cluster.url}
    assert cluster.completed_application()["name"] == "de"
    assert all(tasks > 0 for tasks in cluster.finished_tasks()), cluster.finished_tasks()


def test_python_workers_on_the_cluster_have_the_environments_packages(lake: Lakehouse, report: Report) -> None:
    """The asset's function runs in pandas, which only the environment of the run worker has."""
    assert len(lake.rows("scratch/slow")) == 20_000
    assert (lake.folder / "writing").exists()
