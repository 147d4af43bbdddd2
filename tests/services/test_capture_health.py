"""A capture that runs and does not relay is seen: one source of several, fenced, unpublished, or dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import Producer
from platform_world import pid_of
from pydantic import SecretStr
from waiting import PATIENCE

from de_resources.capture import CaptureSource, drop, prepare, wait_until_captured
from de_resources.capture.__main__ import _ended
from de_resources.kafka import KafkaBroker
from de_resources.local import LocalServices, ServiceState, TopicSpec
from de_resources.local.capture_service import CaptureService
from de_resources.local.endpoints import Endpoint
from de_resources.local.ports import any_free
from de_resources.postgres import PostgresDatabase

pytestmark = [pytest.mark.services, pytest.mark.pattern("change_data_capture")]


@dataclass
class World:
    """Two captured tables in a process of their own."""

    service: CaptureService
    endpoint: Endpoint
    one: CaptureSource
    other: CaptureSource

    def execute(self, statement: str) -> None:
        with PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute(statement)

    def complaint(self) -> str | None:
        return self.service.complaint(self.endpoint)

    def until(self, fits: Callable[[str | None], object]) -> str | None:
        deadline = time.monotonic() + PATIENCE
        while not fits(said := self.complaint()):
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        return said


@pytest.fixture
def world(at_home: LocalServices, tmp_path: Path) -> Iterator[World]:
    sources = [CaptureSource(name, (f"public.{name}",), name) for name in (f"h{n}_{uuid4().hex[:8]}" for n in (1, 2))]
    database, port = PostgresDatabase(), any_free()
    service = CaptureService(at_home.settings)
    made = World(service, Endpoint("capture", "127.0.0.1", port, "", SecretStr("")), *sources)
    KafkaBroker().ensure_topics([TopicSpec(source.name) for source in sources])
    for source in sources:
        made.execute(f"CREATE TABLE {source.name} (id int PRIMARY KEY)")
        assert prepare(database, source)
    declaration = tmp_path / "sources.json"
    declaration.write_text(json.dumps([source.as_dict() for source in sources]))
    command = [sys.executable, "-m", "de_resources.capture", str(declaration), str(port)]
    process = subprocess.Popen(command, env={**os.environ, "DE_HOME": str(at_home.settings.home)})
    try:
        yield made
    finally:
        process.terminate()
        process.wait(PATIENCE)
        for source in sources:
            drop(database, source)
            made.execute(f"DROP TABLE IF EXISTS {source.name}")


@pytest.mark.faults
def test_one_source_of_several_that_does_not_relay_is_told_and_the_others_go_on(world: World) -> None:
    assert world.complaint() is not None, "a process that does not answer yet is not well"
    world.until(lambda said: said is None)
    wait_until_captured(PostgresDatabase(), world.one, PATIENCE)

    # Somebody takes over the identity of the other one's producer, as a second capture does.
    config = {**KafkaBroker().client_config(), "transactional.id": f"capture-{world.one.name}", "log_level": 0}
    Producer(config).init_transactions(PATIENCE)
    world.execute(f"INSERT INTO {world.one.name} VALUES (1)")
    said = world.until(lambda said: said and f"`{world.one.name}` waiting: Another capture" in said)
    assert f"`{world.other.name}`" not in (said or "")
    world.until(lambda said: said is None)  # nobody had: it relays again, and says so
    wait_until_captured(PostgresDatabase(), world.one, PATIENCE)


def test_a_source_whose_thread_ended_says_that_it_is_dead() -> None:
    source, said = CaptureSource("users", ("public.users",), "users"), {"users": "relaying"}
    done: Future[None] = Future()
    done.set_exception(SystemExit(1))
    _ended(source, Event(), said, done)
    assert said == {"users": "dead: SystemExit"}


def test_a_capture_without_its_database_is_degraded_and_well_again_afterwards(
    at_home: LocalServices,
) -> None:
    def state() -> ServiceState:
        return next(status.state for status in at_home.status() if status.name == "capture")

    def until(wanted: ServiceState) -> None:
        deadline = time.monotonic() + PATIENCE
        while state() is not wanted:
            assert time.monotonic() < deadline, state()
            time.sleep(0.2)

    until(ServiceState.RUNNING)
    psutil.Process(pid_of(at_home, "postgres")).kill()
    until(ServiceState.DEGRADED)
    at_home.up(["postgres"])
    until(ServiceState.RUNNING)
