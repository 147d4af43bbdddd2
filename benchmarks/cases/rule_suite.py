"""Ten rules on rows and the uniqueness of a key are judged: by the contract in one pass, and by cuallee, sparkdq and pandera.

Nobody keeps the frame. It is read from staged Parquet files; in the last figure it is also rid of rows that were delivered
twice (`dropDuplicates`), so that whoever looks at it several times does that several times. Some rows break four of the rules,
some have the key of another. Ours is `de_checks.frame.judge`; for information, the two checks of the graph where no write has
counted the rows for them. Every tool is asked for as much as it tells: the broken rules, with the number of rows (pandera
gives none), and how many rows are too many for their keys; of sparkdq that includes one more look, at its rows that failed.
Equal: all these answers, and what is known from how the rows were made; those of who is measured once are compared after the
time was taken, and figures are only given if they agree. The notes say how many Spark jobs each started; ours may be two,
besides that of `dropDuplicates`. Great Expectations is not measured, for it cannot be installed beside the versions that the
project pins: cuallee and sparkdq stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from uuid import uuid4

from pyspark.sql import DataFrame

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, Work, alternate
from benchmarks.rule_peers import (
    Answer,
    checks_of_the_graph,
    comparable,
    cuallee,
    ours,
    pandera,
    sparkdq,
    spoiled,
    truth,
)
from benchmarks.workbench import Workbench

BAR = 0.6
JOBS = 2
OURS, GRAPH, CUALLEE = "contract", "checks of the graph", "cuallee"
Judges = Mapping[str, Callable[[DataFrame], Answer]]
ONCE: Judges = {"sparkdq": sparkdq, "pandera": pandera}


class Asked:
    """Tools that are asked about one frame: their last answers, and how many Spark jobs those took."""

    def __init__(self, bench: Workbench, frame: DataFrame, judges: Judges) -> None:
        self.bench, self.frame, self.judges = bench, frame, judges
        self.answers: dict[str, Answer] = {}
        self.jobs: dict[str, int] = {}

    @property
    def works(self) -> dict[str, Work]:
        """Each tool's call."""
        return {name: partial(self._ask, name) for name in self.judges}

    def _ask(self, name: str) -> None:
        context, group = self.bench.spark.sparkContext, uuid4().hex
        context.setJobGroup(group, name)
        try:
            self.answers[name] = self.judges[name](self.frame)
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # as its own text says
        self.jobs[name] = len(context.statusTracker().getJobIdsForGroup(group))

    def verify(self, rows: int, jobs: int) -> None:
        """Raise `ResultsDiffer` unless all said the truth, and ours with so many jobs at most."""
        for name, answer in self.answers.items():
            require_equal(f"the rules ({name})", comparable(name, truth(rows)), answer)
        require_equal("the rules (Spark jobs are few enough)", True, self.jobs.get(OURS, 0) <= jobs)

    def note(self, one: str, other: str) -> str:
        """How many jobs the two took."""
        return f"Spark jobs: {self.jobs[one]} and {self.jobs[other]}"


def run(bench: Workbench) -> list[Figure]:
    """What a verdict costs, on files and behind a plan that costs something itself."""
    rows = bench.pick(small=100_000, full=5_000_000)
    read = f"{rows:,} rows of files"
    judges: Judges = {OURS: ours, CUALLEE: cuallee}
    frame = _staged(bench, "rule_suite", rows, twice=False)
    files = Asked(bench, frame, judges)
    samples = _in_turns(bench, files, read, lambda: files.verify(rows, JOBS))
    others = Asked(bench, frame, {OURS: ours, GRAPH: checks_of_the_graph, **ONCE})
    once = alternate(others.works, verify=lambda: None, rounds=1, warm_ups=0)
    others.verify(rows, JOBS)

    fewer = bench.pick(small=100_000, full=2_000_000)
    behind = f"{fewer:,} rows behind `dropDuplicates`"
    planned = Asked(bench, _staged(bench, "rule_suite_twice", fewer, twice=True).dropDuplicates(), judges)
    told = _in_turns(bench, planned, behind, lambda: planned.verify(fewer, JOBS + 1))
    return [
        _figure(read, samples, CUALLEE, files.note(OURS, CUALLEE)),
        *(_figure(read, once, name, others.note(OURS, name)) for name in ONCE),
        Figure("rule_suite", read, Kind.RATIO, OURS, once[OURS], GRAPH, once[GRAPH], note=others.note(OURS, GRAPH)),
        _figure(behind, told, CUALLEE, planned.note(OURS, CUALLEE)),
    ]


def _in_turns(bench: Workbench, asked: Asked, what: str, verify: Work) -> dict[str, Samples]:
    return alternate(
        asked.works,
        verify=verify,
        rounds=bench.pick(small=2, full=5),
        at_most=bench.pick(small=2, full=7),
        enough=lambda taken: _figure(what, taken, CUALLEE, "").is_decided,
    )


def _figure(what: str, samples: Mapping[str, Samples], peer: str, note: str) -> Figure:
    return Figure("rule_suite", what, Kind.RATIO, OURS, samples[OURS], peer, samples[peer], BAR, note=note)


def _staged(bench: Workbench, name: str, rows: int, *, twice: bool) -> DataFrame:
    """Rows with their faults as files; `twice`: every tenth was delivered a second time."""
    views = spoiled(data.stage(bench, f"{name}_views", days=1, rows_per_day=rows))
    path = str(bench.folder("staged") / name)
    again = views.where("conv(visit_id, 16, 10) % 10 = 5")
    (views.union(again) if twice else views).write.parquet(path)
    return bench.spark.read.parquet(path)
