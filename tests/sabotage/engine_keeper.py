"""A program that starts the Java process of an engine and keeps it, without an application in it.

It prints the port and the secret by which PySpark finds that process, and then, for each line of its input, `cleared`: what
ran in there has ended. It needs the copy of the project in its path, and is itself no part of what is tested.
"""

import os
import sys

from engines import JAVA_OPTIONS
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from de_resources.local.engine_conf import engine_conf
from de_resources.settings import Settings


def clear(gateway: JavaGateway) -> None:
    """End the application that is there, with its sessions, streams and jobs, and forget the tables that it read."""
    # Of Scala's companion object: Java is shown no way to ask for it without making one.
    companion = gateway.jvm.java.lang.Class.forName("org.apache.spark.SparkContext$").getField("MODULE$").get(None)
    active = companion.getActive()
    if active.isDefined():
        active.get().stop()
    gateway.jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def main() -> None:
    """Keep it until there is no more input."""
    os.environ["JDK_JAVA_OPTIONS"] = JAVA_OPTIONS
    conf = SparkConf(loadDefaults=False).setAll(list(engine_conf(Settings.from_environment(), "local[*]").items()))
    gateway = launch_gateway(conf)
    port, secret = gateway.java_parameters.port, gateway.java_parameters.auth_token
    print(port, secret, flush=True)
    for _ in sys.stdin:
        clear(gateway)
        print("cleared", flush=True)


if __name__ == "__main__":
    main()
