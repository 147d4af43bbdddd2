"""Are the figures of a period the sums of its parts? Guard of *Distributed Aggregator*: what can be added must add up."""

from collections.abc import Iterable, Sequence

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject, spec_of
from de_checks.window import inside
from de_resources.sql.identifiers import identifier

Columns = Sequence[str]


def rollup_check(
    asset: Subject, *, of: dg.AssetKey, by: Columns, at: str, sums: Columns, name: str = "adds_up"
) -> dg.AssetChecksDefinition:
    """A check, per time partition, that each row has the sums of the rows of `of` that it is made of.

    Rows belong together by the columns `by`, null being a value, and by time: `at`, a day or an instant of `of`, lies in the
    window of the partition. `sums` are the columns that are compared, each row of one side that the other one lacks included.
    Both tables are read as they are now, the finer one as its readers see it: what changed since is a difference, until the
    partition is computed again. Metadata: `rows`, `different`. Needs the resource `lake`. Raises `NoWindow`.
    """
    subject = spec_of(asset)

    def judge(run: CheckRun, key: Key, _current: Materialized) -> Verdict:
        session = run.lake.spark.spark_session
        whole = inside(subject, key, run.table().read(session), str(subject.metadata["partition_expr"]))
        parts = inside(subject, key, run.lake.table(of).read(session), at)
        rows, different = differences(whole, parts, by, sums)
        figures = {"rows": rows, "different": different}
        if not different:
            return Verdict(True, f"The {rows:,} rows add up.", figures)
        return Verdict(
            False,
            f"{different:,} of {rows:,} rows are not the sums of `{of.to_user_string()}`. Materialise the partition again.",
            figures,
        )

    return check_per_key(
        asset,
        name,
        key_by_key(judge),
        description=f"{', '.join(sums)} are the sums of those of `{of.to_user_string()}`.",
        patterns=["distributed_aggregator"],
        resources=["lake"],
    )


def differences(whole: DataFrame, parts: DataFrame, by: Columns, sums: Columns) -> tuple[int, int]:
    """How many combinations of `by` there are on either side, and how many of them differ. One query."""
    names = [f"sum_{n}" for n in range(len(sums))]
    keys = {f"by_{n}": F.col(identifier(c)) for n, c in enumerate(by)}
    added = parts.groupBy(*(column.alias(name) for name, column in keys.items())).agg(
        *(F.sum(identifier(c)).alias(name) for name, c in zip(names, sums, strict=True))
    )
    told = whole.select(
        *(column.alias(name) for name, column in keys.items()),
        *(F.col(identifier(c)).alias(name) for name, c in zip(names, sums, strict=True)),
    )
    # What one side has and the other one has not, once, is left over when one is subtracted from the other.
    left_over = _signed(told, 1, keys, names).unionAll(_signed(added, -1, keys, names)).groupBy(*keys)
    figures = left_over.agg(*(F.sum(name).alias(name) for name in (*names, "rows")))
    wrong = F.expr(" OR ".join(f"{name} <> 0" for name in (*names, "rows")))
    found = figures.agg(F.count(F.lit(1)), F.count_if(wrong)).collect()[0]
    return found[0], found[1]


def _signed(frame: DataFrame, sign: int, keys: Iterable[str], names: Columns) -> DataFrame:
    counted = [(F.coalesce(F.col(name), F.lit(0)) * sign).alias(name) for name in names]
    return frame.select(*keys, *counted, F.lit(sign).alias("rows"))
