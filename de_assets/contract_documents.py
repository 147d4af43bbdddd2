"""The contracts of the graph as documents of the Open Data Contract Standard, one file per dataset.

What a document says beside the contract comes from the graph: its readers, the systems that serve it, how often it is made. The
places (`servers`) are those of the machine that writes it, and are not compared; a system that does not run is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from de_assets.catalogue.patterns import read_list
from de_assets.contract_versions import VERSIONS, contracts_of, specs_of
from de_assets.partitions import daily, hourly, weekly
from de_assets.sources.topics import VISITS_REDUCED
from de_resources.contract import Contract
from de_resources.contract.differences import differences
from de_resources.contract.odcs import SPARK, SUFFIX, Dialect, Document, Promise, Surroundings, document, file_name
from de_resources.contract.versions import ContractHistory, schema_of
from de_resources.kafka import KafkaBroker
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.constraints import violated
from de_resources.postgres.transaction import sql_type
from de_resources.settings import Settings

DOMAIN = "blog-analytics"
_PLACES = "servers"
_PHYSICAL = {"view": "view", "kafka": "topic"}
_TOPICS = {"serving.visits_reduced": VISITS_REDUCED}
_PERIODS = ((hourly, timedelta(hours=1)), (daily, timedelta(days=1)), (weekly, timedelta(weeks=1)))


class Documents:
    """Makes the documents of the contracts of `assets`, which name each other as readers."""

    def __init__(self, assets: Sequence[Any], settings: Settings, folder: Path = VERSIONS) -> None:
        definitions = [each for each in assets if isinstance(each, dg.AssetsDefinition)]
        self._specs = {spec.key: spec for spec in specs_of(assets)}
        self._readers = _readers(definitions)
        self._keys = {contract.name: (key, contract) for key, contract in contracts_of(assets).items()}
        self._settings, self._folder = settings, folder

    @property
    def names(self) -> list[str]:
        """The contracts that there are."""
        return sorted(self._keys)

    def of(self, name: str) -> Document:
        """The document of a contract. `KeyError` for a name that none has."""
        key, contract = self._keys[name]
        spec = self._specs[key]
        version, status = version_of(contract, self._folder)
        kind = next((said for kind, said in _PHYSICAL.items() if kind in spec.kinds), "table")
        around = Surroundings(
            version=version,
            status=status,
            domain=DOMAIN,
            physical_type=kind,
            servers=list(self._servers(contract, spec)),
            readers=[*sorted(r.to_user_string() for r in self._readers.get(key, ())), *contract.consumers],
            promises=list(_promises(spec)),
            dialect=_postgres(contract) if "postgres" in spec.kinds else SPARK,
        )
        return document(contract, around)

    def _servers(self, contract: Contract, spec: dg.AssetSpec) -> Iterator[Document]:
        """Where the dataset is read, without credentials."""
        try:
            if "postgres" in spec.kinds:
                yield _database(contract)
            elif "kafka" in spec.kinds:
                yield _broker(spec.metadata.get("source/topic") or _TOPICS[contract.name])
            else:
                path = self._settings.uri_of(contract.name.replace(".", "/", 1))
                yield {"server": "lake", "type": "local", "path": path, "format": "delta"}
        except ServiceUnavailable:
            return


def version_of(contract: Contract, folder: Path) -> tuple[str, str]:
    """Version and status: an accepted schema adds one to the second number, one that broke its readers to the first."""
    history = ContractHistory.read(folder, contract.name)
    major, minor = 1, -1
    for version in history.versions:
        major, minor = (major + 1, 0) if version.breaking else (major, minor + 1)
    if schema_of(contract) == history.newest:
        return f"{major}.{minor}.0", "active"
    return f"{major}.{minor + 1}.0", "draft"


def text_of(document: Document) -> str:
    """The document as YAML, in the order of the standard, without anchors."""
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


def write(documents: Documents, names: Sequence[str], folder: Path) -> list[Path]:
    """A file per contract; what the folder has besides stays."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        path = folder / file_name(name)
        path.write_text(text_of(documents.of(name)), encoding="utf-8")
        written.append(path)
    return written


def stale(documents: Documents, names: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """By file what differs from the contracts, places aside; empty where the folder tells the truth.

    A document in the folder that no contract has is among them, where all names are asked for.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        path = folder / file_name(name)
        found[path.name] = _differs(path, documents.of(name))
    if set(names) == set(documents.names):
        there = {path.name for path in folder.glob(f"*{SUFFIX}")}
        found |= {name: ["no dataset has this contract"] for name in sorted(there - found.keys())}
    return {name: told for name, told in found.items() if told}


def _differs(path: Path, made: Document) -> list[str]:
    if not path.exists():
        return ["there is no such file"]
    try:
        kept = read_list(path)
    except (yaml.YAMLError, UnicodeDecodeError):
        return ["it is no YAML"]
    if not isinstance(kept, Mapping):
        return ["it is no document"]
    return list(differences(_comparable(kept), _comparable(made)))


def _comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != _PLACES}


def _readers(definitions: Sequence[dg.AssetsDefinition]) -> dict[dg.AssetKey, set[dg.AssetKey]]:
    """By asset who is made from it, as the graph has it: recorded lineage would differ by machine."""
    readers: dict[dg.AssetKey, set[dg.AssetKey]] = {}
    for each in definitions:
        for reader, sources in each.asset_deps.items():
            for source in sources - {reader}:
                readers.setdefault(source, set()).add(reader)
    return readers


def _promises(spec: dg.AssetSpec) -> Iterator[Promise]:
    period = next((period for partitions, period in _PERIODS if partitions == spec.partitions_def), None)
    if period:
        yield Promise("frequency", period, "There is a partition for each such span of time.")
    longest = getattr(spec.freshness_policy, "fail_window", None)  # of a policy by time; others have none
    if longest is not None:
        yield Promise("latency", longest.to_timedelta(), "It was brought up to date at most this long ago.")


def _postgres(contract: Contract) -> Dialect:
    return Dialect(partial(sql_type, contract.name), partial(violated, contract))


def _database(contract: Contract) -> Document:
    place = PostgresDatabase().description()
    host, _, port = place["address"].rpartition(":")
    schema = contract.name.partition(".")[0]
    database = place["database"]
    return {
        "server": "database",
        "type": "postgresql",
        "host": host,
        "port": int(port),
        "database": database,
        "schema": schema,
    }


def _broker(topic: str) -> Document:
    servers = KafkaBroker().description()["bootstrap_servers"]
    topics = [{"property": "topic", "value": topic}]
    return {"server": "broker", "type": "kafka", "host": servers, "format": "json", "customProperties": topics}


class _Plain(yaml.SafeDumper):
    """YAML in which everything is said where it belongs, and nothing by reference to another place."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # An end of line that is none in ASCII comes back as another one, unless it is escaped.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _LINE_ENDS & set(text) else None)


_LINE_ENDS = frozenset("\x85\u2028\u2029")
_Plain.add_representer(str, _text)
