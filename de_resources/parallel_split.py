"""One read that feeds several branches, each with a result, an error and a system of its own.

Pattern: Parallel Split. The step of several assets (`can_subset=True`, no output required) hands the rows over:

    yield from split(context, day, stored={"table": as_table}, beside={"csv": write_files})

A branch that is `stored` is written by the IO manager of its output. One that goes `beside` writes to its own system, in a
thread of its own, and its materialisations are in the event log as soon as it has written. What is slow holds nothing back that
is fast, in either direction; an error of one is the step's error once the others have come to their end.

A retry of the step, or an automatic retry of its run, comes to each branch again: writers know by the run's stamp what they
have written, and leave it. Who asks for one branch alone gets that one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from de_resources.delta.observed_frame import ObservedFrame
from de_resources.errors import PermanentError
from de_resources.told import already_told, tell

Stored = Callable[[DataFrame], DataFrame | ObservedFrame]
"""From the shared rows to what the IO manager of the output writes."""


@dataclass(frozen=True)
class Branch:
    """What a branch has written of one partition: metadata, and what tells this state of it from another one."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None


class NotOfNothing(PermanentError):
    """A branch that writes beside the step, with an output that an IO manager would store."""

    def __init__(self, output: str) -> None:
        self.output = output
        super().__init__(
            f"The branch `{output}` writes by itself, and its output is one that an IO manager stores. "
            "Give it `dg.AssetOut(dagster_type=dg.Nothing, …)`."
        )


Beside = Callable[[DataFrame], Mapping[str | None, Branch]]
"""From the shared rows to what was written, by partition key; None: an asset without partitions."""


def split(
    context: dg.AssetExecutionContext, rows: DataFrame, *, stored: Mapping[str, Stored], beside: Mapping[str, Beside]
) -> Iterator[dg.Output[Any]]:
    """Run the branches that the run asks for, by the names of their outputs, on rows that are read once for all of them.

    Outputs of `beside` are of `dg.Nothing`. They have told of their materialisations themselves, and are yielded last, when no
    branch has failed, so that their checks and what reads them go on in the same run. Raises what a branch has raised, a
    `PermanentError` first; the results of the other branches stay. Raises `NotOfNothing` before anything is read.
    """
    _refuse_stored(context, beside)
    chosen = context.op_execution_context.selected_output_names
    alone = len(chosen) == 1
    with _shared(rows, alone=alone) as frame, _running(context, frame, _of(beside, chosen)) as running:
        for name, branch in _of(stored, chosen).items():
            yield dg.Output(branch(frame), name)
        _raise([future.exception() for future in running])
    for name in _of(beside, chosen):
        yield already_told(name)


def _refuse_stored(context: dg.AssetExecutionContext, beside: Iterable[str]) -> None:
    definition = context.op_execution_context.op_def
    for name in beside:
        if not definition.output_def_named(name).dagster_type.is_nothing:
            raise NotOfNothing(name)


def _of(branches: Mapping[str, Any], chosen: Set[str]) -> dict[str, Any]:
    return {name: branch for name, branch in branches.items() if name in chosen}


@contextmanager
def _shared(rows: DataFrame, *, alone: bool) -> Iterator[DataFrame]:
    """The rows, kept by the engine from the first branch on that reads them; of a single branch, as they are."""
    if alone:
        yield rows
        return
    frame = rows.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def _running(
    context: dg.AssetExecutionContext, frame: DataFrame, branches: Mapping[str, Beside]
) -> Iterator[Sequence[Future[None]]]:
    """The branches beside the step, until all have come to their end; also where the step itself fails meanwhile."""
    with ThreadPoolExecutor(max(len(branches), 1)) as pool:
        yield [pool.submit(_run, context, name, branch, frame) for name, branch in branches.items()]


def _run(context: dg.AssetExecutionContext, name: str, branch: Beside, frame: DataFrame) -> None:
    key = context.asset_key_for_output(name)
    try:
        written = branch(frame)
    except Exception as error:
        # Where another branch fails as well, the step can raise only one of the two.
        context.log.error("The branch `%s` of the split failed: %s", key.to_user_string(), type(error).__name__)
        raise
    for partition, told in written.items():
        tell(context, key, partition, told.metadata, told.version)


def _raise(errors: Sequence[BaseException | None]) -> None:
    raised = sorted((e for e in errors if e is not None), key=lambda error: not isinstance(error, PermanentError))
    if raised:
        raise raised[0]
