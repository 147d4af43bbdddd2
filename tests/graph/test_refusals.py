"""Every refusal is the platform's own error, in a classic session. `tests/services` runs the same list over Connect."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from io_manager_support import Shop
from refusals import REFUSALS, Refusal, appending, meanwhile, met
from waiting import waits

import de_resources.delta
from de_resources.errors import PlatformError
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

pytestmark = [pytest.mark.faults, pytest.mark.pattern("data_overwrite")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_refusal_has_its_own_name_and_leaves_the_table_alone(
    refusal: Refusal, engine: SparkEngine, lake: Path
) -> None:
    assert met(Shop(engine, lake), refusal) == ([refusal.expected], refusal.rows)


_BY_DEFINITION = "of settings, keys and columns, before anything is asked of an engine"
_BY_LOG = "of what the table's log or its folder says, which is read without an engine"
_BY_PEOPLE = "of what a person asked for, by the platform's own books"
EXCUSED = {
    **dict.fromkeys(
        ("UnusableIfMissing", "NotAWriter", "NotAReader", "NotAnAsset", "NotAFrame", "UnsupportedSetting", "NotAtRunTime",
         "NoAudits", "NoWindows", "NotAudited", "NoOrder", "NoWayBack", "ConstraintsOnStoredForm", "NotTheSameColumns",
         "CannotForget", "UnusablePartitionColumn"),
        _BY_DEFINITION,
    ),
    **dict.fromkeys(
        ("CommitGone", "FeedUnavailable", "NoPartitions", "RetentionRefused", "UnreadableRetention", "StagedGone",
         "NotBySlice", "CannotPublish", "BreaksConstraints", "StateGone", "StateMoved", "EmptyTable", "TableBusy"),
        _BY_LOG,
    ),
    **dict.fromkeys(("NoReason", "NothingStaged", "NoEarlierPublication"), _BY_PEOPLE),
    "ContentChanged": "answers of the engine that are compared, none of its errors: tables/test_reference_query.py",
    "SourceAway": "needs a broker that dies: services/test_topic_stream.py; both sessions' words: unit/test_source_away.py",
    "SourceLost": "needs a topic that was made anew: services/test_topic_stream.py",
    "StateLost": "needs a stream whose state was taken away: graph/test_sessions_stream.py",
}  # fmt: skip
"""What a table can refuse and the list does not provoke, and why not."""


def _known() -> Iterator[str]:
    """Every error that a module of the Delta writers, readers and maintenance defines."""
    for module in pkgutil.walk_packages(de_resources.delta.__path__, "de_resources.delta."):
        for name, found in vars(importlib.import_module(module.name)).items():
            if isinstance(found, type) and issubclass(found, PlatformError) and found.__module__ == module.name:
                yield name


def test_every_refusal_is_in_the_list_or_excused_by_name() -> None:
    listed = {refusal.expected for refusal in REFUSALS} - {"PermanentError", "UnstorableName"}  # defined elsewhere
    assert listed | EXCUSED.keys() == set(_known())
    assert not listed & EXCUSED.keys()


def test_who_loses_against_another_engine_tries_again_and_commits_once(engine: SparkEngine, lake: Path) -> None:
    """The other engine is delta-rs, whose commit lands while this one computes its rows."""
    shop = Shop(engine, lake)
    with waits() as slept:
        result = meanwhile(appending(), retries=RETRY_TRANSIENT)(shop)
    assert len(slept) == 1
    assert shop.rows("rows") == [(0, "a")], "the rows of the one who came last, as after a rerun"
    assert [commit.operation for commit in shop.log("rows").commits(9)] == ["WRITE", "WRITE", "WRITE"]
    (again,) = [event for event in result.all_events if event.event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY]
    assert again.step_retry_data.error is not None
    assert again.step_retry_data.error.cause is not None
    assert again.step_retry_data.error.cause.cls_name == "ConcurrentWrite"
