"""A page as metadata: a link that Dagster's UI opens where pages are served, else the path of the file."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from de_resources.local.pages_service import page_address
from de_resources.settings import Settings


def page_link(page: Path, settings: Settings | None = None) -> dg.MetadataValue[str]:
    """The address of a page that was written into the home. A rerun gives the same one while the port is the same."""
    address = page_address(settings or Settings.from_environment(), page)
    return dg.MetadataValue.url(address) if address else dg.MetadataValue.path(page)
