"""`de plan`: what a backfill over given days would compute, before anybody launches it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from de_assets.cli.terminal import console, explained
from de_assets.late_days import LOOK_BACK, BackfillPlan, Late, days_between, days_of
from de_assets.late_days import plan as planned
from de_assets.ranges import RANGE_END, RANGE_START
from de_resources.errors import PermanentError
from de_resources.iso_week import Week

if TYPE_CHECKING:
    import dagster as dg


class NotPlannable(PermanentError):
    """An asset that does not exist, or is computed neither by days nor by weeks."""

    def __init__(self, asset: str, known: list[str]) -> None:
        self.asset, self.known = asset, tuple(known)
        super().__init__(f"`{asset}` is no asset with daily partitions or weekly ones. These are: {', '.join(known)}.")


class NotADay(PermanentError):
    """A text that is no day, or days that end before they begin."""

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(f"`{said}` names no days: write 2024-10-10, and the first day before the last.")


def plan(
    asset: Annotated[str, typer.Argument(help="Key of a daily or weekly asset, such as gold/referral_stats.")],
    first: Annotated[str, typer.Argument(help="First day, such as 2024-10-10.")],
    last: Annotated[str, typer.Argument(help="Last day; default: the first.")] = "",
    late: Annotated[Late, typer.Option(help="When the look-back days are computed.")] = Late.BESIDE,
) -> None:
    """Show which days a backfill computes: the asked ones, and those that late data may still change, each once.

    Of an asset that is kept by week: the weeks, for none of its days can be computed alone.
    """
    import dagster as dg

    with explained():
        definition, partitions = _asset(asset)
        asked = _days(first, last or first)
    if isinstance(partitions, dg.WeeklyPartitionsDefinition):
        _print_weeks(asked, partitions)
        return
    found = planned(asked, int(definition.metadata.get(LOOK_BACK, 0)), days_of(partitions))
    console.print(_table(found, late))
    left_out = len(asked) - len(found.asked)
    console.print(
        f"{len(found.asked)} asked and {len(found.look_back)} look-back days, each computed once"
        + (f"; {left_out} asked days are not in the calendar" if left_out else "")
        + ". Launch a run of the asset in the UI for these ranges, or `Materialize` with the two tags."
    )


def _print_weeks(asked: list[date], partitions: dg.WeeklyPartitionsDefinition) -> None:
    known = set(partitions.get_partition_keys())
    weeks = [week for week in sorted({Week.of(day) for day in asked}) if week.start.isoformat() in known]
    table = Table("run", "dagster/partition", "week", "from", "to", "asked days")
    for number, week in enumerate(weeks, 1):
        own = sum(Week.of(day) == week for day in asked)
        table.add_row(str(number), str(week.start), str(week), str(week.start), str(week.last), str(own))
    console.print(table)
    console.print(
        "The week is the unit: a run replaces all seven days of it, and a day alone is refused. Launch one run per week for "
        "these partitions in the UI."
    )


def _asset(key: str) -> tuple[dg.AssetSpec, dg.DailyPartitionsDefinition | dg.WeeklyPartitionsDefinition]:
    # Here and not above: it imports the whole graph.
    import dagster as dg

    from de_assets.definitions import defs

    known = {
        spec.key.to_user_string(): (spec, spec.partitions_def)
        for spec in defs.resolve_all_asset_specs()
        if isinstance(spec.partitions_def, dg.DailyPartitionsDefinition | dg.WeeklyPartitionsDefinition)
    }
    if key not in known:
        raise NotPlannable(key, sorted(known))
    return known[key]


def _days(first: str, last: str) -> list[date]:
    try:
        start, end = date.fromisoformat(first), date.fromisoformat(last)
    except ValueError:
        raise NotADay(f"{first} {last}") from None
    if end < start:
        raise NotADay(f"{first} {last}")
    return days_between(start, end)


def _table(found: BackfillPlan, late: Late) -> Table:
    table = Table("run", RANGE_START, RANGE_END, "days", "asked", "look-back")
    asked = set(found.asked)
    for number, (start, end) in enumerate(found.ranges(late), 1):
        days = days_between(start, end)
        own = sum(day in asked for day in days)
        table.add_row(str(number), str(start), str(end), str(len(days)), str(own), str(len(days) - own))
    return table
