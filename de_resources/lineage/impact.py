"""What depends on a column, or on a whole dataset: over all datasets downstream, by recorded lineage.

Values and rows go their own ways. A column of which other columns are made changes values; one that joins, filters or groups
decides which rows there are, and so do the rows of a dataset for all that is made of it. Where a dataset has recorded no
lineage, the asset graph says that it may depend, and nobody says how: it counts as depending with all that it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from de_resources.errors import PermanentError
from de_resources.lineage.recorded import Field, Lineages

RECORDED = "recorded"
INCOMPLETE = "incomplete"
GRAPH = "graph"


class NoSuchDataset(PermanentError):
    """A name that is no dataset."""

    def __init__(self, said: str, close: Iterable[str]) -> None:
        self.said, self.close = said, tuple(close)
        meant = f" Did you mean {' or '.join(f'`{each}`' for each in self.close)}?" if self.close else ""
        super().__init__(
            f"`{said}` is no dataset of the graph.{meant} Write `layer/dataset` or `layer/dataset.column`."
        )


class NoSuchColumn(PermanentError):
    """A column that its dataset does not have, and that nobody has read."""

    def __init__(self, asset: str, column: str, close: Iterable[str], known: Iterable[str]) -> None:
        self.asset, self.column, self.close = asset, column, tuple(close)
        told = ", ".join(known) or "not known: it was never written, and nobody has read it"
        meant = f" Did you mean {' or '.join(f'`{each}`' for each in self.close)}?" if self.close else ""
        super().__init__(f"`{asset}` has no column `{column}`, and no lineage names one.{meant} Its columns: {told}.")


@dataclass(frozen=True)
class Target:
    """What is asked about; without a column, the whole dataset. `removed`: lineage still names it, the schema does not."""

    asset: str
    column: str | None = None
    removed: bool = False

    def __str__(self) -> str:
        return self.asset if self.column is None else f"{self.asset}.{self.column}"


@dataclass(frozen=True)
class Affected:
    """A dataset that depends on what was asked about.

    `columns` are made of it, directly or through others; `rows`: it decides which rows there are. `breaks`: the dataset's own
    code reads it and would fail without it, or nobody knows what that reads. `known` says by what: lineage (`recorded`),
    lineage that may lack something (`incomplete`), or the asset graph alone (`graph`). `distance` counts the datasets on the
    shortest way.
    """

    asset: str
    columns: tuple[str, ...]
    rows: bool
    breaks: bool
    known: str
    owners: tuple[str, ...]
    distance: int


def target_of(said: str, lineages: Lineages) -> Target:
    """What a person means by `layer/dataset` or `layer/dataset.column`; keys and columns may have dots themselves.

    Raises `NoSuchDataset` and `NoSuchColumn`, with what is meant perhaps.
    """
    datasets = [name for name in lineages.datasets if said == name or said.startswith(f"{name}.")]
    if not datasets:
        raise NoSuchDataset(said, get_close_matches(said.partition(".")[0], lineages.datasets, n=3))
    asset = max(datasets, key=len)
    column = said.removeprefix(asset).removeprefix(".")
    if not column:
        return Target(asset)
    known = lineages.fields(asset)
    if column in known:
        return Target(asset, column)
    if column in lineages.fields_read(asset):
        return Target(asset, column, removed=True)
    raise NoSuchColumn(asset, column, get_close_matches(column, known, n=3), known)


def impact(target: Target, lineages: Lineages) -> list[Affected]:
    """All that depends on the target, the nearest first. Ends where datasets read themselves or each other."""
    found = _Reached(lineages)
    found.follow(target)
    return sorted(found.affected(target), key=lambda each: (each.distance, each.asset))


@dataclass
class _Reached:
    """How far a change has come: columns, and datasets whose rows change."""

    lineages: Lineages
    columns: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    rows: set[str] = field(default_factory=set)
    distance: dict[str, int] = field(default_factory=dict)

    def follow(self, target: Target) -> None:
        if target.column is None:
            self.rows.add(target.asset)
            self.columns[target.asset].update(self.lineages.fields(target.asset))
        else:
            self.columns[target.asset].add(target.column)
        readers = self._readers()
        pending = [(target.asset, 0)]
        for asset, steps in pending:  # grows meanwhile; a dataset comes again only when more of it is reached
            for reader in sorted(readers[asset]):
                if self._reach(reader, asset):
                    self.distance.setdefault(reader, steps + 1)
                    pending.append((reader, self.distance[reader]))

    def _readers(self) -> defaultdict[str, set[str]]:
        readers: defaultdict[str, set[str]] = defaultdict(set)
        for name, dataset in self.lineages.datasets.items():
            sources = {source for source, _ in dataset.lineage.read} if dataset.lineage else set()
            certain = dataset.lineage is not None and dataset.lineage.complete
            for source in sources if certain else sources | dataset.parents:
                readers[source].add(name)
            # Rows follow the graph: what reads no column by name, such as a count, has its parents' rows.
            for source in dataset.parents:
                readers[source].add(name)
        return readers

    def _reach(self, reader: str, source: str) -> bool:
        """Carry what has changed of the source on to a reader; whether that is more than was known."""
        lineage = self.lineages.datasets[reader].lineage
        before = len(self.columns[reader]), reader in self.rows
        changed = {(source, name) for name in self.columns[source]}
        if lineage is None:
            self.columns[reader].update(self.lineages.fields(reader))
            self.rows.add(reader)
        else:
            self.columns[reader].update(own for own, deps in lineage.columns.items() if deps & changed)
            if source in self.rows or lineage.conditions & changed:
                self.rows.add(reader)
        return before != (len(self.columns[reader]), reader in self.rows) or self._may_read(reader, source)

    def _may_read(self, reader: str, source: str) -> bool:
        """Reached for the first time by lineage that is not complete."""
        dataset = self.lineages.datasets[reader]
        doubtful = dataset.lineage is not None and not dataset.lineage.complete
        return doubtful and source in dataset.parents and reader not in self.distance

    def affected(self, target: Target) -> Iterator[Affected]:
        asked = self._asked(target)
        for name, steps in self.distance.items():
            dataset = self.lineages.datasets[name]
            lineage = dataset.lineage
            by_graph = target.asset in dataset.parents and (lineage is None or target.column is None)
            known = GRAPH if lineage is None else RECORDED if lineage.complete else INCOMPLETE
            yield Affected(
                asset=name,
                columns=tuple(sorted(self.columns[name] - ({target.column} if name == target.asset else set()))),
                rows=name in self.rows,
                breaks=name != target.asset and (by_graph or bool(lineage and lineage.read & asked)),
                known=known,
                owners=dataset.owners,
                distance=steps,
            )

    def _asked(self, target: Target) -> set[Field]:
        names = [target.column] if target.column is not None else self.lineages.fields(target.asset)
        return {(target.asset, name) for name in names}
