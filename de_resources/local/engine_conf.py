"""Settings of the engine, the same for the Spark Connect server and for a classic session in the own process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from de_resources.local.hadoop_defaults import hadoop_defaults
from de_resources.local.jars import engine_jars
from de_resources.local.java import collector_option, compiler_options, process_option
from de_resources.local.local_files import local_files, local_files_conf
from de_resources.settings import Settings

REDACTED_LOG = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("engine_log.properties").as_uri()}"'
"""The option of the JVM by which no row's values reach the engine's log."""
DRIVER_MEMORY_VARIABLE = "DE_SPARK_DRIVER_MEMORY"
_LATER = 10
_USUAL = {
    "InvocationThreshold": 5000,
    "MinInvocationThreshold": 600,
    "CompileThreshold": 15000,
    "BackEdgeThreshold": 40000,
}
OPTIMISED_LATER = " ".join(f"-XX:Tier4{name}={usual * _LATER}" for name, usual in _USUAL.items())
"""What is called ten times as often as by Java's defaults gets the optimising compiler.

Hundreds of plans, each a little different, call a few thousand times what is never called again: a quarter of an engine's CPU
was this compiler's. Rows of a large table come in millions, and soon get there.
"""
_PIECES = {
    "FreqInlineSize": 100,
    "InlineSmallCode": 1000,
    "MaxInlineLevel": 9,
    "C1MaxInlineSize": 15,
    "C1MaxInlineLevel": 2,
}
COMPILED_IN_PIECES = " ".join(f"-XX:{name}={limit}" for name, limit in _PIECES.items())
"""Both compilers copy less of what a method calls into it: limits of bytes, and of calls within calls.

Java's defaults (325, 2500, 15; 35, 9) are for programs that run for days. With these the compilers took 32 instead of 55 CPU
seconds of a first fill, and millions of rows are written, judged, grouped and merged as fast as before
(`docs/testing-history.md`).
"""


def engine_conf(settings: Settings, master: str) -> dict[str, str]:
    """Spark's configuration with Delta as the catalog, sized for one machine; holds no secret.

    `master` is where it computes: `local[n]`, or the address of a cluster.

    `DE_SPARK_DRIVER_MEMORY` (default `3g`) is the heap of the JVM that computes; it acts where Spark starts that JVM.

    Raises:
        JarsMissing: the engine's jars were not fetched yet.
    """
    work = settings.home / "spark"
    jars = [str(jar) for jar in engine_jars(settings)]
    first = [str(jar) for jar in (*hadoop_defaults(settings), *local_files(settings))]
    return {
        **local_files_conf(settings, master),
        # Of a cluster's executors. The driver has them on its class path, whose classes its JVM can keep (`class_archive`).
        "spark.jars": ",".join(jars),
        "spark.driver.extraClassPath": os.pathsep.join([*first, *jars]),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "scratch"),
        "spark.driver.memory": os.environ.get(DRIVER_MEMORY_VARIABLE) or "3g",
        "spark.driver.extraJavaOptions": java_options(settings),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Few and small tasks: the defaults are for a cluster and cost a hundred empty tasks per commit here. Each task that
        # replays a table's log writes a program for that first: two took a twentieth more of the CPU of small commits than one.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
        # Frames are kept for the length of one write or two: choosing encodings costs more than reading them plain.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # A whole number, which every reader knows and of which files keep bounds. Spark's default is an older form, twelve
        # bytes without bounds: two columns of 1.5 million rows took a third more CPU to write.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Spark's own pattern and `jaas`: a broker's password must not be readable in a printed plan.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        # Plans of some hundred shapes come again: the default, a hundred, forgets what it has compiled before it is used again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # Java compiles no method of more than 8,000 bytes. Spark fuses a plan into one of up to 65,535, which is then
        # interpreted for every row: with 60 rules in one projection ten times as slow. Such a plan is left in its own pieces.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # Rows go to Python in larger pieces than ten thousand, which took a tenth more CPU for five million narrow ones; their
        # bytes are bounded apart, at 64 MiB.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
        # A plan cut in the middle cannot be compared, and cut schemas hide what changed.
        "spark.sql.debug.maxToStringFields": "10000",
    }


def java_options(settings: Settings) -> str:
    """Options that every JVM of an engine has on this machine.

    Its collector works while the engine stands: for one that computes that is a third of the CPU of Java's default, which
    works beside it, and takes up the whole heap to be able to.
    """
    from de_resources.local.class_archive import archive_options  # only where one is started

    compilers = compiler_options(OPTIMISED_LATER, COMPILED_IN_PIECES)
    options = REDACTED_LOG, compilers, collector_option("Parallel"), process_option(), archive_options(settings)
    return " ".join(filter(None, options))
