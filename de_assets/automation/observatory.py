"""The observatory of this home: written by `de observe`, every night, and when `de run` has filled the lake.

What the instance remembers of all assets of all code locations becomes one static site, `$DE_HOME/observatory`. It reads
nothing but the instance: no table, no service, no engine. A rerun replaces the site in one step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import dagster as dg

from de_assets.automation.alerting.alert import redacted
from de_assets.automation.alerting.runs import CHECK, RUN
from de_assets.automation.nightly import job_of, nightly
from de_resources.alerts.book import AlertBook
from de_resources.observatory.link import LINK
from de_resources.observatory.paths import INDEX
from de_resources.settings import Settings

if TYPE_CHECKING:
    from de_resources.observatory.model import News

JOB = "observatory"


@dataclass(frozen=True)
class Site:
    """What was written: the page to open, how many datasets it shows, what could not be read, and how long it took."""

    index: Path
    datasets: int
    unreadable: Sequence[str]
    seconds: float

    @property
    def lines(self) -> list[str]:
        """For people."""
        return [*self.unreadable, f"Observatory: {self.index} ({self.datasets} datasets, {self.seconds:.1f} s)"]


def write_observatory(
    instance: dg.DagsterInstance,
    home: Path,
    now: datetime,
    locations: Callable[[], tuple[Sequence[dg.Definitions], Sequence[str]]] | None = None,
    *,
    quickly: bool = False,
) -> Site:
    """Read the instance and put the site in its place. Sentences of checks are masked as those of alerts are.

    `locations` gives the definitions, and what could not be loaded; by default those of the workspace.
    `quickly`: somebody waits, and of a long history the newest part is read. Raises `NotPublished`.
    """
    # Here and not above: every start of a code server would load them.
    from de_resources.observatory.read import AFTER_A_RUN, Limits, read_world
    from de_resources.observatory.site import pages_of
    from de_resources.pages.files import publish_site

    began = perf_counter()
    definitions, unreadable = (locations or loaded_locations)()
    limits = AFTER_A_RUN if quickly else Limits()
    world = read_world(
        instance, definitions, now, mask=redacted, news=open_news(home), unreadable=unreadable, limits=limits
    )
    place = home / LINK
    publish_site(place, pages_of(world))
    return Site(place / INDEX, len(world.datasets), unreadable, perf_counter() - began)


def open_news(home: Path) -> "list[News]":
    """Open alerts beside those of checks and runs, which the instance tells: services that died, steps that hang."""
    from de_resources.observatory.model import News

    return [
        News(alert.text, alert.severity == "ERROR", datetime.fromisoformat(alert.opened_at))
        for alert in AlertBook.of_home(home).open_alerts()
        if not alert.subject.startswith((CHECK, RUN))
    ]


def loaded_locations() -> tuple[Sequence[dg.Definitions], Sequence[str]]:
    """The definitions of all code locations that load, and a sentence on each that does not."""
    from de_assets.catalogue import LOCATIONS, load_locations

    found: list[dg.Definitions] = []
    broken: list[str] = []
    for module in LOCATIONS:
        try:
            found += load_locations([module])
        except Exception as error:  # noqa: BLE001 - another team's code may fail in any way, and the others are shown
            broken.append(f"The code location `{module}` does not load: {type(error).__name__}.")
    return found, broken


@dg.op(out=dg.Out(dg.Nothing), description="Writes the site from what the instance remembers.")
def write_site(context: dg.OpExecutionContext) -> dg.Output[None]:
    """One op."""
    site = write_observatory(context.instance, Settings.from_environment().home, datetime.now(UTC))
    for told in site.unreadable:
        context.log.warning(told)
    return dg.Output(
        None,
        metadata={
            "observatory/index": dg.MetadataValue.path(site.index),
            "observatory/datasets": site.datasets,
            "observatory/seconds": round(site.seconds, 3),
        },
    )


job = job_of(
    JOB, [write_site], description="Writes the observatory: how all datasets are, and were, as one static site."
)

# After the jobs whose figures it shows.
schedule = nightly(JOB, "0 5 * * *", description="Writes the observatory every morning, after the nightly jobs.")
