"""The real daemon over a source that falls silent: no run happens, and yet it is told, once. The clock is the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import dagster as dg
import pytest
from web_ui import DagsterProcess, looks, until, wind

from de_resources.heartbeat import Heartbeat

pytestmark = [pytest.mark.ui, pytest.mark.faults, pytest.mark.pattern("flow_interruption_detector")]

NINE = datetime(2024, 1, 8, 9, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
LOCATION = Path(__file__).with_name("silent_location.py")
SECONDS = 120.0
INSTANCE = """
telemetry: {enabled: false}
run_queue: {dequeue_interval_seconds: 1}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""


@dataclass
class Source:
    """The world that the daemon watches, and what it has recorded."""

    root: Path
    now: datetime = NINE
    asset: ClassVar[dg.AssetKey] = dg.AssetKey(["sources", "drop"])
    location: ClassVar[Path] = LOCATION

    def __post_init__(self) -> None:
        (self.root / "landing").mkdir()
        (self.root / "dagster").mkdir()
        (self.root / "dagster" / "dagster.yaml").write_text(INSTANCE)
        # Made before the daemon starts: two processes at once cannot make it.
        self.instance = dg.DagsterInstance.from_config(str(self.root / "dagster"))
        self.wind(timedelta(0))
        self.heart = Heartbeat("feeder", self.root / "heartbeats", clock=lambda: self.now)

    @property
    def environment(self) -> dict[str, str]:
        places = {"DE_HOME": self.root, "DAGSTER_HOME": self.root / "dagster", "SILENT_ROOT": self.root}
        return {**os.environ, **{name: str(place) for name, place in places.items()}}

    def daemon(self) -> DagsterProcess:
        return DagsterProcess(["dagster._daemon", "run", "-f", str(self.location)], self.environment)

    def wind(self, forward: timedelta) -> None:
        """Time passes."""
        self.now += forward
        wind(self.root, self.now)

    def land(self, hour: datetime) -> None:
        (self.root / "landing" / hour.isoformat()).mkdir()

    def verdicts(self, check: str) -> list[tuple[bool, str]]:
        """What was recorded of a check, oldest first."""
        return [(each.passed, str(each.metadata["state"].value)) for each in self.evaluations(check)]

    def evaluations(self, check: str) -> list[dg.AssetCheckEvaluation]:
        """The same with all that they told."""
        key = dg.AssetCheckKey(self.asset, check)
        records = self.instance.event_log_storage.get_asset_check_execution_history(key, limit=50)
        return [each.evaluation for each in records[::-1] if isinstance(each.evaluation, dg.AssetCheckEvaluation)]

    def ticks(self) -> int:
        """How often the daemon has looked."""
        return sum(looks(self.instance).values())

    def await_verdicts(self, check: str, expected: list[tuple[bool, str]], daemon: DagsterProcess) -> None:
        until(
            lambda: self.verdicts(check) == expected,
            SECONDS,
            lambda: f"{check}: {self.verdicts(check)}; {daemon.output()}",
        )

    def look_again(self, daemon: DagsterProcess, times: int = 3) -> None:
        """Wait until the daemon has looked so often."""
        before = self.ticks()
        until(lambda: self.ticks() >= before + times, SECONDS, daemon.output)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    source = Source(tmp_path)
    yield source
    source.instance.dispose()


def test_a_source_that_falls_silent_is_told_once_and_its_return_once_over_a_daemon_that_dies(source: Source) -> None:
    files, feeder = "files_keep_landing", "job_is_alive"
    flowing, opened, recovered = (True, "flowing"), (False, "opened"), (True, "recovered")
    source.land(NINE - HOUR)
    source.heart.beat()
    daemon = source.daemon()
    try:
        source.await_verdicts(files, [flowing], daemon)
        source.await_verdicts(feeder, [flowing], daemon)

        source.wind(HOUR + 31 * MINUTE)  # nobody lands anything, and no run happens; the job lives
        source.heart.beat()
        source.look_again(daemon)
        assert source.verdicts(files) == [flowing], "it may be a little late"
        source.wind(3 * MINUTE)
        source.heart.beat()
        source.await_verdicts(files, [flowing, opened], daemon)

        daemon.kill()
        daemon = source.daemon()
        source.wind(MINUTE)
        source.heart.beat()
        source.look_again(daemon)
        assert source.verdicts(files) == [flowing, opened], "whoever starts again has heard of it"
        assert source.verdicts(feeder) == [flowing], "a quiet source is no dead job"

        source.land(NINE)
        source.look_again(daemon)
        source.wind(3 * MINUTE)
        source.heart.beat()
        source.await_verdicts(files, [flowing, opened, recovered], daemon)
        source.look_again(daemon)
    finally:
        daemon.kill()
    assert source.verdicts(files) == [flowing, opened, recovered]
    assert source.instance.get_runs_count() == 4, "a run for each verdict, and no other"
