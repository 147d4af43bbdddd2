"""Who is told of alerts, and whether they can be: seen from the configuration, without telling anybody anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from de_assets.cli.doctor.finding import Finding, ok, warn


def check_channels(environment: Mapping[str, str]) -> Iterator[Finding]:
    """One finding per channel. A broken one is a warning: everything else works, and the other channels are told."""
    # Here and not above: with it comes the engine's library, which changes variables of the process that imports it.
    from de_assets.automation.alerting.channels import alert_sinks, why_broken

    for name, sink in alert_sinks(environment).items():
        why = why_broken(sink)
        if why is None:
            yield ok(f"alerts by {name}", "configured; nothing was sent")
        else:
            yield warn(
                f"alerts by {name}", why, "Correct the variable or secret; what it should have told waits for it."
            )
