"""Hours of legacy visits that are over are due until a run has taken them. No engine; the database is asked in `services`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from de_assets.automation.triggers import asked_for
from de_assets.automation.triggers.legacy_due import LEGACY_VISITS, due_hours, legacy_hours_due
from de_assets.definitions import defs
from de_assets.partitions import hourly
from de_assets.ranges import range_tags
from de_resources.postgres import PostgresDatabase

pytestmark = pytest.mark.pattern("incremental_loader")

KEYS = hourly.get_partition_keys()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def due(instance: dg.DagsterInstance) -> list[str]:
    return [hour.strftime(hourly.fmt) for hour in due_hours(instance)]


def loaded(instance: dg.DagsterInstance, *keys: str) -> None:
    for key in keys:
        instance.report_runless_asset_event(dg.AssetMaterialization(LEGACY_VISITS, partition=key))


def test_an_hour_is_due_until_it_is_loaded_however_old_it_is(instance: dg.DagsterInstance) -> None:
    assert due(instance) == KEYS
    loaded(instance, *KEYS[:5], *KEYS[7:])
    assert due(instance) == KEYS[5:7], "the daemon was away for two hours"
    loaded(instance, *KEYS[5:7])
    assert due(instance) == []


def test_what_a_run_is_about_to_load_is_not_due_and_what_it_failed_to_load_is(instance: dg.DagsterInstance) -> None:
    loaded(instance, *KEYS[6:])
    job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={LEGACY_VISITS})
    run = instance.create_run_for_job(job, tags=range_tags(KEYS[0], KEYS[3]))
    assert due(instance) == KEYS[4:6]
    instance.report_run_failed(run)
    assert due(instance) == KEYS[:6]


def test_a_run_that_a_dying_daemon_told_nothing_of_takes_its_hours_all_the_same(instance: dg.DagsterInstance) -> None:
    loaded(instance, *KEYS[6:])
    tags = {**range_tags(KEYS[0], KEYS[3]), "dagster/sensor_name": legacy_hours_due.name}
    run = instance.add_run(dg.DagsterRun("load", tags=tags, status=dg.DagsterRunStatus.STARTED))
    instance.add_run(dg.DagsterRun("load", tags={**tags, **range_tags(KEYS[4], KEYS[5])}))  # made, and never launched
    assert due(instance) == KEYS[4:6]
    instance.report_run_failed(run)
    assert due(instance) == KEYS[:6]


def test_hours_of_a_run_that_is_about_to_be_started_again_are_not_due(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker died: the daemon makes the next attempt when it has read of that."""
    loaded(instance, *KEYS[6:])
    tags = {**range_tags(KEYS[0], KEYS[3]), "dagster/sensor_name": legacy_hours_due.name}
    run = instance.add_run(dg.DagsterRun("load", tags=tags, status=dg.DagsterRunStatus.STARTED))
    instance.report_run_failed(run)
    instance.add_run_tags(run.run_id, {"dagster/will_retry": "true"})
    assert due(instance) == KEYS[4:6]
    with monkeypatch.context() as later:
        later.setattr(asked_for, "RETRIED_WITHIN", timedelta(0))
        assert due(instance) == KEYS[:6], "the attempt never came"
    again = instance.add_run(dg.DagsterRun("load", tags=tags, status=dg.DagsterRunStatus.STARTED))
    instance.add_run_tags(run.run_id, {"dagster/auto_retry_run_id": again.run_id})
    assert due(instance) == KEYS[4:6]
    instance.report_run_failed(again)
    instance.add_run_tags(again.run_id, {"dagster/will_retry": "false"})
    assert due(instance) == KEYS[:6], "there are no more attempts"


def test_what_a_run_loads_while_it_is_looked_for_is_not_due_again(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends between the look at what is loaded and the look at what runs."""
    looked = instance.get_status_by_partition

    def ends_before(*asked: Any) -> Any:
        loaded(instance, *KEYS[:6])
        return looked(*asked)

    loaded(instance, *KEYS[8:])
    monkeypatch.setattr(instance, "get_status_by_partition", ends_before)
    assert due(instance) == KEYS[6:8]


def test_a_database_that_is_away_starts_no_run(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    with dg.build_sensor_context(instance, resources={"database": PostgresDatabase()}) as context:
        answer = legacy_hours_due(context)
    assert isinstance(answer, dg.SkipReason)
    assert "postgres" in (answer.skip_message or "")
