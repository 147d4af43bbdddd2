"""All there is to find, in the order in which things are needed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from de_assets.catalogue import PROJECT
from de_assets.cli.doctor.channels import check_channels
from de_assets.cli.doctor.finding import Finding
from de_assets.cli.doctor.listener import check_listener
from de_assets.cli.doctor.machine import check_browser, check_disk, check_java, check_postgres, check_python
from de_assets.cli.doctor.packages import Pins, check_jars, check_packages
from de_assets.cli.doctor.services import check_ports, check_service, check_slot
from de_assets.cli.doctor.variables import check_variables
from de_assets.sources.capture import CAPTURES
from de_resources import capture
from de_resources.local.endpoints import ServiceStatus, ServiceUnavailable
from de_resources.local.jars import SETS
from de_resources.local.services import LocalServices
from de_resources.postgres import PostgresDatabase
from de_resources.settings import Settings


def diagnose(settings: Settings, environment: Mapping[str, str]) -> list[Finding]:
    """All findings, in the order in which things are needed. Takes a second or two: every jar is read."""
    pins = Pins.of_project(PROJECT / "pyproject.toml")
    statuses = LocalServices(settings).status()
    return [
        check_python(pins.python),
        check_packages(pins.packages),
        check_java(),
        *(check_jars(settings, jar_set) for jar_set in SETS),
        check_postgres(settings),
        check_disk(settings.home),
        *check_variables(environment),
        *check_channels(environment),
        check_listener(settings, environment),
        *check_ports(environment, statuses),
        *(check_service(status) for status in statuses),
        *_slots(statuses),
        check_browser(),
    ]


def _slots(statuses: Sequence[ServiceStatus]) -> Iterator[Finding]:
    """What captures hold in the database, where it runs."""
    if any(status.name == "postgres" and status.is_running for status in statuses):
        with suppress(ServiceUnavailable):  # the finding about the service says it
            yield from [check_slot(source, capture.status(PostgresDatabase(), source)) for source in CAPTURES]
