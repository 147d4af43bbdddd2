"""Measures where the time of the suite goes: a line of JSON per test and shared fixture, in the folder `DE_TEST_TIMINGS`.

Wall seconds, CPU seconds of the process and of all that it started, and how many virtual machines, interpreters and other
programs it started itself. Services are no children of the process that starts them: they are known by a variable of their
environment, and counted apart while they live; what one used after the last look before its death is lost.
`python tests/timings.py FOLDER REPORT` adds the lines of all processes up, per module, fixture, family and pattern, and names
the dearest tests: as `REPORT.md` for people, and as `REPORT.json` for the benchmarks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

KINDS = ("JVM", "Python", "fork", "other")
# Asking the system for all descendants takes longer than most tests.
_SHORT = 0.2
# Seconds of `make test` that the tests of one pattern may take, services included, on two cores that have nothing else to do.
PATTERN_BUDGET, CORES = 20.0, 2
_DEAREST = 60
# In the environment of all that a process of the suite starts, services too: which process that is.
_MARK = "DE_TEST_TIMINGS_OF"
Process = tuple[int, float]
"""Its id, and when it began: ids are used again."""
Shares = dict[str, float]
"""Per pattern, the part of a test or of a fixture that counts for it."""
_started: Counter[str] = Counter()
_is_service: dict[Process, bool] = {}
_services: dict[Process, float] = {}
_state: dict[str, Any] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Start to write, where the environment asks for it."""
    folder = os.environ.get("DE_TEST_TIMINGS")
    if folder and "file" not in _state:
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = (Path(folder) / f"{os.getpid()}.jsonl").open("a", buffering=1)
        os.environ[_MARK] = str(os.getpid())
        _state.update(file=file, cpu=_cpu_seconds(), began=time.monotonic())
        sys.addaudithook(_note_start)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What importing all tests took is no test's: it would count for the patterns of the first one that this process runs."""
    if _state:
        _state.update(cpu=_cpu_seconds(), shares=shares_of_fixtures(session.items))


def shares_of_fixtures(items: Iterable[pytest.Item]) -> dict[tuple[Path, str], Shares]:
    """Per module and fixture, the part of it that each pattern asks for: all tests that use it count the same."""
    users: defaultdict[tuple[Path, str], list[Shares]] = defaultdict(list)
    for item in items:
        own = _shares(item)
        for fixture in getattr(item, "fixturenames", ()):
            users[item.path, fixture].append(own)
    return {
        place: {name: sum(each.get(name, 0.0) for each in shares) / len(shares) for name in set().union(*shares)}
        for place, shares in users.items()
    }


def _shares(item: pytest.Item) -> Shares:
    patterns = {str(name) for mark in item.iter_markers("pattern") for name in mark.args}
    return {name: 1 / len(patterns) for name in patterns}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The whole call, told by the process that people wait for."""
    if _state and not hasattr(session.config, "workerinput"):
        _write(
            "session", Path(os.environ["DE_TEST_TIMINGS"]).name, time.monotonic() - _state["began"], 0.0, 0.0, Counter()
        )


def _note_start(event: str, arguments: tuple[Any, ...]) -> None:
    """Count what is started, by kind: the audit event comes before every process that this one makes."""
    if event == "subprocess.Popen":
        words = [str(word) for word in arguments[1]]
        program = Path(words[0]).name
        kind = "Python" if program.startswith("python") or program == "de" else "other"
        _started["JVM" if program == "java" or program.startswith("spark-") else kind] += 1
    elif event in ("os.fork", "os.forkpty"):
        _started["fork"] += 1


def _cpu_seconds() -> float:
    """Of this process and all of its living and reaped descendants."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def _seconds_of_services() -> float:
    """CPU seconds since the last call of all marked processes that are not below this one."""
    me = psutil.Process()
    mine = {(process.pid, process.create_time()) for process in [me, *me.children(recursive=True)]}
    spent = 0.0
    for process in psutil.process_iter():
        try:
            known = process.pid, process.create_time()
            if known in mine:
                continue
            if known not in _is_service:
                _is_service[known] = process.environ().get(_MARK) == str(me.pid)
            if _is_service[known]:
                now = sum(process.cpu_times()[:2])
                spent += now - _services.get(known, 0.0)
                _services[known] = now
        except psutil.Error:
            continue
    return spent


def _write(
    kind: str,
    name: str,
    wall: float,
    cpu: float,
    services: float,
    started: Counter[str],
    patterns: Shares | None = None,
) -> None:
    seconds = {"wall": round(wall, 3), "cpu": round(cpu, 3), "services": round(services, 3)}
    line = {"kind": kind, "name": name, **seconds, "started": started, "patterns": patterns or {}}
    _state["file"].write(json.dumps(line) + "\n")


