"""What a run did, for people: from what its runs told, and from the tables' logs, without the engine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagster import AssetCheckSeverity, AssetKey
from rich.table import Table
from rich.text import Text

from de_assets.cli.next_steps import next_steps
from de_assets.cli.terminal import console
from de_assets.filling import UnitOutcome
from de_assets.filling.stores import behind_a_manifest
from de_assets.partitions import rows_in_calendar
from de_assets.visits_account import visits_account
from de_resources.delta.log import TableLog
from de_resources.settings import Settings

_SHOWN = 20
_WIDEST = 80


def show(outcomes: Sequence[UnitOutcome], settings: Settings) -> bool:
    """Print datasets, visits and checks; True when nothing failed."""
    console.print(_datasets(outcomes, settings))
    for line in visits_account(settings.lake_root):
        console.print(line, highlight=False)
    return _tell_outcomes(outcomes)


def _datasets(outcomes: Sequence[UnitOutcome], settings: Settings) -> Table:
    table = Table("dataset", "partitions", "rows", "version", "seconds", "what happened", title="Materialised")
    for outcome in outcomes:
        for key in outcome.unit.assets:
            seconds = f"{outcome.seconds:.1f}" if outcome.runs else ""
            table.add_row(key.to_user_string(), *_figures(outcome, key, settings), seconds, _told(outcome))
    return table


def _told(outcome: UnitOutcome) -> str:
    """One phrase per dataset; the lines below the table say it in full."""
    said = _state(outcome)
    return said if len(said) <= _WIDEST else f"{said[: _WIDEST - 1]}…"


def _state(outcome: UnitOutcome) -> str:
    if outcome.left_out is not None:
        return f"left out: {outcome.left_out}"
    if outcome.failures:
        return f"failed: {outcome.failures[0]}"
    held_back = {**outcome.held_back, **outcome.bad}
    if held_back:
        count = "" if outcome.unit.partitions is None else f"{len(held_back)} of its partitions "
        return f"{count}held back: {next(iter(held_back.values()))}"
    red = f", and red: {', '.join(outcome.checks_failed)}" if outcome.checks_failed else ""
    if outcome.up_to_date:
        return f"{len(outcome.written)} written, the others up to date{red}" if outcome.written else f"up to date{red}"
    return f"written{red}" if outcome.written else f"nothing to do{red}"


def _figures(outcome: UnitOutcome, key: AssetKey, settings: Settings) -> tuple[str, str, str]:
    """Partitions, rows and version: of the table as it is now, else what the runs said they wrote."""
    name = key.to_user_string()
    uri = settings.uri_of(name)
    log = TableLog.open(uri)
    found = (rows_in_calendar(log), log.version) if log else behind_a_manifest(uri, name)
    partitioned = outcome.unit.partitions is not None
    if found is not None:
        rows, version = found
        return str(_partitions(rows)) if partitioned else "", f"{sum(rows.values()):,}", str(version)
    written = f"{outcome.rows[key]:,}" if key in outcome.rows else ""
    return str(len(outcome.written)) if partitioned and outcome.written else "", written, ""


def _partitions(rows: Mapping[Any, int]) -> int:
    """How many partitions there are: a table may be stored by further columns, and tells its rows by each combination."""
    return len({key[:1] if isinstance(key, tuple) else key for key in rows})


def _tell_outcomes(outcomes: Sequence[UnitOutcome]) -> bool:
    passed = sum(o.checks_passed for o in outcomes)
    failed = [line for o in outcomes for line in _verdicts(o, AssetCheckSeverity.ERROR)]
    warned = [line for o in outcomes for line in _verdicts(o, AssetCheckSeverity.WARN)]
    failures = [f for o in outcomes for f in o.failures]
    warnings = f"{len(warned)} warned, " if warned else ""
    console.print(f"Checks: {passed} passed, {warnings}{len(failed)} failed; {sum(o.runs for o in outcomes)} runs.")
    _list("failed", "red", failed)
    _list("warned", "yellow", warned)
    _list("error", "red", failures)
    _list("held back", "yellow", [line for o in outcomes for line in _held_back(o)])
    for why, names in _left_out(outcomes).items():
        console.print(Text.assemble("  ", ("left out", "yellow"), f" {', '.join(names)}: {why}"))
    for command, why in next_steps(outcomes).items():
        console.print(Text.assemble("  ", ("next", "cyan"), f" {command}: {why}"))
    return not failed and not failures


def _verdicts(outcome: UnitOutcome, severity: AssetCheckSeverity) -> Iterator[str]:
    for name, found in outcome.not_passed(severity).items():
        yield f"{name}: {found}" if found else name


def _left_out(outcomes: Sequence[UnitOutcome]) -> dict[str, list[str]]:
    """Names by reason: what is behind a missing source is left out for the same one."""
    by_reason: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.left_out is not None:
            by_reason.setdefault(outcome.left_out, []).append(outcome.unit.name)
    return by_reason


def _held_back(outcome: UnitOutcome) -> Iterator[str]:
    """One line per reason."""
    by_reason: dict[str, list[str]] = {}
    for key, why in sorted(outcome.held_back.items()):
        by_reason.setdefault(why, []).append(key)
    for why, keys in by_reason.items():
        which = f" [{keys[0]}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}]" if keys[0] else ""
        yield f"{outcome.unit.name}{which}: {why}"


def _list(what: str, colour: str, lines: Sequence[str]) -> None:
    more = [f"… and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    for line in (*lines[:_SHOWN], *more):
        console.print(Text.assemble("  ", (what, colour), f" {line}"))
