"""What the instance remembers of sensors."""

from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import SensorInstigatorData

__all__ = ["InstigatorType", "SensorInstigatorData"]
