"""Did everything that came into a stream arrive somewhere? Guard of *Late Data Detector* and *Windowed Deduplicator*.

A detector that sets rows apart, and a deduplicator that removes some, may lose rows without anybody's noticing. What they
say that they did is compared with what there is.
"""

from collections.abc import Mapping, Sequence

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_of_asset
from de_checks.subject import Subject, spec_of
from de_resources.sql.identifiers import identifier

Counts = Mapping[int, int]
"""Rows by source."""


def conservation_check(
    state: Subject,
    *,
    came: dg.AssetKey,
    source: str,
    position: str,
    kept: Mapping[dg.AssetKey, Sequence[str]],
    name: str = "nothing_is_lost",
) -> dg.AssetChecksDefinition:
    """A check that the records of a stream are all accounted for, exactly, per source.

    `state` has one row per source (`entry = 'source'`) with `source`, `position`, `records` and totals. The table `came`
    has as many records up to that position, and each table of `kept` as many rows as its totals say; `source` and
    `position` are the columns of these tables. Red as well between a crash and the rerun that heals it, for tables are
    written before the state. Reads one or two columns of each table. Needs the resource `lake`. Metadata: `records`, and
    `differences` by table and source, as `expected` and `found`.
    """
    spec = spec_of(state)

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        lake, session = run.lake, run.lake.spark.spark_session
        rows = lake.table(spec.key).read(session).where("entry = 'source'").collect()
        positions = {row["source"]: row["position"] for row in rows}
        differences = _differences(
            {row["source"]: row["records"] for row in rows},
            _read(lake.table(came).read(session), source, position, positions),
        )
        told = {came.to_user_string(): differences} if differences else {}
        for key, totals in kept.items():
            expected = {row["source"]: sum(row[total] for total in totals) for row in rows}
            found = _differences(expected, _read(lake.table(key).read(session), source))
            if found:
                told[key.to_user_string()] = found
        return dg.AssetCheckResult(
            passed=not told,
            description=f"Not as the state says: {', '.join(told)}. Run the assets again." if told else "All is there.",
            metadata={"records": sum(row["records"] for row in rows), "differences": dg.MetadataValue.json(told)},
        )

    return check_of_asset(
        state,
        name,
        judge,
        description="What came is what was kept, set apart, removed as copies, and not understood.",
        patterns=["late_data_detector", "windowed_deduplicator"],
        resources=["lake"],
        also_reads=[key for key in kept if key != spec.key],
    )


def _read(table: DataFrame, source: str, position: str | None = None, last: Counts | None = None) -> Counts:
    if position is not None:
        name, place = identifier(source), identifier(position)
        bounds = [f"({name} = {int(key)} AND {place} <= {int(value)})" for key, value in (last or {}).items()]
        table = table.where(" OR ".join(bounds) or "FALSE")
    return {row[0]: row[1] for row in table.groupBy(F.col(identifier(source))).count().collect()}


def _differences(expected: Counts, found: Counts) -> dict[str, dict[str, int]]:
    return {
        str(key): {"expected": expected.get(key, 0), "found": found.get(key, 0)}
        for key in sorted({*expected, *found})
        if expected.get(key, 0) != found.get(key, 0)
    }
