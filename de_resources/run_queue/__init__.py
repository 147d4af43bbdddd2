"""Dagster's own queue of runs, with turns and pools.

    @dg.asset(partitions_def=daily, tags=in_order("sessions"))      # one at a time, in order, none past one that failed
    @dg.asset(partitions_def=hourly, tags=side_by_side("landing"))  # side by side, up to the limit of the pool

Pattern: Single Runner. A limit of one is not an order: of three runs that are launched at once, the first one that is queued
runs first, whatever its partition; and after a failure the next one goes on with what is not there. The coordinator
that `dagster.yaml` names lets a run of such an asset wait in Dagster's own queue until it is its turn, whoever launched it: a
person, a backfill, automation or a retry.

| part          | what it does                                                                                          |
|---------------|-------------------------------------------------------------------------------------------------------|
| `places`      | which assets go in order, and where a run stands in it: written to its tags when it is queued          |
| `turns`       | of the runs that wait, whose turn it is, and for whom the others wait; pure                            |
| `failures`    | partitions that failed and were neither computed since nor let pass by a person                        |
| `passing`     | what a person decides: later partitions go past one that failed                                        |
| `pools`       | which assets go side by side, and how many runs of them (Pattern: Concurrent Runner)                   |
| `coordinator` | Dagster's plug: queues runs with their place and pools, and gives them their turn                      |
| `latency`     | how long a run has waited, as metadata of what it computed                                             |
"""
