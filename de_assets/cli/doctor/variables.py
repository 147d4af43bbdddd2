"""The platform's environment variables: are those that are set known, and is what they say usable?

Values are shown only where they cannot hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from de_assets.cli.doctor.finding import Finding, fail, ok, warn
from de_assets.sources.landing import Readiness
from de_resources.sensor_interval import is_interval
from de_resources.settings import ROOTS, ObjectStoreUnsupported, is_folder

SECRET_PREFIX = "DE_SECRET_"  # noqa: S105 - the start of the variables' names
_KILL = "DE_KILL_AT"


@dataclass(frozen=True)
class VariableRule:
    """When a value is usable, and how to say what it has to be."""

    accepts: Callable[[str], object]
    must_be: str


def _is_server(value: str) -> bool:
    # Here and not above: with it comes the engine's library, which changes variables of the process that imports it.
    from de_assets.automation.alerting.channels import MailServerAddress

    try:
        MailServerAddress.parse(value)
    except ValueError:
        return False
    return True


def _is_sinks(value: str) -> bool:
    return all(re.fullmatch(r"[\w.]+:[\w.]+", each.strip()) for each in value.split(",") if each.strip())


_ANYTHING = VariableRule(lambda _: True, "anything")
_ROOT = VariableRule(is_folder, "a folder")

KNOWN: Mapping[str, VariableRule] = {
    **dict.fromkeys(ROOTS, _ROOT),
    "DE_HOME": VariableRule(lambda v: not Path(v).expanduser().is_file(), "a folder"),
    "DE_JARS": VariableRule(lambda v: not Path(v).expanduser().is_file(), "a folder"),
    "DE_SPARK": VariableRule(
        re.compile(r"(sc|spark)://\S+|local(\[(\d+|\*)\])?").fullmatch, "sc://…, spark://… or local[n]"
    ),
    "DE_SPARK_DRIVER_MEMORY": VariableRule(re.compile(r"\d+[kmgt]", re.IGNORECASE).fullmatch, "a size such as 3g"),
    "DE_POSTGRES_BIN": VariableRule(lambda v: (Path(v) / "postgres").exists(), "a folder that holds `postgres`"),
    "DE_POSTGRES_DATABASE": VariableRule(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}").fullmatch, "a database's name"),
    "DE_IVY_SETTINGS": VariableRule(lambda v: Path(v).is_file(), "an existing file"),
    "DE_SENSOR_SECONDS": VariableRule(is_interval, "a whole number of seconds, 1 or more"),
    "DE_UI": VariableRule(re.compile(r"https?://[^/\s]+(/\S*)?").fullmatch, "the UI's address"),
    "DE_VISITS_READINESS": VariableRule(get_args(Readiness).__contains__, "one of " + ", ".join(get_args(Readiness))),
    "DE_ALERT_WEBHOOK": VariableRule(re.compile(r"secret://[a-z][a-z0-9_]*").fullmatch, "secret://name of an address"),
    "DE_ALERT_LOGIN": VariableRule(re.compile(r"[^:]+:secret://[a-z][a-z0-9_]*").fullmatch, "user:secret://name"),
    "DE_ALERT_SMTP": VariableRule(_is_server, "host:port of a mail server"),
    "DE_ALERT_SINKS": VariableRule(_is_sinks, "module:Class[,…] of alert sinks"),
    "DE_ALERT_EMAIL": VariableRule(lambda v: all("@" in each for each in v.split(",")), "addresses, comma-separated"),
    "DE_ALERT_FROM": VariableRule(lambda v: "@" in v, "an address"),
    # Looked at where they are used: the ports by their own check, the calendar at every start.
    "DE_SPARK_CONNECT_PORT": _ANYTHING,
    "DE_POSTGRES_PORT": _ANYTHING,
    "DE_CAPTURE_PORT": _ANYTHING,
    "DE_PAGES_PORT": _ANYTHING,
    "DE_PARTNER_PORT": _ANYTHING,
    "DE_GEO_PORT": _ANYTHING,
    "DE_KAFKA_PORT": _ANYTHING,
    "DE_CALENDAR": _ANYTHING,
    _KILL: _ANYTHING,
    "DE_KILL_ONCE": _ANYTHING,
    # Set by the supervision itself, for the processes that it starts.
    "DE_SERVICES_OF": _ANYTHING,
    "DE_SERVICE_STOP_SIGNAL": _ANYTHING,
}


def check_variables(environment: Mapping[str, str]) -> list[Finding]:
    """One finding per variable that needs attention; a single one when all is well."""
    ours = {n: v for n, v in environment.items() if v and (n in KNOWN or n.startswith("DE_"))}
    named = ", ".join(sorted(ours)) or "none set; defaults apply"
    return list(_complaints(ours)) or [ok("variables", named)]


def _complaints(ours: Mapping[str, str]) -> Iterator[Finding]:
    for name, value in sorted(ours.items()):
        if name.startswith(SECRET_PREFIX):
            continue
        if name not in KNOWN:
            close = get_close_matches(name, KNOWN, n=1)
            meant = f"If you meant {close[0]}, set that; else run" if close else "Run"
            yield warn(name, "is not known and has no effect", f"{meant} `unset {name}`.")
        elif not KNOWN[name].accepts(value):
            remedy = f"Set it to {KNOWN[name].must_be}, or run `unset {name}`."
            if name in ROOTS:
                yield fail(name, str(ObjectStoreUnsupported(name, value.split("://")[0])), remedy)
            else:
                yield fail(name, f"is not {KNOWN[name].must_be}", remedy)
        elif name == _KILL:
            yield warn(name, "is set: processes kill themselves at that point of a write", f"Run `unset {name}`.")
