"""Run as a program by the tests: one process may not have a classic and a Connect session at once.

Arguments: `sc://` address, folder of a Delta table. The token is in SPARK_CONNECT_AUTHENTICATE_TOKEN, options on stdin.
Prints one JSON document.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(url: str, table: str) -> None:
    """Broker -> Delta, database -> count, and the settings that the session sees."""
    options = json.load(sys.stdin)
    spark = SparkSession.builder.remote(url).getOrCreate()
    records = (
        spark.read.format("kafka")
        .options(**options["kafka"], subscribe=options["topic"], startingOffsets="earliest")
        .load()
    )
    records.select(f.col("value").cast("string"), f.current_timezone().alias("zone")).write.format("delta").save(table)
    written = spark.read.format("delta").load(table)
    rows = sorted(row.value for row in written.collect())
    roles = (
        spark.read.format("jdbc")
        .options(**{**options["jdbc"], "dbtable": "(SELECT current_user AS role) AS me"})
        .load()
        .collect()
    )
    plan = records._explain_string(extended=True)
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    answer = {"rows": rows, "zone": written.first().zone, "role": roles[0].role, "shuffles": shuffles, "plan": plan}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
