"""Fills a lake with every partitioned asset of the graph, disturbed in some way; see `test_idempotency_matrix`.

`python matrix_worker.py '{"disturbances": ["kill"], "first": "2024-10-09T23", "hours": 2}'` with a run worker's variables.
Nothing names an asset here: what is partitioned is found in the graph. The process itself only plans; every run is made by
a fork of it, so that what one run leaves in memory helps no other one, and that a run can be killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from de_assets.definitions import defs
from de_assets.ranges import range_tags
from de_resources.spark import close_connections

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Step:
    """Assets that one step writes, and their partitions in the time that has data; no partitions: written as a whole."""

    assets: tuple[dg.AssetKey, ...]
    keys: tuple[str, ...]
    ranges: bool
    stateful: bool
    job: dg.JobDefinition

    @property
    def name(self) -> str:
        return self.assets[0].to_user_string()


def plan(first: datetime, end: datetime) -> list[Step]:
    """All partitioned assets, and what they are computed from, upstream first."""
    graph = defs.resolve_asset_graph()
    partitioned = {key for key in graph.materializable_asset_keys if graph.get(key).is_partitioned}
    wanted = partitioned.union(*(graph.get_ancestor_asset_keys(key) for key in partitioned))
    steps: dict[tuple[dg.AssetKey, ...], Step] = {}
    for key in graph.toposorted_asset_keys:
        if key in wanted and graph.get(key).is_materializable:
            assets = tuple(sorted(cast("set[dg.AssetKey]", graph.get(key).execution_set_asset_keys)))
            steps.setdefault(assets, _step(graph, assets, first, end))
    return list(steps.values())


def _step(graph: AssetGraph, assets: tuple[dg.AssetKey, ...], first: datetime, end: datetime) -> Step:
    node = graph.get(assets[0])
    partitions = node.partitions_def
    keys: Sequence[str] = ()
    if partitions is not None:
        assert isinstance(partitions, dg.TimeWindowPartitionsDefinition), f"{node.key}: teach the matrix its partitions"
        windows = {key: partitions.time_window_for_partition_key(key) for key in partitions.get_partition_keys()}
        keys = [key for key, window in windows.items() if window.start < end and window.end > first]
    takes_ranges = node.backfill_policy is not None and node.backfill_policy.max_partitions_per_run is None
    # Without checks: what they say of the data is not this test's business, and they take most of a small run's time.
    job = defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(assets), asset_check_selection=set()
    )
    return Step(assets, tuple(keys), takes_ranges, bool(node.metadata.get("stateful")), job)


def run(step: Step, first: str | None = None, last: str | None = None) -> None:
    """One run. Ends the process with what went wrong, if something did."""
    tags = {} if first is None else range_tags(first, last or first)
    # What a run remembers is of no account here, and making its database takes longer than most of these runs.
    with dg.DagsterInstance.ephemeral() as instance:
        result = step.job.execute_in_process(instance=instance, tags=tags, run_config=QUIET, raise_on_error=False)
        failed = [event for event in result.get_step_failure_events() if event.step_key]
    for event in failed:
        error = event.step_failure_data.error
        while error is not None:
            print(f"{step.name} {first}: {error.message.strip()[:600]}", file=sys.stderr)
            error = error.cause
    close_connections()
    if failed:
        raise SystemExit(1)


def fork(action: Callable[[], None], **environment: str) -> int:
    """Start a process for the action; its id."""
    child = os.fork()
    if child:
        return child
    os.environ.update(environment)
    status = 1
    try:
        action()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(child: int) -> int:
    """The exit status of a fork; negative: the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def all_good(*children: int) -> None:
    """Wait for the forks; every one of them has to succeed."""
    assert [ended(child) for child in children] == [0] * len(children)


def in_turn(step: Step, keys: Sequence[str]) -> None:
    """A run for each of the keys, one after the other."""
    for key in keys or (None,):
        run(step, key)


# The disturbances -----------------------------------------------------------------------------------------------------


def undisturbed(step: Step) -> None:
    """Every partition once, in order."""
    all_good(fork(lambda: in_turn(step, step.keys)))


def rerun(step: Step) -> None:
    """The first partition once more, after all that came later; and what then awaits its replay."""
    all_good(fork(lambda: in_turn(step, step.keys if step.stateful else step.keys[:1])))


def backwards(step: Step) -> None:
    """The last partition first; where partitions build on each other, what then awaits its replay is replayed."""
    all_good(fork(lambda: in_turn(step, step.keys[::-1])))
    if step.stateful:
        all_good(fork(lambda: in_turn(step, step.keys[1:])))


def ranges(step: Step) -> None:
    """All partitions in one run, or in one for each where a run takes no more."""
    if step.ranges:
        all_good(fork(lambda: run(step, step.keys[0], step.keys[-1])))
    else:
        undisturbed(step)


def kill(step: Step) -> None:
    """The last partition's run is killed before its commit, another one after it, and then it is run again."""
    for point in ("before_commit", "after_commit"):
        killed = ended(fork(lambda: run(step, step.keys[-1]), DE_KILL_AT=point))
        assert killed == -signal.SIGKILL, f"{step.name}: its writer has no point {point}"
    all_good(fork(lambda: run(step, step.keys[-1])))


def together(step: Step) -> None:
    """Two runs of the last partition at once; one of them may say that the other one was faster."""
    pair = [fork(lambda: run(step, step.keys[-1])) for _ in range(2)]
    assert 0 in [ended(child) for child in pair], f"{step.name}: neither of two runs succeeded"


DISTURBANCES: dict[str, Callable[[Step], None]] = {
    action.__name__: action for action in (undisturbed, rerun, backwards, ranges, kill, together)
}


# What is left ---------------------------------------------------------------------------------------------------------


def contents(steps: Sequence[Step]) -> Iterator[tuple[str, list[str]]]:
    """Of every partitioned asset its name and its rows, as a reader gets them."""
    for step in steps:
        for key in step.assets if step.keys else ():
            yield key.to_user_string(), sorted(_rows(key))


def _rows(key: dg.AssetKey) -> Iterator[str]:
    node = defs.resolve_asset_graph().get(key)
    if "postgres" in node.kinds:
        yield from _relation(str(node.metadata["dagster/table_name"]))
        return
    assert "deltalake" in node.kinds, f"{key.to_user_string()}: teach the matrix to read {sorted(node.kinds)}"
    with dg.DagsterInstance.ephemeral() as instance, defs.get_asset_value_loader(instance) as loader:
        yield from (repr(sorted(row.asDict().items())) for row in loader.load_asset_value(key).collect())


def _relation(name: str) -> Iterator[str]:
    from psycopg2.sql import SQL, Identifier

    from de_resources.postgres import PostgresDatabase

    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(SQL("SELECT * FROM {}").format(Identifier(*name.split("."))))
        yield from map(repr, cursor.fetchall())


def say(disturbance: str, steps: Sequence[Step]) -> None:
    """Print the contents, a line per asset."""
    for name, rows in contents(steps):
        print(json.dumps({"disturbance": disturbance, "asset": name, "rows": rows}), flush=True)
    close_connections()


def main(work: dict[str, Any]) -> None:
    """Fill the lake, and print what it holds after each of the disturbances."""
    first = datetime.fromisoformat(work["first"] + ":00:00+00:00")
    steps = plan(first, first + timedelta(hours=work["hours"]))
    for number, name in enumerate(work["disturbances"]):
        for step in steps:
            if step.keys:
                DISTURBANCES[name](step)
            elif number == 0:
                undisturbed(step)
        all_good(fork(partial(say, name, steps)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
