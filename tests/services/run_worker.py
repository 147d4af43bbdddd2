"""A run worker for tests: executes runs of the graph in a process of its own, as the platform's run workers do.

`python run_worker.py '{"runs": [{"assets": ["bronze/devices"], "first": …, "last": …}, …]}'` with DE_HOME, DE_CALENDAR,
LAKE_ROOT and DAGSTER_HOME in the environment. Prints one JSON line per run. `graph`, of all runs or of one, names the module
whose `defs` are run; `meet` and `kill` act at crash points of the writers. The checks of the assets are executed only by runs
with `"checks": true`: most tests ask how an asset is written, and judging a few rows takes longer than writing them.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg

sys.path.insert(0, str(Path(__file__).parents[1]))

from waiting import PATIENCE, waits

from de_assets.ranges import range_tags
from de_resources.delta.write.crash_points import at
from de_resources.spark import close_connections

DEADLINE = PATIENCE
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def wait_for(path: Path, seconds: float = DEADLINE) -> None:
    """Until the file is there."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} did not come within {seconds:g} s")
        time.sleep(0.02)


def _meeting(folder: str, me: str, other: str, table: str) -> Callable[[str], None]:
    """At the crash point, wait once for the other worker to be there as well."""

    def meet(reached: str) -> None:
        if reached == table:
            (Path(folder) / me).touch()
            wait_for(Path(folder) / other)

    return meet


def _killing(pid: int, table: str) -> Callable[[str], None]:
    """At the crash point, kill another process: the engine."""

    def kill(reached: str) -> None:
        if reached == table:
            os.kill(pid, signal.SIGKILL)

    return kill


def _execute(defs: dg.Definitions, instance: dg.DagsterInstance, run: dict[str, Any]) -> dict[str, Any]:
    selection = {dg.AssetKey(name.split("/")) for name in run["assets"]}
    checks = None if run.get("checks") else set[dg.AssetCheckKey]()
    job = defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=selection, asset_check_selection=checks
    )
    tags = range_tags(run["first"], run["last"]) if "first" in run else {}
    before = time.monotonic()
    result = job.execute_in_process(
        instance=instance,
        partition_key=run.get("key"),
        tags=tags,
        run_config={**_QUIET, **run.get("config", {})},
        raise_on_error=False,
    )
    return {
        "success": result.success,
        "seconds": round(time.monotonic() - before, 1),
        "failures": dict(_failures(result)),
        "not_passed": sorted(
            f"{each.asset_key.to_user_string()}: {each.check_name}"
            for each in result.get_asset_check_evaluations()
            if not each.passed
        ),
        "retried": [_said(event.step_retry_data.error) for event in _retries(result)],
        "materialised": list(_materialised(result)),
    }


def _failures(result: dg.ExecuteInProcessResult) -> Iterator[tuple[str, str]]:
    """Why each failed step failed: the platform's own error where there is one, else the innermost cause."""
    for event in result.get_step_failure_events():
        yield str(event.step_key), _said(event.step_failure_data.error)


def _retries(result: dg.ExecuteInProcessResult) -> list[dg.DagsterEvent]:
    return [event for event in result.all_events if event.event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY]


def _said(error: Any) -> str:
    chain: list[str] = []
    while error is not None:
        chain.append(error.message.strip().split("\n", 1)[0][:600])
        error = error.cause
    return next((said for said in chain if said.startswith("de_")), chain[-1])


def _materialised(result: dg.ExecuteInProcessResult) -> Iterator[dict[str, Any]]:
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        metadata = {key: value.value for key, value in materialization.metadata.items()}
        rows = metadata.get("dagster/partition_row_count", metadata.get("dagster/row_count"))
        yield {
            "asset": materialization.asset_key.to_user_string(),
            "partition": materialization.partition,
            "rows": rows,
            **{
                key: metadata.get(key)
                for key in (
                    "engine",
                    "skipped",
                    "delta/version",
                    "contract/rows",
                    "source/predicates",
                    "filter/conditions",
                    "observer/rows",
                    "observer/error/nulls",
                    "observer/not_observed",
                )
            },
        }


def main(work: dict[str, Any]) -> None:
    """Execute the runs one after another."""
    with ExitStack() as stack:
        if "meet" in work:
            meeting = dict(work["meet"])
            stack.enter_context(at(meeting.pop("point"), _meeting(**meeting)))
        if "kill" in work:
            killing = dict(work["kill"])
            stack.enter_context(at(killing.pop("point"), _killing(**killing)))
        # What is away in these tests stays away: there is nothing to wait for between attempts.
        stack.enter_context(waits())
        instance = stack.enter_context(dg.DagsterInstance.get())
        for run in work["runs"]:
            module = run.get("graph") or work.get("graph", "de_assets.definitions")
            print(json.dumps(_execute(importlib.import_module(module).defs, instance, run)), flush=True)
    close_connections()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
