"""Worlds for the observatory to show, those that the benchmark measures as well."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the benchmarks are not installed with the packages

from benchmarks.observatory_world import DAY, NOW, days, hours, judged, large, written

__all__ = ["DAY", "NOW", "days", "hours", "judged", "large", "written"]
