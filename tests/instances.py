"""Dagster's instances for tests: what a step prints is not captured, which takes two processes for each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

NO_CAPTURE = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


@contextmanager
def silent_instance() -> Iterator[dg.DagsterInstance]:
    """An instance on the disk, in a folder of its own, removed at the end."""
    with dg.instance_for_test(overrides={"compute_logs": NO_CAPTURE}) as instance:
        yield instance
