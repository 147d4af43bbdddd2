"""How the plans of a fill are run: interpreted where what is landed is small, and compiled to Java where it is not."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from de_assets.sources.landing import VISITS
from de_resources.engine.plans import interpret_plans

FEW_ROWS = 32 << 20
"""Bytes of landed visits, some 75,000 of them, up to which plans are interpreted: at 100,000 both ways take the same time."""


def choose_plans(session: SparkSession, landing: Path) -> None:
    """Set how plans are run in this session from now on, by the size of what is landed. Other sessions stay as they are."""
    interpret_plans(session, not _takes_more_than(FEW_ROWS, landing / VISITS))


def _takes_more_than(size: int, folder: Path) -> bool:
    """Whether the files below the folder have more bytes; looks at no further file then."""
    taken = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # somebody lands beside us, and puts another one in its place
                taken += Path(place, name).stat().st_size
        if taken > size:
            return True
    return False
