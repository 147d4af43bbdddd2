"""From a file of a Delta table to the commits that its rows come from, through compactions and restores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from de_resources.delta.log import Commit, TableLog
from de_resources.delta.log.table_log import CommitGone

OUTSIDE = -1


@dataclass(frozen=True, order=True)
class Maker:
    """A commit that brought rows: the table's version, and the run that wrote it; no run for a commit without a stamp.

    What is kept outside of the lake has no versions: there it is `OUTSIDE`.
    """

    version: int
    run: str = ""
    operation: str = ""


@dataclass
class Makers:
    """Who made the files of one table. The log is read once, from its newest commit to the oldest that is needed."""

    log: TableLog
    _brought: dict[str, int] = field(default_factory=dict)
    _taken: dict[int, list[str]] = field(default_factory=dict)
    _read_down_to: int | None = None

    def of(self, file: str) -> tuple[Maker, ...]:
        """The commits from which the rows of a file may come: one, or several where files were brought together.

        A merge that copied a row beside one that it changed counts as its maker. Empty where the log has forgotten.
        """
        found: set[Maker] = set()
        pending, seen = [_name(file)], set[str]()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            version = self._version(name)
            if version is None:
                continue
            commit = self._commit(version)
            if commit.stamp.get("run") or not self._taken[version]:
                found.add(Maker(version, str(commit.stamp.get("run", "")), commit.operation))
            else:  # a compaction: its rows are those of the files that it took away
                pending.extend(self._taken[version])
        return tuple(sorted(found))

    def _version(self, name: str) -> int | None:
        """The newest commit that added the file."""
        if self._read_down_to is None:
            self._read_down_to = self.log.version + 1
        while name not in self._brought and self._read_down_to > 0:
            version = self._read_down_to - 1
            try:
                actions = self.log.actions(version)
            except CommitGone:
                return None
            self._read_down_to = version
            self._taken[version] = [_name(each["remove"]["path"]) for each in actions if "remove" in each]
            for each in actions:
                if "add" in each:
                    self._brought.setdefault(_name(each["add"]["path"]), version)
        return self._brought.get(name)

    def _commit(self, version: int) -> Commit:
        # The history holds the newest commits first, one per version.
        return self.log.commits(self.log.version - version + 1)[-1]


def runs(makers: Iterable[Maker]) -> tuple[str, ...]:
    """The runs, each once, the newest first."""
    newest = sorted(makers, key=lambda maker: -maker.version)
    return tuple(dict.fromkeys(maker.run for maker in newest if maker.run))


def _name(path: str) -> str:
    """Unique within a table, and the same in the log's relative paths and in the engine's absolute ones."""
    return unquote(path).rsplit("/", 1)[-1]
