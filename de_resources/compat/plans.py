"""The plan of a frame as text, for classic and for Connect frames: the public `explain` prints it instead of handing it out.

Capturing standard output would mix up the threads of a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

__all__ = ["analysed_plan", "formatted_plan"]


def analysed_plan(frame: DataFrame) -> str:
    """The analysed logical plan. Over Spark Connect one round trip; starts no job.

    There the server plans all that it explains, and planning reads the log of each Delta table by jobs of its own. Of no rows
    there is nothing to plan: the optimiser puts an empty relation in place of everything below such a limit before it looks
    at a table. The limit's two lines stay at the top of the text; rows pass through it as they are.
    A stream is explained as it is.
    """
    if isinstance(frame, ClassicDataFrame):
        # A thread that has not used the session yet would print the plan by the engine's defaults, cut off.
        session: Any = frame.sparkSession
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
        return str(frame._jdf.queryExecution().analyzed().toString())
    asked = frame if frame.isStreaming else frame.limit(0)
    explained = str(cast("ConnectDataFrame", asked)._explain_string(extended=True))
    analysed = explained.partition("== Analyzed Logical Plan ==\n")[2].partition("\n== Optimized Logical Plan ==\n")[0]
    _schema, _, plan = analysed.partition("\n")
    return plan


def formatted_plan(frame: DataFrame) -> str:
    """The physical plan with all of its values, which the short form cuts after a hundred characters. Starts no job."""
    if isinstance(frame, ClassicDataFrame):
        jvm: Any = frame.sparkSession._jvm
        mode = jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
        return str(frame._jdf.queryExecution().explainString(mode))
    return str(cast("ConnectDataFrame", frame)._explain_string(mode="formatted"))
