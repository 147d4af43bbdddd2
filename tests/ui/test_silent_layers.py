"""The real daemon over a flow that leaves signs on three layers, while one of its parts falls silent and a backfill goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import dagster as dg
import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from test_silent_source import HOUR, MINUTE, NINE, Source
from web_ui import until

# Nine runs of a fresh interpreter each: on a busy machine that is minutes.
pytestmark = [pytest.mark.ui, pytest.mark.timeout(1500), pytest.mark.pattern("flow_interruption_detector")]

LOCATION = Path(__file__).with_name("layered_location.py")
LAYERS = {"rows_keep_coming": "metadata", "events_are_recent": "data", "files_keep_landing": "storage"}
SECONDS = 240.0


class Readings(Source):
    """The source of `silent_location`, whose rows are in a table by hour and region as well."""

    asset: ClassVar[dg.AssetKey] = dg.AssetKey(["bronze", "readings"])
    location: ClassVar[Path] = LOCATION

    @property
    def uri(self) -> str:
        return str(self.root / "lake" / "bronze" / "readings")

    def load(self, hour: datetime, *regions: str) -> None:
        """Rows of an hour are committed now, by the clock of this world."""
        moment = pyarrow.timestamp("us", "UTC")
        rows = {
            "read_at": pyarrow.array([hour + 30 * MINUTE] * len(regions), moment),
            "hour": pyarrow.array([hour] * len(regions), moment),
            "region": list(regions),
        }
        write_deltalake(self.uri, pyarrow.table(rows), mode="append", partition_by=["hour", "region"])
        self.date()

    def tidy(self) -> None:
        """Housekeeping brings the files together, and no row."""
        DeltaTable(self.uri).optimize.compact()
        self.date()

    def date(self) -> None:
        """The newest commit is of now, by the clock of this world."""
        log = sorted(Path(self.uri, "_delta_log").glob("*.json"))[-1]
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int(self.now.timestamp() * 1000)
        log.write_text("\n".join(map(json.dumps, actions)))

    def told(self) -> list[tuple[str, str]]:
        """What the channel of alerts has heard: of which check, opened or recovered."""
        file = self.root / "logs" / "alerts.jsonl"
        bodies = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [(str(body["subject"]).rpartition(":")[2], str(body["event"])) for body in bodies]


@pytest.fixture
def readings(tmp_path: Path) -> Iterator[Readings]:
    readings = Readings(tmp_path)
    yield readings
    readings.instance.dispose()


def test_each_layer_tells_of_the_silent_part_once_and_no_backfill_hides_it(readings: Readings) -> None:
    flowing, opened, recovered = (True, "flowing"), (False, "opened"), (True, "recovered")

    def await_all(*expected: tuple[bool, str]) -> None:
        for check in LAYERS:
            readings.await_verdicts(check, list(expected), daemon)

    def await_told(*events: str) -> None:
        wanted = sorted((check, event) for check in LAYERS for event in events)
        until(lambda: sorted(readings.told()) == wanted, SECONDS, lambda: f"{readings.told()}; {daemon.output()}")

    readings.wind(5 * MINUTE)
    readings.land(NINE - HOUR)
    readings.load(NINE - HOUR, "eu", "us")
    daemon = readings.daemon()
    try:
        await_all(flowing)
        readings.wind(HOUR)  # 10:05: one region goes on, the other and the files do not
        readings.load(NINE, "eu")
        readings.wind(20 * MINUTE)
        readings.look_again(daemon)
        await_all(flowing)
        readings.wind(6 * MINUTE)  # 10:31
        readings.look_again(daemon)
        readings.wind(4 * MINUTE)
        await_all(flowing, opened)
        await_told("opened")
        for check in ("rows_keep_coming", "events_are_recent"):
            told = readings.evaluations(check)[-1].metadata
            assert told["silent"].value == ["us"], "and not the one that goes on"

        for hours in (5, 4, 3):  # a backfill of the silent region, landed, loaded and brought together now
            readings.land(NINE - hours * HOUR)
            readings.load(NINE - hours * HOUR, "us")
            readings.load(NINE - hours * HOUR, "us")  # twice, so that there is something to bring together
        readings.tidy()
        readings.look_again(daemon)
        readings.wind(4 * MINUTE)
        readings.look_again(daemon)
        await_all(flowing, opened)
        await_told("opened")

        readings.land(NINE)
        readings.load(NINE, "us")
        readings.look_again(daemon)
        readings.wind(4 * MINUTE)
        await_all(flowing, opened, recovered)
        await_told("opened", "recovered")
    finally:
        daemon.kill()
    for check, layer in LAYERS.items():
        assert {str(each.metadata["layer"].value) for each in readings.evaluations(check)} == {layer}
