"""What a person does next about what a run left undone: one command for each kind of it, with why.

A partition that failed in `de run` waits for no decision of `de let-pass`: that is about the queue of the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagster import AssetCheckSeverity

from de_assets.filling import UnitOutcome

_ABOUT_LETTERS = "dead_letters"


def next_steps(outcomes: Sequence[UnitOutcome]) -> dict[str, str]:
    """Commands by what they are for, in the order in which they help; empty where nothing is left to do."""
    steps: dict[str, str] = {}
    for steps_of in (_letters, _audits, _checks, _held_back, _left_out, _failures):
        for command, why in (step for outcome in outcomes for step in steps_of(outcome)):
            if why not in steps.values():
                steps[command] = why
    return steps


def _red(outcome: UnitOutcome) -> Iterator[tuple[str, str]]:
    """Name and partition of each check that did not pass."""
    for (_, key), found in outcome.verdicts.items():
        if not found.passed:
            yield found.check_name, key


def _letters(outcome: UnitOutcome) -> Iterator[tuple[str, str]]:
    from de_assets.dead_letters.replay import DEAD_LETTERS  # a command that is only imported changes no environment

    for name, key in _red(outcome):
        if name.startswith(_ABOUT_LETTERS) and DEAD_LETTERS in outcome.unit.assets:
            hour = f" --partition {key}" if key else ""
            yield f"de dlq inspect{hour}", "what could not be understood, and why; then `de dlq replay` or `discard`"


def _audits(outcome: UnitOutcome) -> Iterator[tuple[str, str]]:
    from de_checks.publication import NAME as IS_PUBLISHED

    if any(name == IS_PUBLISHED for name, _ in _red(outcome)):
        yield "de publish --list", "what audits hold, and why; a false alarm is published by the same command"


def _checks(outcome: UnitOutcome) -> Iterator[tuple[str, str]]:
    if outcome.not_passed(AssetCheckSeverity.ERROR):
        yield "docs/second-day.md", "what each red check wants"


def _held_back(outcome: UnitOutcome) -> Iterator[tuple[str, str]]:
    for key in sorted(outcome.held_back):
        yield (
            f"de waits {outcome.unit.assets[0].to_user_string()} {key}".rstrip(),
            "what holds it back, and all above it",
        )


def _left_out(outcome: UnitOutcome) -> Iterator[tuple[str, str]]:
    if outcome.left_out is not None and any(outcome.left_out.startswith(f"{name}: ") for name in outcome.unit.services):
        yield "de status", "which services run, and what the others lack; then `de up`, and `de run` again"


def _failures(outcome: UnitOutcome) -> Iterator[tuple[str, str]]:
    if outcome.failures:
        yield "de run", "once the cause of an error is gone: what failed is tried again, and what waits for it follows"
