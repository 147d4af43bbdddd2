"""The engine inside a process dies: the call that notices says so, and the next session has a Java process of its own."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.faults]

PROGRAM = """
from de_resources.spark import EngineLost, SparkEngine

engine = SparkEngine(url="local[1]", spark_config={"spark.log.level": "OFF"})
session = engine.spark_session
session.sparkContext._gateway.proc.kill()
try:
    with engine.watched():
        session.range(3).count()
except EngineLost as error:
    print(error)
print(engine.spark_session.range(3).count())
"""


def test_a_dead_java_process_is_a_lost_engine_and_the_next_session_has_another() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    lost, rows = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert lost.startswith("The engine local[1] stopped answering while it worked.")
    assert rows == "3"
