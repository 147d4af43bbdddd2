"""The index of the patterns as a page: for each its page, files, carriers and tests, and what is missing.

Printed by `de patterns --index` and kept as `docs/patterns/README.md`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from de_assets.catalogue.carriers import Carrier
from de_assets.catalogue.patterns import Family, Pattern
from de_assets.catalogue.status import PROJECT, Status, modules

PAGES = Path("docs", "patterns")
COMMAND = f"de patterns --index > {PAGES}/README.md"

_ABOUT = """\
Every page answers the same questions in the same order: what the problem is, how it works here, how to use it in a project of
your own, what it costs, when to take something else, and how to watch it. The snippets of the pages are executed by the tests.

*Files* are the modules to open: those named after the pattern, and those whose docstring declares it. `de patterns NAME` lists
every single test."""


def page(pattern: Pattern) -> Path:
    """Where the pattern's page lies, or will lie, below the project."""
    return PAGES / str(pattern.family).replace(" ", "_") / f"{pattern.name}.md"


def index(statuses: Sequence[Status], root: Path = PROJECT) -> str:
    """All of `statuses` as Markdown with links that hold in `docs/patterns`, family by family."""
    carried, proved = sum(s.is_carried for s in statuses), sum(s.is_proved for s in statuses)
    described = sum((root / page(s.pattern)).exists() for s in statuses)
    counts = f"{len(statuses)} patterns: {carried} carried by the graph, {proved} of them proved by marked tests"
    head = ["# The patterns", f"Written by `{COMMAND}`: do not edit it.", f"{counts}; {described} have a page.", _ABOUT]
    families = (_family(family, list(group), root) for family, group in groupby(statuses, lambda s: s.pattern.family))
    return "\n\n".join([*head, *families])


def _family(family: Family, statuses: Sequence[Status], root: Path) -> str:
    """A table of what is here, and a list of what is not."""
    begun = [s for s in statuses if s.carriers or s.tests]
    absent = [f"- **{s.pattern.title}**: {s.pattern.promise}" for s in statuses if s not in begun]
    table = [
        "| pattern | files | carried by | tests | missing |",
        "|---|---|---|---|---|",
        *(_row(s, root) for s in begun),
    ]
    parts = [
        f"## {str(family).capitalize()}",
        *(["\n".join(table)] if begun else []),
        *(["Not here yet:", "\n".join(absent)] if absent else []),
    ]
    return "\n\n".join(parts)


def _row(status: Status, root: Path) -> str:
    pattern = status.pattern
    described = (root / page(pattern)).exists()
    title = _link(pattern.title, page(pattern)) if described else pattern.title
    found = {"carrier": status.carriers, "marked test": status.tests, "page": described}
    cells = (
        f"**{title}**<br>{pattern.promise}",
        "<br>".join(_link(f"`{file}`", Path(file)) for file in modules(pattern, root)),
        "<br>".join(_carried_by(status.carriers)),
        ", ".join(_link(f"`{_short(file)}`", Path(file)) for file in _files(status.tests)),
        ", ".join(name for name, there in found.items() if not there),
    )
    return f"| {' | '.join(cell or '–' for cell in cells)} |"


def _carried_by(carriers: Iterable[Carrier]) -> list[str]:
    """A line for each carrier; a check that many assets have is one line, so that a new dataset changes none."""
    checks: dict[str, list[str]] = {}
    lines = []
    for carrier in carriers:
        if carrier.kind == "check":
            asset, _, name = carrier.name.rpartition(":")
            checks.setdefault(name, []).append(asset)
        else:
            lines.append(f"{carrier.kind} `{carrier.name}`")
    return lines + [f"check `{name}` of {_some(assets)}" for name, assets in checks.items()]


def _some(assets: Sequence[str]) -> str:
    return ", ".join(f"`{asset}`" for asset in assets) if len(assets) <= 6 else "every dataset that asks for it"


def _files(tests: Iterable[str]) -> list[str]:
    return sorted({test.partition("::")[0] for test in tests})


def _short(file: str) -> str:
    return file.removeprefix("tests/").removesuffix(".py")


def _link(text: str, target: Path) -> str:
    """A link that holds in a page of the folder `PAGES`."""
    inside = target.is_relative_to(PAGES)
    return f"[{text}]({target.relative_to(PAGES) if inside else Path('../..') / target})"
