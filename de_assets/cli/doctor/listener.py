"""Where OpenLineage events go, and whether they can: seen from the configuration, without telling anybody anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from de_assets.cli.doctor.finding import Finding, ok, warn
from de_resources.settings import Settings

_NAME = "openlineage"


def check_listener(settings: Settings, environment: Mapping[str, str]) -> Finding:
    """A listener that cannot be is a warning: no run waits for it, and the events wait for it."""
    # Here and not above: the client and what it talks with are for the few processes that tell.
    from de_assets.automation.openlineage import FOLDER
    from de_resources.openlineage.transport import CONFIG, URL, UnusableListener, client_of

    folder = settings.home / FOLDER
    if not _can_write(folder):
        return warn(_NAME, f"{folder} cannot be written", "Make it a folder that you may write, or set DE_HOME.")
    variable = next((name for name in (CONFIG, URL) if environment.get(name)), None)
    if variable is None:
        return ok(_NAME, f"events go to files in {folder}")
    try:
        client_of(folder, datetime.now(UTC).date(), environment)
    except UnusableListener as error:
        return warn(_NAME, f"{error.what} {error.why}; events wait", error.remedy)
    return ok(_NAME, f"events go where `{variable}` says; nothing was sent")


def _can_write(folder: Path) -> bool:
    """Whether it can be written, or made."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
