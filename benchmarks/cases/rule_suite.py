"""Ten rules on rows and the uniqueness of a key are judged: by the contract in one pass, and by cuallee, pandera and sparkdq.

Nobody keeps the frame. It is read from staged Parquet files; behind a plan, whoever looks at it several times pays the plan
several times. The plan of the bar is what frames are rid of copies by: of each key the latest, by `row_number`. For
information also `dropDuplicates`, the cheapest plan of that kind, alone and judged: it takes so large a part of the peer's time
that nothing behind it could reach the bar. Some rows break four of the rules, and in files some have the key of another. Ours
is `de_checks.frame.judge`; for information, the two checks of the graph where no write has counted the rows for them. Every
tool is asked for as much as it tells: the broken rules, with the number of rows (pandera gives none), and how many rows are too
many for their keys; of sparkdq that includes one more look, at its rows that failed. Equal: all these answers, and what is
known from how the rows were made; those of who is measured once are compared after the time was taken, and figures are only
given if they agree. The notes say how many Spark jobs each started; ours may be two, besides those of the plan. Great
Expectations is not measured, for it cannot be installed beside the versions that the project pins: cuallee, pandera and sparkdq
stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from benchmarks import data
from benchmarks.case import require_equal
from benchmarks.engine_jobs import counted_jobs
from benchmarks.figure import Figure, Kind
from benchmarks.measure import Samples, Work, alternate
from benchmarks.rule_peers import (
    KEY,
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
OURS, GRAPH, CUALLEE, PANDERA, SPARKDQ = "contract", "checks of the graph", "cuallee", "pandera", "sparkdq"
PLAN = "the plan alone"
Judges = Mapping[str, Callable[[DataFrame], Answer]]
IN_TURNS: Judges = {OURS: ours, CUALLEE: cuallee, PANDERA: pandera}


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
        with counted_jobs(self.bench.spark) as jobs:
            self.answers[name] = self.judges[name](self.frame)
        self.jobs[name] = len(jobs)

    def verify(self, jobs: int, right: Answer) -> None:
        """Raise `ResultsDiffer` unless all said what is right, and ours with so many jobs at most."""
        for name, answer in self.answers.items():
            require_equal(f"the rules ({name})", comparable(name, right), answer)
        require_equal("the rules (Spark jobs are few enough)", True, self.jobs.get(OURS, 0) <= jobs)

    def note(self, one: str, other: str) -> str:
        """How many jobs the two took."""
        return f"Spark jobs: {self.jobs[one]} and {self.jobs[other]}"


def run(bench: Workbench) -> list[Figure]:
    """What a verdict costs, on files and behind a plan that costs something itself."""
    rows = bench.pick(small=100_000, full=5_000_000)
    files = _of_files(bench, rows)
    landed = _staged(bench, "rule_suite_twice", rows, twice=True)
    return [*files, *_of_the_latest(bench, landed, rows), *_without_copies(bench, landed, rows)]


def _of_files(bench: Workbench, rows: int) -> list[Figure]:
    what, right = f"{rows:,} rows of files", truth(rows)
    frame = _staged(bench, "rule_suite", rows, twice=False)
    asked = Asked(bench, frame, IN_TURNS)
    samples = _in_turns(bench, asked, what, lambda: asked.verify(JOBS, right))
    others = Asked(bench, frame, {OURS: ours, GRAPH: checks_of_the_graph, SPARKDQ: sparkdq})
    once = alternate(others.works, verify=lambda: None, rounds=1, warm_ups=0)
    others.verify(JOBS, right)
    return [
        *(_figure(what, samples, name, asked.note(OURS, name)) for name in (CUALLEE, PANDERA)),
        _figure(what, once, SPARKDQ, others.note(OURS, SPARKDQ)),
        _told(what, once, OURS, GRAPH, others.note(OURS, GRAPH)),
    ]


def _of_the_latest(bench: Workbench, landed: DataFrame, rows: int) -> list[Figure]:
    what = f"{rows:,} rows, the latest of each key"
    # Of two rows with one key none breaks a rule, so that the rules say the same whichever is kept.
    newest = Window.partitionBy("visit_id").orderBy(F.col("event_time").desc())
    latest = landed.withColumn("place", F.row_number().over(newest)).where("place = 1").drop("place")
    right = {name: n for name, n in truth(rows).items() if name != KEY}
    asked = Asked(bench, latest, {OURS: ours, CUALLEE: cuallee})
    samples = _in_turns(bench, asked, what, lambda: asked.verify(JOBS + 1, right))
    return [_figure(what, samples, CUALLEE, asked.note(OURS, CUALLEE))]


def _without_copies(bench: Workbench, landed: DataFrame, rows: int) -> list[Figure]:
    what = f"{rows:,} rows behind `dropDuplicates`"
    frame = landed.dropDuplicates()
    asked = Asked(bench, frame, {OURS: ours, CUALLEE: cuallee})
    alone = {PLAN: lambda: frame.write.format("noop").mode("overwrite").save()}
    samples = alternate(
        {**asked.works, **alone}, verify=lambda: asked.verify(JOBS + 1, truth(rows)), rounds=bench.pick(small=1, full=3)
    )
    note = asked.note(OURS, CUALLEE)
    return [_told(what, samples, OURS, CUALLEE, note), _told(what, samples, PLAN, CUALLEE, "")]


def _in_turns(bench: Workbench, asked: Asked, what: str, verify: Work) -> dict[str, Samples]:
    return alternate(
        asked.works,
        verify=verify,
        rounds=bench.pick(small=2, full=5),
        at_most=bench.pick(small=2, full=7),
        enough=lambda taken: all(_figure(what, taken, name, "").is_decided for name in taken if name != OURS),
    )


def _figure(what: str, samples: Mapping[str, Samples], peer: str, note: str) -> Figure:
    return _told(what, samples, OURS, peer, note, bar=BAR)


def _told(
    what: str, samples: Mapping[str, Samples], one: str, other: str, note: str, bar: float | None = None
) -> Figure:
    return Figure("rule_suite", what, Kind.RATIO, one, samples[one], other, samples[other], bar, note=note)


def _staged(bench: Workbench, name: str, rows: int, *, twice: bool) -> DataFrame:
    """Rows with their faults as files; `twice`: every tenth was delivered a second time."""
    views = spoiled(data.stage(bench, f"{name}_views", days=1, rows_per_day=rows))
    path = str(bench.folder("staged") / name)
    again = views.where("conv(visit_id, 16, 10) % 10 = 5")
    (views.union(again) if twice else views).write.parquet(path)
    return bench.spark.read.parquet(path)
