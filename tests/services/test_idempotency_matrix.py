"""Every partitioned asset of the graph against every way in which runs repeat, overlap, or die: the rows of one clean run.

What is partitioned is found in the graph: a new asset is in the matrix without a word here. Every suite asks the cells of
`matrix.asked_always`; long proofs ask the others, in an order that differs from round to round.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import matrix
import matrix_inputs
import pytest
import warm_process
from matrix import Cell
from platform_world import PER_HOUR, RATES, WORLD, Lakehouse, Platform, Worker

from de_assets.calendar import Calendar
from de_assets.sources.simulator import hours_between, land_visits
from de_resources.postgres import PostgresDatabase

# The first test of a lake fills it, which is most of the module.
pytestmark = [pytest.mark.services, pytest.mark.faults, pytest.mark.timeout(1500)]

TESTS = Path(__file__).parents[1]
SECONDS = 900
# Midnight lies between them: two partitions of every kind.
CALENDAR = Calendar.parse("2024-10-09T23/2024-10-10T01")
HOURS = hours_between(CALENDAR.start, CALENDAR.start + timedelta(hours=2))
CELLS = matrix.asked_always()
STEPS = [step for step in matrix.steps() if step in {cell.step for cell in CELLS}]
A_ROUND = 4
"""Of a long proof: so many cells that no other suite asks, and as many of the others."""
Contents = dict[str, list[str]]


@dataclass
class Matrix:
    """A lake that is filled once, and then disturbed."""

    platform: Platform
    lake: Lakehouse

    @cached_property
    def clean(self) -> Contents:
        """The rows of one clean run per asset that every suite disturbs; their sources are there before."""
        matrix_inputs.write(self.lake.root, HOURS[0])
        return self._worker(("undisturbed", STEPS), there=matrix_inputs.SEEDED)[0]

    @cached_property
    def clean_of_all(self) -> Contents:
        """The rows of one clean run per asset, from what landed, in a lake where nothing was before."""
        self.begin()
        return self._worker(("undisturbed", None))[0]

    @cached_property
    def asked_always(self) -> dict[tuple[str, str], list[str]]:
        """By disturbance and asset the rows after it; all steps of a disturbance before the next one."""
        assert self.clean
        phases = [
            (name, [cell.step for cell in cells]) for name, cells in groupby(CELLS, lambda cell: cell.disturbance)
        ]
        left = self._worker(*phases)
        return {
            (name, asset): rows for (name, _), found in zip(phases, left, strict=True) for asset, rows in found.items()
        }

    def after_each(self, cells: Sequence[Cell]) -> list[Contents]:
        """The rows per asset of its step after each of these cells, in their order."""
        assert self.clean_of_all
        return self._worker(*((cell.disturbance, [cell.step]) for cell in cells))

    def begin(self) -> None:
        """Nothing is in the lake, and nothing is served."""
        for folder in (self.lake.root, self.lake.folder / "staging"):
            shutil.rmtree(folder, ignore_errors=True)
        with self.platform.at_home(), PostgresDatabase().connect() as session, session.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS serving CASCADE")  # the lakes are many, the database is one

    def _worker(self, *phases: tuple[str, Sequence[str] | None], there: Sequence[str] = ()) -> list[Contents]:
        work = {"phases": phases, "first": f"{HOURS[0]:%Y-%m-%dT%H}", "hours": len(HOURS), "there": there}
        output = self.lake.folder / f"{uuid4()}.out"
        process = warm_process.start("matrix_worker:main", work, environment=self.lake.variables(), output=output)
        done = Worker(process, output).end(SECONDS)
        assert done.status == 0, f"{phases}: {done.output[-5000:]}"
        contents: list[Contents] = [{} for _ in phases]
        for line in done.output.splitlines():
            if line.startswith('{"phase"'):
                said = json.loads(line)
                contents[said["phase"]][said["asset"]] = said["rows"]
        return contents


@pytest.fixture(scope="module")
def lake_of_all(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """A lake of every partitioned asset; nothing is in it yet."""
    fed_platform.up()
    land_visits(fed_platform.landing, WORLD, HOURS[:1], per_hour=PER_HOUR, irregularities=RATES)
    lake = Lakehouse(fed_platform.services, tmp_path_factory.mktemp("matrix"))
    lake.environment = {"DE_CALENDAR": str(CALENDAR), "DE_STAGING_ROOT": str(lake.folder / "staging")}
    found = Matrix(fed_platform, lake)
    found.begin()
    return found


@pytest.mark.parametrize("asset", [asset for step in STEPS for asset in matrix.steps()[step]])
def test_a_clean_lake_has_rows_of_every_asset(asset: str, lake_of_all: Matrix) -> None:
    assert lake_of_all.clean[asset], "an empty table would be equal to any other empty one"


@pytest.mark.parametrize(
    ("disturbance", "asset"),
    [(disturbance, asset) for disturbance, step in CELLS for asset in matrix.steps()[step]],
)
def test_the_rows_are_those_of_a_clean_run(disturbance: str, asset: str, lake_of_all: Matrix) -> None:
    assert lake_of_all.asked_always[disturbance, asset] == lake_of_all.clean[asset]


def test_what_is_left_to_other_tests_is_a_cell_that_would_be_asked() -> None:
    assert set(matrix.ASKED_BY_OTHERS) <= set(matrix.by_default()), "a cell that nobody asks needs no reason"
    named = {name for why in matrix.ASKED_BY_OTHERS.values() for name in re.findall(r"[\w/]+\.py", why)}
    assert [name for name in sorted(named) if not (TESTS / name).exists()] == []
    assert all(re.search(r"\.py", why) for why in matrix.ASKED_BY_OTHERS.values())


def test_so_they_are_after_cells_that_no_other_suite_asks(soak_seed: int, lake_of_all: Matrix) -> None:
    """One after the other, so that each meets a table that another disturbance has left."""
    cells = matrix.chosen(soak_seed, A_ROUND)
    assert all(lake_of_all.clean_of_all.values()), "an empty table would be equal to any other empty one"
    for number, (cell, left) in enumerate(zip(cells, lake_of_all.after_each(cells), strict=True)):
        for asset, rows in left.items():
            assert rows == lake_of_all.clean_of_all[asset], f"{asset} after {cell}, which came after {cells[:number]}"
