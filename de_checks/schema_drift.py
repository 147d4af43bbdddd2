"""Did the source rename or drop a field that it may leave out? Pattern *Online Observer*: the write's own statistics tell.

An optional field that its producer renames becomes null in every row, and each row keeps its contract. How many rows have
a column is in the files' statistics, so that no row is read, except for a few of a partition that fails.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import dagster as dg

from de_checks.baselines import NoSeason, earlier_keys, time_dimension
from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict, judged_before
from de_checks.shares import SHARES, Shares, rounded
from de_checks.subject import Subject, spec_of
from de_resources.contract import Contract
from de_resources.delta.log import TableLog
from de_resources.delta.slices import make_slice
from de_resources.delta.table import TableMissing

ACCEPT_TAG = "de/drift_accepted"
"""Run tag with the reason for which a person accepts that a field does not come any more."""

ROWS, USUAL, VANISHED, MEASURE = "rows", "usual_shares", "vanished", "measure"
_SAMPLE = 200
_NAMED = 5
_DEEPEST = 3
# What else stands for a name may be a value, and values may be personal.
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Filled:
    """What the log tells of one partition: its rows, the rows that have a value by column, and its files."""

    rows: int
    by_column: Mapping[str, int] | None
    """None: the files carry no statistics of some column."""
    paths: tuple[str, ...] = ()


def schema_drift_check(
    asset: Subject,
    *,
    record: str,
    at_least: int = 30,
    chance: float = 1e-6,
    history: int = 24,
    blocking: bool = False,
    name: str = "schema_has_not_drifted",
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that no optional column that used to have values is null in all rows.

    Optional are the nullable columns of the asset's contract. The chance that none of `n` rows has a column that each row
    has with probability `p` is `(1 - p)^n` (binomial distribution: NIST/SEMATECH e-Handbook of Statistical Methods,
    1.3.6.6.18). Below `chance` it was no chance. Rows of one visitor resemble each other, which the formula does not know;
    therefore `p` is the lowest share that the column had in up to `history` earlier partitions that were judged good.
    Fewer than `at_least` rows are neither judged nor a measure, and the first partition has no measure; both pass.

    A red partition is no measure, and hands on what it was compared with: the drift stays red until the source is mended,
    the parser knows the new name, or a person executes the check with the run tag `de/drift_accepted` and the reason as its
    value. From then on what came is the measure.

    `record` is the column with the record's JSON text. Of a partition that fails, and of the measure next to it, at most
    200 records are read, without the engine: the verdict names the fields that are gone and the new ones, and no value.
    The good path costs a look into the log. The table is judged as its log has it now; a rerun compares with the same
    partitions. Needs the resource `lake`. Metadata of a verdict: `rows`, `shares`, and where compared `usual_shares`, and
    for a red one `vanished` and `measure`, the partition with whose records its own were compared. Raises `NoSeason` for an
    asset without time partitions, at definition.
    """
    definition = spec_of(asset)
    if time_dimension(definition.partitions_def) is None:
        raise NoSeason(definition.key)
    optional = [c.name for c in Contract.load(definition.metadata["contract"]).columns if c.nullable]

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        table = run.table()
        log = table.log()
        if log is None:
            raise TableMissing(table.name)
        for key, current in _filled(log, definition, list(materialized), optional).items():
            measures = list(islice(_measures(run.instance, run.check, key, run.verdicts), history))
            verdict = compare(current, [shares for _, shares in measures], at_least, chance)
            if VANISHED in verdict.metadata:
                nearest = measures[0][0]
                before = _filled(log, definition, [nearest], optional)[nearest]
                now, then = (field_names(log.texts(each.paths, record, _SAMPLE)) for each in (current, before))
                verdict = renamed(verdict, now, then, nearest)
            run.verdicts[key] = verdict.accepted_for(run.tags.get(ACCEPT_TAG))
        return run.verdicts

    return check_per_key(
        asset,
        name,
        judge,
        description="No optional column that used to have values is null in all rows.",
        patterns=["online_observer"],
        blocking=blocking,
        resources=["lake"],
    )


def _measures(
    instance: dg.DagsterInstance, spec: dg.AssetCheckSpec, key: Key, fresh: Mapping[Key, Verdict]
) -> Iterator[tuple[str, Shares]]:
    """What may be expected, by the nearest partitions before: a good one, and the shares that it stands for. Lazy."""
    if key is None or spec.partitions_def is None:
        return
    for earlier in earlier_keys(spec.partitions_def, key, "last"):
        judged = fresh.get(earlier) or next(iter(judged_before(instance, spec.key, earlier, limit=1)), None)
        figures = judged.metadata if judged else {}
        if judged and judged.passed and figures.get(SHARES):
            yield earlier, figures[SHARES]
        elif figures.get(MEASURE):
            yield figures[MEASURE], figures[USUAL]


