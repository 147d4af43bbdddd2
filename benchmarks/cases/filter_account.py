"""Rows go through a filter of four conditions and what is left is written, with the account of each condition and without.

Both read the same staged Parquet files and write the kept rows as Parquet. The first filters by `intercept`, which tells how
many rows each condition removed alone and as the first in order; the second is the same conditions in plain `where`. Equal: the
rows kept, and the account of the first with a count by hand.
"""

from collections.abc import Mapping
from functools import partial

from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, alternate
from benchmarks.workbench import Workbench
from de_assets.transforms.error_management.filter_interceptor import intercept

BAR = 1.3
CONDITIONS = {
    "not_an_error": "status <> 404",
    "known_country": "country IN ('de', 'fr', 'it', 'es')",
    "from_somewhere": "referral IS NOT NULL",
    "read": "duration_ms > 100",
}


def run(bench: Workbench) -> list[Figure]:
    """The price of knowing what a filter removed."""
    rows = bench.pick(small=50_000, full=10_000_000)
    frame = data.stage(bench, "filter", days=1, rows_per_day=rows)
    ours, theirs = str(bench.folder("filter_told")), str(bench.folder("filter_plain"))
    account: dict[str, object] = {}

    def told() -> None:
        filtered = intercept(frame, CONDITIONS)
        filtered.frame.write.mode("overwrite").parquet(ours)
        account.update(filtered.metadata()[None])

    def verify() -> None:
        kept = [bench.spark.read.parquet(uri).count() for uri in (ours, theirs)]
        require_equal("the filter (rows kept)", *kept, account["filter/rows_kept"])
        require_equal("the filter (rows in)", rows, account["filter/rows_in"])

    # Each call takes a few seconds, in which a shared machine's speed swings by a third.
    samples = alternate(
        {"with account": told, "plain": partial(_plain, frame, theirs)},
        verify=verify,
        rounds=bench.pick(small=2, full=9),
        at_most=bench.pick(small=2, full=41),
        enough=lambda taken: _figure(rows, taken).is_decided,
        warm_ups=3,
    )
    return [_figure(rows, samples)]


def _figure(rows: int, samples: Mapping[str, Samples]) -> Figure:
    what = f"{len(CONDITIONS)} conditions on {rows:,} rows"
    ours, plain = samples["with account"], samples["plain"]
    return Figure("filter_account", what, Kind.RATIO, "with account", ours, "plain `where`", plain, BAR)


def _plain(frame: DataFrame, folder: str) -> None:
    for condition in CONDITIONS.values():
        frame = frame.where(condition)
    frame.write.mode("overwrite").parquet(folder)
