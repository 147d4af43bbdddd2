"""The Kafka broker: one KRaft node that asks everybody for a password, on its controller listener too."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from de_resources.errors import PermanentError
from de_resources.local.endpoints import Endpoint
from de_resources.local.jars import broker_jars
from de_resources.local.java import collector_option, java_executable
from de_resources.local.ports import LOOPBACK
from de_resources.local.service import Program, Service, write_private

USER = "de"
PASSWORD = "kafka_password"  # noqa: S105 - the secret's name
_INTERNAL_USER = "broker"
_INTERNAL_PASSWORD = "kafka_internal_password"  # noqa: S105 - the secret's name
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
# A broker of one machine mostly starts: nothing that it does later repays the optimising compiler, or a collector with threads.
_SMALL = "-XX:TieredStopAtLevel=1"
_LOGGING = """<Configuration>
<Appenders><Console name="out"><PatternLayout pattern="%d %p %c{1} %m%n"/></Console></Appenders>
<Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


class StorageFormatFailed(PermanentError):
    """The broker's data folder could not be formatted."""

    def __init__(self, folder: Path, output: str) -> None:
        self.folder = folder
        self.output = output
        super().__init__(f"Kafka could not format `{folder}`; its last words: {output.strip()[-600:]}")


class KafkaService(Service):
    """Topics are never created by accident (`auto.create.topics.enable=false`); the caller of `up` declares them."""

    name = "kafka"
    port_roles = {"client": "DE_KAFKA_PORT", "controller": None}  # noqa: RUF012 - a ClassVar by its base
    jar_sets = ("broker",)

    def check(self) -> None:
        """Java and the broker's jars have to be there."""
        java_executable()
        broker_jars(self.settings)

    def prepare(self, ports: Mapping[str, int]) -> Program:
        """Write the configuration, and format the data folder when it is new."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        properties = self.folder / "server.properties"
        write_private(properties, "".join(f"{key}={value}\n" for key, value in self._properties(ports).items()))
        write_private(self.folder / "log4j2.xml", _LOGGING)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(properties)
        return Program(command=[*self._java("256m"), "kafka.Kafka", str(properties)], directory=self.folder)

    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """The listener for clients."""
        password = SecretStr(self.secrets.generate(PASSWORD))
        return Endpoint(self.name, LOOPBACK, ports["client"], user=USER, password=password)

    def is_ready(self, endpoint: Endpoint) -> bool:
        """The broker answers a metadata request of the client user."""
        try:
            AdminClient({**client_config(endpoint)}).list_topics(timeout=3)
        except KafkaException:
            return False
        return True

    def _java(self, heap: str) -> list[str]:
        class_path = str(self.settings.jars / "broker" / "*")
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}"
        options = ["-XX:-UsePerfData", _SMALL, *filter(None, [collector_option("Serial")]), logging]
        return [str(java_executable()), f"-Xmx{heap}", *options, "-cp", class_path]

    def _format(self, properties: Path) -> None:
        command = [*self._java("128m"), "kafka.tools.StorageTool", "format", "--cluster-id", _cluster_id()]
        done = subprocess.run(
            [*command, "--config", str(properties)], capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode != 0:
            raise StorageFormatFailed(self.folder / "data", done.stdout + done.stderr)

    def _properties(self, ports: Mapping[str, int]) -> dict[str, str]:
        internal, client = self.secrets.generate(_INTERNAL_PASSWORD), self.secrets.generate(PASSWORD)
        login = f'{_LOGIN_MODULE} required username="{_INTERNAL_USER}" password="{internal}" user_broker="{internal}"'
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{ports['controller']}",
            "listeners": f"CLIENT://{LOOPBACK}:{ports['client']},CONTROLLER://{LOOPBACK}:{ports['controller']}",
            "advertised.listeners": f"CLIENT://{LOOPBACK}:{ports['client']}",
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "CLIENT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": f'{login} user_{USER}="{client}";',
            "listener.name.controller.plain.sasl.jaas.config": f"{login};",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            **_SINGLE_NODE,
        }


_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    # The first snapshot of a capture is one transaction: six hours, and not a quarter of one.
    "transaction.max.timeout.ms": "21600000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that nobody asks takes half as much of the machine: twice a second a record that says nothing but that the
    # controller lives, which is this process, and eight threads that wait for requests.
    "metadata.max.idle.interval.ms": "10000",
    "num.io.threads": "2",
    # The default buffer of the log cleaner is half of this broker's heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
}


def client_config(endpoint: Endpoint) -> dict[str, str]:
    """The configuration with which confluent-kafka reaches a local broker; contains the password."""
    return {
        "bootstrap.servers": endpoint.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": endpoint.user,
        "sasl.password": endpoint.password.get_secret_value(),
        # The library would print every refused connection of a starting or absent broker to stderr.
        "log_level": "0",
    }


def _cluster_id() -> str:
    """A random id in Kafka's notation, which may not look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
