"""Every refusal is the platform's own error, in a classic session. `tests/services` runs the same list over Connect."""

from pathlib import Path

import dagster as dg
import pytest
from io_manager_support import Shop
from refusals import REFUSALS, Refusal, appending, meanwhile, met
from waiting import waits

from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.faults, pytest.mark.pattern("data_overwrite")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_refusal_has_its_own_name_and_leaves_the_table_alone(
    refusal: Refusal, engine: SparkEngine, lake: Path
) -> None:
    assert met(Shop(engine, lake), refusal) == ([refusal.expected], refusal.rows)


def test_who_loses_against_another_engine_tries_again_and_commits_once(engine: SparkEngine, lake: Path) -> None:
    """The other engine is delta-rs, whose commit lands while this one computes its rows."""
    shop = Shop(engine, lake)
    with waits() as slept:
        result = meanwhile(appending(), retries=RETRY_TRANSIENT)(shop)
    assert len(slept) == 1
    assert shop.rows("rows") == [(0, "a")], "the rows of the one who came last, as after a rerun"
    assert [commit.operation for commit in shop.log("rows").commits(9)] == ["WRITE", "WRITE", "WRITE", "CREATE TABLE"]
    (again,) = [event for event in result.all_events if event.event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert again.step_retry_data.error is not None
    assert again.step_retry_data.error.cause is not None
    assert again.step_retry_data.error.cause.cls_name == "ConcurrentWrite"
