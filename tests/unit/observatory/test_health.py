"""How a dataset is: every verdict counts for the write that it judged, and what nobody judged is not called good."""

from dataclasses import replace
from datetime import timedelta

import pytest

from benchmarks.observatory_world import DAY, NOW, days, hours, judged, written
from de_resources.observatory.health import cells, checks_now, health, newest_sum, problems, promises, rate, rows
from de_resources.observatory.model import (
    Check,
    Evaluation,
    Failure,
    HealthVerdict,
    ObservedDataset,
    ObservedPartition,
    ObservedWorld,
    Write,
)

DAYS = days(5)
WRITES = written(DAYS)


def dataset(*checks: Check, **more: object) -> ObservedDataset:
    return replace(
        ObservedDataset(
            "silver/orders",
            partitions=DAYS,
            checks=checks,
            writes=WRITES,
            materialized=frozenset(p.key for p in DAYS),
        ),
        **more,  # type: ignore[arg-type]
    )


def check(bad: dict[str, bool] | None = None, name: str = "rows_meet_contract") -> Check:
    return Check(name, by_partition=True, evaluations=tuple(judged(WRITES, bad)))


def verdicts(found: ObservedDataset) -> list[HealthVerdict]:
    return [cell.verdict for cell in cells(found)]


def test_each_partition_has_the_worst_of_its_newest_verdicts() -> None:
    bad, odd = DAYS[1].key, DAYS[3].key
    found = dataset(check({bad: True, odd: False}), check({odd: False}, "volume_is_stable"))
    assert verdicts(found) == [
        HealthVerdict.PASSED,
        HealthVerdict.FAILED,
        HealthVerdict.PASSED,
        HealthVerdict.WARNED,
        HealthVerdict.PASSED,
    ]
    assert health(found).verdict is HealthVerdict.FAILED
    assert [(p.what, p.verdict, p.partitions) for p in problems(found)] == [
        ("rows_meet_contract", HealthVerdict.FAILED, (bad,)),
        ("rows_meet_contract", HealthVerdict.WARNED, (odd,)),
        ("volume_is_stable", HealthVerdict.WARNED, (odd,)),
    ]
    assert checks_now(found).passed == 0


def test_what_was_written_after_a_verdict_is_not_judged() -> None:
    """By the order in which it was stored: a clock that was set back between the two changes nothing."""
    bad = DAYS[2].key
    again = Write(99, NOW - DAY * 900, bad, "later", {})
    found = dataset(check({bad: True}), writes=(again, *WRITES))
    assert verdicts(found)[2] is HealthVerdict.WRITTEN
    assert problems(found) == ()
    mended = Evaluation(99, NOW - DAY * 901, bad, passed=True, severe=True, judged=99)
    fixed = Check("rows_meet_contract", by_partition=True, evaluations=(mended, *judged(WRITES, {bad: True})))
    assert verdicts(dataset(fixed, writes=(again, *WRITES)))[2] is HealthVerdict.PASSED


def test_missing_is_what_was_never_written_and_no_more() -> None:
    old = DAYS[0].key
    found = dataset(check(), writes=WRITES[:-2], materialized=frozenset(p.key for p in DAYS[:1] + DAYS[2:]))
    assert verdicts(found)[:2] == [HealthVerdict.PASSED, HealthVerdict.MISSING], (
        f"{old} is older than what is looked at, and there"
    )
    outside = replace(found, external=True, writes=(), materialized=frozenset(), checks=())
    assert set(verdicts(outside)) == {HealthVerdict.OUTSIDE}
    assert health(outside).verdict is HealthVerdict.OUTSIDE


def test_a_failed_run_is_open_until_something_is_written() -> None:
    key = DAYS[4].key
    found = dataset(check(), failures=(Failure(77, NOW, key, "run"),))
    assert verdicts(found)[4] is HealthVerdict.FAILED
    assert [(p.what, p.partitions, p.since) for p in problems(found)] == [("run failed", (key,), NOW)]


@pytest.mark.parametrize(
    ("freshness", "verdict"),
    [("FAIL", HealthVerdict.FAILED), ("WARN", HealthVerdict.WARNED), ("PASS", HealthVerdict.PASSED)],
)
def test_a_freshness_policy_counts(freshness: str, verdict: HealthVerdict) -> None:
    assert health(dataset(check(), freshness=freshness, promise="every day")).verdict is verdict


def test_what_never_ran_is_called_so_and_what_no_check_judged_is_not_called_good() -> None:
    never = ObservedDataset("gold/new", partitions=DAYS, checks=(Check("c"),))
    assert health(never).verdict is HealthVerdict.MISSING
    assert set(verdicts(never)) == {HealthVerdict.MISSING}
    assert health(dataset()).verdict is HealthVerdict.WRITTEN
    assert set(verdicts(dataset())) == {HealthVerdict.WRITTEN}


def test_a_check_of_the_whole_asset_is_no_verdict_on_a_partition() -> None:
    whole = Check("partitions_are_complete", evaluations=(Evaluation(9, NOW, None, passed=False, severe=False),))
    found = dataset(whole)
    assert set(verdicts(found)) == {HealthVerdict.WRITTEN}
    assert health(found).verdict is HealthVerdict.WARNED


def test_hit_rates_are_counted_and_the_worst_promise_comes_first() -> None:
    bad = {DAYS[0].key: True, DAYS[1].key: False}
    kept, missed = check(), Check("late", patterns=("sla_misses_detector",), evaluations=judged(WRITES, bad))
    assert (rate(missed).passed, rate(missed).total, rate(missed).share) == (3, 5, 0.6)
    since = WRITES[1].at
    assert rate(missed, since) == rate(kept, since)
    good = replace(kept, patterns=("sla_misses_detector",))
    never = Check("new", patterns=("sla_misses_detector",))
    world = ObservedWorld(NOW + DAY * 400, {"a": dataset(good, never), "b": dataset(missed)})
    found = promises(world, "sla_misses_detector")
    assert [(check.name, recent.share, all_.share) for _, check, recent, all_ in found] == [
        ("late", None, 0.6),
        ("rows_meet_contract", None, 1.0),
        ("new", None, None),
    ]


def test_rows_are_those_of_the_newest_write_of_each_partition() -> None:
    again = Write(50, NOW, DAYS[0].key, "r", {"dagster/partition_row_count": 1})
    found = dataset(writes=(again, *WRITES))
    assert rows(found) == 1 + sum(100 + n for n in range(1, 5))
    plain = ObservedDataset(
        "x", writes=(Write(2, NOW, None, "r", {}), Write(1, NOW, None, "r", {"dagster/row_count": 7}))
    )
    assert rows(plain) == 7
    assert rows(ObservedDataset("x")) is None
    letters = (Write(2, NOW, "a", "r", {"dead_letters/open": 1}), Write(1, NOW, "a", "r", {"dead_letters/open": 5}))
    assert newest_sum(ObservedDataset("x", writes=letters), "dead_letters/open") == 1


def test_partitions_that_are_no_time_have_verdicts_as_well() -> None:
    keys = tuple(ObservedPartition(key) for key in ("de", "fr"))
    writes = (Write(1, NOW, "de", "r", {}),)
    found = ObservedDataset("x", partitions=keys, writes=writes, materialized=frozenset({"de"}))
    assert verdicts(found) == [HealthVerdict.WRITTEN, HealthVerdict.MISSING]
    assert hours(3)[0].start == NOW - timedelta(hours=3)
