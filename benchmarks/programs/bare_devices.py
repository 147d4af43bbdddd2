"""The asset `bronze/devices` as somebody would write it without a platform.

Arguments: folder of the dump, table to overwrite. SPARK_REMOTE names the server. Prints the seconds of the work itself, without
imports, as JSON.
"""

import json
import sys
import time

from pyspark.sql import SparkSession


def main(dump: str, table: str) -> None:
    """Read the dump, overwrite the table."""
    started = time.perf_counter()
    spark = SparkSession.builder.getOrCreate()
    frame = spark.read.schema("type STRING, full_name STRING, version STRING").option("mode", "FAILFAST").json(dump)
    frame.select("type", "version", "full_name").write.format("delta").mode("overwrite").save(table)
    print(json.dumps({"seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main(*sys.argv[1:])
