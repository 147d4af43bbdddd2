"""A table of 20 columns is overwritten under observation, and by Spark alone.

All read the same staged Parquet files. The first goes through `OnlineObserver` as it is where nobody says more: nulls and
bounds of all columns, and three further figures. For information, the same with all that it can measure of all columns.
Otherwise they go through nothing but the same `df.write`. Equal: the rows of the tables, and figures of two columns with a
query's.
"""

from collections.abc import Mapping
from functools import partial

import pandera.pyspark as pa
import pyspark.sql.types as T
from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.table import Table, Written
from de_resources.delta.write.request import WriteRequest
from de_resources.observers.online import OnlineObserver

BAR = 1.15


class Wide(pa.DataFrameModel):
    """A row of 20 columns: numbers, measurements, texts of few and of many values, moments, a day, a flag."""

    id: T.LongType = pa.Field(nullable=False)
    n1: T.LongType = pa.Field(nullable=True)
    n2: T.LongType = pa.Field(nullable=True)
    n3: T.IntegerType = pa.Field(nullable=True)
    n4: T.IntegerType = pa.Field(nullable=True)
    d1: T.DoubleType = pa.Field(nullable=True)
    d2: T.DoubleType = pa.Field(nullable=True)
    d3: T.DoubleType = pa.Field(nullable=True)
    d4: T.DoubleType = pa.Field(nullable=True)
    s1: T.StringType = pa.Field(nullable=True)
    s2: T.StringType = pa.Field(nullable=True)
    s3: T.StringType = pa.Field(nullable=True)
    s4: T.StringType = pa.Field(nullable=True)
    s5: T.StringType = pa.Field(nullable=True)
    s6: T.StringType = pa.Field(nullable=True)
    t1: T.TimestampType = pa.Field(nullable=True)
    t2: T.TimestampType = pa.Field(nullable=True)
    t3: T.TimestampType = pa.Field(nullable=True)
    day: T.DateType = pa.Field(nullable=True)
    flag: T.BooleanType = pa.Field(nullable=True)

    class Config:
        """Nothing in it is about people."""

        name = "bench.wide"
        metadata = {"key": ["id"]}  # noqa: RUF012 - pandera reads it, nobody changes it


def run(bench: Workbench) -> list[Figure]:
    """The price of being observed."""
    rows = bench.pick(small=20_000, full=1_000_000)
    frame = _stage(bench, rows)
    contract = Contract.of(Wide)
    require_equal("the table (columns)", 20, len(contract.columns))
    tables = {name: bench.table(name, contract=contract) for name in ("observed", "closely", "plain")}
    plain, told = tables["plain"], dict[str, object]()

    def observed(name: str, **settings: object) -> None:
        table = tables[name]
        request = WriteRequest(bench.spark, frame, table, None, bench.stamp(table), metadata={"observe": settings})
        observer = OnlineObserver()
        told.clear()
        told.update(observer.record(request, observer.write(request, _write)))

    def verify() -> None:
        data.require_same_rows(bench, "an observed write", rows, *(table.uri for table in tables.values()))
        query = plain.read(bench.spark).selectExpr("count(*) - count(s1)", "min(n1)", "max(n1)").first()
        figures = [told[f"observer/{name}"] for name in ("s1/nulls", "n1/min", "n1/max")]
        require_equal("the observer (nulls, bounds)", list(query or ()), figures)

    samples = alternate(
        {
            "closely": partial(observed, "closely", closely=contract.column_names),
            "observed": partial(observed, "observed"),
            "plain": partial(_save, frame, plain),
        },
        verify=verify,
        rounds=bench.pick(small=2, full=7),
        at_most=bench.pick(small=2, full=31),
        enough=lambda taken: _figures(rows, taken)[0].is_decided,
        warm_ups=3,
    )
    return _figures(rows, samples)


def _figures(rows: int, samples: Mapping[str, Samples]) -> list[Figure]:
    what, plain = f"overwrite of {rows:,} rows with 20 columns", samples["plain"]
    return [
        Figure("online_observer", what, Kind.RATIO, ours, samples[name], "plain `df.write`", plain, bar)
        for name, ours, bar in (("observed", "observed", BAR), ("closely", "all columns closely", None))
    ]


def _stage(bench: Workbench, rows: int) -> DataFrame:
    path = str(bench.folder("staged") / "wide")
    numbers = [f"xxhash64(id, {n}) % 10000 AS n{n}" for n in (1, 2)]
    small = [f"CAST(xxhash64(id, {n}) % 100 AS INT) AS n{n}" for n in (3, 4)]
    measured = [f"CAST(xxhash64(id, {n + 10}) AS DOUBLE) / 1e15 AS d{n}" for n in range(1, 5)]
    texts = [f"IF(id % 7 = 0, NULL, hex(xxhash64(id % {10**n}))) AS s{n}" for n in range(1, 7)]
    moments = [f"timestamp_seconds(1700000000 + id % {1000 * n}) AS t{n}" for n in range(1, 4)]
    rest = ["date_add(DATE '2024-01-01', CAST(id % 365 AS INT)) AS day", "id % 3 = 0 AS flag"]
    made = bench.spark.range(rows).selectExpr("id", *numbers, *small, *measured, *texts, *moments, *rest)
    made.write.mode("error").parquet(path)
    return bench.spark.read.parquet(path)


def _save(frame: DataFrame, table: Table) -> None:
    frame.write.format("delta").mode("overwrite").save(table.uri)


def _write(request: WriteRequest) -> Written:
    """Both write in the same way: what is measured is the observer alone."""
    _save(request.frame, request.table)
    log = TableLog.open(request.table.uri)
    assert log is not None
    (commit,) = log.commits(1)
    return Written(commit.version, commit, None, None, 0.0)
