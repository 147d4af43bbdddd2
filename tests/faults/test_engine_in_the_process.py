"""The engine inside a process dies, or stops itself: the call that notices says so, and the next session has a new engine."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.faults]

PROGRAM = """
from de_resources.spark import EngineLost, SparkEngine

engine = SparkEngine(url="local[1]", spark_config={"spark.log.level": "OFF"})
# Its Java process is killed; then its context stops itself, as it does when a cluster's master is gone.
for end in (lambda context: context._gateway.proc.kill(), lambda context: context._jsc.sc().stop()):
    session = engine.spark_session
    end(session.sparkContext)
    try:
        with engine.watched():
            session.range(3).count()
    except EngineLost as error:
        print(error)
    print(engine.spark_session.range(3).count())
"""


def test_an_engine_that_ended_is_lost_and_the_next_session_has_another() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [line.split(" while it worked.")[0] for line in done.stdout.splitlines()]
    assert told == ["The engine local[1] stopped answering", "3"] * 2
