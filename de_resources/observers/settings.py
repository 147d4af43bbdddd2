"""What an asset says about its observation: the metadata `observe`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from de_resources.errors import PermanentError

OBSERVE = "observe"


class NoSuchSetting(PermanentError):
    """Metadata `observe` that an observer cannot follow."""

    def __init__(self, asset: str, why: str) -> None:
        self.asset, self.why = asset, why
        known = ", ".join(f"`{each.name}`" for each in fields(ObserverSettings))
        super().__init__(f"`{asset}` has a setting `{OBSERVE}` that {why}. Nothing was written. There are: {known}.")


@dataclass(frozen=True)
class ObserverSettings:
    """How an asset wants to be observed."""

    columns: tuple[str, ...] = ()
    """These columns only; none: those of the contract, in its order."""
    closely: tuple[str, ...] | None = None
    """The columns whose distinct values, quantiles and the like are measured. None: those of `columns`, where these are
    named; else the first ones, while that takes few aggregates (`measures.looked_at_closely`)."""
    sample: float = 1.0
    """Share of the rows that the quantiles look at. Less than 1: distinct values are not counted."""
    required: bool = False
    """Whether what fails in the observer fails the write as well."""

    @classmethod
    def of(cls, asset: str, metadata: Mapping[str, Any]) -> ObserverSettings:
        """From an asset's metadata. Raises `NoSuchSetting`."""
        said = metadata.get(OBSERVE) or {}
        known = {each.name for each in fields(cls)}
        if not isinstance(said, Mapping) or set(said) - known:
            raise NoSuchSetting(asset, f"says {said!r}")
        columns, closely = said.get("columns") or (), said.get("closely")
        sample = said.get("sample", 1.0)
        if isinstance(columns, str) or isinstance(closely, str):
            raise NoSuchSetting(asset, "names its columns by a text and not by a list")
        if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
            raise NoSuchSetting(
                asset, f"has the sample {sample!r}, which is no share of the rows: more than 0, at most 1"
            )
        named = (tuple(columns) or None) if closely is None else tuple(closely)
        return cls(tuple(columns), named, float(sample), bool(said.get("required", False)))
