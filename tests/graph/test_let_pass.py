"""`de let-pass`: what holds the days of sessions, and a person's decision about it, on an instance of its own."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from typer.testing import CliRunner

from de_assets.cli.application import application
from de_resources.run_queue.failures import RELEASED
from de_resources.run_queue.places import HAS_COME, TURN, Place

pytestmark = pytest.mark.pattern("single_runner")

ASSETS, DAY = ("gold/sessions", "gold/sessions_pending"), "2024-10-11"


def said(*arguments: str) -> str:
    told = CliRunner().invoke(application(), ["let-pass", *arguments], env={"COLUMNS": "200"})
    return told.output + told.stderr


def test_a_failed_day_is_listed_let_pass_with_a_reason_and_listed_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    assert "0 failed run(s) hold" in said("--list")
    assert "did not fail" in said(ASSETS[0], DAY, "--reason", "none")

    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        place = Place("sessions", ASSETS, DAY, DAY, 1.0)
        run = create_run_for_test(instance, tags={**place.tags(), TURN: HAS_COME})
        instance.report_run_failed(run)
        assert "1 failed run(s) hold" in said()
        assert all(word in said("--list") for word in (*ASSETS, DAY, run.run_id[:8]))
        assert "Say why" in said(ASSETS[0], DAY)
        assert "no longer waits" in said(ASSETS[0], DAY, "--reason", "its source is lost")
        assert "0 failed run(s) hold" in said("--list")
        for name in ASSETS:
            key = dg.AssetKey.from_user_string(name)
            (told,) = instance.fetch_observations(dg.AssetRecordsFilter(key, asset_partitions=[DAY]), 9).records
            assert told.asset_observation is not None
            assert told.asset_observation.metadata[RELEASED].value == "its source is lost"
