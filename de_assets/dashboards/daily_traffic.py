"""The dashboard "Daily traffic": one HTML page over the newest days of gold.

Grain: the page. A rerun replaces it in one step, so that a reader sees the old page or the new one.

Pattern: Isolated Sequencer - a code location of its own, which knows tables of the other one by key and place.
"""

import tempfile
from pathlib import Path

import dagster as dg
import pyarrow as pa
from pydantic import Field

from de_assets.dashboards import gold
from de_assets.dashboards.report import html_of, markdown_plot_of, markdown_table_of
from de_assets.dashboards.traffic import sessions_by_day, traffic_by_day, with_lacks
from de_resources.delta.read_versions import versions_read
from de_resources.fan_in import LACKING, lacking
from de_resources.lineage.record import read_columns
from de_resources.page_link import page_link
from de_resources.retries import RETRY_TRANSIENT
from de_resources.settings import Settings

DAYS = 92


class ReportFolder(dg.ConfigurableResource):
    """Where pages are published."""

    root: str = Field(default="", description="The folder; default: `$DE_HOME/dashboards`.")

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.root) if self.root else Settings.from_environment().home / "dashboards"

    def publish(self, name: str, text: str) -> Path:
        """Write the page beside its place and move it there."""
        self.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=self.path) as drafts:
            draft = Path(drafts) / name
            draft.write_text(text, encoding="utf-8")
            return draft.replace(self.path / name)


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    key=["dashboards", "daily_traffic"],
    ins={"cube": dg.AssetIn(gold.VISITS_CUBE_DAILY), "sessions": dg.AssetIn(gold.SESSIONS)},
    automation_condition=gold.on_news(),
    group_name="dashboards",
    owners=["team:visualization"],
    kinds={"html", "pyarrow"},
    tags={"pattern/isolated_sequencer": ""},
)
def daily_traffic(
    context: dg.AssetExecutionContext, cube: pa.Table, sessions: pa.RecordBatchReader, reports: ReportFolder
) -> dg.MaterializeResult:
    """Visits, visitors and sessions of the newest days, as a page with a chart and a table.

    A day that its producer computed without some of its hours is marked, and the hours are named.
    Raises `GoldMissing` when a table it reads was never written.
    """
    found = traffic_by_day(cube, sessions_by_day(sessions), DAYS)
    keys = [f"{each.day}" for each in found]
    days = with_lacks(found, [lacking(context.instance, key, keys) for key in (gold.VISITS_CUBE_DAILY, gold.SESSIONS)])
    page = reports.publish("daily_traffic.html", html_of(days))
    return dg.MaterializeResult(
        metadata={
            "report": page_link(page),
            "plot": dg.MetadataValue.md(markdown_plot_of(days)),
            "table": dg.MetadataValue.md(markdown_table_of(days)),
            "days": len(days),
            LACKING: dg.MetadataValue.json({f"{each.day}": dict(each.lacks) for each in days if each.lacks}),
            **read_columns({gold.VISITS_CUBE_DAILY: [*gold.CUBE_COLUMNS], gold.SESSIONS: [*gold.SESSIONS_COLUMNS]}),
            **versions_read(context),
            **({"newest_day": days[-1].day.isoformat()} if days else {}),
        }
    )
