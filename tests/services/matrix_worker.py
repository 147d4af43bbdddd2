"""Fills a lake with every partitioned asset of the graph, disturbed in some way; see `test_idempotency_matrix`.

Its work: `{"phases": [["undisturbed", null], ["kill", ["gold/sessions"]]], "first": "2024-10-09T23", "hours": 2, "there": []}`,
with the variables of a run worker; `there` are assets that are not computed, for their tables are there. Nothing names an asset
here: what is partitioned is found in the graph. The process itself only
plans; runs are made by forks of it, so that what the runs of one disturbance have left in memory helps no other one, and
that a run can be killed.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._utils.error import SerializableErrorInfo
from psycopg2.sql import SQL, Identifier

sys.path.insert(0, str(Path(__file__).parents[1]))

from instances import read_migrations_once
from other_reader import rows_of
from waiting import PATIENCE

from de_assets.definitions import defs
from de_assets.ranges import range_tags
from de_resources.postgres import PostgresDatabase
from de_resources.proxy.seal import remove
from de_resources.spark import close_connections

# How a run may fail because another one of the same partition was faster, and the exit status that tells so.
FASTER = ("ConcurrentWrite",)
OVERTAKEN = 3
MEETING_SECONDS = PATIENCE
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class Step:
    """Assets that one step writes, and their partitions in the time that has data; no partitions: written as a whole."""

    assets: tuple[dg.AssetKey, ...]
    keys: tuple[str, ...]
    ranges: bool
    stateful: bool
    follows: bool
    """Whether a partition builds on the one before it."""
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


def chosen(
    steps: Sequence[Step], names: Sequence[str] | None, *, and_ancestors: bool, there: Sequence[str] = ()
) -> list[Step]:
    """The steps of these names (None: all), and, to fill a lake, what they are computed from, up to what is there."""
    graph, known = defs.resolve_asset_graph(), {dg.AssetKey.from_user_string(name) for name in there}
    ahead = [key for step in steps if names is None or step.name in names for key in step.assets]
    wanted = set[dg.AssetKey]()
    while ahead:
        key = ahead.pop()
        if key not in wanted and key not in known:
            wanted.add(key)
            ahead += graph.get(key).parent_keys if and_ancestors else ()
    return [step for step in steps if wanted & set(step.assets)]


def _step(graph: AssetGraph, assets: tuple[dg.AssetKey, ...], first: datetime, end: datetime) -> Step:
    node = graph.get(assets[0])
    partitions = node.partitions_def
    keys: Sequence[str] = ()
    if partitions is not None:
        assert isinstance(partitions, dg.TimeWindowPartitionsDefinition), f"{node.key}: teach the matrix its partitions"
        windows = {key: partitions.time_window_for_partition_key(key) for key in partitions.get_partition_keys()}
        keys = [key for key, window in windows.items() if window.start < end and window.end > first]
    takes_ranges = node.backfill_policy is not None and node.backfill_policy.max_partitions_per_run is None
    stateful = bool(node.metadata.get("stateful"))
    follows = stateful or any(key in graph.get(key).parent_keys for key in assets)
    return Step(assets, tuple(keys), takes_ranges, stateful, follows, _job(assets))


def _job(assets: Iterable[dg.AssetKey]) -> dg.JobDefinition:
    # Without checks: what they say of the data is not this test's business, and they take most of a small run's time.
    return defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(assets), asset_check_selection=set()
    )


def merged(steps: Sequence[Step]) -> list[Step]:
    """Steps whose partitions are the same are one, which a run writes as a whole, after all that they are computed from."""
    graph, groups, place = defs.resolve_asset_graph(), list[list[Step]](), dict[dg.AssetKey, int]()
    for step in steps:
        ancestors = set[dg.AssetKey]().union(*(graph.get_ancestor_asset_keys(key) for key in step.assets))
        first = max((place[key] for key in ancestors if key in place), default=0)
        here = next((n for n in range(first, len(groups)) if _alike(groups[n][0], step)), len(groups))
        if here == len(groups):
            groups.append([])
        groups[here].append(step)
        place |= dict.fromkeys(step.assets, here)
    return [_as_one(group) for group in groups]


def _alike(one: Step, other: Step) -> bool:
    return (one.keys, one.ranges, one.stateful, one.follows) == (
        other.keys,
        other.ranges,
        other.stateful,
        other.follows,
    )


def _as_one(steps: Sequence[Step]) -> Step:
    assets = tuple(key for step in steps for key in step.assets)
    return steps[0] if len(steps) == 1 else replace(steps[0], assets=assets, job=_job(assets))


@dataclass(frozen=True)
class Try:
    """Which run it is: a person's, or an automatic retry of one that died; and with whom it begins at the same moment."""

    run_id: str | None = None
    retry_of: str | None = None
    company: tuple[Path, Path] | None = None
    """Its own sign that it is ready, and the other run's."""

    @property
    def tags(self) -> dict[str, str]:
        return {"dagster/retry_number": "1"} if self.retry_of else {}


