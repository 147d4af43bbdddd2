"""A small asset of the real graph, from a click in the UI, beside a bare script; both on one warm Spark Connect server.

Ours is a click on *Materialize* for `bronze/devices` and its two checks, through the webserver, the queue, the daemon and
the launcher of `dagster.yaml`, until the run has ended and all of it is recorded. The script is a process that imports
PySpark, connects, reads the same dump and overwrites a table. The server is warm, and so is the platform: others clicked
before. Equal: the rows of both tables.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

import dagster as dg
from deltalake import DeltaTable

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.programs.ui import served
from benchmarks.workbench import Workbench
from de_assets.sources.simulator import World, land_devices

BAR = 1.5
WARM_UPS = 2
STEP = "bronze__devices"


def run(bench: Workbench) -> list[Figure]:
    """Seconds that a click takes longer than a script."""
    land_devices(bench.settings.landing, World(), datetime(2026, 1, 5, tzinfo=UTC))
    remote = bench.connect_server()
    table = str(bench.folder("bare") / "devices")
    environment = bench.worker_environment("small_asset")
    inside: list[float] = []
    clicked: dict[str, float] = {}

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

    with served(environment) as ui:

        def click() -> None:
            at = time.time()
            clicked[ui.materialize("bronze/devices")] = at

        samples = alternate(
            {"click": click, "script": script},
            verify=verify,
            rounds=7,
            at_most=bench.pick(small=7, full=25),
            enough=lambda taken: _figure(taken).is_decided,
            watched=bench.servers,
            warm_ups=WARM_UPS,
        )
    with dg.DagsterInstance.from_config(environment["DAGSTER_HOME"]) as instance:
        first, step = _medians(instance, dict(list(clicked.items())[WARM_UPS:]))
    note = (
        f"from the click to the first step {first:.2f} s, in the asset's step {step:.2f} s; inside the script, the same "
        f"work takes {median(inside[WARM_UPS:]):.2f} s, and the rest is starting a process and importing"
    )
    return [replace(_figure(samples), note=note)]


def _figure(samples: Mapping[str, Samples]) -> Figure:
    return Figure(
        "small_asset", "`bronze/devices`, engine warm", Kind.EXTRA, "click", samples["click"],
        "bare script", samples["script"], BAR,
    )  # fmt: skip


def _medians(instance: dg.DagsterInstance, clicked: Mapping[str, float]) -> tuple[float, float]:
    """Seconds from a click to the start of the asset's step, and in that step; `clicked` has the time by run."""
    waits, steps = [], []
    for run, at in clicked.items():
        stats = instance.get_run_step_stats(run, [STEP])[0]
        if stats.start_time and stats.end_time:
            waits.append(stats.start_time - at)
            steps.append(stats.end_time - stats.start_time)
    return median(waits), median(steps)
