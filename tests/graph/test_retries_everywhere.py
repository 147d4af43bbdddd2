"""Nothing of the graph leaves open what happens after a transient error."""

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.definitions.dependency import NodeHandle

from de_assets.dashboards.definitions import defs as dashboards
from de_assets.definitions import defs
from de_resources.retries import TransientRetries

pytestmark = pytest.mark.faults

LOCATIONS = {"lakehouse": defs, "dashboards": dashboards}


def _steps(location: dg.Definitions) -> Iterator[tuple[str, dg.RetryPolicy | None]]:
    """Every step that any job may have, with its policy: assets, checks, and the ops of jobs."""
    for job in location.get_repository_def().get_all_jobs():
        yield from ((f"{job.name}: {handle}", job.get_retry_policy_for_handle(handle)) for handle in _ops(job.graph))


def _ops(graph: dg.GraphDefinition, inside: NodeHandle | None = None) -> Iterator[NodeHandle]:
    """What runs: an asset that is a graph runs the ops of it."""
    for node in graph.nodes:
        handle = NodeHandle(node.name, inside)
        if isinstance(node.definition, dg.GraphDefinition):
            yield from _ops(node.definition, handle)
        else:
            yield handle


@pytest.mark.parametrize("location", LOCATIONS)
def test_whatever_calls_out_says_what_happens_after_a_transient_error(location: str) -> None:
    policies = dict(_steps(LOCATIONS[location]))
    assert policies
    assert [step for step, policy in policies.items() if not isinstance(policy, TransientRetries)] == []
