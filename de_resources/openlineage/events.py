"""The log of one run as OpenLineage events: of the run itself, and of each step that wrote or judged datasets.

A run of Dagster is a run of a job; a step is a run of a job of its own, named after its assets, with the first as its
parent. An error is told by its class alone, for its text may quote values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

import dagster as dg
from openlineage.client import facet_v2 as f
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from de_resources.openlineage.datasets import Datasets

PRODUCER = "urn:de-patterns"
_STREAM = "stream/"
"""How figures begin that only a stream tells of what it has written."""
_ENDS = {
    dg.DagsterEventType.RUN_SUCCESS: RunState.COMPLETE,
    dg.DagsterEventType.RUN_FAILURE: RunState.FAIL,
    dg.DagsterEventType.RUN_CANCELED: RunState.ABORT,
}
_STEPS = {
    dg.DagsterEventType.STEP_START: RunState.START,
    dg.DagsterEventType.STEP_SUCCESS: RunState.COMPLETE,
    dg.DagsterEventType.STEP_FAILURE: RunState.FAIL,
}
TOLD = frozenset(
    {
        *_ENDS,
        *_STEPS,
        dg.DagsterEventType.RUN_START,
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    }
)
"""The entries of the log that events are made of."""


@dataclass
class _Step:
    """What a step has done so far."""

    written: defaultdict[dg.AssetKey, list[dg.AssetMaterialization]] = field(default_factory=lambda: defaultdict(list))
    judged: defaultdict[dg.AssetKey, list[dg.AssetCheckEvaluation]] = field(default_factory=lambda: defaultdict(list))

    @property
    def kind(self) -> str | None:
        """STREAMING or BATCH; None for a step that left nothing by which to tell."""
        events = [event for found in self.written.values() for event in found]
        if any(name.startswith(_STREAM) for event in events for name in event.metadata):
            return "STREAMING"
        return "BATCH" if events or self.judged else None


@dataclass(frozen=True)
class RunTold:
    """Tells the events of one run."""

    run: dg.DagsterRun
    datasets: Datasets

    def start(self, at: float) -> RunEvent:
        """The run began; its own end comes with `end`."""
        return self._of_run(RunState.START, at)

    def end(self, log: Iterable[dg.EventLogEntry]) -> Iterator[RunEvent]:
        """All steps of a run that is over, and its end. Nothing for a log without an end."""
        events = [(entry.timestamp, entry.get_dagster_event()) for entry in log if entry.is_dagster_event]
        # What a step is, its beginning says as well: by what it did until its end.
        kinds = {key: step.kind for key, step in _whole(event for _, event in events).items()}
        steps: defaultdict[str, _Step] = defaultdict(_Step)
        for at, event in events:
            if event.event_type in _ENDS:
                yield self._of_run(_ENDS[event.event_type], at, _error_of_run(event))
            elif event.step_key is None:
                continue
            elif event.event_type in _STEPS:
                told = self._job(f"{self.run.job_name}.{event.step_key}", kinds.get(event.step_key))
                yield self._of_step(told, _STEPS[event.event_type], at, steps[event.step_key], event)
            else:
                _note(steps[event.step_key], event)

    def _of_run(self, state: RunState, at: float, error: f.RunFacet | None = None) -> RunEvent:
        facets = {"errorMessage": error} if error else {}
        return _event(state, at, self._job(self.run.job_name, "BATCH"), Run(self.run.run_id, facets=facets))

    def _of_step(self, job: Job, state: RunState, at: float, step: _Step, event: dg.DagsterEvent) -> RunEvent:
        p = f.parent_run
        parent = p.ParentRunFacet(run=p.Run(self.run.run_id), job=p.Job(self.datasets.namespace, self.run.job_name))
        facets: dict[str, f.RunFacet] = {"parent": parent}
        if state is RunState.FAIL:
            facets["errorMessage"] = _error(event.step_failure_data.error)
        outputs = [self.datasets.output(asset, events) for asset, events in step.written.items()]
        outputs += self.datasets.besides(event for events in step.written.values() for event in events)
        read = {name for asset, events in step.written.items() for name in self.datasets.inputs(asset, events)}
        inputs = [self.datasets.input(name) for name in sorted(read)]
        inputs += [self.datasets.judged(asset, found) for asset, found in step.judged.items()]
        run = Run(str(uuid5(NAMESPACE_URL, f"dagster:{self.run.run_id}/{event.step_key}")), facets=facets)
        return _event(state, at, job, run, inputs, outputs)

    def _job(self, name: str, kind: str | None) -> Job:
        if kind is None:
            return Job(self.datasets.namespace, name)
        facet = f.job_type_job.JobTypeJobFacet(processingType=kind, integration="DAGSTER", jobType="JOB")
        return Job(self.datasets.namespace, name, facets={"jobType": facet})


def _whole(events: Iterable[dg.DagsterEvent]) -> dict[str, _Step]:
    """What each step has done when its run is over."""
    steps: defaultdict[str, _Step] = defaultdict(_Step)
    for event in events:
        if event.step_key is not None:
            _note(steps[event.step_key], event)
    return steps


def _note(step: _Step, event: dg.DagsterEvent) -> None:
    """Take in what a step has written or judged."""
    if event.is_step_materialization:
        written = event.step_materialization_data.materialization
        step.written[written.asset_key].append(written)
    elif event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        evaluation = event.asset_check_evaluation_data
        step.judged[evaluation.asset_key].append(evaluation)


def _event(
    state: RunState,
    at: float,
    job: Job,
    run: Run,
    inputs: Sequence[InputDataset] = (),
    outputs: Sequence[OutputDataset] = (),
) -> RunEvent:
    return RunEvent(
        eventTime=datetime.fromtimestamp(at, UTC).isoformat(),
        producer=PRODUCER,
        run=run,
        job=job,
        eventType=state,
        inputs=list(inputs),
        outputs=list(outputs),
    )


def _error_of_run(event: dg.DagsterEvent) -> f.RunFacet | None:
    if event.event_type != dg.DagsterEventType.RUN_FAILURE:
        return None
    step = event.job_failure_data.first_step_failure_event
    return _error(step.step_failure_data.error if step else event.job_failure_data.error)


def _error(error: object) -> f.RunFacet:
    """What failed: the class of the innermost cause."""
    while (cause := getattr(error, "cause", None)) is not None:
        error = cause
    name = str(getattr(error, "cls_name", None) or "unknown")
    return f.error_message_run.ErrorMessageRunFacet(message=name, programmingLanguage="python")
