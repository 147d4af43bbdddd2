"""A process that uses the engine as DE_SPARK and DE_HOME say. Tells on stdout what it met, as one JSON document.

With a process id as its argument it kills that process, the server, and uses the engine on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from de_resources.delta.write.stream import await_end
from de_resources.spark import EngineLost, EngineUnreachable, SparkEngine, close_connections


def main(server: int | None) -> None:
    """Use the engine twice, the second time perhaps without its server."""
    engine = SparkEngine()
    told: dict[str, Any] = {"label": engine.label, "shared": engine.shared}
    session = engine.spark_session
    told["answer"] = session.sql("SELECT 41 + 1 AS answer").first().answer
    told["same"] = engine.spark_session is session
    told["across_resources"] = SparkEngine().spark_session is session
    if server is not None:
        ticks = session.readStream.format("rate").load()
        query = ticks.writeStream.format("noop").trigger(processingTime="1 second").start()
        os.kill(server, signal.SIGKILL)
        told |= _after_the_loss(engine, query)
        # The test starts the server again, and says so by a line.
        print(json.dumps(told), flush=True)
        sys.stdin.readline()
        told = {"answer": engine.spark_session.sql("SELECT 7 AS answer").first().answer}
        told |= {"label": engine.label, "made_anew": engine.spark_session is not session}
    close_connections()
    print(json.dumps(told), flush=True)


def _after_the_loss(engine: SparkEngine, query: StreamingQuery) -> dict[str, Any]:
    told: dict[str, Any] = {}
    other, session = SparkEngine(), engine.spark_session
    _ = other.spark_session
    try:
        with engine.watched():
            await_end(query, "silver.rows", "nowhere")
    except EngineLost as error:
        told["lost"] = str(error)
    try:
        # Another run of the process, whose session was given up by the first one that missed the engine.
        with other.watched():
            session.sql("SELECT 1").collect()
    except EngineLost as error:
        told["lost_to_others"] = str(error)
    told["shared_still"] = engine.shared
    try:
        _ = engine.spark_session
    except EngineUnreachable as error:
        told["unreachable"] = str(error)
    return told


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
