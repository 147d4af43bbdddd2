"""One day is materialised with its contract check and without it; all rows are good.

The check judges by the counters that the write left, so that on the good path it touches neither data nor engine. What is
left is Dagster's price of one more step. Equal: the rows of both tables; the check passed.
"""

from functools import partial

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.cases.backfill import materialise_day, page_views
from benchmarks.figure import Figure, Kind
from benchmarks.measure import alternate
from benchmarks.workbench import Workbench
from de_checks.contract import contract_check


def run(bench: Workbench) -> list[Figure]:
    """The price of judging rows that are good."""
    rows = bench.pick(small=1_000, full=200_000)
    (key,) = data.day_keys(1)
    views = page_views(data.stage(bench, "contract_check", days=1, rows_per_day=rows))
    check = contract_check(views)
    with bench.dagster("contract_check") as instance:
        checked = partial(materialise_day, bench, "checked", instance, [views, check], key)
        unchecked = partial(materialise_day, bench, "unchecked", instance, [views], key)

        def verify() -> None:
            (evaluation,) = checked().get_asset_check_evaluations()
            require_equal("the check (passed)", True, evaluation.passed)
            uris = [f"{bench.folder('lakes') / lake}/bench/page_views" for lake in ("checked", "unchecked")]
            data.require_same_rows(bench, "a run with a check", rows, *uris)

        samples = alternate({"checked": checked, "unchecked": unchecked}, verify=verify, rounds=5)
    what = f"a day of {rows:,} good rows"
    ours, peer = samples["checked"], samples["unchecked"]
    return [Figure("contract_check", what, Kind.EXTRA, "with contract check", ours, "without", peer)]
