"""What a case found at its last run of full size, with the machine it ran on: kept as JSON beside the document.

Every case is measured in one run of its own, so that a new case, or one that was disturbed, is measured again alone. A
record replaces the one before as a whole; nothing in it is edited by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, Kind
from benchmarks.machine import Machine
from benchmarks.measure import Sample


@dataclass(frozen=True)
class Record:
    """One case's figures, and the machine while they were taken."""

    case: str
    machine: Machine
    figures: tuple[Figure, ...]


def load(path: Path) -> dict[str, Record]:
    """Records by case; none where nothing was measured yet."""
    if not path.exists():
        return {}
    return {case: _record(case, said) for case, said in json.loads(path.read_text()).items()}


def save(path: Path, records: Iterable[Record]) -> None:
    """Write the records in the order in which they are given."""
    text = {r.case: {"machine": asdict(r.machine), "figures": list(map(_plain, r.figures))} for r in records}
    path.write_text(json.dumps(text, indent=1) + "\n")


def _plain(figure: Figure) -> dict[str, Any]:
    return {
        **asdict(figure),
        "kind": figure.kind.value,
        "our_samples": [[round(s.wall, 4), round(s.cpu, 4)] for s in figure.our_samples],
        "peer_samples": [[round(s.wall, 4), round(s.cpu, 4)] for s in figure.peer_samples],
    }


def _record(case: str, said: Mapping[str, Any]) -> Record:
    figures = (
        Figure(
            **{
                **figure,
                "kind": Kind(figure["kind"]),
                "our_samples": tuple(Sample(*s) for s in figure["our_samples"]),
                "peer_samples": tuple(Sample(*s) for s in figure["peer_samples"]),
                "gib": tuple(figure.get("gib", ())),
            }
        )
        for figure in said["figures"]
    )
    return Record(case, Machine(**said["machine"]), tuple(figures))
