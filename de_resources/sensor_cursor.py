"""How far a sensor has come, for who is not the sensor."""

import dagster as dg

from de_resources.compat.sensors import InstigatorType, SensorInstigatorData


def sensor_cursor(instance: dg.DagsterInstance, name: str) -> str | None:
    """The newest cursor of the sensor of this name; None where it has not ticked yet."""
    states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    data = [state.instigator_data for state in states if state.origin.instigator_name == name]
    ticked = [each for each in data if isinstance(each, SensorInstigatorData) and each.cursor]
    newest = max(ticked, key=lambda each: each.last_tick_timestamp or 0.0, default=None)
    return newest.cursor if newest else None
