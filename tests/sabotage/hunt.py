"""Planting defect after defect and asking the tests, in two lanes; those that need services in one of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain, groupby, repeat
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Lock

from .defects import Claims, Defect, stages
from .memory import Memory, Verdict
from .trial import Outcome, run
from .warm_engine import WarmEngines
from .workplace import Workplace

LANES = 2
MODULES = 10
"""Whose tests are asked without a defect at a time."""
_WITH_WARM_ENGINE = ("tests/unit", "tests/tables", "tests/proof", "tests/graph")
"""What is about the engine's own start and death is elsewhere."""
Tell = Callable[[Verdict], None]


class Hunt:
    """One run over some defects. `services` is the environment by which tests find services that are kept."""

    def __init__(self, claims: Claims, memory: Memory, tell: Tell, services: Mapping[str, str] | None = None) -> None:
        self._claims, self._memory, self._tell = claims, memory, tell
        self._services = services or {}
        self._lock = Lock()
        # Tests stop and fill the services, and would disturb each other.
        self._with_services = Lock()
        self._interrupted = Event()

    def over(
        self, defects: Sequence[Defect], scratch: Path, lanes: int = LANES, seconds: float = math.inf
    ) -> list[Verdict]:
        """A verdict on each defect that was begun within this time. What is known already is not asked again."""
        deadline = time.monotonic() + seconds
        known = [verdict for defect in defects if (verdict := self._memory.recall(defect))]
        for verdict in known:
            self._tell(verdict)
        answered = {verdict.defect for verdict in known}
        left = [defect for defect in defects if defect.name not in answered]
        if not left:
            return known
        self._unharmed = Workplace(scratch / "unharmed")
        self._engines = WarmEngines(self._unharmed)
        workplaces = [Workplace(scratch / f"lane{lane}") for lane in range(lanes)]
        alone, shared = _queue(d for d in left if d.needs_services), _queue(d for d in left if not d.needs_services)
        with closing(self._engines), ThreadPoolExecutor(lanes) as pool, self._interruptible():
            # The services import what the first lane has: where a defect is at work in one of them, it is that lane's. Its
            # groups are one task, for they would only wait for each other in both lanes.
            tasks = [(workplaces[0], _groups(left, needs_services=True))]
            tasks += [(self._unharmed, [group]) for group in _groups(left, needs_services=False)]
            list(pool.map(self._baseline, *zip(*tasks, strict=True), repeat(deadline)))
            queues = [[alone, shared] if lane == 0 else [shared] for lane in range(lanes)]
            done = [pool.submit(self._lane, *each, deadline) for each in zip(workplaces, queues, strict=True)]
            return [*known, *(verdict for lane in done for verdict in lane.result())]

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Who interrupts waits neither for the tests that run nor for what was to come after them."""
        try:
            yield
        except BaseException:
            self._interrupted.set()
            raise

    def _is_over(self, deadline: float) -> bool:
        return self._interrupted.is_set() or time.monotonic() >= deadline

    def _baseline(self, workplace: Workplace, groups: Iterable[Sequence[str]], deadline: float) -> None:
        """Find out which of the tests pass without any defect: one that fails anyway notices nothing."""
        for tests in groups:
            unknown = [test for test in tests if not self._memory.is_green(test)]
            if not unknown or self._is_over(deadline):
                continue
            outcome = self._run(workplace, unknown, stop_at_first=False)
            if not outcome.broken:
                with self._lock:
                    self._memory.remember_green(
                        t for t in unknown if _among(t, outcome.passed) and not _among(t, outcome.failed)
                    )

    def _lane(self, workplace: Workplace, queues: Sequence[SimpleQueue[Defect]], deadline: float) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for queue in queues:
            while not self._is_over(deadline) and (defect := _next(queue)) is not None:
                verdict = self._judge(workplace, defect)
                verdicts.append(verdict)
                with self._lock:
                    self._memory.remember(defect, verdict)
                    self._tell(verdict)
        return verdicts

    def _judge(self, workplace: Workplace, defect: Defect) -> Verdict:
        started = time.monotonic()

        def verdict(by: str | None = None, broken: str | None = None, told: str = "") -> Verdict:
            return Verdict(defect.name, by, round(time.monotonic() - started, 1), broken, told)

        # The hint first, in a cold engine as well, for a defect may lie in how one is started; then all that claim what is
        # broken, until one notices.
        hint = [defect.noticed_by]
        others = [test for test in self._claims.of(defect) if test != defect.noticed_by]
        ways = [(hint, True), *([(hint, False)] if _may_be_warm(hint) else []), *zip(stages(others), repeat(True))]
        for tests, warm in ways:
            try:
                with workplace.with_defect(defect):
                    outcome = self._run(workplace, tests, warm=warm)
            except ValueError as error:
                return verdict(broken=str(error))
            if outcome.broken:
                return verdict(broken=outcome.broken, told=outcome.told)
            if outcome.failed:
                noticed = outcome.failed[0]
                asked_first = _among(defect.noticed_by, [noticed])
                if (asked_first and self._memory.is_green(defect.noticed_by)) or self._passes_without(noticed):
                    return verdict(by=noticed)
                return verdict(broken=f"`{noticed}` does not pass without the defect either", told=outcome.told)
        return verdict()

    def _passes_without(self, test: str) -> bool:
        outcome = self._run(self._unharmed, [test])
        return not outcome.broken and not outcome.failed

    def _run(
        self, workplace: Workplace, tests: Sequence[str], *, warm: bool = True, stop_at_first: bool = True
    ) -> Outcome:
        ask = partial(run, workplace, tests, stop_at_first=stop_at_first, interrupted=self._interrupted)
        if any(test.startswith("tests/services") for test in tests):
            with self._with_services:
                return ask(extra=self._services, services=True)
        if not (warm and _may_be_warm(tests)):
            return ask()
        with self._engines.one() as engine:
            return ask(extra=engine.environment())


def _groups(defects: Sequence[Defect], *, needs_services: bool) -> list[list[str]]:
    """The tests that are asked first, each once, a few modules at a time: what is found out is written down after each."""
    tests = sorted({d.noticed_by for d in defects if d.needs_services == needs_services})
    # A module's tests share what they prepare.
    modules = [list(each) for _, each in groupby(tests, key=_module)]
    return [list(chain.from_iterable(modules[n : n + MODULES])) for n in range(0, len(modules), MODULES)]


def _may_be_warm(tests: Iterable[str]) -> bool:
    return all(test.startswith(_WITH_WARM_ENGINE) for test in tests)


def green_in_suite(tests: Iterable[str], passed: Iterable[str]) -> Iterator[str]:
    """Those of these tests that passed in the suite."""
    by_module = groupby(sorted(passed), key=_module)
    ran = {module: list(each) for module, each in by_module}
    return (test for test in tests if _among(test, ran.get(_module(test), ())))


def _module(test: str) -> str:
    return test.partition("::")[0]


def _among(test: str, ran: Iterable[str]) -> bool:
    """Whether the test, or one of its cases, is among these."""
    return any(each == test or each.startswith((f"{test}[", f"{test}::")) for each in ran)


def _queue(defects: Iterable[Defect]) -> SimpleQueue[Defect]:
    queue: SimpleQueue[Defect] = SimpleQueue()
    for defect in defects:
        queue.put(defect)
    return queue


def _next(queue: SimpleQueue[Defect]) -> Defect | None:
    try:
        return queue.get_nowait()
    except Empty:
        return None
