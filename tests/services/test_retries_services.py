"""A service that is away for a moment does not fail a run."""

from __future__ import annotations

import dagster as dg
import psutil
import pytest
from platform_world import Platform, pid_of
from waiting import PATIENCE, waits

from de_resources.kafka import KafkaBroker
from de_resources.postgres import PostgresDatabase
from de_resources.retries import RETRY_TRANSIENT

pytestmark = [pytest.mark.services, pytest.mark.faults]


@dg.asset(retry_policy=RETRY_TRANSIENT)
def topics(broker: KafkaBroker) -> list[str]:
    """What the broker has."""
    return sorted(broker.topics())


@dg.asset(retry_policy=RETRY_TRANSIENT)
def answer(database: PostgresDatabase) -> int:
    """What the database says."""
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT 42")
        (found,) = cursor.fetchone() or (None,)
    return int(str(found))


@pytest.mark.parametrize(("service", "asset"), [("kafka", topics), ("postgres", answer)], ids=["kafka", "postgres"])
def test_a_service_that_comes_back_while_the_step_waits_fails_no_run(
    platform: Platform, service: str, asset: dg.AssetsDefinition
) -> None:
    process = psutil.Process(pid_of(platform.services, service))
    process.kill()
    process.wait(PATIENCE)
    with platform.at_home(), waits(platform.up) as slept:
        resources = {"broker": KafkaBroker(), "database": PostgresDatabase()}
        result = dg.materialize([asset], resources=resources, raise_on_error=False)
    assert result.success
    assert len(slept) == 1
    (again,) = [event for event in result.all_events if event.event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert "ServiceUnavailable" in str(again.step_retry_data.error)
    found = result.output_for_node(asset.node_def.name)
    assert "visits" in found if service == "kafka" else found == 42
