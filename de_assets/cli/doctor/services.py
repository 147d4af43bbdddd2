"""How the local services are, what they hold, and whether the ports that configuration asks for can be had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from de_assets.cli.doctor.finding import Finding, fail, ok, warn
from de_resources.capture import CaptureSource, CaptureStatus
from de_resources.local.endpoints import ServiceState, ServiceStatus
from de_resources.local.ports import is_free
from de_resources.local.services import KINDS

MUCH_LOG = 2**30
"""Bytes."""


def check_service(status: ServiceStatus) -> Finding:
    """A stopped service is well: `de up` or `de run` starts it when it is needed."""
    name = f"service {status.name}"
    why = status.why or ""
    match status.state:
        case ServiceState.RUNNING:
            return ok(name, f"running on port {status.port}")
        case ServiceState.STOPPED:
            return ok(name, "stopped; `de up` starts it")
        case ServiceState.STARTING:
            return warn(name, f"starting: {why}", f"Wait; if it stays so, run `de logs {status.name}`.")
        case ServiceState.LEFT_OUT:
            return warn(name, f"left out: {why}", f"When that is corrected, run `de up {status.name}`.")
        case ServiceState.DEGRADED:
            return fail(
                name, f"a part of it does not work: {why}", f"Run `de logs {status.name}`, and correct what it says."
            )
        case ServiceState.FAILED:
            return fail(name, f"failed: {why}", f"Run `de logs {status.name}`, then `de up {status.name}`.")


def check_slot(source: CaptureSource, slot: CaptureStatus | None) -> Finding:
    """A replication slot that nobody reads, or that is read too slowly, fills the disk of the database."""
    name = f"capture {source.name}"
    if slot is None:
        return ok(name, "keeps nothing in the database; `de up` starts it")
    kept = f"{slot.retained_bytes / 2**20:,.1f} MiB of the database's log are kept for it"
    if slot.is_lost:
        remedy = f"Run `de capture drop {source.name}`, then `de up`: it begins again with a snapshot."
        return fail(name, "the database has removed log that it needed: changes are missing", remedy)
    if not slot.active:
        return warn(name, f"nobody reads it; {kept}", f"Run `de up`, or give it up: `de capture drop {source.name}`.")
    if slot.retained_bytes > MUCH_LOG:
        return warn(name, f"it is behind; {kept}", "Wait; if it grows, run `de logs capture`.")
    return ok(name, kept)


def check_ports(environment: Mapping[str, str], statuses: Sequence[ServiceStatus]) -> Iterator[Finding]:
    """One finding per port variable that is set: a valid port, used by the service itself or by nobody."""
    in_use = {status.name: status.port for status in statuses if status.is_running}
    for service in KINDS:
        for variable in filter(None, service.port_roles.values()):
            if value := environment.get(variable):
                yield _check_port(variable, value, in_use.get(service.name))


def _check_port(variable: str, value: str, own: int | None) -> Finding:
    remedy = f"Set {variable} to a free port, or run `unset {variable}` to have one picked."
    if not (value.isdecimal() and 1 <= int(value) <= 65535):
        return fail(variable, f"`{value}` is not a port", remedy)
    if int(value) == own:
        return ok(variable, f"port {value}, used by our service")
    if not is_free(int(value)):
        return fail(variable, f"port {value} is used by another process", remedy)
    return ok(variable, f"port {value} is free")
