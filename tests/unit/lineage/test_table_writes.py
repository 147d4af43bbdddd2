"""Whose a commit is that nobody has stamped, by the log of the table and by the steps that were at work."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from de_resources.engine.own_commits import session_mark
from de_resources.lineage.table_writes import TableWrite, TableWrites
from de_resources.lineage.undeclared_writes import Attributed, StepAtWork, attributed, steps_at_work

pytestmark = pytest.mark.pattern("dataset_tracker")

ADDED = {"add": {"path": "a.parquet", "dataChange": True}}
MOVED = {"add": {"path": "a.parquet", "dataChange": False}}


def commit(log: Path, version: int, metadata: str | None, *actions: dict[str, Any], at: float | None = None) -> None:
    log.mkdir(parents=True, exist_ok=True)
    file = log / f"{version:020}.json"
    info = {"commitInfo": {"operation": "WRITE", **({"userMetadata": metadata} if metadata else {})}}
    file.write_text("\n".join(json.dumps(action) for action in (info, *actions)))
    if at is not None:
        os.utime(file, (at, at))


def found(writes: TableWrites) -> list[tuple[str, int]]:
    new = writes.look()
    writes.take(new)
    return sorted((each.table, each.version) for each in new)


def test_only_commits_of_this_process_that_change_rows_are_found_each_once(tmp_path: Path) -> None:
    mark, orders, users = session_mark(), tmp_path / "silver/orders/_delta_log", tmp_path / "silver/users/_delta_log"
    commit(orders, 0, mark, ADDED, at=100.0)
    commit(orders, 1, mark, ADDED, at=2000.0)
    commit(users, 0, mark, ADDED, at=2000.0)
    writes = TableWrites(tmp_path, since=1000.0)
    assert found(writes) == [("silver/orders", 1), ("silver/users", 0)], "one is from before the process began"
    commit(orders, 2, '{"run": "of the platform"}', ADDED)
    commit(orders, 3, "session of another process", ADDED)
    commit(orders, 4, None, ADDED)
    commit(orders, 5, mark, MOVED)
    commit(orders, 6, mark, {"metaData": {}})
    commit(orders, 7, mark, {"remove": {"path": "a.parquet", "dataChange": True}})
    assert found(writes) == [("silver/orders", 7)]
    assert found(writes) == []
    shutil.rmtree(orders)
    commit(tmp_path / "new", 0, mark, ADDED)
    (tmp_path / "new").rename(orders)
    assert found(writes) == [("silver/orders", 0)], "a table that was made again begins again"


def test_a_write_is_of_the_step_that_was_at_work_and_of_none_for_certain_where_two_were() -> None:
    steps = [
        StepAtWork("one", "a", 0.0, 10.0),
        StepAtWork("one", "b", 10.5),
        StepAtWork("two", "c", 20.0),
    ]
    first, second, both = TableWrite("x/a", 0, 5.0), TableWrite("x/b", 0, 15.0), TableWrite("x/c", 0, 25.0)
    told = attributed([first, second, both], steps, "one", "b")
    assert told == (Attributed(("x/b",), {"x/c": ("c",)}), [second])


def test_steps_of_other_processes_and_those_that_ended_are_not_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[tuple[str, bool]]] = []

    def look(instance: dg.DagsterInstance, run: str) -> None:
        seen.append({(each.step, each.until is None) for each in steps_at_work(instance, run)})

    @dg.op(out=dg.Out(dg.Nothing))
    def first(context: dg.OpExecutionContext) -> None:
        look(context.instance, context.run_id)

    @dg.op(ins={"after": dg.In(dg.Nothing)})
    def second(context: dg.OpExecutionContext) -> None:
        look(context.instance, context.run_id)
        with monkeypatch.context() as another:
            another.setattr(os, "getpid", lambda: 1)
            look(context.instance, context.run_id)

    @dg.job
    def both() -> None:
        second(first())

    with dg.DagsterInstance.ephemeral() as instance:
        assert both.execute_in_process(instance=instance).success
    assert seen == [{("first", True)}, {("first", False), ("second", True)}, set()]
