"""The check: what landed, day by day, against what an answer counts and what was set apart on the way to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, utc_now
from de_checks.reconciliation.account import Account
from de_checks.reconciliation.passage import Passage, told
from de_checks.reconciliation.steps import Growth, Step, require_chain
from de_checks.reconciliation.tables import Tables, by_day
from de_checks.subject import Subject, spec_of
from de_resources.compat.graph import whole_graph

LEFT_OVER_TOLD = 50


def reconciliation_check(
    asset: Subject,
    *,
    steps: Sequence[Step],
    beside: Mapping[str, dg.AssetKey] | None = None,
    days: int = 62,
    now: Clock = utc_now,
    name: str = "landed_rows_are_accounted_for",
) -> dg.AssetChecksDefinition:
    """A check that everything that landed is counted in the asset, or was set apart or removed on the way, day by day.

    Rows land in the `of` of the first of the `steps`, and in the tables of `beside` (by kind, as dead letters). What was set
    apart and is `rejoined` by a later step counts as landed on the day that it belongs to. A partition that does not come out
    even waits, where a source changed since it was computed or nobody has computed it; where its contract takes in what is
    late for no longer (`late_for`), that is too old; else its rows were lost, or counted twice, and the check fails. Looked
    at are the newest `days` of the calendar, of a stateful table those of which its old versions can tell. All tables have
    time partitions.

    Reads logs, the materialisations of what is removed by condition, and the columns of a `total`; no engine. A rerun judges
    what is there then. Metadata: `days`, a table; the totals of its columns; `left_over`, partition by partition, and
    `days_left_out`, which were not looked at. Needs the resource `lake`. Raises `NoChain` at definition, `NotByTime`.
    """
    require_chain(spec_of(asset).key, steps)
    others = {step.of for step in steps} | {key for step in steps for key in step.apart.values()}
    others |= {each.table for step in steps for each in step.carried.values()}

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        tables = Tables(run.lake, whole_graph(run.context.op_execution_context.job_def))
        account = account_of(tables, run.instance, steps, beside or {}, days, now())
        passed, sentence = account.verdict()
        left = [
            {"partition": each.partition, "of": each.of, "into": each.into, "rows": each.rows, "why": str(each.why)}
            for each in account.left_over
        ]
        return dg.AssetCheckResult(
            passed=passed,
            description=sentence,
            metadata={
                **account.totals(),
                "days": dg.MetadataValue.md(account.table()),
                "left_over": dg.MetadataValue.json(left[:LEFT_OVER_TOLD]),
                "days_left_out": account.days_left_out,
            },
        )

    return check_of_asset(
        asset,
        name,
        judge,
        description="What landed is counted, or was set apart, removed, or is waiting: day by day.",
        patterns=["dynamic_late_data_integrator"],
        resources=["lake"],
        also_reads=sorted({*others, *(beside or {}).values()}),
    )


def account_of(
    tables: Tables,
    instance: dg.DagsterInstance,
    steps: Sequence[Step],
    beside: Mapping[str, dg.AssetKey],
    days: int,
    now: datetime,
) -> Account:
    """The account of the newest days."""
    landing = steps[0].of
    first, end = tables.calendar(landing)
    # A calendar of hours may begin in the middle of a day, whose partition of days begins at midnight.
    last_day = _midnight(end - timedelta(microseconds=1))
    since = max(_midnight(first), last_day - timedelta(days=days - 1), *_known_from(tables, steps))
    # Who computed what is asked before the rows are counted: what is computed in between is found, not missed.
    before = tables.along(steps, since)
    materialized = [told(step, tables, before, since, instance) for step in steps]
    rows = tables.along(steps, since)
    passages = [Passage(step, tables, rows, since, newest) for step, newest in zip(steps, materialized, strict=True)]
    kinds: defaultdict[str, Counter[date]] = defaultdict(Counter)
    kinds |= {kind: by_day(tables.rows(key, since)) for kind, key in beside.items()}
    landed = sum(kinds.values(), by_day(rows[landing]))
    back = [each for step in steps for each in step.rejoined]
    for passage in passages:
        for kind, key in passage.step.apart.items():
            if key not in {each.table for each in back}:
                kinds[kind] += by_day(rows[key])
        for kind, removed in passage.removed().items():
            kinds[kind] += _days(passage, removed)
        for kind, net in passage.carried_on().items():
            kinds[kind].update(_days(passage, net))
    for each in back:
        landed = _moved(landed, by_day(rows[each.table]), by_day(rows[each]))
        for kind, left_out in tables.left_out(each, since).items():
            kinds[kind].update(by_day(left_out))
            landed.update(by_day(left_out))
    everything = by_day(tables.rows(landing, first)) if since > first else {}
    return Account(
        landed=landed,
        counted=by_day(rows[steps[-1].into]),
        apart=kinds,
        left_over=[each for passage in passages for each in passage.left_over(now)],
        days_left_out=sum(day < since.date() for day in everything),
        missing=[k.to_user_string() for k in rows if isinstance(k, dg.AssetKey) and tables.log(k) is None],
    )


def _known_from(tables: Tables, steps: Sequence[Step]) -> Iterator[datetime]:
    """Where the partitions end of which a stateful table can no longer tell what they brought."""
    for step in steps:
        if isinstance(step.total, Growth):
            yield from (start + tables.length(step.into) for start in tables.growth(step.into, step.total).unknown)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _moved(landed: Counter[date], out: Counter[date], back: Counter[date]) -> Counter[date]:
    """What landed, with rows counted on the day that they belong to and not on that of their landing."""
    moved = Counter(landed)
    moved.subtract(out)
    moved.update(back)
    return moved


def _days(passage: Passage, removed: Mapping[str, int]) -> Counter[date]:
    partitions = passage.tables.partitions(passage.step.into)
    return by_day({partitions.time_window_for_partition_key(key).start: rows for key, rows in removed.items()})
