"""Does every row keep the dataset's contract? Answered from what the write counted, without reading the data again.

Patterns *Constraints Enforcer* (all rules of a batch are judged together and reported at once) and *Online Observer*
(the figures are those that the write observed).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from de_checks.evidence import Evidence, evidence
from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict, newest_version
from de_checks.subject import Subject, spec_of
from de_checks.violations import Count, Example, count_by_key, examples_by_key
from de_resources.contract import Contract
from de_resources.contract.rules import Rule
from de_resources.delta.metadata import markdown_table
from de_resources.delta.optional_columns import with_optional_columns
from de_resources.delta.publish.staging import staged_rows
from de_resources.delta.publish.writer import STAGED_VERSION
from de_resources.delta.slices import Slice, make_slice
from de_resources.errors import PermanentError
from de_resources.lake import Lake

EXAMPLES = 3
MEETS_CONTRACT = "rows_meet_contract"


class NoContract(PermanentError):
    """A contract check on an asset that names no contract."""

    def __init__(self, asset: dg.AssetKey) -> None:
        self.asset = asset
        super().__init__(
            f"The asset `{asset.to_user_string()}` names no contract to check. "
            'Add `metadata={"contract": "package.module:Model"}` to it.'
        )


def contract_check(
    asset: Subject, *, name: str = MEETS_CONTRACT, blocking: bool = True, lake: str = "lake"
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that no row breaks a rule of the asset's contract.

    `asset` names its contract (`metadata["contract"]`) and, where partitioned, the column of its partitions
    (`metadata["partition_expr"]`). `lake` is the resource that holds it, or reads its files as a table.

    Costs nothing on the good path: when all counters of the write are zero, every key passes and the engine is not
    touched. The engine reads the judged slice in these cases only:

    - a write of several keys counted violations: one grouped query finds out whose they are, so that a bad day does not
      hold back the good ones;
    - the write left no counters (a retry of a write that had committed already), or did not replace its slice (`merge`,
      `append`) and counted violations or followed a state that was not judged good: one grouped query counts;
    - a key fails: one query, limited per key and to ten keys, fetches examples to show. Personal values are masked.

    Metadata of a verdict: `rows`, `evidence`, and for a failure `violations` ({rule: rows}), `rules`, which names the columns
    of each broken one, and `examples`.
    Raises `NoContract` at definition.
    """
    definition = spec_of(asset)
    if not definition.metadata.get("contract"):
        raise NoContract(definition.key)
    contract = Contract.load(definition.metadata["contract"])

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        known = {
            key: evidence(run.instance, definition, contract, run.check.key, key, write)
            for key, write in materialized.items()
        }
        return _verdicts(_Rows(getattr(run.resources, lake), definition, contract, materialized), known)

    return check_per_key(
        asset,
        name,
        judge,
        description=_describe(contract),
        patterns=["constraints_enforcer", "online_observer"],
        blocking=blocking,
        resources=[lake],
    )


class _Rows:
    """The rows behind materialisations, read only when asked."""

    def __init__(
        self, lake: Lake, asset: dg.AssetSpec, contract: Contract, materialized: Mapping[Key, Materialized]
    ) -> None:
        self.lake, self.asset, self.contract, self.materialized = lake, asset, contract, materialized

    def count(self, keys: Sequence[Key]) -> dict[Key, Count]:
        if self._is_stateful:
            return {k: count_by_key(self._frame([k]), None, self.contract)[None] for k in keys}
        return count_by_key(self._frame(keys), self._slice(keys), self.contract)

    def examples(self, broken: Mapping[Key, Sequence[Rule]]) -> dict[Key, str]:
        """A Markdown table per key, with personal values masked."""
        keys = list(broken)
        if self._is_stateful:
            return {k: t for k in keys for t in self._examples([k], None, {None: broken[k]}).values()}
        return self._examples(keys, self._slice(keys), broken)

    def _examples(
        self, keys: Sequence[Key], slice_: Slice | None, broken: Mapping[Key, Sequence[Rule]]
    ) -> dict[Key, str]:
        found = examples_by_key(self._frame(keys), slice_, self.contract, broken, EXAMPLES)
        return {key: _table(rows, self.contract) for key, rows in found.items() if rows}

    @property
    def _is_stateful(self) -> bool:
        """Whether a partition has no rows of its own: it is judged by the table as its merge left it."""
        return bool(self.asset.metadata.get("stateful"))

    def _frame(self, keys: Sequence[Key]) -> DataFrame:
        table = self.lake.table(self.asset.key, self.asset.metadata)
        staged = [self.materialized[key].metadata.get(STAGED_VERSION) for key in keys]
        if any(version is not None for version in staged):
            # What was held is not in the table that readers know.
            newest = max(version for version in staged if version is not None)
            return with_optional_columns(staged_rows(self.lake.spark.spark_session, table, newest), self.contract)
        version = newest_version(self.materialized[key] for key in keys)
        slice_ = None if self._is_stateful else self._slice(keys)
        read = table if slice_ is None else table.limited_to(slice_.keys)
        return with_optional_columns(read.read(self.lake.spark.spark_session, version), self.contract)

    def _slice(self, keys: Sequence[Key]) -> Slice | None:
        if self.asset.partitions_def is None:
            return None
        chosen = [key for key in keys if key is not None]
        return make_slice(chosen, self.asset.partitions_def, self.asset.metadata["partition_expr"])


