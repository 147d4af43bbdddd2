"""What a run did, for people: from the tables' logs, without the engine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from rich.table import Table

from de_assets.cli.app import console
from de_assets.cli.stages import Outcome
from de_assets.partitions import daily, hourly
from de_resources.delta.lock import local_folder
from de_resources.delta.log import TableLog
from de_resources.proxy.store import VersionStore
from de_resources.settings import Settings

_VISITS = ("bronze/visits", "bronze/visits_dead_letter", "silver/visits", "silver/visits_late")


def show(outcomes: Sequence[Outcome], settings: Settings) -> bool:
    """Print tables, visits and checks; True when nothing failed."""
    console.print(_datasets(outcomes, settings))
    _tell_visits(settings)
    _tell_dead_letters(settings)
    return _tell_outcomes(outcomes)


def _datasets(outcomes: Sequence[Outcome], settings: Settings) -> Table:
    table = Table("dataset", "partitions", "rows", "version", "remark", title="Materialised")
    for outcome in outcomes:
        for key in outcome.stage.assets:
            name = key.to_user_string()
            uri = f"{settings.lake_root}/{name}"
            log = TableLog.open(uri)
            found = (_rows(log), log.version) if log else behind_a_manifest(uri, name)
            figures = ("", "", "")
            if found is not None:
                rows, version = found
                partitions = str(len(rows)) if outcome.stage.partitions else ""
                figures = (partitions, f"{sum(rows.values()):,}", str(version))
            remark = f"left out: {outcome.left_out}" if outcome.left_out else ""
            table.add_row(name, *figures, remark[:80])
    return table


def behind_a_manifest(uri: str, name: str) -> tuple[Mapping[Any, int], int] | None:
    """Live rows per partition of a dataset that keeps versions, and the manifest's number; None for all others."""
    folder = local_folder(uri)
    store = VersionStore(folder, name) if folder is not None else None
    live = store.live() if store is not None else None
    if store is None or live is None:
        return None
    versions = {id_: store.version(id_) for id_ in live.versions}
    return {key: versions[id_].rows.get(key, 0) for key, id_ in live.live.items()}, live.number


def _rows(log: TableLog | None) -> Mapping[Any, int]:
    """Rows per partition value of the calendar; other partitions belong to an earlier calendar."""
    if log is None:
        return {}
    rows = log.rows_by_partition()
    if not log.partition_columns():
        return rows
    hours = {hourly.time_window_for_partition_key(k).start for k in hourly.get_partition_keys()}
    days = {daily.time_window_for_partition_key(k).start.date() for k in daily.get_partition_keys()}
    return {value: count for value, count in rows.items() if value[0] in hours or value[0] in days}


def _tell_visits(settings: Settings) -> None:
    rows = {name: _rows(TableLog.open(f"{settings.lake_root}/{name}")) for name in _VISITS}
    bronze, dead, valid, late = (sum(rows[name].values()) for name in _VISITS)
    console.print(
        f"Visits: {bronze + dead:,} records, {dead:,} dead letter(s), {bronze:,} understood in "
        f"{len(rows['bronze/visits'])} hourly partitions, {bronze - valid - late:,} duplicate(s) removed, "
        f"{late:,} late or future, {valid:,} valid."
    )
    per_day: Counter[str] = Counter()
    for (hour, *_), count in rows["bronze/visits"].items():
        per_day[f"{hour:%Y-%m-%d}"] += count
    console.print("Visits per day before deduplication: " + ", ".join(f"{d} {n:,}" for d, n in sorted(per_day.items())))


def _tell_dead_letters(settings: Settings) -> None:
    """Reasons only: the payloads are personal data."""
    if TableLog.open(f"{settings.lake_root}/bronze/visits_dead_letter") is None:
        return
    table = DeltaTable(f"{settings.lake_root}/bronze/visits_dead_letter")
    columns = table.to_pyarrow_table(columns=["reason", "source_file", "source_line"])
    for entry in pc.value_counts(columns["reason"]).to_pylist():
        console.print(f"  dead letters, {entry['values']}: {entry['counts']:,}", highlight=False, markup=False)
    for row in columns.filter(pc.is_valid(columns["source_line"])).slice(0, 5).to_pylist():
        console.print(
            f"  {row['source_file']} line {row['source_line']}: {row['reason']}", highlight=False, markup=False
        )


def _tell_outcomes(outcomes: Sequence[Outcome]) -> bool:
    passed = sum(o.checks_passed for o in outcomes)
    failed = [name for o in outcomes for name in o.checks_failed]
    failures = [f for o in outcomes for f in o.failures]
    console.print(f"Checks: {passed} passed, {len(failed)} failed; {sum(o.runs for o in outcomes)} runs.")
    for name in failed[:20]:
        console.print(f"  [red]failed[/red] {name}", highlight=False)
    for failure in failures:
        console.print(f"  [red]error[/red] {failure}", highlight=False)
    for outcome in outcomes:
        if outcome.left_out:
            console.print(f"  [yellow]left out[/yellow] {outcome.stage.name}: {outcome.left_out}", highlight=False)
    return not failed and not failures
