"""All units, each when what it reads is settled; what does not depend on each other runs side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import MappingProxyType

from dagster import AssetKey, DagsterInstance

from de_assets.filling.execution import UnitOutcome, run_keys
from de_assets.filling.keys import FillState, Wanted, wanted
from de_assets.filling.units import Unit, longest_ways
from de_assets.filling.up_to_date import UpToDate
from de_assets.ranges import key_ranges

Look = Callable[[AssetKey], FillState]
"""What is there of an external asset; asked when something that reads it is about to run."""


def fill(
    chosen: Sequence[Unit],
    instance: DagsterInstance,
    look: Look,
    *,
    absent: Mapping[str, str],
    at_once: int = 1,
    started: Callable[[Unit], None] = lambda _unit: None,
    tags: Mapping[str, str] = MappingProxyType({}),
    up_to_date: UpToDate | None = None,
) -> Iterator[UnitOutcome]:
    """Materialise the units once, in the order of `units`, and yield what became of each, as they end.

    `look` tells what is there of an external asset. `absent` maps services that do not answer to the reason. What has no
    source or no service is left out, and so is all behind it. A partition that failed, or that a blocking check holds back,
    holds back what lies in its time downstream; everything else goes on. All runs have the `tags`. Partitions that are
    `up_to_date` are not computed again; without it, all are.
    """
    _configure_logging_once(instance)
    waiting, ways, states = list(chosen), longest_ways(chosen), dict[AssetKey, FillState]()
    running: dict[Future[UnitOutcome], Unit] = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="fill") as pool:
        while waiting or running:
            unsettled = {key for unit in (*waiting, *running.values()) for key in unit.assets}
            ready = [unit for unit in waiting if unit.reads.isdisjoint(unsettled)]
            for unit in sorted(ready, key=lambda u: -ways[u])[: at_once - len(running)]:
                waiting.remove(unit)
                running[
                    pool.submit(_fill_one, unit, instance, dict(states), look, absent, started, tags, up_to_date)
                ] = unit
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                outcome = future.result()
                del running[future]
                states.update({key: _state(outcome) for key in outcome.unit.assets})
                yield outcome


def _configure_logging_once(instance: DagsterInstance) -> None:
    """Ask for the handlers of `dagster.yaml` once, and give the same to every run of this process.

    Dagster asks at the start of each run, and then configures Python's logging again: under the lock of `logging` it waits for
    the lock of every handler. A handler of another run that is just storing an event has its own lock and waits for that
    of `logging`: two runs in one process would wait for each other for ever.
    """
    handlers = instance.get_yaml_python_handlers()
    setattr(instance, "get_yaml_python_handlers", lambda: handlers)  # noqa: B010 - a method of this one object


def _fill_one(
    unit: Unit,
    instance: DagsterInstance,
    states: Mapping[AssetKey, FillState],
    look: Look,
    absent: Mapping[str, str],
    started: Callable[[Unit], None],
    tags: Mapping[str, str],
    up_to_date: UpToDate | None,
) -> UnitOutcome:
    outcome, begun = UnitOutcome(unit), time.monotonic()
    outside = unit.parents - states.keys()
    states = {**{key: look(key) for key in outside}, **states}
    found = wanted(unit, states)
    why = found.absent or next((f"{name}: {absent[name]}" for name in sorted(unit.services) if name in absent), None)
    if why is not None:
        outcome.left_out = why
        return outcome
    outcome.held_back = found.held_back
    if up_to_date is not None and found.keys is not None:
        outcome.up_to_date = up_to_date.partitions(unit, found.keys, states, outside)
        found.keys = [key for key in found.keys if key not in outcome.up_to_date]
    if not (unit.partitions is None and found.held_back):
        started(unit)
        for selection in _selections(unit, found):
            if not _builds_on_bad(unit, selection, outcome):
                run_keys(instance, unit, selection, outcome, tags)
        if up_to_date is not None:
            up_to_date.note(unit, states, outcome.written - outcome.failed.keys())
    outcome.seconds = time.monotonic() - begun
    return outcome


def _selections(unit: Unit, found: Wanted) -> Iterable[tuple[str, str] | None]:
    """Contiguous ranges of partitions to run; one `None` for assets without partitions."""
    if unit.partitions is None or found.keys is None:
        return [None]
    if unit.one_by_one:
        return [(key, key) for key in found.keys]
    return key_ranges(unit.partitions.get_partition_keys(), found.keys)


def _builds_on_bad(unit: Unit, selection: tuple[str, str] | None, outcome: UnitOutcome) -> bool:
    """Whether a partition before this one, on which it builds, went wrong; it is held back then."""
    if not unit.chained or selection is None:
        return False
    before = [key for key in (*outcome.bad, *outcome.held_back) if key < selection[0]]
    if before and unit.partitions is not None:
        own = (key for key in unit.partitions.get_partition_keys() if selection[0] <= key <= selection[1])
        outcome.held_back.update(dict.fromkeys(own, f"it builds on {max(before)}"))
    return bool(before)


def _state(outcome: UnitOutcome) -> FillState:
    unit = outcome.unit
    bad = {**outcome.held_back, **outcome.bad}
    there = (outcome.written | outcome.up_to_date) - bad.keys() if unit.partitions is not None else None
    refused = {key: gates for key, gates in outcome.refused.items() if key not in outcome.held_back}
    return FillState(unit.partitions, there, bad, outcome.left_out, refused=refused)
