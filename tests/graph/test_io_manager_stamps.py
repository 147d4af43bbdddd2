"""A write that did happen is not repeated when its acknowledgement got lost, and a new run always writes."""

from collections.abc import Callable
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from io_manager_support import CHANGES, Shop, asset

from de_resources.delta.write.crash_points import at


def once() -> Callable[[str], None]:
    """Fail the first time, as a connection that breaks before the answer arrives."""
    calls: list[str] = []

    def fail(table: str) -> None:
        calls.append(table)
        if len(calls) == 1:
            raise ConnectionError("the answer got lost")

    return fail


def appending(shop: Shop, **options: int) -> dg.AssetsDefinition:
    return asset("events", lambda _: shop.frame([(1,)], "id long"), mode="append", **options)


@pytest.mark.faults
@pytest.mark.pattern("data_overwrite")
def test_a_lost_acknowledgement_does_not_append_twice(shop: Shop) -> None:
    with at("after_commit", once()):
        result = shop.run(appending(shop, retries=1))
    assert shop.rows("events") == [(1,)]
    found = shop.metadata(result, "events")
    assert "already committed the slice as version 0" in found["skipped"]
    assert found["delta/version"] == shop.version("events") == 0
    assert found["dagster/row_count"] == 1


@pytest.mark.faults
@pytest.mark.pattern("data_overwrite")
def test_a_write_that_failed_before_its_commit_is_tried_again(shop: Shop) -> None:
    with at("before_commit", once()):
        result = shop.run(appending(shop, retries=1))
    assert shop.rows("events") == [(1,)]
    assert "skipped" not in shop.metadata(result, "events")


@pytest.mark.faults
@pytest.mark.pattern("merger")
def test_a_lost_acknowledgement_of_a_merge_finds_nothing_to_change(shop: Shop) -> None:
    changes = asset(
        "changes",
        lambda _: shop.frame([(1, 1, None, False)], "id long, seq long, email string, gone boolean"),
        contract=CHANGES,
        mode="merge",
        merge_order="seq",
        retries=1,
    )
    with at("after_commit", once()):
        result = shop.run(changes)
    assert shop.rows("changes") == [(1, 1, None, False)]
    assert shop.version("changes") == 0
    assert shop.metadata(result, "changes")["skipped"] == "nothing changed"


@pytest.mark.pattern("data_overwrite")
def test_a_new_run_writes_again(shop: Shop) -> None:
    definition = appending(shop)
    shop.run(definition)
    result = shop.run(definition)
    assert shop.rows("events") == [(1,), (1,)]
    assert "skipped" not in shop.metadata(result, "events")


@pytest.mark.faults
@pytest.mark.pattern("data_overwrite")
def test_an_automatic_retry_of_the_run_is_recognised_and_a_persons_reexecution_is_not(shop: Shop) -> None:
    definition = appending(shop)
    job = dg.Definitions(
        assets=[definition], resources={"io_manager": shop.manager}, executor=dg.in_process_executor
    ).resolve_implicit_global_asset_job_def()
    with at("after_commit", once()), pytest.raises(Exception, match="got lost"):
        shop.run(definition)
    root = shop.instance.get_runs()[0].run_id

    def again(tags: dict[str, str]) -> None:
        run = shop.instance.create_run_for_job(
            job, run_id=str(uuid4()), root_run_id=root, parent_run_id=root, tags=tags
        )
        assert execute_run(InMemoryJob(job), run, shop.instance, raise_on_error=True).success

    again({"dagster/retry_number": "1"})
    assert shop.rows("events") == [(1,)]
    again({})
    assert shop.rows("events") == [(1,), (1,)]
