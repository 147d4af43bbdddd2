"""Is the load spread evenly over the storage? Pattern *Skew Detector*, across physical partitions or files.

Everything comes from the statistics in Delta's transaction log: no scan, no engine.
"""

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean, pstdev
from typing import Literal
from urllib.parse import unquote

import dagster as dg

from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject
from de_resources.delta.log import TableLog
from de_resources.delta.slices import Slice, make_slice
from de_resources.delta.table import TableMissing
from de_resources.errors import PermanentError

Load = dict[str, int]
"""Rows per part: a physical partition (`hour=3`) or a file."""


class PartsUnknown(PermanentError):
    """A table whose files cannot be attributed to the asset's partitions."""

    def __init__(self, asset: dg.AssetKey, missing: list[str]) -> None:
        self.asset, self.missing = asset, missing
        super().__init__(
            f"The files of `{asset.to_user_string()}` do not tell to which partition their rows belong: the table "
            f"is not physically partitioned by {', '.join(missing)}. Add that to the contract's `partitioned_by`."
        )


def skew_check(
    asset: Subject,
    *,
    max_deviation: float = 0.5,
    over: Literal["partitions", "files"] = "partitions",
    expected_parts: int | None = None,
    blocking: bool = False,
    name: str = "load_is_balanced",
) -> dg.AssetChecksDefinition:
    """A check, per partition key, that rows are spread evenly over the parts of the key's slice.

    Parts are the combinations of the table's physical partition values inside the slice (the 24 hours of a day), or its
    files. The measure is the relative standard deviation: the standard deviation of rows per part over their mean; 0 is
    perfectly even, and it fails above `max_deviation`. `expected_parts` (24) counts parts that hold no file as empty
    ones; without it a silent hour would go unseen. Fewer than two parts, and no rows at all, are balanced.

    The table is judged as its log has it now. A rerun judges anew. Needs the resource `lake`. Metadata of a verdict:
    `relative_deviation`, `parts`, `rows`, `largest` and `smallest`. Raises `PartsUnknown` where the table's layout does
    not follow the asset's partitions, `TableMissing` where there is no table.
    """

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        table = run.table()
        log = table.log()
        if log is None:
            raise TableMissing(table.name)
        loads = _loads(log, run.asset, list(materialized), over)
        return {key: _verdict(load, max_deviation, expected_parts) for key, load in loads.items()}

    return check_per_key(
        asset,
        name,
        judge,
        description=f"The relative standard deviation of rows over {over} is at most {max_deviation:g}.",
        patterns=["skew_detector"],
        blocking=blocking,
        resources=["lake"],
    )


def relative_deviation(rows: list[int]) -> float:
    """Standard deviation over mean; 0 for fewer than two parts and where there are no rows."""
    return pstdev(rows) / fmean(rows) if len(rows) > 1 and any(rows) else 0.0


def _loads(log: TableLog, asset: dg.AssetSpec, keys: list[Key], over: str) -> dict[Key, Load]:
    slice_ = _slice(asset, keys)
    columns = log.partition_columns()
    missing = [c for c in (slice_.columns if slice_ else ()) if c not in columns]
    if missing:
        raise PartsUnknown(asset.key, missing)
    loads: dict[Key, Load] = {key: defaultdict(int) for key in keys}
    for file in log.files().to_pylist():
        values = {c: file[f"partition.{c}"] for c in columns}
        key = slice_.key_of(values) if slice_ else None
        if slice_ is None or key is not None:
            part = unquote(file["path"]) if over == "files" else _label(values)
            loads[key][part] += file["num_records"] or 0
    return loads


def _slice(asset: dg.AssetSpec, keys: list[Key]) -> Slice | None:
    if asset.partitions_def is None:
        return None
    return make_slice([k for k in keys if k is not None], asset.partitions_def, asset.metadata["partition_expr"])


def _label(values: Mapping[str, object]) -> str:
    return ", ".join(f"{column}={value}" for column, value in values.items())


def _verdict(load: Load, max_deviation: float, expected_parts: int | None) -> Verdict:
    absent = max(0, (expected_parts or 0) - len(load))
    deviation = relative_deviation([*load.values(), *([0] * absent)])
    figures: dict[str, object] = {
        "relative_deviation": round(deviation, 4),
        "parts": len(load),
        "rows": sum(load.values()),
    }
    if absent:
        figures["absent_parts"] = absent
    if load:
        largest, smallest = max(load, key=load.__getitem__), min(load, key=load.__getitem__)
        figures |= {"largest": f"{largest}: {load[largest]:,} rows", "smallest": f"{smallest}: {load[smallest]:,} rows"}
    sign = "within" if deviation <= max_deviation else "above"
    measured = f"Relative standard deviation {deviation:.2f} over {len(load) + absent} parts"
    return Verdict(deviation <= max_deviation, f"{measured}, {sign} the accepted {max_deviation:g}.", figures)
