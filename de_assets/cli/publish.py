"""`de publish`, `de rollback`: what a person decides about partitions that were staged, audited and held, or published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from de_assets.cli.decisions import decide
from de_assets.cli.terminal import console, explained
from de_resources.settings import Settings

Asset = Annotated[str, typer.Argument(help="Key of an audited asset, such as gold/visits_cube_daily.")]
Partition = Annotated[
    str,
    typer.Argument(
        help="The partition, such as 2024-10-10, or window, such as 2024-10-10-09:00; none for an asset without either."
    ),
]
Reason = Annotated[str, typer.Option(help="Why. Kept in the table's log; no personal data.")]


def publish(
    asset: Asset = "",
    partition: Partition = "",
    reason: Reason = "",
    show: Annotated[bool, typer.Option("--list", help="Show what is held, and why; publish nothing.")] = False,
) -> None:
    """Publish a partition that an audit held for nothing, with the reason for it; or list what is held.

    No row is copied. What is downstream of the partition goes on. The same again changes nothing.
    """
    from de_assets.automation.maintenance.publication import PUBLISH

    if show or not asset:
        with explained():
            _list(asset)
        return
    _run(PUBLISH, {"table": asset, "partition": partition, "reason": reason})


def rollback(
    asset: Asset,
    partition: Partition = "",
    reason: Reason = "",
    version: Annotated[int, typer.Option(help="The version in which it was published; -1: the one before.")] = -1,
) -> None:
    """Show again what was published of a partition before. No row is copied; what was taken back stays staged."""
    from de_assets.automation.maintenance.publication import ROLL_BACK

    _run(ROLL_BACK, {"table": asset, "partition": partition, "reason": reason, "version": version})


def _list(asset: str) -> None:
    from de_assets.automation.maintenance.lake_tables import LakeTables
    from de_assets.automation.maintenance.publication import audited, audited_tables
    from de_assets.definitions import assets
    from de_resources.delta.publish.decisions import waiting
    from de_resources.delta.table import Table as DeltaTable

    known = LakeTables.of(assets)
    chosen = {asset: audited(known, asset)} if asset else audited_tables(known)
    root = Settings.from_environment().lake_root
    table, found = Table("asset", "partition or window", "staged version", "rows", "why"), 0
    for name, spec in chosen.items():
        layer, dataset = spec.key.path[-2:]
        for held in waiting(DeltaTable(f"{layer}.{dataset}", f"{root}/{layer}/{dataset}")):
            found += 1
            rows = f"{held.judged.rows:,}" if held.judged else "?"
            table.add_row(name, held.key, str(held.staged), rows, held.told())
    if found:
        console.print(table)
    console.print(f"{found:,} partition(s) or window(s) are held.", highlight=False)


def _run(job: str, config: Mapping[str, Any]) -> None:
    with explained():
        metadata = decide(job, config)
        told = metadata.get("skipped") or metadata["publication/verdict"]
        console.print(f"{told}", highlight=False)
        console.print(
            f"Version {metadata['delta/version']}, {metadata['publication/seconds']} s, "
            f"{metadata['publication/bytes_written']} bytes of data written.",
            highlight=False,
        )
