"""Which tests run in one process under `--dist loadgroup`, and which groups come first.

A module's tests share what it sets up, so that they stay together unless they name a group of their own. The longest groups
come first, so that no process is alone with one of them at the end, and beside those that compute, those that mostly wait: at
the end, with nothing but such groups left, half of the machine would be idle. Those that stop services for a while come last,
for the engine that follows a stopped one is cold.
"""

from __future__ import annotations

import pytest

SHARED = {("ui", "lakehouse"): "ui"}
"""By folder and name, fixtures that serve several modules and are too dear to be set up by each process."""
FIRST = (
    # of the half without services
    "test_io_manager_slices",
    "test_stateful_merge",
    "test_docs",
    "test_blog_graph",
    "test_range_gates",
    "test_landed_visits",
    "test_stateful_merger",
    "test_dead_letter_replay",
    "test_io_manager_modes",
    "test_stream_judge",
    "test_writer_faults",
    "test_merge_keys",
    "test_users_changes",
    "test_proxy",
    "test_merge",
    "test_live_visits",
    "test_run_launcher",
    "test_maintenance",
    "test_maintenance_faults",
    # of the half with services
    "ui",
    "test_idempotency_matrix",
    # they wait for a daemon, or for deadlines of brokers and captures
    "test_day_that_waits",
    "test_runs_in_order",
    "test_capture",
    "test_capture_identity",
    "test_topic_writer",
    "test_platform_truth",
    "test_live_visits_truth",
    "test_real_log",
    "test_platform_killed",
    "test_incremental_loader",
    "test_staging_topic",
    "test_topic_sink",
    "test_sessions_live",
    "test_late_data",
    "test_cluster",
)
LAST = (
    "test_users_killed",
    "test_platform_absent",
    "test_platform_engine",
    "test_platform_engine_lost",
)


def _group(item: pytest.Item) -> str:
    own = item.get_closest_marker("xdist_group")
    if own:
        return str(own.args[0])
    asked = {(item.path.parent.name, fixture) for fixture in getattr(item, "fixturenames", ())}
    return next((group for place, group in SHARED.items() if place in asked), item.path.stem)


def _place(group: str) -> int:
    if group in FIRST:
        return FIRST.index(group)
    return len(FIRST) + (1 + LAST.index(group) if group in LAST else 0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of each test, and sort groups; within one the order stays."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: _place(_group(item)))
