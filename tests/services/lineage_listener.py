"""OpenLineage's own listener inside the engine: what it says of the plans that the platform writes, as an oracle.

Its jar is fetched for tests only, by the lock file beside the table of differences, and kept beside the platform's jars
(`$DE_JARS/../test-jars`). On a machine without a network that never had it, what asks for it is skipped and says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from de_resources.lineage.inputs import FILE_METADATA
from de_resources.lineage.recorded import Field, RecordedLineage
from de_resources.local import spark_connect
from de_resources.local.jars import ensure_jars
from de_resources.settings import Settings

HERE = Path(__file__).resolve().parent / "listener"
CLASS = "io.openlineage.spark.agent.OpenLineageSparkListener"
ROWS = "(rows)"
"""Stands for a column: what decides which rows there are."""


def listener_jar(settings: Settings) -> Path:
    """The jar, fetched where it is absent. Raises `IvyFailed` without a network, and `JarCorrupt`."""
    own = replace(settings, jars=settings.jars.with_name("test-jars"))
    (jar,) = ensure_jars(own, ["listener"], lock=HERE / "listener.lock")["listener"]
    return jar


@contextmanager
def listening(jar: Path, events: Path) -> Iterator[None]:
    """Engines that are started meanwhile have the listener, which writes what it saw to the file."""
    configured: Callable[[Settings, str], dict[str, str]] = spark_connect.engine_conf

    def with_listener(settings: Settings, master: str) -> dict[str, str]:
        conf = configured(settings, master)
        return conf | {
            "spark.jars": f"{conf['spark.jars']},{jar}",
            "spark.extraListeners": CLASS,
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": str(events),
            "spark.openlineage.columnLineage.datasetLineageEnabled": "true",
        }

    with patch.object(spark_connect, "engine_conf", with_listener):
        yield


@dataclass
class Heard:
    """What the listener has said of one dataset, in all its events: sources by column, those of `ROWS` included."""

    columns: dict[str, set[Field]] = field(default_factory=lambda: defaultdict(set))


def heard(events: Path, dataset_of: Callable[[str, str], str]) -> dict[str, Heard]:
    """By dataset; `dataset_of` names the one behind a namespace and a name of OpenLineage.

    A window's keys and the conditions of a CASE are sources of a column here, as they are for the platform.
    """
    found: dict[str, Heard] = defaultdict(Heard)
    for line in events.read_text().splitlines():
        for output in json.loads(line).get("outputs", []):
            facet = output["facets"].get("columnLineage")
            if facet:
                own = found[dataset_of(output["namespace"], output["name"])].columns
                for column, said in facet["fields"].items():
                    own[column] |= _fields(said["inputFields"], dataset_of)
                own[ROWS] |= _fields(facet.get("dataset", []), dataset_of)
    return dict(found)


def _fields(said: list[dict[str, Any]], dataset_of: Callable[[str, str], str]) -> set[Field]:
    named = ((dataset_of(each["namespace"], each["name"]), each["field"]) for each in said)
    return {each for each in named if each[1] != FILE_METADATA}


@dataclass(frozen=True)
class Difference:
    """What one side alone calls a source of a column."""

    dataset: str
    column: str
    listener: frozenset[Field]
    platform: frozenset[Field]


def differences(dataset: str, listener: Heard, platform: RecordedLineage) -> list[Difference]:
    """Column by column, what the two do not have in common."""
    recorded: Mapping[str, frozenset[Field]] = {**platform.columns, ROWS: platform.conditions}
    found = []
    for column in sorted({*recorded, *listener.columns}):
        said, own = frozenset(listener.columns.get(column, ())), recorded.get(column, frozenset())
        if said != own:
            found.append(Difference(dataset, column, said - own, own - said))
    return found


@dataclass(frozen=True)
class Explained:
    """The table of differences: by dataset what may be on one side alone, and which datasets the listener is silent about."""

    listener: Mapping[str, frozenset[str]]
    platform: Mapping[str, frozenset[str]]
    silent: frozenset[str]

    @classmethod
    def read(cls) -> Explained:
        """From `differences.yaml`. Raises `KeyError` for a difference without a reason that the table gives."""
        table = yaml.safe_load((HERE / "differences.yaml").read_text())
        sides: dict[str, dict[str, frozenset[str]]] = {"listener": {}, "platform": {}}
        for reason, rows in table["differences"].items():
            table["reasons"][reason]
            for dataset, said in rows.items():
                for side, fields in said.items():
                    sides[side][dataset] = sides[side].get(dataset, frozenset()) | set(fields)
        silent = (dataset for reason, each in table["silent"].items() if table["reasons"][reason] for dataset in each)
        return cls(**sides, silent=frozenset(silent))

    def unexplained(self, found: Difference) -> Difference:
        """What is left of a difference."""
        return replace(
            found,
            listener=found.listener - self._covered(self.listener, found.dataset, found.listener),
            platform=found.platform - self._covered(self.platform, found.dataset, found.platform),
        )

    def unneeded(self, found: list[Difference]) -> set[str]:
        """What the table explains and nobody found."""
        return {
            f"{side}: {dataset} {text}"
            for side, table in (("listener", self.listener), ("platform", self.platform))
            for dataset, texts in table.items()
            for text in texts
            if not any(_is(text, each) for one in found if one.dataset == dataset for each in getattr(one, side))
        }

    @staticmethod
    def _covered(table: Mapping[str, frozenset[str]], dataset: str, fields: frozenset[Field]) -> set[Field]:
        return {each for each in fields if any(_is(text, each) for text in table.get(dataset, ()))}


def _is(text: str, field_: Field) -> bool:
    """`bronze/visits.raw` is that column, `silver/users.*` every one."""
    dataset, _, column = text.rpartition(".")
    return dataset == field_[0] and column in ("*", field_[1])
