"""The way from Dagster's page of an asset to its page in the observatory: a link in the metadata of its definition."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import dagster as dg

from de_resources.observatory.paths import page_path
from de_resources.page_link import page_link

LINK = "observatory"
"""The room of the site below `$DE_HOME`, and the name of the metadata."""


def linked(definitions: dg.Definitions, home: Path) -> dg.Definitions:
    """The same definitions, each asset with the address of its page, or its path where no pages are served.

    The page is there once the site was written.
    """
    return definitions.map_asset_specs(func=partial(_with_link, home / LINK))


def _with_link(place: Path, spec: dg.AssetSpec) -> dg.AssetSpec:
    page = place / page_path(spec.key.to_user_string())
    return spec.merge_attributes(metadata={LINK: page_link(page)})
