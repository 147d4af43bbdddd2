"""What the job `maintenance` launches last: the other team's job that reads gold.

Pattern: Isolated Sequencer, by task. Maintenance records no materialisation, so that nothing tells the other team of it; and a
table whose files were compacted and removed has to be readable without an engine. Their run says so the same night, on
their side: whether it succeeds is not waited for.
"""

import dagster as dg

from de_resources.other_location import OtherLocation

JOB = "redraw_dashboards"


@dg.op(
    ins={"done": dg.In(dg.Nothing)},
    out=dg.Out(dg.Nothing),
    description=f"Launches the job `{JOB}` of the code location `dashboards`, which reads the maintained tables.",
)
def launch_readers(context: dg.OpExecutionContext, dashboards: OtherLocation) -> dg.Output[None]:
    """Launch it once per run of maintenance; without a webserver say so, for then there is nobody to launch it."""
    if not dashboards.address:
        context.log.warning(
            "No webserver is known to this run: `%s` of `%s` was not launched.", JOB, dashboards.location
        )
        return dg.Output(None, metadata={"launched": "nothing: no webserver is known to this run"})
    launched = dashboards.launch(context, JOB)
    return dg.Output(
        None,
        metadata={
            "launched": dg.MetadataValue.dagster_run(launched.run_id),
            "launched/before": "no" if launched.anew else "yes, by an earlier attempt",
        },
    )
