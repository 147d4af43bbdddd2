"""One audited day of a table is published, and taken back, beside a second write of its rows, as from a staging table.

The table has as many days as a year of a daily dataset, and is written through `AuditedPublish`; of the first day there are
two staged versions. Ours are `publish_held` and `roll_back`, in turns, so that each of them commits: from the question what is
staged, over the look into both logs, until the commit that readers see. Neither starts an engine. The peer writes the staged
rows of the day a second time, into a plain table of the same days, as a job does that copies from a staging table
(`overwrite.replace`), also where that one was a `SHALLOW CLONE`: Delta lets no clone take the place of a table that has rows
(`DELTA_UNSUPPORTED_NON_EMPTY_CLONE`). Equal: the rows of the day after a publication and in the peer's table. The note says
what lies on the disk before, and after, which is asserted to be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.cases.rules import replace_days
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_resources.contract import Contract
from de_resources.delta.publish import AuditedPublish
from de_resources.delta.publish.decisions import publish_held, roll_back
from de_resources.delta.publish.staging import staged_rows
from de_resources.delta.table import Table
from de_resources.delta.write.modes import write_table
from de_resources.delta.write.request import WriteRequest

BAR, BAR_OF_RATIO = 0.5, 0.1
PUBLISH, ROLL_BACK, WRITE = "publish", "roll back", "write the rows again"


def run(bench: Workbench) -> list[Figure]:
    """The price of showing what is staged."""
    days, rows = bench.pick(small=5, full=365), bench.pick(small=1_000, full=200_000)
    contract = Contract.of(data.PageViews)
    table, peer = (bench.table(name, contract=contract, partitioned_by=("day",)) for name in ("audited", "twice"))
    _stage(bench, table, "year", days, bench.pick(small=1_000, full=2_000))
    replace_days(bench, peer, bench.spark.read.format("delta").load(table.uri), days)
    for version in ("first", "second"):
        _stage(bench, table, version, 1, rows)
    staged = staged_rows(bench.spark, table).where(data.first_day())
    one_day = data.slice_of(data.day_keys(1))
    before = _parquet(table)

    def verify() -> None:
        data.require_same_rows(bench, "the published day", rows, table.uri, peer.uri, where=data.first_day())
        require_equal("the files below the table", before, _parquet(table))

    samples = alternate(
        {
            ROLL_BACK: lambda: roll_back(table, one_day, bench.stamp(table), reason="benchmark"),
            PUBLISH: lambda: publish_held(table, one_day, bench.stamp(table), reason="benchmark"),
            WRITE: partial(replace_days, bench, peer, staged),
        },
        verify=verify,
        rounds=bench.pick(small=2, full=21),
        warm_ups=2,
    )
    require_equal("the files below the table", before, _parquet(table))
    return list(_figures(days, rows, samples, len(before), sum(before.values())))


def _figures(days: int, rows: int, samples: Mapping[str, Samples], files: int, size: int) -> list[Figure]:
    what = f"a day of {rows:,} rows in a table of {days} days"
    note = f"{files} files of {size:,} bytes lie below the table before, and the same after: 0 bytes of data written"
    return [
        Figure("publish", f"publish {what}", Kind.SECONDS, PUBLISH, samples[PUBLISH], bar=BAR, note=note),
        Figure("publish", f"roll back {what}", Kind.SECONDS, ROLL_BACK, samples[ROLL_BACK], bar=BAR),
        Figure(
            "publish", f"show {what}", Kind.RATIO, PUBLISH, samples[PUBLISH], WRITE, samples[WRITE], BAR_OF_RATIO
        ),
    ]  # fmt: skip


def _stage(bench: Workbench, table: Table, name: str, days: int, rows: int) -> None:
    """Write days through the audits, which pass: they are staged, and published."""
    frame = data.stage(bench, name, days=days, rows_per_day=rows)
    slice_ = data.slice_of(data.day_keys(days))
    request = WriteRequest(bench.spark, frame, table, slice_, bench.stamp(table))
    AuditedPublish().write(request, write_table)


def _parquet(table: Table) -> dict[str, int]:
    """The data files below a table by name, with their bytes."""
    files = (f for f in Path(table.uri).rglob("*.parquet") if "_delta_log" not in f.parts)
    return {str(f): f.stat().st_size for f in files}
