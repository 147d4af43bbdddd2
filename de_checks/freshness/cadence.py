"""Does the asset still run? Dagster's own freshness policy, named for what it sees."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg


def cadence_policy(every: timedelta, *, grace: timedelta) -> dg.FreshnessPolicy:
    """Warn when the asset was not materialised for `every`, fail after another `grace`.

    Dagster's daemon evaluates it from the time of the last materialisation of *any* partition. It is blind to gaps
    (`completeness_check`) and to the age of the data (`newest_event_check`). Both durations are at least a minute.
    """
    return dg.FreshnessPolicy.time_window(fail_window=every + grace, warn_window=every)
