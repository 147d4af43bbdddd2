"""Four small Delta assets in a chain, as one run in a process of its own, under three set-ups.

Ours: steps share the run's process, the engine is the warm Spark Connect server. Then the same with an engine inside the
run's process. Then what a project gets by default: Dagster's multiprocess executor, so that every step starts a process and
a JVM. Assets, IO manager and data are the same. Equal: the rows of the last table. Two rounds, as the last takes
more than a minute. No bar: it shows what the set-up is for.
"""

from functools import partial

from deltalake import DeltaTable

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import alternate
from benchmarks.workbench import Workbench

MODULE = "benchmarks.programs.chain"


def run(bench: Workbench) -> list[Figure]:
    """What one engine for all steps saves."""
    bench.connect_server()
    classic = {"DE_SPARK": "local[*]"}
    set_ups = {
        "connect": bench.worker_environment("connect"),
        "classic": bench.worker_environment("classic", **classic),
        "multiprocess": bench.worker_environment("multiprocess", BENCH_EXECUTOR="multiprocess", **classic),
    }

    def verify() -> None:
        ends = [DeltaTable(f"{e['LAKE_ROOT']}/chain/fourth").to_pyarrow_table().to_pylist() for e in set_ups.values()]
        require_equal("the chain", *ends)

    contenders = {name: partial(bench.materialize, MODULE, "*", e) for name, e in set_ups.items()}
    samples = alternate(contenders, verify=verify, rounds=2, watched=bench.servers)
    return [
        Figure(
            "executors", "4 small assets, one run", Kind.RATIO, "in process, warm server", samples["connect"],
            peer, samples[name],
        )
        for name, peer in (
            ("classic", "in process, own JVM"),
            ("multiprocess", "Dagster's default: process and JVM per step"),
        )
    ]  # fmt: skip
