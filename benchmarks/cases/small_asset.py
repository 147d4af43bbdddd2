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
    remote, server = bench.connect_server()
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
    samples = alternate({"worker": worker, "script": script}, verify=verify, rounds=5, watched=[server])
    steps = median(_step_seconds(environment["DAGSTER_HOME"]))
    note = f"the asset's step alone {steps:.2f} s, the script's work alone {median(inside):.2f} s; the rest is imports"
    return [
        Figure(
            "small_asset", "`bronze/devices`, engine warm", Kind.EXTRA, "run worker", samples["worker"],
            "bare script", samples["script"], BAR, note=note,
        )
    ]  # fmt: skip


def _step_seconds(dagster_home: str) -> list[float]:
    """Duration of the asset's step in all runs but the first, from what Dagster recorded."""
    with dg.DagsterInstance.from_config(dagster_home) as instance:
        oldest_first = list(reversed(instance.get_run_ids()))
        stats = [instance.get_run_step_stats(run, [STEP])[0] for run in oldest_first[1:]]
    return [s.end_time - s.start_time for s in stats if s.start_time and s.end_time]
