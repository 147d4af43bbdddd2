"""Which tests `make test` leaves to `make soak`, and what asks their question in `make test`: `long_proofs.yaml` beside this.

`pytest --short` leaves them out; `make soak` runs them in turn with the proofs that have seeds; any other call, such as
`pytest FILE` or `make test PATTERN=merger`, has them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).resolve().parent
LIST = FOLDER / "long_proofs.yaml"
NAME = "long_proof"


@dataclass(frozen=True)
class LongProof:
    """`test` is a node id below the folder of tests, with or without parameters; `short` says what remains."""

    test: str
    short: str


@cache
def listed() -> Mapping[str, LongProof]:
    """All of them, by their test."""
    files = yaml.safe_load(LIST.read_text())
    every = [LongProof(f"{file}::{test}", short) for file, tests in files.items() for test, short in tests.items()]
    return {proof.test: proof for proof in every}


def names_of(item: pytest.Item) -> tuple[str, str]:
    """How the list may name a test: with its parameters, or without them for all of these."""
    try:
        file = item.path.relative_to(FOLDER).as_posix()
    except ValueError:
        file = item.path.name
    # What distributes the tests appends its group to the id.
    whole = f"{file}::{item.nodeid.partition('::')[2]}".removesuffix(f"@{_group(item)}")
    return whole, whole.partition("[")[0]


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark and mark.args else ""


def is_long(item: pytest.Item) -> bool:
    """Whether the list names it."""
    return any(name in listed() for name in names_of(item))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="Leave out what `make soak` proves in turn.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long proofs out where that is asked for."""
    if not config.getoption("--short"):
        return
    long = [item for item in items if is_long(item)]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
