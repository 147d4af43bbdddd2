"""Datasets of OpenLineage: their name is the asset's key, in one namespace; where they lie is a facet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from openlineage.client import facet_v2 as f
from openlineage.client.event_v2 import InputDataset, OutputDataset

from de_resources.lineage.record import UNDECLARED
from de_resources.lineage.recorded import Field, RecordedLineage, lineage_of
from de_resources.lineage.undeclared_writes import UNDECLARED_WRITES

_ROWS = ("dagster/partition_row_count", "dagster/row_count")
_BYTES = ("delta/bytes",)


@dataclass(frozen=True)
class Datasets:
    """Makes datasets of one namespace. `parents` are the declared inputs of each asset, for those without lineage."""

    namespace: str
    parents: Mapping[str, Iterable[str]]

    def output(self, key: dg.AssetKey, events: Sequence[dg.AssetMaterialization]) -> OutputDataset:
        """What a step has written of one asset, in one or several partitions."""
        told = events[-1].metadata
        lineage = lineage_of(told)
        facets: dict[str, f.DatasetFacet] = {}
        schema = told.get("dagster/column_schema")
        if isinstance(schema, dg.TableSchemaMetadataValue):
            facets["schema"] = _schema(schema.schema)
        if lineage is not None:
            facets["columnLineage"] = self._column_lineage(lineage)
        version = (events[-1].tags or {}).get("dagster/data_version")
        if version:
            facets["version"] = f.dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version)
        place = told.get("dagster/uri")
        if place is not None:
            facets["symlinks"] = f.symlinks_dataset.SymlinksDatasetFacet(
                identifiers=[f.symlinks_dataset.Identifier(namespace="file", name=str(place.value), type="LOCATION")]
            )
        return OutputDataset(
            namespace=self.namespace, name=key.to_user_string(), facets=facets, outputFacets=_written(events)
        )

    def inputs(self, key: dg.AssetKey, events: Sequence[dg.AssetMaterialization]) -> set[str]:
        """The datasets that an asset was made of: by lineage, by what its code read undeclared, and by declaration.

        Declared are the parents in the graphs that are known here, and the inputs that Dagster noted of any asset that it ran.
        """
        asset = key.to_user_string()
        names = set(self.parents.get(asset, ()))
        for event in events:
            lineage = lineage_of(event.metadata)
            names |= {source for source, _ in lineage.read} if lineage else set()
            noted = dg.DataProvenance.from_tags(event.tags or {})
            names |= {each.to_user_string() for each in noted.input_data_versions} if noted else set()
            names |= _names(event, UNDECLARED)
        return names

    def besides(self, events: Iterable[dg.AssetMaterialization]) -> list[OutputDataset]:
        """The datasets that the code of assets has written though they are none of their outputs."""
        names = {name for event in events for name in _names(event, UNDECLARED_WRITES)}
        return [OutputDataset(namespace=self.namespace, name=name) for name in sorted(names)]

    def input(self, name: str) -> InputDataset:
        """A dataset that was read."""
        return InputDataset(namespace=self.namespace, name=name)

    def judged(self, key: dg.AssetKey, evaluations: Sequence[dg.AssetCheckEvaluation]) -> InputDataset:
        """A dataset that checks have read, with what they found. Examples that a check shows stay where they are."""
        assertions = [
            f.data_quality_assertions_dataset.Assertion(
                assertion=each.check_name,
                name=each.check_name,
                success=each.passed,
                severity="warn" if each.severity == dg.AssetCheckSeverity.WARN else "error",
                params={},
            )
            for each in evaluations
        ]
        facet = f.data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=assertions)
        return InputDataset(
            namespace=self.namespace, name=key.to_user_string(), inputFacets={"dataQualityAssertions": facet}
        )

    def _column_lineage(self, lineage: RecordedLineage) -> f.DatasetFacet:
        c = f.column_lineage_dataset
        return c.ColumnLineageDatasetFacet(
            fields={
                name: c.Fields(inputFields=[self._field(each, "DIRECT") for each in sorted(sources)])
                for name, sources in lineage.columns.items()
            },
            dataset=[self._field(each, "INDIRECT") for each in sorted(lineage.conditions)],
        )

    def _field(self, field: Field, kind: str) -> f.column_lineage_dataset.InputField:
        c = f.column_lineage_dataset
        dataset, column = field
        return c.InputField(self.namespace, dataset, column, transformations=[c.Transformation(type=kind)])


def _names(event: dg.AssetMaterialization, entry: str) -> set[str]:
    told = event.metadata.get(entry)
    found = told.value if isinstance(told, dg.JsonMetadataValue) and isinstance(told.value, list) else []
    return {str(name).strip("`") for name in found}


def _schema(schema: dg.TableSchema) -> f.DatasetFacet:
    s = f.schema_dataset
    return s.SchemaDatasetFacet(
        fields=[s.SchemaDatasetFacetFields(c.name, type=c.type, description=c.description) for c in schema.columns]
    )


def _written(events: Sequence[dg.AssetMaterialization]) -> dict[str, f.OutputDatasetFacet]:
    rows = [_figure(event, _ROWS) for event in events]
    sizes = [_figure(event, _BYTES) for event in events]
    statistics = f.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=None if None in rows else sum(filter(None, rows)),
        size=None if None in sizes else sum(filter(None, sizes)),
    )
    facets: dict[str, f.OutputDatasetFacet] = {"outputStatistics": statistics}
    keys = [event.partition for event in events if event.partition is not None]
    if keys:
        facets["subset"] = f.base_subset_dataset.OutputSubsetOutputDatasetFacet(outputCondition=_partitions(keys))
    return facets


def _partitions(keys: Sequence[str]) -> f.base_subset_dataset.PartitionSubsetCondition:
    s = f.base_subset_dataset
    return s.PartitionSubsetCondition(
        partitions=[s.Partition(identifier=key, dimensions={"partition": key}) for key in sorted(keys)]
    )


def _figure(event: dg.AssetMaterialization, names: Sequence[str]) -> int | None:
    found: Any = next((event.metadata[name].value for name in names if name in event.metadata), None)
    return int(found) if found is not None else None
