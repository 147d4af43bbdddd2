"""Filling a lake: the whole graph once and at once, in the order that it declares, what automation does continuously.

`units` reads the asset graphs of the code locations, `fill` runs them, what does not depend on each other side by side.
"""

from de_assets.filling.execution import UnitOutcome, run_keys
from de_assets.filling.order import fill
from de_assets.filling.units import Unit, units
from de_assets.filling.up_to_date import UpToDate

__all__ = ["Unit", "UnitOutcome", "UpToDate", "fill", "run_keys", "units"]
