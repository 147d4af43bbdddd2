"""Does a staged slice have the distribution of what was published before it? An audit for *Audit-Write-Audit-Publish*.

A slice can have as many rows as ever, keep every rule, and still be wrong: amounts in cents, a filter that lost the small ones.
Its quantiles tell. They come from sketches (KLL, within 1.3 % of the ranks) that the write makes on its way, and are held
against those of slices before that were published and found usual. No slice is read again, and a bad one is not learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from de_resources.delta.publish.audits import Audit, Subject
from de_resources.delta.publish.verdicts import AuditFinding
from de_resources.errors import PermanentError
from de_resources.observers.bounds import LEAST_POINTS, Chance, Z, bounds_of, of_measurement
from de_resources.sql.identifiers import identifier

REMEMBERED = 14
"""As many slices before are compared with. Their quantiles travel with the verdicts, from each to the next."""


@dataclass(frozen=True, kw_only=True)
class UsualQuantiles(Audit):
    """The quantiles of a column lie within `z` standard deviations of their mean over the slices published before.

    `where` is an SQL condition for the rows that count. `by_chance` is the deviation that there is without a reason
    (`de_resources.observers.bounds`). With fewer than seven slices before, it passes and says so. Figures: each quantile by its
    probability, and those that it learnt from before, `<probability>/<how many slices ago>`. A personal column is refused:
    its values would be told.
    """

    column: str
    probabilities: tuple[float, ...] = (0.25, 0.5, 0.75)
    where: str = "TRUE"
    z: float = Z
    by_chance: Chance = of_measurement

    @property
    def name(self) -> str:
        """With the column."""
        return f"quantiles of {self.column}"

    @property
    def compares(self) -> bool:
        """Always."""
        return True

    def measures(self) -> Mapping[str, str]:
        """One sketch for each quantile; an empty one has none, and asking it would fail the write."""
        value = f"CAST(CASE WHEN {self.where} THEN {identifier(self.column)} END AS DOUBLE)"
        finite = f"CASE WHEN abs({value}) < DOUBLE('Infinity') THEN {value} END"
        return {
            self._measured(p): f"CASE WHEN count({finite}) > 0 THEN "
            f"kll_sketch_get_quantile_double(kll_sketch_agg_double({finite}), DOUBLE({p})) END"
            for p in self.probabilities
        }

    def after(self, subject: Subject) -> AuditFinding:
        """By what the write measured, and by what the last verdict remembers. Raises `PermanentError` for a personal column."""
        if subject.contract is not None and self.column in subject.contract.personal:
            raise PermanentError(
                f"`UsualQuantiles` would tell values of `{self.column}`, which the contract `{subject.contract.name}` calls "
                "personal. Audit another column. Nothing was published."
            )
        measured = subject.measured or {}
        found = {p: value for p in self.probabilities if (value := measured.get(self._measured(p))) is not None}
        known = {p: self._known(subject, p) for p in self.probabilities}
        if not found:
            return self.finding(True, "There are no values.", **_remembered(known))
        outside = [said for p, value in found.items() if (said := self._unusual(p, value, known[p]))]
        figures = {_text(p): value for p, value in found.items()}
        if outside:
            # Not learnt from: the next slice is held against the same ones.
            return self.finding(False, f"{'; '.join(outside)}.", **figures, **_remembered(known))
        learnt = {p: [found[p], *known[p]][:REMEMBERED] for p in found}
        points = min(map(len, known.values()))
        said = (
            f"{len(found)} quantiles are what they were in {points} slices before."
            if points >= LEAST_POINTS
            else f"Still learning: {points} slices before, {LEAST_POINTS} needed."
        )
        return self.finding(True, said, **figures, **_remembered({**known, **learnt}))

    def _unusual(self, p: float, value: float, known: Sequence[float]) -> str:
        usual = bounds_of(known, self.by_chance, z=self.z)
        if usual is None or usual.hold(value):
            return ""
        return f"the quantile {_text(p)} is {value:,.6g}, usually {usual.low:,.6g} to {usual.high:,.6g}"

    def _known(self, subject: Subject, p: float) -> list[float]:
        """The values that the last published slice remembers, the newest first."""
        figures = subject.last.figures if subject.last else {}
        names = (f"{self.name}/{_text(p)}/{ago}" for ago in range(1, REMEMBERED + 1))
        return [figures[name] for name in names if name in figures]

    def _measured(self, p: float) -> str:
        return f"{self.name} at {_text(p)}"


def _remembered(known: Mapping[float, Sequence[float]]) -> dict[str, float]:
    return {f"{_text(p)}/{ago}": v for p, values in known.items() for ago, v in enumerate(values, start=1)}


def _text(p: float) -> str:
    return f"{p:g}"
