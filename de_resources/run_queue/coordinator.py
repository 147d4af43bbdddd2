"""The coordinator that `dagster.yaml` names: Dagster's own queue, with turns and pools."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import dagster as dg
from filelock import FileLock, Timeout

from de_resources.compat.queueing import ConfigurableClassData, RunQueueConfig, SubmitRunContext
from de_resources.errors import PermanentError
from de_resources.run_queue.failures import Failures
from de_resources.run_queue.places import (
    HAS_COME,
    PIPELINE,
    PLACE,
    TURN,
    WAITS,
    WAITS_FOR,
    Place,
    chosen_assets,
    place_of,
)
from de_resources.run_queue.pools import limits_of, pools_of
from de_resources.run_queue.turns import Member, turns

SETTLE_SECONDS = 2.0
"""Runs that one click launches come one after the other, in any order."""
LIMITS: Sequence[Mapping[str, Any]] = (
    {"key": TURN, "value": WAITS, "limit": 0},
    {"key": PIPELINE, "value": {"applyLimitPerUniqueValue": True}, "limit": 1},
)
"""A run waits unless it was told otherwise, whenever it came; and what was told a moment too early still runs alone."""
_QUEUED = [dg.DagsterRunStatus.QUEUED]
_RUNNING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


class LimitsElsewhere(PermanentError):
    """Limits by tag that would be in the place of the coordinator's own."""

    def __init__(self) -> None:
        super().__init__(
            "In `dagster.yaml` `concurrency.runs.tag_concurrency_limits` replaces what lets runs wait for their turn: "
            "they would run in any order. Move the limits to `run_coordinator.config.tag_concurrency_limits`."
        )


class QueueWithTurns(dg.QueuedRunCoordinator[dg.DagsterInstance]):
    """Dagster's queue, with turns and pools.

    A run with an asset of a pipeline (`in_order`) is queued with its place in its tags, and waits there until the daemon
    gives it its turn; its tag `single_runner/waits_for` says for whom. A run with an asset of a pool (`side_by_side`) waits
    while as many run as the pool takes. All other runs are queued as ever. Configuration: that of Dagster's
    `QueuedRunCoordinator`, `settle_seconds`, and `pools`.

    A run whose place cannot be told (`SeveralPipelines`, a partition that its asset does not have), or whose pool has no
    limit (`PoolWithoutLimit`), is refused when it is launched. After a restart of the daemon
    all is as before: what it knows is read from the instance.
    """

    def __init__(
        self,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        pools: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.time,
        **queue: Any,
    ) -> None:
        super().__init__(**queue)
        self._settle, self._pools, self._clock = settle_seconds, pools or {}, clock
        self._failures: Failures | None = None

    @classmethod
    def config_type(cls) -> Any:
        """The coordinator's `config` in `dagster.yaml`."""
        inherited: Any = super().config_type()
        return {
            **inherited,
            "settle_seconds": dg.Field(
                float,
                is_required=False,
                default_value=SETTLE_SECONDS,
                description="How long a run waits for one of an earlier partition that was launched at the same moment.",
            ),
            "pools": dg.Field(
                dg.Map(str, int),
                is_required=False,
                default_value={},
                description="How many runs of each pool go at once.",
            ),
        }

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        """The coordinator of an instance."""
        return cls(inst_data=inst_data, **config_value)

    def submit_run(self, context: SubmitRunContext) -> dg.DagsterRun:
        """Queue a run, with its place and its pools."""
        run, graph = context.dagster_run, context.workspace.asset_graph
        place = place_of(run, graph, self._instance)
        tags = pools_of(chosen_assets(run, graph), graph, self._pools) | (place.tags() if place else {})
        if tags:
            self._instance.add_run_tags(run.run_id, tags)
        return super().submit_run(context)

    def get_run_queue_config(self) -> RunQueueConfig:
        """The limits of the queue. The daemon asks before each look into the queue, and turns are given then."""
        config = super().get_run_queue_config()
        if self.has_instance:
            self._require_limits()
            self._give_turns()
        return config._replace(
            tag_concurrency_limits=[*config.tag_concurrency_limits, *limits_of(self._pools), *map(dict, LIMITS)]
        )

    def _require_limits(self) -> None:
        settings = self._instance.get_settings("concurrency") or {}
        if "tag_concurrency_limits" in settings.get("runs", {}):
            raise LimitsElsewhere

    def _give_turns(self) -> None:
        """The webserver asks for the limits as well: one process at a time gives turns, and the next one sees them."""
        if not self._members(_QUEUED):
            return
        try:
            with FileLock(Path(self._instance.root_directory) / "single_runner.lock", timeout=0):
                self._give_turns_alone()
        except Timeout:
            return

    def _give_turns_alone(self) -> None:
        queued, running = self._members(_QUEUED), self._members(_RUNNING)
        for pipeline, line in queued.items():
            waits = turns(
                [member for member, _ in line],
                [member for member, _ in running.get(pipeline, [])],
                self._holds(pipeline),
                now=self._clock(),
                settle=self._settle,
            )
            for member, tags in line:
                self._tell(member, tags, waits[member.run_id])

    def _holds(self, pipeline: str) -> Callable[[Place], str | None]:
        """What holds a place of the pipeline. The instance is asked once for the whole line, and not for each run in it."""
        if self._failures is None:
            self._failures = Failures(self._instance)
        failures = list(self._failures.of(pipeline))

        def held(place: Place) -> str | None:
            first = next((each for each in failures if each.place.begin < place.begin), None)
            return first.told() if first else None

        return held

    def _tell(self, member: Member, known: Mapping[str, str], waits_for: str) -> None:
        told = {TURN: WAITS if waits_for else HAS_COME, WAITS_FOR: waits_for}
        if any(known.get(name) != value for name, value in told.items()):
            self._instance.add_run_tags(member.run_id, told)

    def _members(self, statuses: Sequence[dg.DagsterRunStatus]) -> dict[str, list[tuple[Member, Mapping[str, str]]]]:
        """The runs of pipelines, with their tags, by pipeline."""
        found: dict[str, list[tuple[Member, Mapping[str, str]]]] = defaultdict(list)
        wanted = dg.RunsFilter(statuses=statuses, tags={TURN: [WAITS, HAS_COME]})
        for record in self._instance.get_run_records(wanted):
            tags = record.dagster_run.tags
            place = Place.of_tags({PLACE: tags[PLACE]})
            found[place.pipeline].append(
                (Member(record.dagster_run.run_id, place, record.create_timestamp.timestamp()), tags)
            )
        return found