def _verdicts(rows: _Rows, known: Mapping[Key, Evidence]) -> dict[Key, Verdict]:
    unknown = [key for key, e in known.items() if e.count is None]
    scanned = rows.count(unknown) if unknown else {}
    counts = {key: e.count or scanned[key] for key, e in known.items()}
    rules = rows.contract.rules
    broken = {k: [r for r in rules if c.violations.get(r.name)] for k, c in counts.items() if c.total}
    examples = rows.examples(broken) if broken else {}
    return {key: _verdict(rows.contract, count, known[key], examples.get(key)) for key, count in counts.items()}


def _verdict(contract: Contract, count: Count, known: Evidence, examples: str | None) -> Verdict:
    rows = "the" if count.rows is None else f"{count.rows:,}"
    figures: dict[str, Any] = {"evidence": known.source} | ({} if count.rows is None else {"rows": count.rows})
    if not count.total:
        return Verdict(True, f"All {rows} rows keep the {len(contract.rules)} rules.", figures)
    violations = {rule: n for rule, n in count.violations.items() if n}
    figures["violations"] = dg.MetadataValue.json(violations)
    figures["rules"] = dg.MetadataValue.md(_broken_rules(contract, violations))
    if examples:
        figures["examples"] = dg.MetadataValue.md(examples)
    listed = ", ".join(f"{rule}: {n:,}" for rule, n in sorted(violations.items(), key=lambda item: -item[1]))
    return Verdict(False, f"Of {rows} rows some break {len(violations)} rule(s) ({listed}).", figures)


def _broken_rules(contract: Contract, violations: Mapping[str, int]) -> str:
    """What was broken as Markdown: of a rule over several columns every side is named, with the dataset."""
    lines = ["| rule | says | columns | rows |", "|---|---|---|---|"]
    for rule in sorted((r for r in contract.rules if r.name in violations), key=lambda r: -violations[r.name]):
        columns = ", ".join(f"{contract.name}.{column}" for column in rule.about(contract.column_names))
        says = rule.predicate.replace("|", "\\|")
        lines.append(f"| {rule.name} | `` {says} `` | {columns} | {violations[rule.name]:,} |")
    return "\n".join(lines)


def _table(examples: Sequence[Example], contract: Contract) -> str:
    """The examples as Markdown, with the rules that each of them breaks in front, uncut."""
    head, line, *rows = markdown_table(list(examples[0].row), [e.row for e in examples], contract).splitlines()
    broken = [", ".join(e.rules) for e in examples]
    return "\n".join(
        [f"| broken rules {head}", f"|---{line}", *(f"| {b} {r}" for b, r in zip(broken, rows, strict=True))]
    )


def _describe(contract: Contract) -> str:
    # Predicates quote names with back-ticks, which would end a simple code span.
    rules = "\n".join(f"- `{r.name}`: `` {r.predicate} ``" for r in contract.rules)
    return f"Every row keeps the contract `{contract.name}`:\n\n{rules}"
