"""Debezium's PostgreSQL connector in Kafka Connect, standalone, with the defaults of both: the field's usual capture.

https://debezium.io/documentation/reference/3.6/connectors/postgresql.html; Kafka's manual, chapter Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from de_resources.local.ivy import Coordinate, retrieve
from de_resources.local.java import java_executable
from de_resources.local.service import write_private
from de_resources.settings import Settings

VERSION = "3.6.3.Final"
_ROOTS = (
    f"io.debezium:debezium-connector-postgres:{VERSION}",
    "org.apache.kafka:connect-runtime:4.3.1",
    "org.apache.kafka:connect-json:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
_HEAP = "-Xmx512m"


def class_path(settings: Settings) -> list[Path]:
    """The connector, Kafka Connect and all they need, fetched once into the cache of jars (some 60 MB)."""
    folder = settings.jars / f"debezium-{VERSION}"
    marker = folder / ".complete"
    if not marker.exists():
        retrieve("debezium", map(Coordinate.parse, _ROOTS), folder / "jars", folder / "cache", transitive=True)
        marker.touch()
    return sorted((folder / "jars").glob("*.jar"))


def command(
    folder: Path, jars: list[Path], broker: Mapping[str, str], database: Mapping[str, str], table: str, topic: str
) -> list[str]:
    """The command that captures a table into a topic; its settings are files that only their owner can read.

    `broker` holds Kafka's client settings by their Java names. The topic is routed to, because the connector would name it
    after prefix, schema and table.
    """
    prefix = table.replace(".", "_")
    worker = {
        **broker,
        **{f"producer.{name}": value for name, value in broker.items() if name != "bootstrap.servers"},
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": str(folder / "offsets"),
        "listeners": "http://127.0.0.1:0",
        "plugin.discovery": "only_scan",
    }
    connector = {
        "name": prefix,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **{f"database.{name}": value for name, value in database.items()},
        "topic.prefix": prefix,
        "table.include.list": table,
        "plugin.name": "pgoutput",
        "slot.name": f"debezium_{prefix}",
        "publication.name": f"debezium_{prefix}",
        "publication.autocreate.mode": "filtered",
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": ".*",
        "transforms.route.replacement": topic,
    }
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = [_properties(folder / "worker.properties", worker), _properties(folder / "connector.properties", connector)]
    java = [str(java_executable()), _HEAP, "-Dlog4j2.level=ERROR", "-cp", ":".join(map(str, jars))]
    return [*java, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)]


def _properties(path: Path, settings: Mapping[str, str]) -> Path:
    escaped = {name: value.replace("\\", "\\\\") for name, value in settings.items()}
    write_private(path, "".join(f"{name}={value}\n" for name, value in escaped.items()))
    return path
