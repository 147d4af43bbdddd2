"""The broker as a Dagster resource: the one that configuration names, else the one that `de up` started here."""

from collections.abc import Iterable
from typing import ClassVar

import dagster as dg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pydantic import Field, SecretStr

from de_resources.kafka.errors import START_IT, BrokerMisconfigured
from de_resources.local.discovery import local_endpoint
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.local.topics import TopicSpec, create_topics
from de_resources.secrets import Secrets
from de_resources.settings import Settings

__all__ = ["BrokerMisconfigured", "KafkaBroker", "ServiceUnavailable", "TopicSpec"]

ANSWER_SECONDS = 5.0
_LONGEST_TRANSACTION = "transaction.max.timeout.ms"
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class KafkaBroker(dg.ConfigurableResource):
    """How clients and Spark reach the broker. Nothing is contacted before a method is called.

    `password` is a reference (`secret://name`), never the value; only for the local broker it may be left out.
    """

    services: ClassVar[tuple[str, ...]] = ("kafka",)

    bootstrap_servers: str | None = Field(default=None, description="host:port,...; unset: the local broker")
    user: str | None = Field(default=None, description="SASL/PLAIN user")
    password: str | None = Field(default=None, description="reference of the password: secret://name")
    security_protocol: str = Field(default="SASL_PLAINTEXT", description="SASL_PLAINTEXT, or SASL_SSL over a network")
    spark_settings: dict[str, str] = Field(
        default_factory=dict,
        description="more options of Spark's source and sink, such as kafka.request.timeout.ms",
    )

    def client_config(self) -> dict[str, str]:
        """The configuration for confluent-kafka's clients. Contains the password: pass it on, never print it.

        Raises:
            ServiceUnavailable: no broker is configured and none runs here.
            BrokerMisconfigured, UnknownSecret, NotASecretReference: the configured credentials are no good.
        """
        servers, user, password = self._login()
        return {
            "bootstrap.servers": servers,
            "security.protocol": self.security_protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password.get_secret_value(),
        }

    def spark_options(self) -> dict[str, str]:
        """Options of Spark's `kafka` source and sink: `spark_settings`, address and login. The rest is the reader's affair.

        Raises:
            As `client_config`.
        """
        servers, user, password = self._login()
        plain = password.get_secret_value()
        if '"' in user + plain or "\\" in user + plain:
            raise BrokerMisconfigured(servers, "quotes and backslashes in user or password do not pass through JAAS.")
        return {
            **self.spark_settings,
            "kafka.bootstrap.servers": servers,
            "kafka.security.protocol": self.security_protocol,
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{_LOGIN_MODULE} required username="{user}" password="{plain}";',
        }

    def check(self) -> None:
        """Ask the broker for its metadata. Raises as `topics`."""
        self.topics()

    def topics(self) -> set[str]:
        """The topics that the user may see.

        Raises:
            ServiceUnavailable: it did not answer as expected within five seconds.
        """
        config = self.client_config()
        try:
            # The library prints every refused connection to stderr; the error below says it once.
            return set(AdminClient({**config, "log_level": "0"}).list_topics(timeout=ANSWER_SECONDS).topics)
        except KafkaException as error:
            raise ServiceUnavailable(
                "kafka", config["bootstrap.servers"], f"{error.args[0].str()}; {START_IT}"
            ) from error

    def longest_transaction(self) -> float | None:
        """The seconds that every broker of the cluster grants to a transaction; longer ones it aborts.

        None where this client may not ask for its settings, or nobody answers.
        """
        admin = AdminClient({**self.client_config(), "log_level": "0"})
        try:
            brokers = admin.list_topics(timeout=ANSWER_SECONDS).brokers
            settings = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
            asked = admin.describe_configs(settings, request_timeout=ANSWER_SECONDS)
            return min(float(told.result()[_LONGEST_TRANSACTION].value) / 1000 for told in asked.values())
        except (KafkaException, KeyError, ValueError):
            return None

    def reachable(self) -> bool:
        """Whether the broker answers within five seconds."""
        try:
            self.check()
        except ServiceUnavailable:
            return False
        return True

    def ensure_topics(self, topics: Iterable[TopicSpec]) -> list[str]:
        """Create the topics that are absent and return their names; existing ones keep their settings.

        Raises:
            ServiceUnavailable: the broker does not answer.
            TopicNotCreated: the broker refused a topic.
        """
        self.check()
        return create_topics(self.client_config(), topics)

    def description(self) -> dict[str, str]:
        """Address and user for metadata: no password, nothing is contacted but the local supervisor."""
        servers, user, _ = self._login()
        return {"bootstrap_servers": servers, "user": user, "security_protocol": self.security_protocol}

    def _login(self) -> tuple[str, str, SecretStr]:
        settings = Settings.from_environment()
        if self.bootstrap_servers:
            if not (self.user and self.password):
                raise BrokerMisconfigured(self.bootstrap_servers, "give `user` and `password` (as secret://name) too.")
            return self.bootstrap_servers, self.user, Secrets.from_settings(settings).resolve_hidden(self.password)
        endpoint = local_endpoint(settings, "kafka")
        if endpoint is None:
            raise ServiceUnavailable("kafka", "this machine", START_IT)
        return endpoint.address, endpoint.user, endpoint.password
