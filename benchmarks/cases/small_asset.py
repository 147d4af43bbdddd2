"""A small asset of the real graph on a warm Spark Connect server, beside a bare script on the same server.

Ours is a run worker for `bronze/devices` and its two checks: a process that imports the whole code location, executes the
run and records it, which is what the UI's launcher starts. The script is a process that imports PySpark, connects, reads the
same dump and overwrites a table. Both start cold, the server is warm. Equal: the rows of both tables.
"""

import json
from datetime import UTC, datetime
from functools import partial
from statistics import median

import dagster as dg
from deltalake import DeltaTable

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import alternate
from benchmarks.workbench import Workbench
from de_assets.sources.simulator import World, land_devices

BAR = 1.5
STEP = "bronze__devices"


def run(bench: Workbench) -> list[Figure]:
    """Seconds that orchestration adds to a small asset."""
    land_devices(bench.settings.landing, World(), datetime(2026, 1, 5, tzinfo=UTC))
    remote = bench.connect_server()
    table = str(bench.folder("bare") / "devices")
    environment = bench.worker_environment("small_asset")
    inside: list[float] = []

    def script() -> None:
        dump, target = str(bench.settings.landing / "devices"), table
        said = bench.program(
            "-m", "benchmarks.programs.bare_devices", dump, target, environment={"SPARK_REMOTE": remote}
        )
        inside.append(json.loads(said.splitlines()[-1])["seconds"])

    def verify() -> None:
        lake = f"{environment['LAKE_ROOT']}/bronze/devices"
        rows = [sorted(map(str, DeltaTable(uri).to_pyarrow_table().to_pylist())) for uri in (lake, table)]
        require_equal("a small asset", *rows)

    worker = partial(bench.materialize, "de_assets.definitions", "key:bronze/devices", environment)
    samples = alternate({"worker": worker, "script": script}, verify=verify, rounds=5, watched=bench.servers)
    home = environment["DAGSTER_HOME"]
    note = (
        f"inside the worker, the run takes {median(_run_seconds(home)):.2f} s, of which the asset's step "
        f"{median(_step_seconds(home)):.2f} s; inside the script, the same work takes {median(inside[1:]):.2f} s. "
        "The rest of both is starting a process and importing"
    )
    return [
        Figure(
            "small_asset", "`bronze/devices`, engine warm", Kind.EXTRA, "run worker", samples["worker"],
            "bare script", samples["script"], BAR, note=note,
        )
    ]  # fmt: skip


def _step_seconds(dagster_home: str) -> list[float]:
    """Duration of the asset's step in all runs but the first, the warm-up."""
    with dg.DagsterInstance.from_config(dagster_home) as instance:
        stats = [instance.get_run_step_stats(run, [STEP])[0] for run in _measured(instance)]
    return [s.end_time - s.start_time for s in stats if s.start_time and s.end_time]


def _run_seconds(dagster_home: str) -> list[float]:
    """Duration of the whole run: the asset, its checks, and what is recorded in between."""
    with dg.DagsterInstance.from_config(dagster_home) as instance:
        stats = [instance.get_run_stats(run) for run in _measured(instance)]
    return [s.end_time - s.start_time for s in stats if s.start_time and s.end_time]


def _measured(instance: dg.DagsterInstance) -> list[str]:
    """The runs after the warm-up; the instance lists the newest first."""
    return list(instance.get_run_ids())[:-1]
