"""What contracts say about late rows has to fit together, and is asked before anything runs.

A day cannot take in what its hours no longer do: a dataset promises no more than those that it is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import dagster as dg

from de_assets.contract_versions import contracts_of, specs_of
from de_resources.errors import PermanentError
from de_resources.gathering import length_of


class LatePromiseBroken(PermanentError):
    """A dataset that says it takes in late rows for longer than what it is made of does."""

    def __init__(self, dataset: str, source: str, needed: timedelta, said: timedelta) -> None:
        self.dataset, self.source, self.needed, self.said = dataset, source, needed, said
        super().__init__(
            f"`{dataset}` cannot take in late rows for as long as its contract says: `{source}` of which it is made does so "
            f"for {said}, and would have to for {needed}. Change `late_for` in one of the two contracts."
        )


def require_late_promises(assets: Iterable[Any]) -> None:
    """Raise `LatePromiseBroken` for a dataset that promises more than one that it is made of and that promises something.

    A partition of the source may end before that of the dataset: its first hour ends 23 hours before the day. So much longer
    the source has to take late rows in.
    """
    assets = list(assets)
    ages = {key: contract.late_for for key, contract in contracts_of(assets).items() if contract.late_for is not None}
    specs = {spec.key: spec for spec in specs_of(assets)}
    lengths = {key: length_of(specs[key].partitions_def) for key in ages}
    for key, source in _made_of(specs, ages):
        needed = ages[key] + max(lengths[key] - lengths[source], timedelta(0))
        if ages[source] < needed:
            raise LatePromiseBroken(key.to_user_string(), source.to_user_string(), needed, ages[source])


def _made_of(
    specs: Mapping[dg.AssetKey, dg.AssetSpec], ages: Mapping[dg.AssetKey, timedelta]
) -> Iterator[tuple[dg.AssetKey, dg.AssetKey]]:
    for key in ages:
        yield from ((key, dep.asset_key) for dep in specs[key].deps if dep.asset_key in ages and dep.asset_key != key)
