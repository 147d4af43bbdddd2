"""A field that a live producer renamed: seen with the run that brings it, however few rows each run brings. No engine."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dagster as dg
import pytest

from de_assets.contracts.visits_live import VisitsLive
from de_checks import stream_drift
from de_checks.per_key import judged_before
from de_checks.schema_drift import ACCEPT_TAG
from de_checks.stream_drift import FILLED, stream_drift_check
from de_resources.contract import Contract

pytestmark = pytest.mark.pattern("online_observer")

CONTRACT = Contract.of(VisitsLive)
HISTORY = 5
"""How many verdicts are looked back at here, of which a test has to bring more: otherwise 25."""
USUAL, NEVER = {"referral": 0.6, "ip": 1.0}, {"referral": 0.0, "ip": 1.0}


@dg.asset(
    key=["silver", "visits_live"], metadata={"contract": CONTRACT.path}, config_schema={"told": dg.Noneable(dict)}
)
def visits_live(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    told = context.op_execution_context.op_config["told"]
    return dg.MaterializeResult(metadata={FILLED: told} if told else {})


CHECK = stream_drift_check(visits_live)


@dataclass
class Stream:
    """Runs of the stream, one after the other."""

    instance: dg.DagsterInstance
    verdicts: list[bool] = field(default_factory=list)

    def bring(self, rows: int, shares: dict[str, float], *unknown: str) -> dg.AssetCheckEvaluation:
        columns = {
            column.name: round(shares.get(column.name, 0) * rows) for column in CONTRACT.columns if column.nullable
        }
        return self._run({"rows": rows, "columns": columns, "unknown_fields": dict.fromkeys(unknown, rows)})

    def judge_again(self, **tags: str) -> dg.AssetCheckEvaluation:
        return self._run(None, dg.AssetSelection.checks(CHECK), tags)

    def _run(
        self, told: Any, selection: dg.AssetSelection | None = None, tags: dict[str, str] | None = None
    ) -> dg.AssetCheckEvaluation:
        config = {"ops": {"silver__visits_live": {"config": {"told": told}}}} if selection is None else {}
        done = dg.materialize(
            [visits_live, CHECK], instance=self.instance, selection=selection, run_config=config, tags=tags
        )
        (evaluation,) = done.get_asset_check_evaluations()
        return evaluation


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    monkeypatch.setattr(stream_drift, "judged_before", partial(judged_before, limit=HISTORY))
    with dg.DagsterInstance.ephemeral() as instance:
        yield Stream(instance)


def test_a_renamed_field_is_seen_at_once_and_stays_until_a_person_accepts_it(stream: Stream) -> None:
    assert stream.bring(100, USUAL).passed
    for _ in range(HISTORY + 2):  # longer than the history that is looked at
        seen = stream.bring(100, NEVER)
    assert not seen.passed
    assert seen.severity == dg.AssetCheckSeverity.WARN
    assert seen.metadata["vanished"].value == ["referral"]
    assert "`referral` is null in all 100 rows" in str(seen.description)
    accepted = stream.judge_again(**{ACCEPT_TAG: "the field is gone for good"})
    assert accepted.passed
    assert stream.bring(100, NEVER).passed


def test_few_rows_are_judged_together(stream: Stream) -> None:
    assert stream.bring(100, USUAL).passed
    few = [stream.bring(12, NEVER) for _ in range(3)]
    assert [each.passed for each in few] == [True, True, False]
    assert few[-1].metadata["rows"].value == 36
    assert [stream.judge_again().metadata["rows"].value for _ in range(2)] == [36, 36], "no row counts twice"
    assert not stream.bring(40, NEVER).passed
    assert stream.bring(40, USUAL).passed, "the producer has mended it"


def test_many_runs_of_few_rows_do_not_push_the_measure_out(stream: Stream) -> None:
    assert stream.bring(100, USUAL).passed
    for _ in range(HISTORY + 2):
        assert stream.bring(4, USUAL | {"referral": 1.0}).passed
    assert not stream.bring(30, NEVER | {"referral": 0.0}).metadata.get("vanished"), "one of the rows had it"
    for _ in range(HISTORY + 1):
        assert stream.bring(1, NEVER).passed
    assert not stream.bring(30, NEVER).passed


def test_a_chance_is_no_drift(stream: Stream) -> None:
    assert stream.bring(100, {"login": 0.01}).passed
    assert stream.bring(100, {"login": 0.0}).passed


def test_a_run_that_counted_nothing_is_not_judged(stream: Stream) -> None:
    assert stream._run(None).passed


RENAMED = "context.referrer"


def test_a_field_with_another_name_is_red_with_the_run_that_brings_it_and_stays_so(stream: Stream) -> None:
    assert stream.bring(100, USUAL).passed
    for _ in range(HISTORY + 2):
        seen = stream.bring(6, NEVER, RENAMED)  # 0.4^6 is 0.004
        assert (seen.passed, seen.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert seen.metadata["vanished"].value == ["referral"]
        assert f"New: `{RENAMED}`. Was it renamed?" in str(seen.description)
    accepted = stream.judge_again(**{ACCEPT_TAG: "the parser knows both"})
    assert accepted.passed
    assert stream.bring(6, NEVER, RENAMED).passed


def test_a_renamed_field_is_red_though_few_good_rows_came_just_before(stream: Stream) -> None:
    assert stream.bring(100, USUAL).passed
    assert stream.bring(20, USUAL).passed, "too few: judged together with what comes next"
    assert stream.bring(20, NEVER, RENAMED).severity == dg.AssetCheckSeverity.ERROR


def test_so_few_rows_that_it_may_be_chance_are_judged_together(stream: Stream) -> None:
    assert stream.bring(100, USUAL).passed
    seen = [stream.bring(2, NEVER, RENAMED) for _ in range(3)]
    red = [not each.passed and each.severity == dg.AssetCheckSeverity.ERROR for each in seen]
    assert red == [False, False, True]


def test_a_new_field_alone_warns_once(stream: Stream) -> None:
    assert stream.bring(100, USUAL, "context.old").passed, "nobody knows what was there before"
    seen = stream.bring(100, USUAL, "context.old", "context.extra")
    assert (seen.passed, seen.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "new fields: `context.extra`. None is missing." in str(seen.description)
    assert stream.bring(100, USUAL, "context.old", "context.extra").passed
    assert not stream.bring(100, NEVER, "context.old", "context.extra").metadata.get("new_fields"), "it came before"
    assert stream.bring(100, USUAL).passed, "the measure is what it was"


def test_an_absent_field_beside_a_known_one_waits_for_more_rows(stream: Stream) -> None:
    assert stream.bring(100, USUAL, RENAMED).passed
    assert stream.bring(20, NEVER, RENAMED).passed
    assert stream.bring(20, NEVER, RENAMED).severity == dg.AssetCheckSeverity.WARN
