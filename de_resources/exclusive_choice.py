"""Which one of several branches a partition takes, decided where everybody sees it and by what is known without reading a row.

Pattern: Exclusive Choice. The conditions are a value, and no `if` inside of what computes:

    WRITERS = ExclusiveChoice(
        "serving/page_counts",
        {"legacy_writer": When(before="2026-03-01"), "new_writer": When(since="2026-03-01", has={"is_bot"})},
    )

A step of its own asks it and has an output for each branch. A branch whose output does not come is skipped by Dagster, and
shown as skipped. Of a range that lies on both sides each branch gets its partitions:

    @dg.op(out=WRITERS.outs("facts"))
    def choose(context):
        yield from WRITERS.outputs(context, own_keys(context), log.column_names())

Partition keys and the names of columns are all that is asked for: no frame, no engine. Where not exactly one branch is for a
partition, the choice fails, before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from de_resources.errors import PermanentError


class ChoiceImpossible(PermanentError):
    """Base of what keeps a choice from being made. Nothing was written."""


class NoBranch(ChoiceImpossible):
    """A partition that no branch is for."""

    def __init__(self, name: str, key: str, reasons: Mapping[str, str]) -> None:
        self.name, self.key, self.reasons = name, key, dict(reasons)
        told = "; ".join(f"`{branch}`: {why}" for branch, why in reasons.items())
        super().__init__(
            f"No branch of `{name}` is for {key} ({told}). Nothing was written. Bring the source to what one of them needs, or "
            "let the conditions cover the partition."
        )


class SeveralBranches(ChoiceImpossible):
    """A partition that more than one branch is for."""

    def __init__(self, name: str, key: str, branches: Sequence[str]) -> None:
        self.name, self.key, self.branches = name, key, tuple(branches)
        listed = ", ".join(f"`{branch}`" for branch in branches)
        super().__init__(
            f"Several branches of `{name}` are for {key}: {listed}. Nothing was written. "
            "Let their conditions exclude each other."
        )


class SchemaUnknown(ChoiceImpossible):
    """A choice that depends on the columns of a source which nobody knows: it was never written."""

    def __init__(self, name: str, key: str, branch: str) -> None:
        self.name, self.key, self.branch = name, key, branch
        super().__init__(
            f"Whether {key} of `{name}` is for `{branch}` depends on the columns of its source, and there is no source whose "
            "schema could be looked up. Nothing was written. Materialise the source first."
        )


class OtherForm(ChoiceImpossible):
    """A partition key that cannot be compared with the one of the cut-over, such as an hour with a day."""

    def __init__(self, key: str, bound: str) -> None:
        self.key, self.bound = key, bound
        super().__init__(
            f"The partition {key[:80]!r} cannot be compared with {bound[:80]!r}, which is of another form. "
            "Nothing was written. Write the cut-over as the partition keys are written."
        )


class NothingToChoose(ChoiceImpossible):
    """A run that names no partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Which branch of `{name}` runs is decided for partitions, and this run names none. Nothing was written. "
            "Launch it for a partition, or for a range of partitions."
        )


@dataclass(frozen=True)
class When:
    """What a branch is for. All that is said has to hold; what is not said holds.

    `before` and `since` are partition keys of one form, such as days, which sort as their times do; `since` is the first one of
    its side. `has` and `lacks` are names of columns of the source.
    """

    before: str | None = None
    since: str | None = None
    has: Collection[str] = frozenset()
    lacks: Collection[str] = frozenset()

    def refuses(self, key: str, columns: Collection[str]) -> str | None:
        """Why the branch is not for the partition; None: it is. Raises `OtherForm`."""
        if aside := self.refuses_key(key):
            return aside
        missing, unwanted = {*self.has} - {*columns}, {*self.lacks} & {*columns}
        if missing:
            return f"the source has no {_listed(missing)}"
        return f"the source has {_listed(unwanted)}" if unwanted else None

    def refuses_key(self, key: str) -> str | None:
        """The same, as far as the key alone says it."""
        for bound in (self.before, self.since):
            if bound is not None and _form(key) != _form(bound):
                raise OtherForm(key, bound)
        if self.before is not None and key >= self.before:
            return f"it is for partitions before {self.before}"
        return f"it is for partitions since {self.since}" if self.since is not None and key < self.since else None

    @property
    def asks_for_columns(self) -> bool:
        """Whether the schema decides as well."""
        return bool(self.has or self.lacks)

    def __str__(self) -> str:
        """The condition in words."""
        said = [
            *([f"since {self.since}"] if self.since else []),
            *([f"before {self.before}"] if self.before else []),
            *([f"the source has {_listed(self.has)}"] if self.has else []),
            *([f"the source has no {_listed(self.lacks)}"] if self.lacks else []),
        ]
        return ", and ".join(said) or "always"


@dataclass(frozen=True)
class ExclusiveChoice:
    """The branches of the dataset `name`, by the names of their steps, each with what it is for."""

    name: str
    branches: Mapping[str, When]

    def choose(self, keys: Sequence[str], columns: Collection[str] | None) -> dict[str, list[str]]:
        """The partitions of each branch that has some, in the order of `keys`. `columns` of the source; None: not known.

        The same keys and columns give the same answer, whoever asks and whenever. Raises `NoBranch`, `SeveralBranches`,
        `SchemaUnknown`, `OtherForm` and `NothingToChoose`.
        """
        if not keys:
            raise NothingToChoose(self.name)
        chosen: dict[str, list[str]] = {}
        for key in keys:
            chosen.setdefault(self._branch_of(key, columns), []).append(key)
        return chosen

    def outs(self, io_manager: str) -> dict[str, dg.Out]:
        """The outputs of the step that chooses: the keys of each branch. `io_manager` is one for values of ops."""
        return {
            name: dg.Out(list, is_required=False, io_manager_key=io_manager, description=f"Partitions {when}.")
            for name, when in self.branches.items()
        }

    def outputs(
        self, context: dg.AssetExecutionContext, keys: Sequence[str], columns: Collection[str] | None
    ) -> Iterator[dg.Output[list[str]]]:
        """What the choosing step yields: its choice, an output for each branch that has partitions. Raises as `choose`."""
        chosen = self.choose(keys, columns)
        for branch, own in chosen.items():
            context.log.info("%s takes %s: %s.", branch, _span(own), self.branches[branch])
            yield dg.Output(own, branch, metadata={"partitions": _span(own), "because": str(self.branches[branch])})

    @property
    def markdown(self) -> str:
        """The conditions as a table, for the metadata of the asset."""
        rows = [f"| {name} | {when} |" for name, when in self.branches.items()]
        return "\n".join(["| branch | for partitions |", "|---|---|", *rows])

    def _branch_of(self, key: str, columns: Collection[str] | None) -> str:
        reasons: dict[str, str | None] = {}
        for name, when in self.branches.items():
            reasons[name] = when.refuses_key(key)
            if reasons[name] is None and when.asks_for_columns:
                if columns is None:
                    raise SchemaUnknown(self.name, key, name)
                reasons[name] = when.refuses(key, columns)
        chosen = [name for name, why in reasons.items() if why is None]
        if not chosen:
            raise NoBranch(self.name, key, {name: why for name, why in reasons.items() if why})
        if len(chosen) > 1:
            raise SeveralBranches(self.name, key, chosen)
        return chosen[0]


def _form(key: str) -> str:
    return re.sub(r"\d", "9", key)


def _listed(columns: Collection[str]) -> str:
    return ", ".join(f"`{column}`" for column in sorted(columns))


def _span(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]} ({len(keys):,})"
