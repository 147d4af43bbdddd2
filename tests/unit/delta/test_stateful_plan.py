"""Stateful Merger without a table: hundreds of lives of one table, planned by the platform and told by a plain list.

The platform's half of each life is its log: commits whose stamps are the plan's own. The other half is a list of what
came in, in order. Whatever happens, both must name the same rows, the same partitions, and the same refusals.
`test_stateful_merge` shows that commits of the engine are what this module takes them for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from de_resources.delta.log import Commit
from de_resources.delta.log.versions import HOUSEKEEPING, VersionUnreadable
from de_resources.delta.write.merge_state import MergedPartition, MergeState, ReplayFirst
from de_resources.delta.write.stateful_plan import (
    MergePlan,
    PartitionRun,
    ReadState,
    StateGone,
    StateMoved,
    WouldUndo,
    planned,
)

pytestmark = pytest.mark.pattern("stateful_merger")

WRITER = "silver/rows"
ORDER = tuple(f"2024-01-0{n}" for n in range(1, 7))
Rows = dict[int, str]


@dataclass(frozen=True)
class Event:
    """Something that changed rows: a partition with what it brought, or a stranger who put or removed a row."""

    version: int
    key: str | None
    puts: Rows = field(default_factory=dict)
    removes: int | None = None


@dataclass(frozen=True)
class TableState:
    """What is in the table by the list, and which partitions have to come back."""

    events: tuple[Event, ...] = ()
    out: frozenset[str] = frozenset()

    @property
    def rows(self) -> Rows:
        rows: Rows = {}
        for event in self.events:
            rows |= event.puts
            rows.pop(event.removes, None)  # type: ignore[arg-type]
        return rows

    @property
    def keys(self) -> list[str]:
        return [e.key for e in self.events if e.key]

    def before(self, key: str) -> tuple[Event, ...]:
        """What stays when the partition is run: all that came before it and before all partitions after it."""
        first = next((n for n, e in enumerate(self.events) if e.key and e.key >= key), len(self.events))
        kept = self.events[:first]
        if any(e.key for e in kept):
            return kept
        clears = first < len(self.events) or key == ORDER[0]
        return () if clears and self.rows else tuple(e for e in self.events if not e.key)

    def after(self, key: str) -> Event | None:
        """The last partition up to this one that is in."""
        return next((e for e in reversed(self.events) if e.key and e.key <= key), None)


class Life:
    """One table: its commits, the rows of each version, and what the list says of each version."""

    def __init__(self) -> None:
        self.commits = [Commit(0, "CREATE TABLE", {}, {})]
        self.versions: list[Rows] = [{}]
        self.told = [TableState()]
        self.oldest = 0

    # What a plan asks of a table.

    def holds_rows(self) -> bool:
        return bool(self.versions[-1])

    def readable(self, version: int) -> int:
        if version >= self.oldest:
            return version
        if all(c.operation in HOUSEKEEPING for c in self.commits[version + 1 :]):
            return self.head
        raise VersionUnreadable(WRITER, version, "its files were vacuumed", range(self.oldest, self.head + 1))

    # The platform's half.

    @property
    def head(self) -> int:
        return self.commits[-1].version

    @property
    def state(self) -> MergeState:
        return MergeState.after(self.commits, WRITER)

    def commit(
        self, operation: str, rows: Rows, told: TableState, stamp: dict[str, Any] | None = None, **options: Any
    ) -> None:
        self.commits.append(Commit(self.head + 1, operation, {}, stamp or {}, options))
        self.versions.append(rows)
        self.told.append(told)

    def stamp(self, facts: dict[str, Any], key: str) -> dict[str, Any]:
        return {"writer": WRITER, "slice": key, "origin": f"run {self.head + 1}", **facts}

    def plan(self, key: str, **turn: Any) -> MergePlan:
        return planned(self.state, PartitionRun(key, ORDER, **turn), WRITER, self)

    def run(self, key: str, puts: Rows, *, dies: bool = False, **turn: Any) -> None:
        """What `stateful_merge.merge` does with a plan. `dies`: after the table was taken back."""
        plan, kept = self.plan(key, **turn), self.told[-1].before(key)
        gone = {e.key for e in self.told[-1].events if e.key} - {e.key for e in kept}
        out = self.told[-1].out | {k for k in gone if k}
        rows = self.versions[-1]
        if plan.clear:
            rows = {}
            self.commit("DELETE", rows, TableState(kept, out), self.stamp(plan.taking_back, key))
        elif plan.back_to is not None:
            rows = self.versions[plan.back_to]
            stamp = self.stamp(plan.taking_back, key)
            self.commit("RESTORE", rows, TableState(kept, out), stamp, version=str(plan.back_to))
        if dies and (plan.clear or plan.back_to is not None):
            return
        told = TableState((*kept, Event(self.head + 1, key, puts)), out - {key})
        self.commit("MERGE", rows | puts, told, self.stamp(plan.merging, key))

    # What others do.

    def housekeeping(self, operation: str) -> None:
        self.commit(operation, self.versions[-1], self.told[-1])

    def vacuum(self) -> None:
        self.oldest = self.head
        self.housekeeping("VACUUM START")
        self.housekeeping("VACUUM END")

    def interfere(self, id_: int, text: str | None, stamp: dict[str, Any] | None = None) -> None:
        """Somebody puts a row, or removes one."""
        event = Event(self.head + 1, None, {id_: text} if text else {}, None if text else id_)
        told = replace(self.told[-1], events=(*self.told[-1].events, event))
        self.commit("WRITE" if text else "DELETE", told.rows, told, stamp)

    def restore(self, version: int) -> None:
        """A person restores the table: as it was then, and what came in since is to come back."""
        then, now = self.told[version], self.told[-1]
        out = then.out | (set(now.keys) - set(then.keys))
        self.commit("RESTORE", self.versions[version], TableState(then.events, frozenset(out)), version=version)

    # Both halves.

    def agree(self) -> None:
        """The two halves say the same of the table as it is, and of what a reader of each partition gets."""
        state, told = self.state, self.told[-1]
        assert self.versions[-1] == told.rows
        assert [(e.key, e.version) for e in state.entries] == [(e.key, e.version) for e in told.events if e.key]
        assert set(state.replay) == told.out
        assert len(state.replay) == len(told.out), "each is named once"
        assert [c.version for c in state.foreign] == [e.version for e in told.events if not e.key]
        for key in ORDER:
            if any(k <= key for k in told.out):
                with pytest.raises(ReplayFirst):
                    state.as_of(key, ORDER, WRITER)
            else:
                self._read(state, told, key)

    def _read(self, state: MergeState, told: TableState, key: str) -> None:
        entry, last = state.as_of(key, ORDER, WRITER), told.after(key)
        assert (entry and entry.version) == (last and last.version)
        if entry and last:
            following = next((n for n, e in enumerate(told.events) if e.key and e.key > key), len(told.events))
            assert self.versions[state.end_of(entry)] == TableState(told.events[:following]).rows

    def refusal(self, key: str, undo: int, basis: ReadState | None) -> type[Exception] | None:
        """What the list says a run of the partition has to be refused with."""
        told, kept = self.told[-1], self.told[-1].before(key)
        if basis is not None:
            if any(k <= basis.key for k in told.out):
                return ReplayFirst
            last = told.after(basis.key)
            if (last and last.version) != (basis.entry and basis.entry.version):
                return StateMoved
        if any(k < key for k in told.out):
            return ReplayFirst
        dropped = [e for e in told.events if e not in kept]
        first = next((e for e in dropped if e.key), None)
        if first and any(e.key for e in kept) and not self._can_be_read(first.version - 1):
            return StateGone
        return WouldUndo if any(not e.key and e.version > undo for e in dropped) else None

    def _can_be_read(self, version: int) -> bool:
        return version >= self.oldest or all(c.operation in HOUSEKEEPING for c in self.commits[version + 1 :])


def steps() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """What happens to a table; runs of a partition are more frequent than all else together."""
    ids = st.integers(1, 4)
    run = st.tuples(
        st.just("run"),
        st.sampled_from(ORDER),
        st.dictionaries(ids, st.sampled_from("abc"), max_size=3),
        st.sampled_from([False, False, False, True]),  # whether it dies in between
        st.booleans(),  # whether it may undo what others did
        st.booleans(),  # whether it computed with what was read last
    )
    interfere = st.tuples(st.just("interfere"), ids, st.sampled_from([None, "x"]), st.booleans())
    others = st.one_of(
        st.tuples(st.just("keep house"), st.sampled_from(["OPTIMIZE", "SET TBLPROPERTIES", "ADD CONSTRAINT"])),
        st.tuples(st.just("restore"), st.integers(0, 30)),
        st.tuples(st.just("read"), st.sampled_from(ORDER)),
        st.tuples(st.just("vacuum")),
    )
    return st.lists(st.one_of(run, run, run, interfere, others), min_size=3, max_size=25)


@settings(max_examples=400)
@given(steps())
def test_whatever_happens_the_log_and_a_plain_list_tell_the_same(found: list[tuple[Any, ...]]) -> None:
    life = Life()
    basis: ReadState | None = None
    for kind, *what in found:
        if kind == "run":
            key, puts, dies, undoes, computed = what
            used, undo = basis if computed else None, life.head if undoes else -1
            refusal, before = life.refusal(key, undo, used), life.head
            if refusal is None:
                life.run(key, puts, dies=dies, undo=undo, basis=used)
            else:
                with pytest.raises(refusal):
                    life.run(key, puts, dies=dies, undo=undo, basis=used)
                assert life.head == before, "a refusal changes nothing"
        elif kind == "keep house":
            life.housekeeping(what[0])
        elif kind == "interfere":
            id_, text, is_writer = what
            other = {"writer": "silver/others", "stateful": {"step": "merge", "after": None, "replay": []}}
            life.interfere(id_, text, other if is_writer else None)
        elif kind == "restore":
            life.restore(what[0] % (life.head + 1))
        elif kind == "read" and not any(k <= what[0] for k in life.told[-1].out):
            basis = ReadState(what[0], life.state.as_of(what[0], ORDER, WRITER))
        elif kind == "vacuum":
            life.vacuum()
        life.agree()


@given(st.lists(st.sampled_from(ORDER), unique=True, min_size=1), st.sampled_from(ORDER), st.data())
def test_a_corrected_partition_and_its_replay_equal_one_clean_run(
    days: list[str], corrected: str, data: st.DataObject
) -> None:
    """Days in any order, then one that is run again with other rows, then all that it asks for, in order."""
    life = Life()
    brought = {key: {n % 3: key, n: key} for n, key in enumerate(ORDER)}

    def replayed() -> Iterator[str]:
        for _ in ORDER:
            if life.state.replay:
                key = min(life.state.replay)
                life.run(key, brought[key])
                yield key

    for key in [*days, corrected]:
        if key == corrected:
            brought[key] = {1: "corrected", 9: "new"}
        life.run(key, brought[key], dies=data.draw(st.booleans()))
        if key not in life.told[-1].keys:  # it died, and is run again
            life.run(key, brought[key])
        assert not [k for k in replayed() if k <= key], "only what comes after a partition has to be run again"
    clean: Rows = {}
    for key in sorted({*days, corrected}):
        clean |= brought[key]
    assert life.versions[-1] == clean
    assert life.state.replay == ()
    life.agree()


def test_a_normal_run_takes_nothing_back_and_a_rerun_goes_exactly_before_the_partition() -> None:
    life = Life()
    for key in ORDER[:4]:
        assert (life.plan(key).back_to, life.plan(key).clear) == (None, False)
        life.run(key, {1: key})
    life.housekeeping("OPTIMIZE")
    assert life.plan(ORDER[4]) == MergePlan(kept=life.state.entries, awaited=(), replay=())
    again = life.plan(ORDER[2])
    assert (again.back_to, again.after) == (2, MergedPartition(ORDER[1], 2, "run 2"))
    assert (again.awaited, again.replay) == (ORDER[2:4], ORDER[3:4])
    first = life.plan(ORDER[0])
    assert (first.clear, first.back_to, first.after, first.replay) == (True, None, None, ORDER[1:4])


def test_a_gap_in_the_calendar_is_none_and_the_missing_are_named_in_order() -> None:
    life = Life()
    for key in (ORDER[0], ORDER[1], ORDER[3], ORDER[4]):  # nobody ever ran the third, and nobody waits for it
        life.run(key, {1: key})
    life.run(ORDER[1], {1: "again"})
    with pytest.raises(
        ReplayFirst, match=f"up to `{ORDER[5]}` are not in it again: `{ORDER[3]}`, `{ORDER[4]}`"
    ) as caught:
        life.plan(ORDER[5])
    assert caught.value.missing == (ORDER[3], ORDER[4])
    assert life.plan(ORDER[2]).replay == ORDER[3:5], "the third may come in now"


@pytest.mark.parametrize("other", ["2015-05", "2030-01"], ids=["an earlier month", "a later one"])
def test_what_an_earlier_calendar_added_is_set_aside_and_awaited_where_that_comes_back(other: str) -> None:
    """As when a log takes the place of days that were simulated: their visitors are nobody's."""
    life = Life()
    for key in ORDER[:2]:
        life.run(key, {1: key})
    days = tuple(f"{other}-0{n}" for n in range(1, 4))
    first = planned(life.state, PartitionRun(days[0], days), WRITER, life)
    assert (first.clear, first.after, first.replay) == (True, None, ())
    for number, key in enumerate(days):
        plan = planned(life.state, PartitionRun(key, days), WRITER, life)
        assert plan.clear == (number == 0)
        if plan.clear:
            life.commit("DELETE", {}, TableState(), life.stamp(plan.taking_back, key))
        life.commit("MERGE", {2: key}, TableState(), life.stamp(plan.merging, key))
    assert [entry.key for entry in life.state.entries] == [*days]
    again = planned(life.state, PartitionRun(days[1], days), WRITER, life)
    assert (again.clear, again.after, again.replay) == (False, life.state.entries[0], (days[2],))

    with pytest.raises(ReplayFirst) as caught:
        life.plan(ORDER[2])
    assert caught.value.missing == ORDER[:2], "the days of the earlier calendar are not silently missing"
    back = life.plan(ORDER[0])
    assert (back.clear, back.after, back.replay) == (True, None, (ORDER[1],))


