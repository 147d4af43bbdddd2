"""`python -m tests.sabotage`: plant all defects, or those with a word in their name or pattern, and tell who noticed."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from de_resources.settings import Settings

from .defects import Claims, Defect, defects
from .hunt import LANES, Hunt, green_in_suite
from .kept import kept_services
from .memory import Memory, Verdict, passed_in_suite


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0: every defect was noticed; 1: some were not; 3: some are not asked yet, the others were noticed."""
    asked = _arguments(arguments)
    chosen = [defect for defect in defects() if _is_meant(defect, asked.words, without_services=asked.without_services)]
    if asked.list:
        for defect in chosen:
            print(f"{_about(defect):<32} {defect.name}  <- {defect.noticed_by}")
        return 0
    memory = Memory(Settings.from_environment().home.resolve() / "sabotage" / "verdicts.json")
    if asked.again:
        memory.forget(defect.name for defect in chosen)
    started = time.monotonic()
    hints = {defect.noticed_by for defect in chosen}
    memory.remember_green(green_in_suite(hints, passed_in_suite()))
    asked_first = sum(not memory.is_green(hint) for hint in hints)
    print(f"{len(chosen)} defects. First, {asked_first} of {len(hints)} tests have to pass without one.", flush=True)
    count = iter(range(1, len(chosen) + 1))

    def tell(verdict: Verdict) -> None:
        what = verdict.by or verdict.broken or "NOBODY NOTICED"
        print(f"{next(count):>4} of {len(chosen)}  {verdict.seconds:>6.1f} s  {verdict.defect}  <- {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="de-sabotage-") as scratch, kept_services() as services:
        hunt = Hunt(Claims.read(), memory, tell, services)
        verdicts = hunt.over(chosen, Path(scratch), asked.lanes, asked.minutes * 60)
    return _summary(chosen, verdicts, time.monotonic() - started)


def _summary(chosen: Sequence[Defect], verdicts: Sequence[Verdict], seconds: float) -> int:
    by_name = {defect.name: defect for defect in chosen}
    broken = [verdict for verdict in verdicts if verdict.broken]
    unnoticed = [verdict for verdict in verdicts if not verdict.broken and verdict.by is None]
    for verdict in broken:
        print(f"\nNo answer to `{verdict.defect}`: {verdict.broken}\n{verdict.told}")
    if unnoticed:
        print("\n| nobody noticed | what it breaks | where |\n|---|---|---|")
        for verdict in unnoticed:
            defect = by_name[verdict.defect]
            print(f"| {defect.name} | {_about(defect)} | {defect.file} |")
    noticed = len(verdicts) - len(broken) - len(unnoticed)
    answered_later = sum(
        1
        for verdict in verdicts
        if verdict.by and not verdict.by.startswith(by_name[verdict.defect].noticed_by.partition("[")[0])
    )
    print(f"\n{noticed} of {len(chosen)} noticed, {answered_later} of them by another test, in {seconds / 60:.0f} min")
    if broken or unnoticed:
        return 1
    if left := len(chosen) - len(verdicts):
        print(f"{left} are not asked yet: the same command goes on with them.")
    return 3 if left else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sabotage", description=__doc__)
    parser.add_argument("words", nargs="*", help="only defects with one of these in name, pattern, file or `fault N`")
    parser.add_argument(
        "--without-services", action="store_true", help="leave out what only tests with services notice"
    )
    parser.add_argument(
        "--minutes", type=float, default=55, help="begin no defect after this time (default: 55); the same call goes on"
    )
    parser.add_argument("--lanes", type=int, default=LANES, help="processes of tests at a time")
    parser.add_argument("--again", action="store_true", help="ask again what is known already")
    parser.add_argument("--list", action="store_true", help="print the defects and plant none")
    return parser.parse_args(arguments)


def _is_meant(defect: Defect, words: Sequence[str], *, without_services: bool) -> bool:
    if without_services and defect.needs_services:
        return False
    told = f"{defect.name} {_about(defect)} {defect.file}"
    return not words or any(word in told for word in words)


def _about(defect: Defect) -> str:
    return ", ".join([*defect.patterns, *([f"fault {defect.fault}"] if defect.fault is not None else [])])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave by the way that stops services and removes folders
    sys.exit(main())
