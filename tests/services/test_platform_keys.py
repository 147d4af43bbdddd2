"""Partition keys made of quotes, semicolons, dots and worse, over Spark Connect: they are data, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest
from platform_world import Lakehouse
from scratch_assets import ODD_KEYS

pytestmark = [pytest.mark.services, pytest.mark.faults]


def test_every_key_has_exactly_its_rows_and_nothing_is_written_beside_the_lake(lakehouse: Lakehouse) -> None:
    runs = [{"assets": ["scratch/odd", "scratch/read_back"], "key": key} for key in ODD_KEYS]
    # The second run of the first key must not touch the others.
    lakehouse.run(*runs, runs[0], graph="scratch_assets").succeeded()

    expected = {key: place + 1 for place, key in enumerate(ODD_KEYS)}
    for table in ("scratch/odd", "scratch/read_back"):
        assert Counter(row["key"] for row in lakehouse.rows(table)) == expected
    assert {path.name for path in lakehouse.folder.iterdir()} == {"lake", "dagster"}
    assert {path.name for path in lakehouse.root.iterdir()} == {"scratch"}
    visible = {path.name for path in (lakehouse.root / "scratch").iterdir() if not path.name.startswith(".")}
    assert visible == {"odd", "read_back"}