def test_a_longer_calendar_keeps_what_is_there() -> None:
    """The next log, before or after the first one: that is no other calendar."""
    life = Life()
    for key in ORDER[2:4]:
        life.run(key, {1: key})
    assert not planned(life.state, PartitionRun(ORDER[4], ORDER), WRITER, life).clear
    earlier = planned(life.state, PartitionRun(ORDER[0], ORDER), WRITER, life)
    assert (earlier.clear, earlier.replay) == (True, ORDER[2:4])
    shorter = planned(life.state, PartitionRun(ORDER[3], ORDER[3:]), WRITER, life)
    assert shorter.after == life.state.entries[0], "what lies before a shorter calendar stays below it"


def test_a_log_that_no_longer_reaches_back_refuses_old_partitions_and_takes_new_ones() -> None:
    life = Life()
    for key in ORDER[:3]:
        life.run(key, {1: key})
    state = MergeState.after(life.commits[3:], WRITER)
    assert (state.complete, [e.key for e in state.entries]) == (False, [ORDER[2]])
    assert planned(state, PartitionRun(ORDER[3], ORDER), WRITER, life).after == state.entries[0]
    for key in ORDER[1:3]:
        with pytest.raises(StateGone, match="the log no longer tells which partitions") as caught:
            planned(state, PartitionRun(key, ORDER), WRITER, life)
        assert caught.value.first == ORDER[0]
    assert planned(state, PartitionRun(ORDER[0], ORDER), WRITER, life).clear
    life.run(ORDER[0], {1: "anew"})
    cleared = MergeState.after(life.commits[3:], WRITER)
    assert (cleared.complete, cleared.replay) == (True, ORDER[1:3])


