"""What a person decides: later partitions go past one that failed."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from de_resources.errors import PermanentError
from de_resources.run_queue.failures import RELEASED, Failure, Failures


class NothingFailed(PermanentError):
    """A partition that holds no other one."""

    def __init__(self, asset: str, partition: str, known: Sequence[Failure]) -> None:
        self.asset, self.partition, self.known = asset, partition, tuple(known)
        held = ", ".join(f"{each.place.assets[0]} {each.place.told()}" for each in known) or "none"
        super().__init__(
            f"`{asset[:80]}` {partition[:40]!r} did not fail, or was computed since: nothing waits for it. "
            f"Partitions that hold others: {held}."
        )


class NoReason(PermanentError):
    """A decision that nobody could understand later."""

    def __init__(self) -> None:
        super().__init__("Say why the others may pass: the reason is kept at the partition, in its history.")


def let_pass(instance: dg.DagsterInstance, pipelines: Sequence[str], asset: str, partition: str, reason: str) -> str:
    """Record a person's decision at a partition that failed, and say what follows from it.

    What failed stays failed, and may be run again at any time; when it fails again it holds again. Each asset of the
    failed run gets an observation with the reason. `partition` is the first one of the run that is missing.

    Raises `NoReason`, and `NothingFailed`, which names what did.
    """
    if not reason.strip():
        raise NoReason
    failures = Failures(instance)
    failed = [each for name in pipelines for each in failures.of(name)]
    chosen = [each for each in failed if asset in each.place.assets and each.place.first == partition]
    if not chosen:
        raise NothingFailed(asset, partition, failed)
    for name in sorted({name for failure in chosen for name in failure.place.assets}):
        key = dg.AssetKey.from_user_string(name)
        told = f"Later partitions may pass: {reason}"
        decision = dg.AssetObservation(key, partition=partition, metadata={RELEASED: reason}, description=told)
        instance.report_runless_asset_event(decision)
    return f"What comes after {partition} no longer waits for it: {reason}"
