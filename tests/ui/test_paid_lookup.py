"""The lookup that is paid for, launched from the UI; its last step fails, and *Re-execute from failure* is clicked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from geo_world import GeoWorld
from web_ui import AGAIN, LOCATION, DagsterProcess, WebUI, until

from de_resources.local import LocalServices
from de_resources.local.geo import country_of
from de_resources.settings import Settings

pytestmark = [pytest.mark.ui, pytest.mark.pattern("local_sequencer")]

COUNTRIES = ["silver", "network_countries"]
ENDED = {"SUCCESS", "FAILURE", "CANCELED"}
TIME = pa.timestamp("us", tz="UTC")
WRONG = {"network": pa.string(), "country": pa.int64(), "answered_at": TIME, "answered_in": pa.string()}
STEPS = """query Steps($run: ID!) { runOrError(runId: $run) { ... on Run {
    status stepStats { stepKey status } } } }"""


class Clicks:
    """What a person does in the UI, and sees of it."""

    def __init__(self, web: WebUI, daemon: DagsterProcess) -> None:
        self.web, self.daemon = web, daemon

    def materialize(self) -> str:
        return self._ended(self.web.launch(LOCATION, "/".join(COUNTRIES)))

    def re_execute(self, run: str) -> str:
        """From its failure."""
        return self._ended(self.web.begun(AGAIN, {"parentRunId": run, "strategy": "FROM_FAILURE"}))

    def steps(self, run: str) -> dict[str, str]:
        """How each step of the asset that a run has started ended; its checks are steps of their own."""
        stats = self.web.ask(STEPS, run=run)["runOrError"]["stepStats"]
        of_asset = "__".join(COUNTRIES) + "."
        keys = {str(step["stepKey"]): step["status"] for step in stats}
        return {key.removeprefix(of_asset): status for key, status in keys.items() if key.startswith(of_asset)}

    def status(self, run: str) -> str:
        return str(self.web.ask(STEPS, run=run)["runOrError"]["status"])

    def _ended(self, run: str) -> str:
        until(lambda: self.status(run) in ENDED, 240, self.daemon.output)
        return run


@pytest.fixture
def geo(lakehouse: dict[str, str]) -> Iterator[GeoWorld]:
    """The service that answers about networks; it ends with the home's other services."""
    services = LocalServices(Settings.from_environment(lakehouse))
    services.up(["geo"])
    world = GeoWorld(services)
    yield world
    world.behave()


def test_re_execution_from_failure_repeats_neither_the_paid_call_nor_the_load(
    web: WebUI, daemon: DagsterProcess, lakehouse: dict[str, str], geo: GeoWorld
) -> None:
    """A table with numbers for countries lies there. By the time somebody has moved it away, the service answers nobody."""
    clicks, lake = Clicks(web, daemon), Path(lakehouse["DE_HOME"], "lake")
    visitors = DeltaTable(str(lake / "silver" / "visits")).to_pyarrow_table(columns=["ip"])["ip"].to_pylist()
    networks = {str(ip_network(f"{ip}/{48 if ':' in ip else 24}", strict=False)) for ip in visitors if ip}
    assert len(networks) > 10
    table = lake.joinpath(*COUNTRIES)
    assert not table.exists()
    write_deltalake(str(table), pa.table({name: pa.array([], type_) for name, type_ in WRONG.items()}))

    broken = clicks.materialize()
    assert clicks.status(broken) == "FAILURE"
    assert clicks.steps(broken) == {"readiness": "SUCCESS", "lookup": "SUCCESS", "expose": "FAILURE"}
    paid, asked = sorted(geo.charged), geo.requests()
    assert paid == sorted(networks), "each once"

    geo.behave(away=-1)
    shutil.rmtree(table)
    again = clicks.re_execute(broken)
    assert clicks.status(again) == "SUCCESS"
    assert clicks.steps(again) == {"expose": "SUCCESS"}
    assert (sorted(geo.charged), geo.requests()) == (paid, asked)
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert {row["network"]: row["country"] for row in rows} == {each: country_of(each) for each in networks}
