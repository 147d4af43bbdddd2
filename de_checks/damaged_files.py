"""Was every file that came read to its end? A file that breaks off must not pass for one that had less to say."""

from collections.abc import Mapping
from datetime import datetime

import dagster as dg

from de_checks.factory import CheckRun, check_per_key
from de_checks.per_key import Key, Materialized, Verdict, latest_materializations
from de_checks.subject import Subject, spec_of
from de_resources.delta.observed_frame import MetadataByWindow

ACCEPT_TAG = "de/damage_accepted"
"""Run tag with the reason for which a person does without what is missing."""

DAMAGED_FILES = "files/damaged"
_NAMED = 3


def damage_metadata(damaged: Mapping[datetime, Mapping[str, str]]) -> MetadataByWindow:
    """Metadata for the materialisation of each window with damaged files: what is wrong, by the file's place."""
    return {start: {DAMAGED_FILES: dg.MetadataValue.json(dict(files))} for start, files in damaged.items()}


def damaged_files_check(asset: Subject, told_by: Subject, *, name: str = "files_are_whole") -> dg.AssetChecksDefinition:
    """A check, per partition key of `asset`, that no file of it was damaged. It holds nothing back: what could be read is true.

    `told_by` is the asset of the same step and partitions whose materialisations carry `damage_metadata`. The verdict names
    each file with its reason; metadata: `damaged`, their number. No engine, no table is touched. A person passes it by
    executing the check with the run tag `de/damage_accepted` and the reason as its value. Once the file is repaired and the
    partition materialised again, the check passes.
    """
    letters = spec_of(told_by).key

    def judge(run: CheckRun, materialized: Mapping[Key, Materialized]) -> Mapping[Key, Verdict]:
        told = latest_materializations(run.instance, letters, list(materialized))
        reason = run.tags.get(ACCEPT_TAG)
        return {key: judged(damage_of(told.get(key))).accepted_for(reason) for key in materialized}

    return check_per_key(
        asset,
        name,
        judge,
        description="Every file of the partition could be read to its end.",
        patterns=["dead_letter"],
    )


def damage_of(materialized: Materialized | None) -> Mapping[str, str]:
    """What a materialisation tells of damaged files, by place; nothing where it tells nothing."""
    damaged: Mapping[str, str] = materialized.metadata.get(DAMAGED_FILES, {}) if materialized else {}
    return damaged


def judged(damaged: Mapping[str, str]) -> Verdict:
    """The verdict on the damaged files of one partition."""
    figures = {"damaged": len(damaged)}
    if not damaged:
        return Verdict(True, "Every file could be read to its end.", figures)
    named = "; ".join(f"`{place}`: {reason}" for place, reason in sorted(damaged.items())[:_NAMED])
    more = f"; and {len(damaged) - _NAMED:,} more" if len(damaged) > _NAMED else ""
    return Verdict(False, f"{len(damaged):,} file(s) are damaged. {named}{more}. Land them again.", figures)