def run(step: Step, first: str | None = None, last: str | None = None, this: Try = Try()) -> None:
    """One run. Ends the process with what went wrong, if something did: `OVERTAKEN` where another run was faster."""
    tags = this.tags | ({} if first is None else range_tags(first, last or first))
    # What a run remembers is of no account here, and making its database takes longer than most of these runs.
    with dg.DagsterInstance.ephemeral() as instance:
        dagster_run = instance.create_run_for_job(
            step.job,
            run_id=this.run_id,
            parent_run_id=this.retry_of,
            root_run_id=this.retry_of,
            tags=tags,
            run_config=QUIET,
        )
        if this.company:
            meet(*this.company)
        result = execute_run(InMemoryJob(step.job), dagster_run, instance, raise_on_error=False)
        failed = [event for event in result.all_events if event.is_step_failure]
    causes = [list(_causes(event)) for event in failed]
    for event, chain in zip(failed, causes, strict=True):
        for error in chain:
            print(f"{event.step_key} {first}: {error.message.strip()[:600]}", file=sys.stderr)
    if failed:
        overtaken = all(any(error.cls_name in FASTER for error in chain) for chain in causes)
        raise SystemExit(OVERTAKEN if overtaken else 1)


def _causes(event: dg.DagsterEvent) -> Iterator[SerializableErrorInfo]:
    error = event.step_failure_data.error
    while error is not None:
        yield error
        error = error.cause


def meet(mine: Path, others: Path) -> None:
    """Wait until the other run is ready as well."""
    mine.touch()
    deadline = time.monotonic() + MEETING_SECONDS
    while not others.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the other run did not come")
        time.sleep(0.01)


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
        try:
            close_connections()
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
    """All partitions in one run where that may be, else each once, in order; what has none, as a whole."""
    if step.ranges:
        run(step, step.keys[0], step.keys[-1])
    else:
        in_turn(step, step.keys)


def rerun(step: Step) -> None:
    """The first partition once more, after all that came later; and what builds on it."""
    in_turn(step, step.keys if step.follows else step.keys[:1])


def backwards(step: Step) -> None:
    """Of tables that are gone the last partition first; where partitions build on each other, the others are replayed."""
    forget(step)
    in_turn(step, step.keys[::-1])
    if step.stateful:
        in_turn(step, step.keys[1:])


def ranges(step: Step) -> None:
    """All partitions in one run."""
    all_good(fork(lambda: run(step, step.keys[0], step.keys[-1])))


def kill(step: Step) -> None:
    """The last partition's run is killed before its commit; the one that a person starts then is killed after its commit, and
    is retried with the stamp of the one that died, which must not write once more."""
    last = partial(run, step, step.keys[-1])
    _killed(step, "before_commit", fork(last, DE_KILL_AT="before_commit"))
    died = str(uuid4())
    _killed(step, "after_commit", fork(partial(last, this=Try(run_id=died)), DE_KILL_AT="after_commit"))
    written = data_files()
    all_good(fork(partial(last, this=Try(retry_of=died))))
    # Where a run commits more than once, it died after the first, and the retry does the rest: several tables, or the way back
    # to the state before a partition and then the partition.
    if len(step.assets) == 1 and not step.stateful:
        assert data_files() == written, f"{step.name}: the retry wrote {sorted(data_files() - written)[:3]}"


def _killed(step: Step, point: str, child: int) -> None:
    assert ended(child) == -signal.SIGKILL, f"{step.name}: its writer has no point {point}"


def data_files() -> set[str]:
    """Every data file of every Delta table, whether a reader sees it or not."""
    return {str(file) for root in _roots() for file in root.rglob("*.parquet") if file.parent.name != "_delta_log"}


def _roots() -> tuple[Path, Path]:
    return Path(os.environ["LAKE_ROOT"]), Path(os.environ["DE_STAGING_ROOT"])


def together(step: Step) -> None:
    """Two runs of the last partition begin at the same moment; who loses says that the other one was faster."""
    with tempfile.TemporaryDirectory() as folder:
        signs = Path(folder) / "one", Path(folder) / "other"
        pair = [fork(partial(run, step, step.keys[-1], this=Try(company=company))) for company in (signs, signs[::-1])]
        ends = sorted(ended(child) for child in pair)
    assert ends in ([0, 0], [0, OVERTAKEN]), f"{step.name}: two runs at once ended with {ends}"