def _measured(kind: str, name: str, patterns: Shares | None = None) -> Generator[None, Any, Any]:
    before, began = _started.copy(), time.monotonic()
    try:
        return (yield)
    finally:
        wall, cpu, services = time.monotonic() - began, 0.0, 0.0
        if wall > _SHORT:
            now = _cpu_seconds()
            cpu, _state["cpu"] = max(now - _state["cpu"], 0.0), now
            services = _seconds_of_services()
        _write(kind, name, wall, cpu, services, _started - before, patterns)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[Any]:
    """Time a fixture that several tests share, without those that it needs itself.

    What the tests of a module share counts for the patterns of those that use it; what all share, for none.
    """
    if not _state or fixturedef.scope == "function":
        return (yield)
    of_all = fixturedef.scope in ("session", "package")
    patterns = None if of_all else _state["shares"].get((request.path, fixturedef.argname))
    return (yield from _measured("fixture", fixturedef.argname, patterns))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Time a test with its fixtures."""
    if not _state:
        return (yield)
    return (yield from _measured("test", item.nodeid, _shares(item)))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """What all processes wrote."""
    return [json.loads(line) for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]


def sums(lines: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Seconds and starts per module or fixture, dearest first."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        place = found[line["name"].split("::")[0]]
        seconds = {name: line[name] for name in ("wall", "cpu", "services")}
        place.update({"n": 1, **seconds, **line["started"]})
    return dict(sorted(found.items(), key=lambda place: -place[1]["wall"]))


def table(title: str, found: dict[str, Counter[str]]) -> Iterator[str]:
    """Markdown."""
    yield f"| {title} | n | wall s | CPU s | of services | {' | '.join(KINDS)} |"
    yield "|---" * (5 + len(KINDS)) + "|"
    total: Counter[str] = Counter()
    for values in found.values():
        total.update(values)
    for name, values in [*found.items(), ("**all**", total)]:
        started = " | ".join(str(values[kind]) for kind in KINDS)
        yield f"| {name} | {values['n']} | {values['wall']:.1f} | {values['cpu']:.1f} | {values['services']:.1f} | {started} |"


def seconds_of_patterns(lines: Iterable[dict[str, Any]]) -> dict[str, float]:
    """CPU seconds per pattern, dearest first; a test that claims several counts for each with an equal share."""
    found: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        for name, share in line["patterns"].items():
            found[name] += share * (line["cpu"] + line["services"])
    return dict(sorted(found.items(), key=lambda pattern: -pattern[1]))


def patterns_table(found: dict[str, float]) -> Iterator[str]:
    """Markdown: what the tests of each pattern took, and whether that is within its budget."""
    yield f"| pattern | CPU s, services included | s of {CORES} cores | of {PATTERN_BUDGET:.0f} |"
    yield "|---|---|---|---|"
    for name, cpu in found.items():
        verdict = "missed" if cpu / CORES > PATTERN_BUDGET else "held"
        yield f"| {name} | {cpu:.1f} | {cpu / CORES:.1f} | {verdict} |"


def families_table(found: dict[str, float]) -> Iterator[str]:
    """Markdown: what each family's patterns took together, and which of them is the dearest."""
    from de_assets.catalogue.patterns import PATTERNS

    yield f"| family | patterns with tests | CPU s, services included | s of {CORES} cores | dearest, s of {CORES} cores |"
    yield "|---|---|---|---|---|"
    families: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, cpu in found.items():  # dearest first
        families[PATTERNS[name].family][name] = cpu
    for family, patterns in families.items():
        (dearest, most), cpu = next(iter(patterns.items())), sum(patterns.values())
        named = f"{PATTERNS[dearest].title}, {most / CORES:.0f}"
        yield f"| {family} | {len(patterns)} | {cpu:.0f} | {cpu / CORES:.0f} | {named} |"


def dearest_table(tests: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Markdown: the tests that take the most CPU, which is where smaller ones are worth the most."""
    yield "| dearest tests | wall s | CPU s | of services |"
    yield "|---|---|---|---|"
    for line in sorted(tests, key=lambda line: -line["cpu"] - line["services"])[:_DEAREST]:
        name = line["name"].partition("@")[0]  # behind it is the group that it ran in
        yield f"| {name} | {line['wall']:.1f} | {line['cpu']:.1f} | {line['services']:.1f} |"


def main(folder: Path, report: Path) -> None:
    """Write both reports, and say the total."""
    lines = lines_of(folder)
    of_kind = {kind: [line for line in lines if line["kind"] == kind] for kind in ("session", "test", "fixture")}
    parts = {line["name"]: line["wall"] for line in of_kind["session"]}
    modules, fixtures = table("module", sums(of_kind["test"])), table("shared fixture", sums(of_kind["fixture"]))
    patterns, dearest = seconds_of_patterns([*of_kind["test"], *of_kind["fixture"]]), dearest_table(of_kind["test"])
    text = [*modules, "", *fixtures, "", *families_table(patterns), "", *patterns_table(patterns), "", *dearest, ""]
    report.with_suffix(".md").write_text("\n".join(text))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    summary = {
        "wall_seconds": round(max(parts.values(), default=0.0), 1),  # they run side by side
        "parts": parts,
        "tests": len(of_kind["test"]),
        "patterns_over_budget": {
            name: round(cpu / CORES, 1) for name, cpu in patterns.items() if cpu / CORES > PATTERN_BUDGET
        },
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit.stdout.strip(),
    }
    report.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{summary['tests']} tests in {summary['wall_seconds'] / 60:.1f} min; {report.with_suffix('.md')} says where")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
