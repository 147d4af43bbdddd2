"""OpenLineage events of every run, told from Dagster's event log after the fact (Dataset Tracker).

Nothing of this happens inside a run: who listens may be slow or dead, and no run waits or fails for it. `relay` reads the log
from where it had got, and remembers how far it came only when a listener has taken the events.

| module      | idea                                                                    |
|-------------|-------------------------------------------------------------------------|
| `datasets`  | a materialisation, or a check, as a dataset with facets                 |
| `events`    | a run's log as events: START, COMPLETE, FAIL, ABORT of the run and of its steps |
| `transport` | where events go: files of this home, or what the environment says       |
| `relay`     | from the remembered place on, in order, at least once                   |
| `validity`  | events held against the published JSON schemas                          |
"""