DISTURBANCES: dict[str, Callable[[Step], None]] = {
    action.__name__: action for action in (undisturbed, rerun, backwards, ranges, kill, together)
}
AS_ONE = ("undisturbed", "rerun", "backwards")
"""Of these, a run may write what several steps write, and one process makes all runs, as `de run` does: nobody dies, and
nobody meets anybody, at one of them."""


def disturb(disturbance: str, steps: Sequence[Step]) -> None:
    """Each of the steps in this way."""
    if disturbance in AS_ONE:
        all_good(fork(partial(_each, DISTURBANCES[disturbance], merged(steps))))
    else:
        _each(DISTURBANCES[disturbance], steps)


def _each(action: Callable[[Step], None], steps: Sequence[Step]) -> None:
    for step in steps:
        action(step)


def forget(step: Step) -> None:
    """Its tables as they were before its first run: there are none."""
    graph = defs.resolve_asset_graph()
    for key in step.assets:
        name = str(graph.get(key).metadata["dagster/table_name"])
        if "postgres" in graph.get(key).kinds:
            _drop(*name.split("."))
            continue
        remove(_folder(name))


def _folder(name: str) -> Path:
    """Of a table that is in the lake, or in the one for staging."""
    folders = [folder for root in _roots() if (folder := root / name.replace(".", "/")).exists()]
    assert len(folders) == 1, f"{name} is in {folders}"
    return folders[0]


def _drop(schema: str, name: str) -> None:
    """A relation, and those beside it that belong to it; what is behind a view is dropped after it."""
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(
            "SELECT relname, relkind FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname = %s AND relkind IN ('r', 'v') AND (relname = %s OR starts_with(relname, %s)) ORDER BY relkind DESC",
            (schema, name, f"{name}_"),
        )
        for relation, kind in cursor.fetchall():
            statement = SQL("DROP VIEW IF EXISTS {} CASCADE" if kind == "v" else "DROP TABLE IF EXISTS {} CASCADE")
            cursor.execute(statement.format(Identifier(schema, relation)))


# What is left ---------------------------------------------------------------------------------------------------------


def contents(steps: Sequence[Step]) -> Iterator[tuple[str, list[str]]]:
    """Of every partitioned asset its name and its rows, as a reader gets them."""
    for step in steps:
        for key in step.assets if step.keys else ():
            yield key.to_user_string(), sorted(_rows(key))


SKETCHES = {dg.AssetKey(["gold", "visitor_sketches_daily"])}
"""A sketch of few values is a list of them as they came: it is the same sketch in another order."""


def _rows(key: dg.AssetKey) -> Iterator[str]:
    node = defs.resolve_asset_graph().get(key)
    if "postgres" in node.kinds:
        yield from _relation(str(node.metadata["dagster/table_name"]))
        return
    if "csv" in node.kinds:
        yield from map(repr, _lines(_folder(str(node.metadata["dagster/table_name"]))))
        return
    assert "deltalake" in node.kinds, f"{key.to_user_string()}: teach the matrix to read {sorted(node.kinds)}"
    folder = _folder(str(node.metadata["dagster/table_name"]))
    if (folder / "_delta_log").exists():
        rows = rows_of(folder)
        if key in SKETCHES:
            rows = [tuple(sorted(each) if isinstance(each, bytes) else each for each in row) for row in rows]
        yield from map(repr, rows)
        return
    # A proxy: which version readers see, its own reader knows.
    with dg.DagsterInstance.ephemeral() as instance, defs.get_asset_value_loader(instance) as loader:
        yield from (repr(sorted(row.asDict().items())) for row in loader.load_asset_value(key).collect())


def _lines(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as lines:
            yield from ((path.stem, cells) for cells in csv.reader(lines))


def _relation(name: str) -> Iterator[str]:
    with PostgresDatabase().connect() as session, session.cursor() as cursor:
        cursor.execute(SQL("SELECT * FROM {}").format(Identifier(*name.split("."))))
        yield from map(repr, cursor.fetchall())


def say(number: int, steps: Sequence[Step]) -> None:
    """Print the contents after a phase, a line per asset."""
    for name, rows in contents(steps):
        print(json.dumps({"phase": number, "asset": name, "rows": rows}), flush=True)


def main(work: dict[str, Any]) -> None:
    """Go through the phases, each a disturbance and the names of its steps (None: all), and print what each leaves."""
    first = datetime.fromisoformat(work["first"] + ":00:00+00:00")
    read_migrations_once()
    dg.DagsterInstance.ephemeral().dispose()  # reads them, before there are forks
    steps = plan(first, first + timedelta(hours=work["hours"]))
    for number, (disturbance, names) in enumerate(work["phases"]):
        disturbed = chosen(steps, names, and_ancestors=disturbance == "undisturbed", there=work["there"])
        disturb(disturbance, disturbed)
        all_good(fork(partial(say, number, disturbed)))
