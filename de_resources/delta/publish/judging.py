"""Judging what is staged: what a write counts on its way for the audits, and from that the verdict on each key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from de_resources.delta.log.table_log import Stored
from de_resources.delta.publish.audits import Audit, KeepsContract, Subject
from de_resources.delta.publish.publication import last_before
from de_resources.delta.publish.staging import (
    PASSED,
    REJECTED,
    WHOLE,
    Key,
    StagedSlice,
    keys_of,
    staging_of,
    stored_inputs,
)
from de_resources.delta.publish.verdicts import AuditFinding, Judged
from de_resources.delta.slices import Slice
from de_resources.delta.table import Written
from de_resources.delta.write import frames
from de_resources.delta.write.request import WriteRequest
from de_resources.sql.balanced import balanced

Inputs = Mapping[str, Mapping[Key, Stored] | None]
"""What of each input goes to which key."""


@dataclass(frozen=True)
class Staged:
    """What was staged, with what the write counted; the counters are None where the engine did not tell."""

    written: Written
    slices: Mapping[Key, StagedSlice]
    slice: Slice | None
    counted: Mapping[str, Any] | None


def sorted_out(request: WriteRequest, audits: Sequence[Audit]) -> Column:
    """Which rows an audit with the reaction `dispatch` keeps apart."""
    contract = request.table.contract
    rules = [r for a in audits if isinstance(a, KeepsContract) and a.reaction == "dispatch" for r in a.rules(contract)]
    if not rules:
        return F.lit(PASSED)
    violated = balanced(Column.__or__, (F.expr(r.violated) for r in rules))
    return F.when(violated, F.lit(REJECTED)).otherwise(F.lit(PASSED))


def counters(request: WriteRequest, audits: Sequence[Audit]) -> list[Column]:
    """Rows, violations of each rule, and what the audits measure; `measure N` is the N-th of them."""
    measures = (F.expr(sql).alias(f"measure {n}") for n, sql in enumerate(_measures(audits).values()))
    return [*frames.counters(request.table.contract), *measures]


def _measures(audits: Sequence[Audit]) -> dict[str, str]:
    return {name: sql for audit in audits for name, sql in audit.measures().items()}


@dataclass(frozen=True)
class Judging:
    """The audits of one run, with what they compare with."""

    request: WriteRequest
    audits: Sequence[Audit]
    inputs: Inputs
    last: Mapping[Key, Judged]
    first: dict[Key, tuple[AuditFinding, ...]]

    @classmethod
    def of(cls, request: WriteRequest, audits: Sequence[Audit]) -> Judging:
        """With what the inputs' logs say now, and what was published last where an audit compares."""
        compared = any(audit.compares for audit in audits)
        last = last_before(request.table.log(), keys_of(request.slice)) if compared else {}
        return cls(request, audits, stored_inputs(request.inputs, request.slice), last, {})

    def before(self) -> dict[Key, Judged]:
        """The keys of which nothing is to be computed, with the verdict."""
        for key in keys_of(self.request.slice):
            subject = Subject(key, self.request.table.contract, self._inputs(key, self.inputs), last=self.last.get(key))
            self.first[key] = tuple(f for a in self.audits if (f := a.before(subject)) is not None)
        judged = {key: Judged(None, 0, 0, findings) for key, findings in self.first.items()}
        return {key: verdict for key, verdict in judged.items() if verdict.held}

    def after(self, staged: Staged) -> dict[Key, Judged]:
        """The verdict on each staged key."""
        inputs = self._unchanged_inputs()
        counted = self._counted(staged)
        return {key: self._judge(key, staged, counted[key], inputs) for key in staged.slices}

    def _judge(
        self,
        key: Key,
        staged: Staged,
        counted: Mapping[str, Any],
        inputs: Inputs,
    ) -> Judged:
        contract = self.request.table.contract
        violations = {r.name: int(counted.get(r.name) or 0) for r in (contract.rules if contract else ())}
        measured = {name: _number(counted.get(f"measure {n}")) for n, name in enumerate(_measures(self.audits))}
        own = staged.slices[key]
        subject = Subject(key, contract, self._inputs(key, inputs), own, violations, measured, self.last.get(key))
        findings = tuple(f for a in self.audits if (f := a.after(subject)) is not None)
        dispatched = {
            r.name
            for a in self.audits
            if isinstance(a, KeepsContract) and a.reaction == "dispatch"
            for r in a.rules(contract)
        }
        left = sum(1 for name, n in violations.items() if n and name not in dispatched)
        return Judged(staged.written.version, own.rows, own.rejected, self.first[key] + findings, left)

    def _counted(self, staged: Staged) -> dict[Key, Mapping[str, Any]]:
        """The figures of each key: those of the write, or where these are totals that do not answer, of one grouped query."""
        keys = list(staged.slices)
        rules = [r.name for r in (self.request.table.contract.rules if self.request.table.contract else ())]
        if staged.counted is not None:
            clean = not any(staged.counted.get(rule) for rule in rules)
            if len(keys) == 1 or (clean and not _measures(self.audits)):
                return dict.fromkeys(keys, staged.counted)
        return self._asked(staged)

    def _asked(self, staged: Staged) -> dict[Key, Mapping[str, Any]]:
        rows = staging_of(self.request.table).read(self.request.session, staged.written.version)
        key = F.lit(WHOLE)
        if staged.slice is not None:
            rows = rows.where(F.expr(staged.slice.predicate(rows.schema)))
            own = (F.when(F.expr(staged.slice.key_predicate(k, rows.schema)), k) for k in staged.slice.keys)
            key = F.coalesce(*own)
        grouped = rows.groupBy(key.alias("key of the row")).agg(*counters(self.request, self.audits)).collect()
        found = {row[0]: row.asDict() for row in grouped}
        return {key: found.get(WHOLE if key is None else key, {}) for key in staged.slices}

    def _unchanged_inputs(self) -> Inputs:
        """The inputs; None where their rows changed while the frame was computed, for nobody knows which it has seen."""
        now = stored_inputs(self.request.inputs, self.request.slice)
        return {name: kept if _rows(kept) == _rows(now.get(name)) else None for name, kept in self.inputs.items()}

    @staticmethod
    def _inputs(key: Key, inputs: Inputs) -> dict[str, Stored | None]:
        return {name: None if by_key is None else by_key.get(key) for name, by_key in inputs.items()}


def _rows(stored: Mapping[Key, Stored] | None) -> dict[Key, int] | None:
    """Without files and bytes, which compaction changes."""
    return None if stored is None else {key: each.rows for key, each in stored.items()}


def _number(value: Any) -> float | int | None:
    """A measured figure; one that is not finite has no value, for neither a log nor the UI has a place for it."""
    if value is None or isinstance(value, int):
        return value
    return float(value) if math.isfinite(value) else None
