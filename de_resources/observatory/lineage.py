"""From any column to where it begins, and to all that is made of it. Pure.

A column that comes from no column (a count of rows, what was read from files or a topic), or that its dataset does not know,
comes from the datasets above its own as a whole: the way goes on there, up to the system outside and its owner. Circles, of
datasets that build on themselves, end where they began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from de_resources.observatory.model import ColumnRef, ObservedDataset, ObservedWorld

MOST_NODES = 1_500
"""Of a wider neighbourhood the nearest are shown."""


@dataclass(frozen=True)
class Neighbourhood:
    """Columns and datasets around the columns of one dataset. An edge leads from the source to what is made of it."""

    nodes: tuple[ColumnRef, ...]
    edges: tuple[tuple[int, int], ...]
    cut: bool = False


class LineageEdges:
    """The edges of a whole world, asked in both directions."""

    def __init__(self, world: ObservedWorld) -> None:
        self._above: dict[ColumnRef, tuple[ColumnRef, ...]] = {}
        self._below: dict[ColumnRef, list[ColumnRef]] = {}
        for dataset in world.datasets.values():
            for ref, sources in _edges(dataset, world.datasets):
                self._above[ref] = sources
                self._note(ref, sources)
        # A file's text, a field of a topic: named by who reads it, and unknown to the dataset it belongs to.
        for ref in [ref for ref in self._below if ref not in self._above and ref.dataset in world.datasets]:
            self._above[ref] = _whole(world.datasets[ref.dataset], world.datasets)
            self._note(ref, self._above[ref])

    def _note(self, ref: ColumnRef, sources: Iterable[ColumnRef]) -> None:
        for source in sources:
            self._below.setdefault(source, []).append(ref)

    def above(self, ref: ColumnRef) -> tuple[ColumnRef, ...]:
        """What a column is made of, one step up."""
        return self._above.get(ref, ())

    def below(self, ref: ColumnRef) -> tuple[ColumnRef, ...]:
        """What is made of a column, one step down."""
        return tuple(self._below.get(ref, ()))

    def around(self, dataset: ObservedDataset) -> Neighbourhood:
        """All that the columns of a dataset come from, and all that comes from them, nearest first."""
        own = [ColumnRef(dataset.name, column.name) for column in dataset.columns] or [ColumnRef(dataset.name)]
        up, down = self._reached(own, self.above), self._reached(own, self.below)
        ordered = list(dict.fromkeys([*own, *up, *down]))
        shown = ordered[:MOST_NODES]
        place = {ref: n for n, ref in enumerate(shown)}
        edges = {
            (place[source], place[ref])
            for ref in shown
            for source in self.above(ref)
            if source in place and source != ref
        }
        return Neighbourhood(tuple(shown), tuple(sorted(edges)), cut=len(ordered) > len(shown))

    def _reached(self, start: Iterable[ColumnRef], step: object) -> list[ColumnRef]:
        seen: dict[ColumnRef, None] = dict.fromkeys(start)
        waiting = deque(seen)
        while waiting:
            for ref in step(waiting.popleft()):  # type: ignore[operator]
                if ref not in seen:
                    seen[ref] = None
                    waiting.append(ref)
        return list(seen)


def _edges(
    dataset: ObservedDataset, datasets: Mapping[str, ObservedDataset]
) -> Iterable[tuple[ColumnRef, tuple[ColumnRef, ...]]]:
    """Each column with its sources; one without any with the datasets above as a whole."""
    whole = _whole(dataset, datasets)
    yield ColumnRef(dataset.name), whole
    for column in dataset.columns:
        yield ColumnRef(dataset.name, column.name), column.sources or whole


def _whole(dataset: ObservedDataset, datasets: Mapping[str, ObservedDataset]) -> tuple[ColumnRef, ...]:
    """The datasets above, as a whole."""
    return tuple(ColumnRef(name) for name in dataset.upstream if name in datasets)
