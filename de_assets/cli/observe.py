"""`de observe`: the observatory, as of now."""

from __future__ import annotations

from datetime import UTC, datetime

from de_assets.cli.terminal import console, explained
from de_resources.settings import Settings


def observe() -> None:
    """Write the observatory: health, lineage and checks of all datasets, as pages that a browser opens from the disk.

    It reads what runs have recorded, and starts nothing. The pages are replaced in one step.
    """
    from de_assets.automation.observatory import write_observatory
    from de_assets.cli.run import dagster_instance

    settings = Settings.from_environment()
    with explained(), dagster_instance(settings) as instance:
        for line in write_observatory(instance, settings.home, datetime.now(UTC)).lines:
            console.print(line, highlight=False)
