"""The countries of networks, through the graph's own asset and the real API: each is paid for once, whatever fails when."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import warm_process
from geo_visits import answered, countries_job, land, look_up, stored, version
from geo_world import GeoWorld, geo_in, networks
from instances import silent_instance

from de_assets.resources import resources
from de_assets.silver import network_countries
from de_assets.silver.network_countries import KEY, polls
from de_resources.delta.write.crash_points import at
from de_resources.enrichment.circuit import CircuitFile
from de_resources.errors import PermanentError
from de_resources.local import LocalServices
from de_resources.local.geo import country_of
from de_resources.settings import Settings
from de_resources.spark import SparkEngine, close_connections

pytestmark = [pytest.mark.services, pytest.mark.pattern("local_sequencer", "static_joiner")]

STEPS = ("readiness", "lookup", "expose")


class Broken(PermanentError):
    """Planted."""


def fail(_table: str) -> None:
    raise Broken("planted")


def of_the_table(action: Callable[[str], None]) -> Callable[[str], None]:
    """Only where the asset's table is written."""
    return lambda table: action(table) if table == ".".join(KEY.path) else None


def of_the_answers(action: Callable[[str], None]) -> Callable[[str], None]:
    """Only where paid answers are staged."""
    return lambda table: action(table) if table == f"{'.'.join(KEY.path)}:answers" else None


class World(GeoWorld):
    """The service, a lake of its own, and an instance."""

    def __init__(self, services: LocalServices, instance: dg.DagsterInstance) -> None:
        super().__init__(services)
        self.instance = instance

    def run(self, *, again: str | None = None) -> dg.JobExecutionResult:
        """One run; `again`: from the failure of that run, as the UI re-executes it."""
        options = dg.ReexecutionOptions.from_failure(again, self.instance) if again else None
        with dg.execute_job(dg.reconstructable(countries_job), self.instance, reexecution_options=options) as result:
            return result

    def steps(self, run: dg.JobExecutionResult) -> set[str]:
        """The steps of the asset that a run has started."""
        events = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_START)
        keys = {str(event.dagster_event.step_key).rpartition(".")[2] for event in events if event.dagster_event}
        return keys & set(STEPS)

    def error(self, run: dg.JobExecutionResult) -> str:
        """The innermost cause of its failure."""
        (event,) = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert event.dagster_event is not None
        error = event.dagster_event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        assert error is not None
        return str(error.cls_name)

    def polled(self) -> str | None:
        """Why the poll asks for a run now; None: it does not."""
        (schedule,) = polls
        with dg.build_schedule_context(
            self.instance,
            scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC),
            resources={"lake": resources()["lake"]},
        ) as context:
            requests = schedule.evaluate_tick(context).run_requests
        return requests[0].tags["poll/why"] if requests else None

    def told(self) -> dict[str, Any]:
        """The metadata of the newest materialisation."""
        event = self.instance.get_latest_materialization_event(KEY)
        assert event is not None
        assert event.asset_materialization is not None
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServices]:
    home = tmp_path_factory.mktemp("geo")
    settings = Settings.from_environment({"DE_HOME": str(home), "DE_JARS": os.environ["DE_JARS"]})
    with geo_in(LocalServices(settings)) as services:
        yield services


