"""`de trace … --page`: the page of a traced row, below the home."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_resources.tracing.trace import Traced

ROOM = "traces"
"""The folder of the home that holds the pages. They are for whoever has traced the row: nobody serves them."""


def write_page(found: Traced, owners: Mapping[str, Sequence[str]], settings: Settings, at: datetime) -> Path:
    """Write the page of a row that was traced at `at`, and tell where it is. Raises `NotPublished`.

    It is named after the dataset and the moment: a row's key may be personal, and file names are seen by many.
    """
    from de_resources.observatory.link import LINK
    from de_resources.observatory.paths import page_path
    from de_resources.pages.files import NotPublished, publish
    from de_resources.tracing.page import Surroundings, page_of

    named = settings.home / ROOM / page_path(found.dataset)
    file = named.with_name(f"{named.stem}-{at:%Y%m%dT%H%M%S%f}.html")

    def page(name: str) -> str | None:
        known = settings.home / LINK / page_path(name)
        return Path(os.path.relpath(known, file.parent)).as_posix() if known.is_file() else None

    around = Surroundings(lambda name: owners.get(name, ()), page, lambda values: places(values, settings.landing))
    try:
        publish(file, page_of(found, around, at))
    except OSError as error:
        raise NotPublished(file, error) from error
    return file


def places(values: Mapping[str, Any], landing: Path) -> Iterator[str]:
    """Where a row of bronze came from: the landed file and line, the topic's partition and offset."""
    from de_assets.sources.landed_lines import line_numbers

    if values.get("source_file") and values.get("raw") is not None:
        file = str(values["source_file"])
        numbers = line_numbers(landing / file, str(values["raw"]))
        yield f"{file}, line {', '.join(map(str, numbers)) or '? (the file is gone or was changed)'}"
    if values.get("topic_offset") is not None:
        yield f"partition {values.get('topic_partition')}, offset {values['topic_offset']}"
