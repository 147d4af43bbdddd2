"""Writes without an orchestrator: stamps and tables made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from de_resources.delta.table import CommitInfo, Table

MakeTable = Callable[..., Table]
MakeStamp = Callable[..., CommitInfo]


@pytest.fixture
def table(lake: Path) -> MakeTable:
    """`table("name", contract=…, partitioned_by=…)` in a lake of its own."""

    def make(name: str = "rows", **options: object) -> Table:
        return Table(name=f"silver.{name}", uri=str(lake / name), **options)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def stamp() -> MakeStamp:
    """`stamp()` is a write of a new run; `stamp(run="a")` twice is a write and its retry."""

    def make(run: str | None = None, slice_: str = "all") -> CommitInfo:
        run = run or uuid4().hex
        return CommitInfo(
            table="silver.rows", writer="silver/rows", slice=slice_, run=run, origin=run, attempt=uuid4().hex
        )

    return make