@pytest.fixture
def world(running: LocalServices, at_home: LocalServices, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The runs are on the engine that all tests of the process share."""
    home = running.settings.home
    monkeypatch.setenv("DE_SPARK", SparkEngine().resolved_url())
    monkeypatch.setenv("DE_HOME", str(home))
    # At one place for all tests: what `reconstructable` makes of the job is kept by Dagster, and its resources with it.
    monkeypatch.setenv("LAKE_ROOT", str(home / "lake"))
    for left in ("lake", "enrichment", "circuits"):
        shutil.rmtree(home / left, ignore_errors=True)
    with silent_instance() as instance:
        yield World(running, instance)
    close_connections()


def addresses(of: list[str], host: int = 7) -> list[str]:
    """An address in each of the networks."""
    return [network.replace(".0/24", f".{host}") for network in of]


def true_of(of: list[str]) -> dict[str, str | None]:
    return {network: country_of(network) for network in of}


def test_each_network_is_paid_for_once_over_two_runs(world: World) -> None:
    world.behave(values=4)
    assert world.polled() is None, "no visits, no run"
    first, second = networks(10), networks(5)
    land({0: addresses(first) + addresses(first, 9), 1: [*addresses(first[:3], 200), None, "no address"]})
    assert world.polled() == "2 hours of silver/visits changed"
    done = world.run()
    assert done.success
    assert stored() == true_of(first)
    assert sorted(world.charged) == sorted(first), "networks, each once, and no address"
    told = world.told()
    assert (told["api/calls"], told["api/values_asked"], told["networks_seen"]) == (3, 10, 10)
    assert world.requests() == 3
    assert world.polled() is None

    facts = [path for path in (world.home / "facts" / done.run_id).rglob("*") if path.is_file()]
    assert sorted(path.parent.name.rpartition(".")[2] for path in facts) == ["lookup", "readiness"]
    assert all(path.stat().st_size < 2000 for path in facts), "names and numbers, no rows"
    staged = "".join(path.read_text() for path in (world.home / "enrichment").rglob("*.json"))
    assert first[0] in staged
    assert not any(address in staged for address in addresses(first)), "no address is written anywhere"

    shutil.rmtree(world.home / "enrichment")  # the table is what remembers
    land({1: [*addresses(first[:5]), *addresses(second), "::ffff:" + addresses(second)[0], "2001:db8:77::5"]})
    assert world.polled() == "1 hours of silver/visits changed"
    assert world.run().success
    six = "2001:db8:77::/48"
    assert stored() == true_of([*first, *second, six])
    assert sorted(world.charged) == sorted([*first, *second, six])
    assert world.told()["networks_seen"] == 11, "hours that did not change are not read again"


def test_a_failure_in_the_last_step_repeats_neither_the_paid_call_nor_the_load(world: World) -> None:
    wanted = networks(6)
    land({0: addresses(wanted)})
    with at("before_commit", of_the_table(fail)):
        broken = world.run()
    assert world.error(broken) == "Broken"
    assert world.steps(broken) == set(STEPS)
    assert version() is None, "a first write that fails leaves no table"
    asked = world.requests(), world.requests("quota")

    world.behave(away=-1)  # nobody needs it any more
    land({3: addresses(networks(3))})  # nor the visits as they are now
    with at("after_commit", of_the_table(fail)):
        again = world.run(again=broken.run_id)
    assert not again.success, "after its commit: nobody was told"
    before = answered()
    last = world.run(again=again.run_id)
    assert last.success
    assert world.steps(again) == world.steps(last) == {"expose"}
    assert (world.requests(), world.requests("quota")) == asked
    assert stored() == true_of(wanted)
    assert answered() == before, "a re-execution after the commit changes nothing"
    assert sorted(world.charged) == sorted(wanted)


def test_old_answers_are_asked_for_again_and_do_not_replace_newer_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = networks(3)
    land({0: addresses(wanted)})
    with at("before_commit", of_the_table(fail)):
        broken = world.run()
    begun = datetime.now(UTC)
    monkeypatch.setattr(network_countries, "MAX_AGE", timedelta(0))
    assert world.run().success
    assert sorted(world.charged) == sorted([*wanted, *wanted])
    newer = answered()
    assert min(newer.values()) > begun
    assert world.run(again=broken.run_id).success
    assert answered() == newer


def test_a_dead_service_fails_the_run_and_what_it_has_answered_is_not_paid_for_again(world: World) -> None:
    wanted = networks(8)
    land({0: addresses(wanted)})
    world.behave(values=3)
    with at("after_commit", of_the_answers(lambda _: world.behave(away=-1))):
        broken = world.run()
    assert world.error(broken) == "ApiUnavailable"
    assert world.steps(broken) == {"readiness", "lookup"}
    assert version() is None, "nothing half-written"
    assert len(world.charged) == 3, "the first call"
    asked = world.requests()

    assert world.error(world.run(again=broken.run_id)) == "CircuitOpen"
    assert world.error(world.run()) == "CircuitOpen", "any run, before anything is paid for"
    assert world.requests() == asked

    (circuit,) = (world.home / "circuits").glob("*.json")
    CircuitFile(circuit).opened_at = datetime.now(UTC) - timedelta(hours=1)
    world.behave(values=3)
    again = world.run(again=broken.run_id)
    assert again.success
    assert world.steps(again) == {"lookup", "expose"}
    assert stored() == true_of(wanted)
    assert sorted(world.charged) == sorted(wanted)
    assert world.told()["api/values_staged_before"] == 3


def test_nonsense_fails_the_run_and_nothing_of_it_is_kept(world: World) -> None:
    wanted = networks(20)
    land({0: addresses(wanted)})
    world.behave(nonsense="missing")
    broken = world.run()
    assert world.error(broken) == "NonsenseAnswer"
    assert world.requests() == 1, "the step is not tried again: that would be paid for"
    assert version() is None
    world.behave()
    told = look_up(wanted)
    assert (told["api/values_asked"], told["api/values_staged_before"]) == (20, 0)


def test_a_quota_that_is_too_small_is_found_before_anything_is_paid(world: World) -> None:
    land({0: addresses(networks(5))})
    world.behave(quota=4)
    assert world.error(world.run()) == "QuotaTooSmall"
    assert (world.charged, world.requests(), version()) == ([], 0, None)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("point", "paid_twice"),
    [("before_write", 4), ("after_commit", 0)],
    ids=["between an answer and its file", "between the file and the end of the step"],
)
def test_a_kill_costs_at_most_one_bulk_call(world: World, point: str, paid_twice: int, tmp_path: Path) -> None:
    """The step dies at its second call: the first call's answers are those of a run before."""
    world.behave(values=4)
    first, rest = sorted(networks(4)), sorted(networks(8))
    look_up(first)
    environment = {**os.environ, "DE_KILL_AT": f"{point}:{'.'.join(KEY.path)}:answers"}
    wanted = [*first, *rest]
    process = warm_process.start("geo_visits:look_up", wanted, environment=environment, output=tmp_path / "said")
    process.join(180)
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "said").read_text()
    assert world.charged == [*first, *rest[:4]]

    told = look_up(wanted)
    assert told["api/values_staged_before"] == 8 - paid_twice
    assert len(world.charged) == 12 + paid_twice
    assert set(world.charged) == set(wanted)
