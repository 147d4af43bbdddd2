"""`de dlq inspect|replay|discard`: what became of lines that could not be understood, and what to do about them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from de_assets.cli.terminal import console, explained
from de_resources.errors import PermanentError
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_assets.dead_letters.letters import DecidedLetters, Letter
    from de_assets.filling import UnitOutcome
    from de_assets.sources.decisions import Decision

HELP = "Dead letters of visits: look at them, replay them, give them up."

Partition = Annotated[str, typer.Option(help="Only this hour, such as 2024-10-10-05:00.")]
Reason = Annotated[str, typer.Option(help="Only letters with this reason.")]
NoRun = Annotated[bool, typer.Option("--no-run", help="Land the decisions, and say which hours are to be run.")]


class UnknownHour(PermanentError):
    """A text that is no hour of the calendar."""

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(f"`{said[:80]}` is no hour of the calendar. Write one like 2024-10-10-05:00.")


class FileTaken(PermanentError):
    """An export to a file that is there."""

    def __init__(self, file: Path) -> None:
        self.file = file
        super().__init__(
            f"`{file}` is there already. Nothing was written. Name another file: repairs may be in this one."
        )


class WhatToReplay(PermanentError):
    """A replay, or a discard, that does not say of what."""


def inspect(
    partition: Partition = "",
    reason: Reason = "",
    limit: Annotated[int, typer.Option(min=0, help="How many letters to show.")] = 10,
    every: Annotated[bool, typer.Option("--closed", help="Also those that were replayed or discarded.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write `id` and `raw` of all of them into this new file.")] = None,
) -> None:
    """Count the open letters by hour and reason, and show some of them without their text, which is personal data.

    An exported file is readable by its owner only: edit `raw`, then `de dlq replay --repaired FILE`.
    """
    from de_assets.transforms.error_management.dead_letter import OPEN

    with explained():
        status = None if every else OPEN
        found = list(_letters(partition, reason, status))
        if export is not None:
            _export(export, _letters(partition, reason, status, with_raw=True))
    counts: Counter[tuple[str, str, str]] = Counter((_key(f.hour), f.reason, f.status) for f in found)
    table = Table("hour", "reason", "status", "letters")
    for (hour, why, state), count in sorted(counts.items()):
        table.add_row(hour, why, state, f"{count:,}")
    console.print(table)
    console.print(f"{len(found):,} dead letter(s).", highlight=False)
    if found[:limit]:
        console.print(_examples(found[:limit]))
    if export is not None:
        console.print(f"{len(found):,} line(s) are in {export}, which only you can read. It holds personal data.")


def replay(
    repaired: Annotated[Path | None, typer.Option(help="Repaired lines: JSON lines with `id` and `raw`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="The same lines again, as after the parser was mended.")] = False,
    partition: Partition = "",
    reason: Reason = "",
    no_run: NoRun = False,
) -> None:
    """Feed lines back through the normal path: land them, run their hours again, and list what is stale downstream.

    The same replay twice changes nothing. A repaired line that cannot be understood either is a dead letter again.
    Exit status 1 where a step failed, or a check goes on holding an hour back.
    """
    with explained():
        if (repaired is None) == (not every):
            raise WhatToReplay("Say what to replay: `--repaired FILE`, or `--all` for the same lines once more.")
        if repaired is not None and (partition or reason):
            raise WhatToReplay(
                "A file of repaired lines names its letters itself: leave `--partition` and `--reason` out."
            )
        _decide(lambda known: _replayed(repaired, known, partition, reason), runs=not no_run)


def discard(
    ids: Annotated[list[str] | None, typer.Argument(help="Identities of letters, as `inspect` shows them.")] = None,
    why: Annotated[str, typer.Option(help="The reason, kept with the letters. No personal data.")] = "",
    partition: Partition = "",
    reason: Reason = "",
    no_run: NoRun = False,
) -> None:
    """Give letters up: by identity, or all open ones of one hour with one reason. Their lines stay in the table."""
    with explained():
        if bool(ids) == bool(partition and reason) or bool(partition) != bool(reason):
            raise WhatToReplay("Say what to discard: identities, or `--partition` and `--reason` together.")
        _decide(lambda known: _discarded(ids or [], known, partition, reason, why), runs=not no_run)


Decisions = dict[str, "tuple[datetime, Decision]"]


def _replayed(repaired: Path | None, decided: Decisions, partition: str, reason: str) -> DecidedLetters:
    from de_assets.dead_letters.letters import read_repaired, repairs, retries
    from de_assets.transforms.error_management.dead_letter import OPEN

    if repaired is None:
        return retries(_letters(partition, reason, OPEN), decided)
    lines = read_repaired(repaired)
    wanted = {line.letter_id for line in lines}
    return repairs(repaired.name, lines, (f for f in _letters(with_raw=True) if f.letter_id in wanted), decided)


def _discarded(ids: Sequence[str], decided: Decisions, partition: str, reason: str, why: str) -> DecidedLetters:
    from de_assets.dead_letters.letters import discards
    from de_assets.transforms.error_management.dead_letter import OPEN

    if ids:
        return discards(ids, (f for f in _letters() if f.letter_id in set(ids)), decided, why)
    known = list(_letters(partition, reason, OPEN))
    return discards((f.letter_id for f in known), known, decided, why)


def _decide(make: Callable[[Decisions], DecidedLetters], *, runs: bool) -> None:
    """Land what `make` decides, run the hours that do not know it yet, and tell what is stale then."""
    from de_assets.cli.run import dagster_instance
    from de_assets.dead_letters import replay as replaying
    from de_assets.dead_letters.letters import newest
    from de_assets.sources.decisions import decided, deciding
    from de_resources.spark import close_connections

    settings = Settings.from_environment()
    with deciding(settings.landing):
        plan = make(newest(decided(settings.landing)))
        replaying.land_all(settings.landing, plan)
    _tell_plan(plan)
    with dagster_instance(settings) as instance:
        hours = replaying.unread_hours(instance, settings.landing, plan)
        if not hours:
            console.print("Every hour has taken in what was decided. Nothing was run.")
            return
        if not runs:
            replayed = " and ".join(asset.to_user_string() for asset in replaying.REPLAYED)
            console.print(f"To be run: {replayed}, for {spans(map(_key, hours))}.", highlight=False)
            return
        try:
            outcome = replaying.run_hours(instance, hours)
        finally:
            close_connections()
        _tell_run(outcome, hours)
        _tell_stale(replaying.stale(instance, hours))
    if outcome.failures or outcome.bad:
        raise typer.Exit(1)


def _tell_plan(plan: DecidedLetters) -> None:
    hours = f" in {len(plan.hours)} hour(s)" if plan.hours else ""
    console.print(f"{plan.letters:,} line(s) decided about{hours}.", highlight=False)
    for what, count in sorted(Counter(plan.resolved.values()).items()):
        console.print(f"{count:,} letter(s) are {what} already.", highlight=False)
    if plan.unchanged:
        console.print(f"{len(plan.unchanged):,} letter(s) are unchanged in the file and stay open.", highlight=False)


def _tell_run(outcome: UnitOutcome, hours: Sequence[datetime]) -> None:
    failed = len(outcome.checks_failed)
    console.print(
        f"{outcome.runs} run(s) over {len(hours)} hour(s): {outcome.checks_passed} checks passed, {failed} failed.",
        highlight=False,
    )
    for name in outcome.checks_failed[:20]:
        console.print(Text.assemble("  ", ("failed", "red"), f" {name}"))
    for failure in outcome.failures:
        console.print(Text.assemble("  ", ("error", "red"), f" {failure}"))
    if not outcome.failures:
        wanted = set(hours)
        again = sum(1 for f in _letters() if f.hour in wanted and f.repair_of and f.status == "open")
        left = sum(1 for f in _letters() if f.hour in wanted and not f.repair_of and f.status == "open")
        console.print(f"Open in these hours: {left:,} as landed, {again:,} as repaired.", highlight=False)


def _tell_stale(stale: Mapping[str, set[str] | None]) -> None:
    if not stale:
        console.print("Nothing downstream was computed from these hours yet.")
        return
    table = Table("stale downstream", "partitions", "which")
    for asset, keys in stale.items():
        table.add_row(asset, "" if keys is None else f"{len(keys):,}", "all of it" if keys is None else spans(keys))
    console.print(table)
    console.print("Automation computes them again where it is on; otherwise launch them in this order.")


def spans(keys: Iterable[str], most: int = 5) -> str:
    """Keys for people: consecutive ones of the calendar as `first..last`, and how many spans more there are."""
    from de_assets.partitions import daily, hourly
    from de_assets.ranges import key_ranges

    wanted = set(keys)
    known = next((k for d in (hourly, daily) if wanted & set(k := d.get_partition_keys())), sorted(wanted))
    ranges = key_ranges(known, wanted)
    shown = [first if first == last else f"{first}..{last}" for first, last in ranges[:most]]
    return ", ".join(shown) + (f" and {len(ranges) - most} more" if len(ranges) > most else "")


def _examples(found: Sequence[Letter]) -> Table:
    from de_resources.contract import REDACTED

    table = Table("id", "hour", "field", "replay", "place", "status", "text", "why")
    for f in found:
        line = "" if f.source_line is None else f" line {f.source_line}"
        what = f"{f.status} (repair of {f.repair_of})" if f.repair_of else f.status
        table.add_row(
            f.letter_id,
            _key(f.hour),
            f.field or "",
            str(f.attempts),
            f"{f.source_file}{line}",
            what,
            REDACTED,
            f.why or "",
        )
    return table


def _export(file: Path, found: Sequence[Letter]) -> None:
    """Write the letters' texts for repair. Raises `FileTaken`; the file is never readable by others, at no moment."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise FileTaken(file) from None
    with os.fdopen(descriptor, "w") as out:
        for f in found:
            facts = {"id": f.letter_id, "hour": _key(f.hour), "reason": f.reason, "field": f.field, "raw": f.raw}
            out.write(json.dumps(facts) + "\n")


def _letters(
    partition: str = "", reason: str = "", status: str | None = None, *, with_raw: bool = False
) -> Sequence[Letter]:
    from de_assets.dead_letters.letters import letters
    from de_assets.dead_letters.replay import DEAD_LETTERS

    table = Settings.from_environment().uri_of(DEAD_LETTERS.to_user_string())
    hours = [_hour(partition)] if partition else None
    return list(letters(table, hours=hours, reason=reason or None, status=status, with_raw=with_raw))


def _hour(key: str) -> datetime:
    from de_assets.partitions import hourly

    try:
        if hourly.has_partition_key(key):
            return hourly.time_window_for_partition_key(key).start
    except ValueError:
        pass
    raise UnknownHour(key)


def _key(hour: datetime) -> str:
    from de_assets.partitions import hourly

    return hour.strftime(hourly.fmt)
