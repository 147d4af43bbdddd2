"""The audit of a slice's distribution on an asset: measured by the write, held where it is another one."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from de_checks.quantile_audit import UsualQuantiles
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("audit_write_audit_publish")

AUDIT = UsualQuantiles(column="a-b", probabilities=(0.25, 0.5), where="kept")


def measured(engine: SparkEngine, tmp_path: Path, rows: list[tuple[float | None, bool]]) -> Mapping[str, float | None]:
    """The measures of the audit, observed by a write as the publisher takes them."""
    frame = engine.spark_session.createDataFrame(rows, "`a-b` double, kept boolean")
    observation = Observation()
    aggregates = [F.expr(sql).alias(name) for name, sql in AUDIT.measures().items()]
    frame.observe(observation, F.count(F.lit(1)).alias("rows"), *aggregates).write.format("delta").save(
        str(tmp_path / "t")
    )
    found: Mapping[str, float | None] = observation.get
    return found


def test_the_quantiles_are_those_of_the_rows_that_count(engine: SparkEngine, tmp_path: Path) -> None:
    values = [float(n * 37 % 101) for n in range(101)]
    rows: list[tuple[float | None, bool]] = [(value, True) for value in values]
    rows += [(1e9, False), (None, True), (float("nan"), True), (float("inf"), True)]
    found = measured(engine, tmp_path, rows)
    assert found["quantiles of a-b at 0.5"] == pytest.approx(median(values), abs=2)
    assert found["quantiles of a-b at 0.25"] == pytest.approx(sorted(values)[25], abs=2)


@pytest.mark.parametrize("rows", [[], [(None, True)], [(1.0, False)], [(float("nan"), True)]], ids=repr)
def test_a_slice_without_values_has_none_and_is_written(
    engine: SparkEngine, tmp_path: Path, rows: list[tuple[float | None, bool]]
) -> None:
    # One more row that does not count: an engine that knows of no rows at all leaves the observation out.
    found = measured(engine, tmp_path, [*rows, (5.0, False)])
    assert {name: value for name, value in found.items() if name != "rows"} == dict.fromkeys(AUDIT.measures())


def test_the_audit_of_the_cube_is_one_that_only_says_so() -> None:
    from de_assets.gold.visits_cube_daily import AUDITS

    (audit,) = [audit for audit in AUDITS if isinstance(audit, UsualQuantiles)]
    assert audit.reaction == "annotate", "traffic may be another one and right"
    assert dataclasses.replace(audit, column="users").name == "quantiles of users"
