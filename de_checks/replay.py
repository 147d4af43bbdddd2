"""Is every partition that was taken out of a stateful table in it again? Guard of the *Stateful Merger*."""

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.subject import Subject
from de_resources.delta.write.merge_state import MergeState


def replay_check(asset: Subject, *, name: str = "nothing_awaits_replay") -> dg.AssetChecksDefinition:
    """A check of the table as a whole: a rerun of an old partition took later ones out, and all of them are back.

    It warns, since a replay under way is no error. What the calendar does not have is not awaited. Reads the table's log, no
    data. Needs the resource `lake`. Metadata: `stateful/replay` (the partitions to run, in order), `stateful/partitions` (how
    many are in) and `stateful/newest`.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        state = MergeState.of(run.table().log(), run.asset.key.to_user_string())
        partitions = run.asset.partitions_def
        known = None if partitions is None else set(partitions.get_partition_keys())
        waiting = [key for key in state.replay if known is None or key in known]
        told = (
            f"Run {len(waiting)} partition(s) in order, from `{waiting[0]}` on." if waiting else "Nothing is missing."
        )
        return dg.AssetCheckResult(
            passed=not waiting,
            severity=dg.AssetCheckSeverity.WARN,
            description=told,
            metadata={
                "stateful/replay": waiting,
                "stateful/partitions": len(state.entries),
                "stateful/newest": state.newest.key if state.newest else "none",
            },
        )

    return check_of_asset(
        asset,
        name,
        judge,
        description="Every partition that a rerun took out of the table has been merged again.",
        patterns=["stateful_merger"],
        resources=["lake"],
    )
