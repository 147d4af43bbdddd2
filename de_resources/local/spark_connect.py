"""The Spark Connect server: one warm engine that every run, check and tool of this machine shares."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pyspark
from pydantic import SecretStr

from de_resources.local.endpoints import Endpoint
from de_resources.local.engine_conf import engine_conf, java_options
from de_resources.local.jars import engine_jars
from de_resources.local.java import java_executable
from de_resources.local.ports import LOOPBACK
from de_resources.local.service import Program, Service, write_private

SPARK_HOME = Path(pyspark.__file__).parent
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
# A worker of a streaming query begins by printing the server's address with the token in it, which ends in the server's log.
_LAUNCHER = """\
#!/usr/bin/env bash
case "$*" in
*pyspark.sql.connect.streaming.worker*) exec {python} "$@" > >(exec sed -u 's/token=[^; ]*/token=***/g') ;;
*) exec {python} "$@" ;;
esac
"""
TOKEN = "spark_connect_token"  # noqa: S105 - the secret's name


class SparkConnectService(Service):
    """A client can run any code in the server: it listens on loopback only and refuses whoever lacks the token."""

    name = "spark_connect"
    port_roles = {"client": "DE_SPARK_CONNECT_PORT"}  # noqa: RUF012 - a ClassVar by its base
    jar_sets = ("engine",)

    def check(self) -> None:
        """Java and the engine's jars have to be there."""
        java_executable()
        engine_jars(self.settings)

    def prepare(self, ports: Mapping[str, int]) -> Program:
        """Write the properties file: the token goes there and not into the command line."""
        scratch = self.settings.home / "spark" / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        write_private(properties, "".join(f"{key} {value}\n" for key, value in self._conf(ports, scratch).items()))
        submit = str(SPARK_HOME / "bin" / "spark-submit")
        return Program(
            command=[submit, "--properties-file", str(properties), "--class", SERVER_CLASS, "spark-internal"],
            directory=self.folder,
            environment={
                "SPARK_HOME": str(SPARK_HOME),
                "SPARK_LOCAL_IP": LOOPBACK,
                # For its clients' Python functions the server asks this variable only, and not `spark.pyspark.python`.
                "PYSPARK_PYTHON": str(self._python()),
            },
        )

    def _python(self) -> Path:
        """A launcher of this interpreter under which the server's streaming workers do not log the token."""
        launcher = self.folder / "python"
        write_private(launcher, _LAUNCHER.format(python=shlex.quote(sys.executable)))
        launcher.chmod(0o700)
        return launcher

    def endpoint(self, ports: Mapping[str, int]) -> Endpoint:
        """The host is literally `localhost`: for any other name the client switches to TLS, which is not there."""
        token = SecretStr(self.secrets.generate(TOKEN))
        return Endpoint(self.name, "localhost", ports["client"], user="", password=token)

    def is_ready(self, endpoint: Endpoint) -> bool:
        """The gRPC port answers as gRPC; no session is opened."""
        with grpc.insecure_channel(f"{LOOPBACK}:{endpoint.port}") as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=1)
            except grpc.FutureTimeoutError:
                return False
            return True

    def _conf(self, ports: Mapping[str, int], scratch: Path) -> dict[str, str]:
        master = f"local[{os.cpu_count()}]"
        return engine_conf(self.settings, master) | {
            "spark.master": master,
            "spark.app.name": "spark-connect",
            "spark.log.level": "WARN",
            "spark.driver.extraJavaOptions": (
                f'-XX:-UsePerfData "-Djava.io.tmpdir={scratch}" {java_options(self.settings)}'
            ),
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(ports["client"]),
            "spark.connect.authenticate.token": self.secrets.generate(TOKEN),
        }
