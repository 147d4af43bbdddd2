"""Runs that start at once: workers forked from a process that has the code location loaded.

Dagster's own launcher starts an interpreter for each run, which imports the code location again: seconds, of which the
work itself has no use. `ForkingRunLauncher` keeps one *fork server* per code location, a child of the process that
launches. It imports once and forks a worker per run; the worker then does what Dagster's own does, by Dagster's own function.

| part          | what it does                                                                                   |
|---------------|------------------------------------------------------------------------------------------------|
| `launcher`    | Dagster's plug: launches, terminates, tells whether a worker lives; falls back to Dagster's own |
| `fork_server` | the launching side: starts the process, asks it for workers over a socket that has no name      |
| `server`      | the process itself: one thread, no connection, no session; forks, and reports deaths            |
| `worker`      | what a worker does, and how it is known again: pid and start, kept as a hidden tag of the run   |
| `freshness`   | which files loading has read: when one of them changes, the process is replaced                 |
"""

from de_resources.launcher.launcher import ForkingRunLauncher

__all__ = ["ForkingRunLauncher"]
