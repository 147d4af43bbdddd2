"""The assets `bronze/visits` and `bronze/visits_dead_letter` as somebody would write them by hand, without a platform.

Arguments: the landed visits' folder, the folder of the two tables. SPARK_REMOTE names the server. The lines are read once
and kept, because they are written to two tables; what makes a line a dead letter is the same as in the graph.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = """
    visit_id STRING, event_time STRING, user_id STRING, keep_private BOOLEAN, page STRING,
    context STRUCT<
        referral: STRING, ad_id: STRING,
        user: STRUCT<ip: STRING, login: STRING, connected_since: STRING>,
        technical: STRUCT<browser: STRING, browser_version: STRING, network_type: STRING, device_type: STRING,
            device_version: STRING, is_bot: BOOLEAN>>,
    corrupt STRING
"""


def main(landed: str, tables: str) -> None:
    """Overwrite both tables."""
    spark = SparkSession.builder.getOrCreate()
    parsed = parse(spark.read.option("recursiveFileLookup", True).text(landed)).persist()
    for name, chosen in (("dead", parsed.where("is_dead").select("raw", "source_file", "landing_hour")),
                         ("valid", parsed.where("NOT is_dead").drop("is_dead"))):  # fmt: skip
        writer = chosen.write.format("delta").mode("overwrite").option("overwriteSchema", True)
        writer.partitionBy("landing_hour").save(f"{tables}/{name}")
    parsed.unpersist()


def parse(lines: DataFrame) -> DataFrame:
    """The columns of bronze.visits, and whether the line is a dead letter."""
    path = F.col("_metadata.file_path")
    read = lines.select(
        F.col("value").alias("raw"),
        F.is_valid_utf8("value").alias("is_text"),
        F.regexp_extract(path, "(visits/date=.*)$", 1).alias("source_file"),
        F.to_timestamp(F.regexp_extract(path, r"date=(\S{10})/hour=(\d\d)", 0), "'date='yyyy-MM-dd'/hour='HH").alias(
            "landing_hour"
        ),
        F.from_json("value", SCHEMA, {"columnNameOfCorruptRecord": "corrupt"}).alias("v"),
    )
    timed = read.withColumns(
        {
            "event_time": F.col("v.event_time").try_cast("timestamp"),
            "connected_since": F.col("v.context.user.connected_since").try_cast("timestamp"),
        }
    )
    missing = [F.coalesce(F.trim(f"v.{c}"), F.lit("")) == "" for c in ("visit_id", "event_time", "user_id", "page")]
    dead = F.col("v").isNull() | F.col("v.corrupt").isNotNull() | F.col("event_time").isNull()
    dead |= F.col("v.context.user.connected_since").isNotNull() & F.col("connected_since").isNull()
    dead |= ~F.col("is_text")
    for each in missing:
        dead |= each
    return timed.select(
        "v.visit_id", "event_time", "v.user_id", "v.page", "v.keep_private", "v.context.referral", "v.context.ad_id",
        "v.context.user.ip", "v.context.user.login", "connected_since", "v.context.technical.*",
        "raw", "source_file", "landing_hour", dead.alias("is_dead"),
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
