"""An engine that has just started computes its first plans ten times slower than its later ones: warm it while nobody waits."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_ROWS = 100


def warm(session: SparkSession, scratch: Path) -> None:
    """Write, merge and read a small Delta table in a folder of its own under `scratch`, and remove it.

    That loads the classes which every write of a table needs. It changes nothing else, and doing it again is quick.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="warm-", dir=scratch))
    try:
        table = f"delta.`{folder / 'table'}`"
        rows = session.range(_ROWS).select(
            "id", F.current_timestamp().alias("at"), F.concat(F.lit("text "), F.col("id").cast("string")).alias("text")
        )
        rows.write.format("delta").partitionBy("at").save(str(folder / "table"))
        lines = folder / "lines"
        rows.select(F.to_json(F.struct("id", "text")).alias("value")).write.text(str(lines))
        read = session.read.text(str(lines)).select(F.from_json("value", "id LONG, text STRING").alias("row"))
        read.select("row.*").createOrReplaceTempView("warm_rows")
        session.sql(
            f"MERGE INTO {table} AS t USING (SELECT id, max(text) AS text FROM warm_rows GROUP BY id) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET t.text = s.text"
        ).collect()
        session.read.format("delta").load(str(folder / "table")).groupBy("text").count().collect()
        session.catalog.dropTempView("warm_rows")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
