"""A process that makes sessions of a stream over the engine that all runs share, in one run, and tells what it found.

`python stateful_sessions_client.py <engine> <folder> <visits>`: the visits are a list of `[user, minute, page]`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from de_assets.gold.sessions_stream import ARRIVAL, RULES
from de_assets.transforms.data_value.stateful_sessionizer import STATE, STATE_SETTINGS, account, stream_sessions
from de_resources.delta.stream_state import StreamState
from de_resources.delta.table import CommitInfo, Table
from de_resources.delta.write.stream import CHECKPOINT, run_available_now
from de_resources.engine.utc_rows import utc_rows
from de_resources.spark import SparkEngine, close_connections

START = datetime(2026, 3, 28, 22, tzinfo=UTC)
VISITS = "user_id STRING, event_time TIMESTAMP, visit_id STRING, page STRING, referral STRING, append_time TIMESTAMP"


def main(engine: str, folder: str, came: list[tuple[str, int, str]]) -> None:
    """A batch brings the visits, and one without any closes what is over."""
    session = SparkEngine(url=engine).spark_session
    visits, table = Table("bronze.visits", f"{folder}/visits"), Table("gold.found", f"{folder}/found")
    moments = [(user, START + timedelta(minutes=minute), page) for user, minute, page in came]
    rows = [(user, at, f"{user} {at}", page, None, at) for user, at, page in moments]
    session.createDataFrame(rows, VISITS).write.format("delta").mode("append").save(visits.uri)
    stream = stream_sessions(session.readStream.format("delta").load(visits.uri), RULES, ARRIVAL)
    stamp = CommitInfo("gold.found", "found", "all", "1", "1", "1")
    told = run_available_now(session, table, stream, stamp, settings=STATE_SETTINGS).details["stream/state_rows"]
    state = StreamState.of(session, f"{table.uri}/{CHECKPOINT}")
    assert state is not None
    reckoned = account(visits.read(session, state.version_read), table.read(session), state.values(STATE), ARRIVAL)
    found = [
        (r["user_id"], (r["started_at"] - START) // timedelta(minutes=1), r["visits"], r["closed_by"])
        for r in utc_rows(table.read(session))
    ]
    left = session.conf.get("spark.sql.streaming.stateStore.encodingFormat")
    print(json.dumps({"found": sorted(found), "state": told, "account": asdict(reckoned), "left": left}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    close_connections()
