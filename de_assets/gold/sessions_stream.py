"""Sessions closed as event time passes, with what is still open in the state of a stream.

Grain: one session that is over. Patterns: Stateful Sessionizer - open sessions lie in a fault-tolerant state, and the
watermark closes them; Checkpointer - state and positions lie beside the table, so that a run goes on where the last one
ended, killed or not.

A session comes out when its end is behind the watermark, which is half an hour behind the newest visit: an hour after its last
visit, where a pause ended it. Where no visit comes nothing moves, and what is open waits. A visit that is later than that is
in bronze, and is counted: `stream/rows_too_late`.
"""

from dataclasses import asdict

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import gated
from de_assets.contracts.sessions_stream import LOGOUT, LONGEST, SessionsStream
from de_assets.dataset import dataset
from de_assets.silver.visits_live import RULE, VISITS_STREAM
from de_assets.transforms.data_value.closing_rules import ClosingPage, GreatestLength, Inactivity
from de_assets.transforms.data_value.sessions import GAP
from de_assets.transforms.data_value.stateful_sessionizer import (
    STATE,
    STATE_SETTINGS,
    Account,
    Arrival,
    account,
    stream_sessions,
)
from de_checks.contract import contract_check
from de_checks.factory import CheckRun, check_of_asset
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import ObservedFrame
from de_resources.delta.read_versions import record_read
from de_resources.delta.stream_state import StreamState
from de_resources.delta.table import TableMissing
from de_resources.delta.write.stream import CHECKPOINT
from de_resources.lake import Lake
from de_resources.lineage.inputs import read_as
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

RULES = (Inactivity(GAP), ClosingPage(frozenset({LOGOUT})), GreatestLength(LONGEST))
# As late as a visit may be and still count as on time, and as far ahead as its producer's clock may be.
ARRIVAL = Arrival(late=RULE.lateness.allowed, skew=RULE.lateness.skew)


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(SessionsStream, patterns=["stateful_sessionizer", "checkpointer"], mode="append"),
    deps=[VISITS_STREAM],
    automation_condition=gated(),
)
def sessions_stream(context: dg.AssetExecutionContext, lake: Lake, spark: SparkEngine) -> ObservedFrame:
    """A streaming frame over what the broker brought; the IO manager runs it until it has read what was there.

    Raises `TableMissing`.
    """
    visits = lake.table(VISITS_STREAM)
    if visits.log() is None:
        raise TableMissing(visits.name)
    record_read(context, visits)
    came = read_as(spark.spark_session.readStream.format("delta").load(visits.uri), VISITS_STREAM)
    return ObservedFrame(sessions_of_stream(came), dict, settings=STATE_SETTINGS)


def sessions_of_stream(visits: DataFrame) -> DataFrame:
    """The columns of gold.sessions_stream, of a stream of bronze.visits_stream."""
    found = stream_sessions(visits.where(RULE.understood), RULES, ARRIVAL)
    return found.select(*Contract.of(SessionsStream).column_names)


def _judge_account(run: CheckRun) -> dg.AssetCheckResult:
    """Of one state of the stream: the visits up to where it has read. Metadata: the figures of `Account`."""
    session, table = run.lake.spark.spark_session, run.table()
    state = StreamState.of(session, f"{table.uri}/{CHECKPOINT}")
    if state is None:
        return dg.AssetCheckResult(passed=True, description="The stream has read nothing yet.")
    visits = run.lake.table(VISITS_STREAM).read(session, state.version_read).where(RULE.understood)
    found = account(visits, table.read(session), state.values(STATE), ARRIVAL)
    return dg.AssetCheckResult(
        passed=found.balanced, description=_said(found), metadata={**asdict(found), "missing": found.missing}
    )


def _said(found: Account) -> str:
    if found.balanced:
        return f"All visits are in sessions, open ones included; {found.missing} came too late."
    return (
        f"{found.missing} of {found.visits} visits are in no session, and {found.late_at_most} at most can have come too late. "
        "The stream has lost or repeated visits: remove the table's folder, and run; the stream then begins again."
    )


checks = [
    contract_check(sessions_stream, blocking=False),
    unique_key_check(sessions_stream, blocking=False),
    check_of_asset(
        sessions_stream,
        "every_visit_is_accounted_for",
        _judge_account,
        description="Every visit that was read is in a session that is over, in the state, or came too late for both.",
        patterns=["stateful_sessionizer"],
        resources=["lake"],
        also_reads=[VISITS_STREAM],
    ),
]