def test_a_restore_that_nobody_can_place_leaves_only_the_first_partition() -> None:
    """To a time, or to a version that the log has forgotten."""
    life = Life()
    for key in ORDER[:2]:
        life.run(key, {1: key})
    life.commit("RESTORE", {}, TableState(), timestamp="2024-01-01")
    assert (life.state.entries, life.state.complete, [c.version for c in life.state.foreign]) == ((), False, [3])
    with pytest.raises(StateGone):
        life.plan(ORDER[1])


def test_what_others_changed_is_named_with_the_tag_that_lets_it_be_undone() -> None:
    life = Life()
    life.run(ORDER[0], {1: "a"})
    life.interfere(1, None)
    life.run(ORDER[1], {2: "b", 3: "b"})
    life.interfere(2, None)
    with pytest.raises(WouldUndo, match=r"version 4 \(DELETE\).*`de/stateful_undo: 4`") as caught:
        life.plan(ORDER[1])
    assert caught.value.versions == (4,), "what lies before the partition stays"
    assert life.plan(ORDER[1], undo=4).back_to == 2
    with pytest.raises(WouldUndo) as caught:
        life.plan(ORDER[0], undo=3)
    assert caught.value.versions == (2, 4)
    life.run(ORDER[1], {2: "b"}, undo=4)
    assert [c.version for c in life.state.foreign] == [2], "what was undone is no longer in view"
    life.agree()


@pytest.mark.parametrize(("past", "clears"), [({1: "a"}, True), ({}, False)], ids=["rows", "no rows"])
def test_the_first_partition_clears_a_table_that_holds_rows_of_nobody(past: Rows, clears: bool) -> None:
    life = Life()
    life.commit("WRITE", past, TableState((Event(1, None, past),)))
    assert life.plan(ORDER[0], undo=1).clear == clears
    assert not life.plan(ORDER[1]).clear
    assert planned(MergeState(), PartitionRun(ORDER[0], ORDER), WRITER, None) == MergePlan((), (), ())
