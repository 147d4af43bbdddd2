"""A process that uses the engine as DE_SPARK and DE_HOME say. Tells on stdout what it met, as one JSON document.

With a process id as its argument it kills that process, the server, and uses the engine on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from pyspark.errors import PySparkException

from de_resources.spark import EngineUnreachable, SparkEngine, close_connections


def main(server: int | None) -> None:
    """Use the engine twice, the second time perhaps without its server."""
    engine = SparkEngine()
    told: dict[str, Any] = {"label": engine.label, "shared": engine.shared}
    session = engine.spark_session
    told["answer"] = session.sql("SELECT 41 + 1 AS answer").first().answer
    told["same"] = engine.spark_session is session
    told["across_resources"] = SparkEngine().spark_session is session
    if server is not None:
        os.kill(server, signal.SIGKILL)
        told |= _after_the_loss(engine)
        # The test starts the server again, and says so by a line.
        print(json.dumps(told), flush=True)
        sys.stdin.readline()
        told = {"answer": engine.spark_session.sql("SELECT 7 AS answer").first().answer}
        told |= {"label": engine.label, "made_anew": engine.spark_session is not session}
    close_connections()
    print(json.dumps(told), flush=True)


def _after_the_loss(engine: SparkEngine) -> dict[str, Any]:
    told: dict[str, Any] = {}
    try:
        engine.spark_session.sql("SELECT 1").collect()
    except PySparkException:
        told["lost"] = str(engine.lost())
    told["shared_still"] = engine.shared
    try:
        _ = engine.spark_session
    except EngineUnreachable as error:
        told["unreachable"] = str(error)
    return told


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
