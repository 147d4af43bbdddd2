"""Transient errors are tried again, with growing pauses; all others fail at once, with their own words and class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import dagster as dg
import pytest
from own_modules import trees
from waiting import waits

from de_resources.delta.write.lock import TableBusy
from de_resources.errors import PermanentError, TransientError
from de_resources.retries import RETRY_TRANSIENT

pytestmark = pytest.mark.faults

PLACES = ("body", "output", "input")
Fail = Callable[[str], None]


class Away(TransientError):
    """Somebody who is back later."""


class Refused(PermanentError):
    """What is refused each time."""


@pytest.mark.xdist_group("imports")
def test_who_waits_after_an_error_does_it_by_a_library() -> None:
    """A loop of one's own has its own idea of when to give up, and what it does after the last attempt is found out late."""
    loop = ast.parse("try: x()\nexcept E:\n  if late: raise\n  time.sleep(1)")
    assert list(_sleeping_handlers(loop)) == [2]
    assert len(trees()) > 400
    # Whom it asks knows no time-out, and nothing has failed meanwhile.
    assert [name for name, tree in trees().items() if [*_sleeping_handlers(tree)]] == ["de_resources.delta.write.lock"]


def _sleeping_handlers(code: ast.Module) -> Iterator[int]:
    """The lines of handlers of errors that sleep."""
    for handler in (node for node in ast.walk(code) if isinstance(node, ast.ExceptHandler)):
        calls = [node.func for node in ast.walk(handler) if isinstance(node, ast.Call)]
        if any(call.attr == "sleep" for call in calls if isinstance(call, ast.Attribute)):
            yield handler.lineno


@pytest.fixture(autouse=True)
def slept() -> Iterator[list[float]]:
    with waits() as seconds:
        yield seconds


class Failing:
    """Fails at one place, for so many attempts as there are errors."""

    def __init__(self, place: str, *errors: BaseException) -> None:
        self.place, self.errors, self.calls = place, list(errors), 0

    def __call__(self, place: str) -> None:
        if place == self.place:
            self.calls += 1
            if len(self.errors) >= self.calls:
                raise self.errors[self.calls - 1]


class Memory(dg.IOManager):
    """Keeps values; may fail on either way."""

    def __init__(self, fail: Fail) -> None:
        self.fail, self.kept = fail, 0

    def handle_output(self, context: dg.OutputContext, obj: int) -> None:
        if context.asset_key.path == ["read"]:
            return
        self.fail("output")
        self.kept = obj

    def load_input(self, context: dg.InputContext) -> int:  # noqa: ARG002
        self.fail("input")
        return self.kept


def run(failing: Failing, *, raises: bool = False) -> dg.ExecuteInProcessResult:
    """Two assets, the second one reads the first."""

    @dg.asset(retry_policy=RETRY_TRANSIENT)
    def written() -> int:
        failing("body")
        return 7

    @dg.asset(retry_policy=RETRY_TRANSIENT)
    def read(written: int) -> int:
        return written

    memory = Memory(failing)
    return dg.materialize([written, read], resources={"io_manager": memory}, raise_on_error=raises)


def classes(result: dg.ExecuteInProcessResult) -> list[str | None]:
    """The classes that the event log has of the failure, the outermost first."""
    (failure,) = result.get_step_failure_events()
    error, names = failure.step_failure_data.error, []
    while error is not None:
        names.append(error.cls_name)
        error = error.cause
    return names


@pytest.mark.parametrize("place", PLACES)
def test_a_transient_error_is_tried_again_with_growing_pauses(place: str, slept: list[float]) -> None:
    failing = Failing(place, Away(), Away())
    assert run(failing).success
    assert failing.calls == 3
    first, second = slept
    assert 0 <= first <= 4 <= second <= 8


def test_no_pause_is_too_short_to_be_seen(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitter may leave some microseconds of the first one: these tests' clock does not go on by itself meanwhile."""
    monkeypatch.setattr("dagster._core.definitions.policy.random", lambda: 1e-5)
    assert run(Failing("body", Away(), Away())).success
    assert slept == [pytest.approx(4e-5, rel=0.01), pytest.approx(4, rel=0.01)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("error", [Refused("no"), KeyError("bug"), TableBusy("silver.rows", 1800)], ids=repr)
def test_what_fails_the_same_way_each_time_is_tried_once(place: str, error: Exception, slept: list[float]) -> None:
    failing = Failing(place, *[error] * 9)
    result = run(failing)
    assert (failing.calls, slept) == (1, [])
    assert classes(result)[-1] == type(error).__name__
    assert len(classes(result)) == 2, "wrapped once, as Dagster does without a policy"


@pytest.mark.parametrize("place", PLACES)
def test_the_last_attempt_fails_with_its_own_error(place: str) -> None:
    failing = Failing(place, *(Away(number) for number in range(9)))
    assert classes(run(failing))[-1] == "Away"
    assert failing.calls == 4

    failing = Failing(place, *[Away("still away")] * 9)
    with pytest.raises(Away, match="still away"):
        run(failing, raises=True)


def test_a_termination_is_not_tried_again(slept: list[float]) -> None:
    failing = Failing("body", KeyboardInterrupt())
    assert not run(failing).success
    assert (failing.calls, slept) == (1, [])


def test_what_an_asset_says_about_its_failure_is_shown(slept: list[float]) -> None:
    result = run(Failing("body", dg.Failure("by hand", metadata={"rows": 3})))
    (failure,) = result.get_step_failure_events()
    told = failure.step_failure_data.user_failure_data
    assert told is not None
    assert (told.description, told.metadata["rows"].value, slept) == ("by hand", 3, [])


def test_checks_are_tried_again_as_well() -> None:
    failing = Failing("check", Away())

    @dg.asset
    def judged() -> None: ...

    @dg.asset_check(asset=judged, retry_policy=RETRY_TRANSIENT)
    def verdict() -> dg.AssetCheckResult:
        failing("check")
        return dg.AssetCheckResult(passed=True)

    result = dg.materialize([judged, verdict])
    assert [each.passed for each in result.get_asset_check_evaluations()] == [True]
    assert failing.calls == 2
