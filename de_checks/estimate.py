"""Is an estimate as good as it says? Guard of *Distributed Aggregator*: now and then the exact number is counted beside it."""

from typing import NamedTuple

import dagster as dg
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject, spec_of
from de_checks.window import inside
from de_resources.sql.identifiers import identifier

_STANDARD_ERRORS = 3.0
"""Within so many lie 997 of 1,000 estimates."""


class Exact(NamedTuple):
    """What is counted to know it exactly: the distinct values of a column of a table, by a day or instant `at`."""

    table: dg.AssetKey
    column: str
    at: str


def estimate_check(
    asset: Subject, *, estimate: str, where: str, exact: Exact, standard_error: float, name: str = "estimate_holds"
) -> dg.AssetChecksDefinition:
    """A check, per time partition, that an estimate of distinct values is within three standard errors of the exact number.

    `where` names the one row of a partition that is compared, by SQL; a partition without it is one in which nothing happened.
    `standard_error` is relative. An estimate of null, and one that is off, are warnings: three partitions of a thousand are off
    by chance, and the exact number is in the metadata. It counts one column of the partition's window per verdict, after each
    materialisation. Metadata: `estimate`, `exact`, `relative_error`, `allowed`. Needs the resource `lake`. Raises `NoWindow`.
    """
    subject = spec_of(asset)

    def judge(run: CheckRun, key: Key, _current: Materialized) -> Verdict:
        session = run.lake.spark.spark_session
        own = inside(subject, key, run.table().read(session), str(subject.metadata["partition_expr"]))
        told = [row[0] for row in own.where(where).select(identifier(estimate)).collect()]
        rows = inside(subject, key, run.lake.table(exact.table).read(session), exact.at)
        return verdict(
            told[0] if told else 0,
            rows.agg(F.count_distinct(identifier(exact.column))).collect()[0][0],
            _STANDARD_ERRORS * standard_error,
        )

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description=f"`{estimate}` is within {_STANDARD_ERRORS:g} standard errors of the exact number.",
        patterns=["distributed_aggregator"],
        resources=["lake"],
    )


def verdict(estimate: int | None, exact: int, allowed: float) -> Verdict:
    """What an estimate is worth, beside the exact number; `allowed` is relative."""
    if estimate is None:
        told = f"There is no estimate; exactly {exact:,} were counted."
        return Verdict(False, told, {"exact": exact, "allowed": allowed}, dg.AssetCheckSeverity.WARN)
    off = abs(estimate - exact)
    relative = off / exact if exact else float(off > 0)
    figures = {"estimate": estimate, "exact": exact, "relative_error": relative, "allowed": allowed}
    told = f"Estimated {estimate:,}, exactly {exact:,}: {relative:.2%} off, where {allowed:.2%} is allowed."
    return Verdict(off <= allowed * exact, told, figures, dg.AssetCheckSeverity.WARN)