def _filled(log: TableLog, asset: dg.AssetSpec, keys: Sequence[Key], columns: Sequence[str]) -> dict[Key, Filled]:
    """What the statistics of the files of each key say; no rows where there is no file."""
    assert asset.partitions_def is not None  # noqa: S101 - refused at definition
    slice_ = make_slice([k for k in keys if k is not None], asset.partitions_def, asset.metadata["partition_expr"])
    partitioned_by = log.partition_columns()
    found = {key: Filled(0, dict.fromkeys(columns, 0)) for key in keys}
    for file in log.files().to_pylist():
        key = slice_.key_of({c: file[f"partition.{c}"] for c in partitioned_by})
        if key in found:
            found[key] = _with_file(found[key], file, columns)
    return found


def _with_file(so_far: Filled, file: Mapping[str, Any], columns: Sequence[str]) -> Filled:
    rows, paths = file["num_records"] or 0, (*so_far.paths, file["path"])
    nulls = {c: n for c in columns if (n := file.get(f"null_count.{c}")) is not None}
    counted = so_far.by_column
    known = counted is not None and len(nulls) == len(columns)
    return Filled(
        so_far.rows + rows, {c: counted[c] + rows - nulls[c] for c in columns} if counted and known else None, paths
    )


def compare(filled: Filled, earlier: Sequence[Shares], at_least: int, chance: float) -> Verdict:
    """The verdict on one partition, each column against the lowest of its earlier shares."""
    if filled.by_column is None:
        return Verdict(
            False,
            "The table's files do not tell which columns have values. Materialise the partition again.",
            severity=dg.AssetCheckSeverity.WARN,
        )
    if filled.rows < at_least:
        return Verdict(True, f"{filled.rows:,} rows are too few to judge by.", {ROWS: filled.rows})
    shares = {c: count / filled.rows for c, count in filled.by_column.items()}
    figures: dict[str, Any] = {ROWS: filled.rows, SHARES: rounded(shares)}
    usual = {c: min(known) for c in shares if (known := [e[c] for e in earlier if c in e])}
    if not usual:
        return Verdict(True, "There is no good earlier partition to compare with.", figures)
    figures[USUAL] = rounded(usual)
    vanished = [c for c, p in usual.items() if shares[c] == 0 and (1 - p) ** filled.rows < chance]
    if not vanished:
        return Verdict(True, f"Every column that used to have values has some among {filled.rows:,} rows.", figures)
    named = "; ".join(
        f"`{c}` is null in all {filled.rows:,} rows, where at least {usual[c]:.1%} had it before" for c in vanished
    )
    return Verdict(False, f"{named}.", {**figures, VANISHED: vanished})


def field_names(texts: Sequence[str | None]) -> set[str]:
    """The fields of records in JSON, as paths such as `context.referral`."""
    found: set[str] = set()
    for text in texts:
        try:
            found.update(_paths(json.loads(text or "")))
        except (ValueError, RecursionError):
            continue
    return found


def _paths(value: object, parent: str = "", depth: int = 1) -> Iterator[str]:
    if isinstance(value, dict) and depth <= _DEEPEST:
        for name, inner in value.items():
            yield f"{parent}{name}"
            yield from _paths(inner, f"{parent}{name}.", depth + 1)


def renamed(verdict: Verdict, fields: set[str], before: set[str], measure: str) -> Verdict:
    """The verdict, and which fields the records have in place of which of the partition that they are compared with."""
    gone, new = _shown(before - fields), _shown(fields - before)
    told = [f"Gone since {measure}: {gone}."] * bool(gone) + [f"New: {new}."] * bool(new)
    told += ["Was it renamed?"] * bool(gone and new)
    description = " ".join([verdict.description, *told])
    return Verdict(verdict.passed, description, {**verdict.metadata, MEASURE: measure}, verdict.severity)


def _shown(fields: set[str]) -> str:
    names = sorted(field for field in fields if _NAME.fullmatch(field))
    more = len(fields) - len(names[:_NAMED])
    return ", ".join(f"`{name}`" for name in names[:_NAMED]) + (f" and {more:,} more" if more else "")
