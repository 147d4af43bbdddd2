"""Which tables the code of a step has written though its assets do not declare them, as metadata of a materialisation.

`table_writes` says what this process has written by itself; the log of its runs says which step was at work at that time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from de_resources.lineage.inputs import alias_of
from de_resources.lineage.table_writes import TableWrite, watched

UNDECLARED_WRITES = "lineage/undeclared_writes"
"""Tables that the asset's code has written though they are no output of it."""
MAYBE_WRITES = "lineage/undeclared_writes_maybe"
"""As above, by this code or that of the steps that were at work in the same process: `{table: [steps]}`."""

_BEGINS = frozenset({dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_RESTARTED})
_ENDS = frozenset(
    {
        dg.DagsterEventType.STEP_SUCCESS,
        dg.DagsterEventType.STEP_FAILURE,
        dg.DagsterEventType.STEP_UP_FOR_RETRY,
    }
)
_AT_WORK = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


@dataclass(frozen=True)
class StepAtWork:
    """A step of this process. `until` None: it is at work."""

    run: str
    step: str
    since: float
    until: float | None = None

    def was_at_work(self, at: float) -> bool:
        """Whether it was at that time."""
        return self.since <= at and (self.until is None or at <= self.until)


@dataclass(frozen=True)
class Attributed:
    """Tables that code of one step has written: `own` for certain, `shared` by it or by the steps named."""

    own: tuple[str, ...] = ()
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def undeclared_writes(
    context: dg.OutputContext | dg.AssetExecutionContext, key: dg.AssetKey, graph: Any, root: str
) -> dict[str, Any]:
    """What the step has written so far of the lake at `root` beside the outputs of `key`, as metadata; warns of it.

    Each write is told once. Never raises: nothing of it may fail a write.
    """
    try:
        lake = watched(root)
        writes = lake.look() if lake else []
        if not lake or not writes:
            return {}
        names = {_table(each, graph): alias_of(each) for each in graph.get_all_asset_keys()}
        declared = {_table(each, graph) for each in (key, *graph.get(key).execution_set_asset_keys)}
        step = context.step_context if isinstance(context, dg.OutputContext) else context.get_step_execution_context()
        found, taken = attributed(writes, steps_at_work(step.instance, step.run_id), step.run_id, step.step.key)
        lake.take(taken)
        own = sorted(f"`{names.get(table, table)}`" for table in found.own if table not in declared)
        shared = {names.get(t, t): list(others) for t, others in found.shared.items() if t not in declared}
    except Exception as error:  # noqa: BLE001  It describes a write; nothing that it meets may fail the write.
        context.log.warning("What `%s` writes undeclared was not looked for: %s.", alias_of(key), type(error).__name__)
        return {}
    for table in own:
        context.log.warning(
            "`%s` writes %s, which it does not declare. Make it an output of the asset: its readers see no run that made "
            "it, its contract is not kept, and a rerun may write it twice.",
            alias_of(key),
            table,
        )
    for table, others in shared.items():
        context.log.warning(
            "`%s` writes `%s`, which it does not declare, or one of these does that ran at the same time: %s.",
            alias_of(key),
            table,
            ", ".join(others),
        )
    return {
        **({UNDECLARED_WRITES: dg.MetadataValue.json(own)} if own else {}),
        **({MAYBE_WRITES: dg.MetadataValue.json(shared)} if shared else {}),
    }


def attributed(
    writes: Iterable[TableWrite], steps: Collection[StepAtWork], run: str, step: str
) -> tuple[Attributed, list[TableWrite]]:
    """What a step has written of these, and the writes that nobody else has to tell. Pure."""
    own, shared, taken = dict[str, None](), dict[str, tuple[str, ...]](), list[TableWrite]()
    for write in writes:
        at_work = {(each.run, each.step) for each in steps if each.was_at_work(write.at)}
        if (run, step) not in at_work:
            continue
        others = sorted(name for _, name in at_work - {(run, step)})
        if others:
            shared[write.table] = tuple(others)
        else:
            own[write.table] = None
            taken.append(write)
    return Attributed(tuple(own), {table: names for table, names in shared.items() if table not in own}), taken


def steps_at_work(instance: dg.DagsterInstance, run_id: str) -> list[StepAtWork]:
    """The steps of this process: of this run, and of those that are not over."""
    runs = {run_id, *(run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=_AT_WORK)))}
    return [step for run in runs for step in _steps(run, instance.all_logs(run, of_type={*_BEGINS, *_ENDS}))]


def _steps(run: str, log: Iterable[dg.EventLogEntry]) -> Iterator[StepAtWork]:
    begun: dict[str, float] = {}
    for entry in log:
        event = entry.get_dagster_event()
        if event.pid != os.getpid() or event.step_key is None:
            continue
        if event.event_type in _BEGINS:
            begun[event.step_key] = entry.timestamp
        elif event.step_key in begun:
            yield StepAtWork(run, event.step_key, begun.pop(event.step_key), entry.timestamp)
    yield from (StepAtWork(run, step, since) for step, since in begun.items())


def _table(key: dg.AssetKey, graph: Any) -> str:
    """Where the lake keeps the table of an asset."""
    metadata = graph.get(key).metadata
    layer = metadata.get("schema") or (key.path[-2] if len(key.path) > 1 else "public")
    return f"{layer}/{metadata.get('root_name') or key.path[-1]}"
