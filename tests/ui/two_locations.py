"""Two code locations as files that a test can break: maintenance of no table at all, and the dashboards as they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from web_ui import AGAIN, DagsterProcess, WebUI, free_port, looks, repository_of, until, webserver

INSTANCE = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
run_launcher: {module: de_resources.launcher, class: ForkingRunLauncher}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""
WORKSPACE = """
load_from:
  - python_file: {relative_path: ours.py, location_name: ours}
  - python_file: {relative_path: theirs.py, location_name: dashboards}
"""
PATIENT = """
import os, time
from pathlib import Path

@dg.op(out=dg.Out(dg.Nothing))
def wait_for_a_file():
    here = Path(os.environ["DE_HOME"])
    (here / "waits").touch()
    while not (here / "go").exists():
        time.sleep(0.02)

@dg.job(executor_def=dg.in_process_executor)
def patient():
    wait_for_a_file()
"""
OURS = f"""
import dagster as dg
from de_assets.automation.maintenance.nightly import maintenance_job
from de_assets.automation.maintenance.readers import launch_readers
from de_assets.resources import resources
{PATIENT}
@dg.asset(key=["gold", "visits_cube_daily"])
def cube() -> None: ...

@dg.asset(key=["gold", "sessions"])
def sessions() -> None: ...

write_gold = dg.define_asset_job("write_gold", [cube, sessions])
jobs = [maintenance_job([], then=[launch_readers]), patient, write_gold]
defs = dg.Definitions([cube, sessions], jobs=jobs, resources=resources(), executor=dg.in_process_executor)
"""
THEIRS = f"""
import dagster as dg
from de_assets.dashboards.definitions import defs
{PATIENT}
defs = dg.Definitions.merge(defs, dg.Definitions(jobs=[patient]))
"""
NEXT_VERSION = """
@dg.job
def of_the_next_version():
    wait_for_a_file()

defs = dg.Definitions.merge(defs, dg.Definitions(jobs=[of_the_next_version]))
"""
BROKEN = "raise ImportError('a package is missing')"
SECONDS = 120.0

RELOAD = """mutation Reload($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename ... on WorkspaceLocationEntry { locationOrLoadError { __typename } } } }"""


JOBS = """query Jobs($place: RepositorySelector!) { repositoryOrError(repositorySelector: $place) {
    ... on Repository { jobs { name } } } }"""


@dataclass
class Locations:
    """A home whose webserver serves both, its runs launched at once."""

    root: Path
    web: WebUI
    instance: dg.DagsterInstance
    """One for all looks: to open another one for each takes more than what it is asked."""

    @staticmethod
    def environment(root: Path, port: int) -> dict[str, str]:
        places = {"DE_HOME": root, "DAGSTER_HOME": root / "dagster", "LAKE_ROOT": root / "lake"}
        named = {name: str(place) for name, place in places.items()}
        return {**os.environ, **named, "DE_UI": f"http://127.0.0.1:{port}", "DE_SENSOR_SECONDS": "1"}

    @classmethod
    @contextmanager
    def served(cls, root: Path) -> Iterator[Locations]:
        """The webserver over both; nothing of it is left afterwards."""
        (root / "dagster").mkdir()
        for name, text in {"dagster/dagster.yaml": INSTANCE, "workspace.yaml": WORKSPACE}.items():
            (root / name).write_text(text)
        (root / "ours.py").write_text(OURS)
        (root / "theirs.py").write_text(THEIRS)
        port = free_port()
        # The instance is made before the webserver starts: two processes at once cannot make it.
        with (
            dg.DagsterInstance.from_config(str(root / "dagster")) as instance,
            webserver(["-w", str(root / "workspace.yaml")], cls.environment(root, port), port) as web,
        ):
            yield cls(root, web, instance)

    def code(self, location: str, text: str) -> str:
        """Deploy another code to a location, as the button Reload does; how it loads."""
        (self.root / f"{'theirs' if location == 'dashboards' else location}.py").write_text(text)
        entry = self.web.ask(RELOAD, name=location)["reloadRepositoryLocation"]
        how: str = entry["locationOrLoadError"]["__typename"]
        return how

    def jobs(self, location: str) -> set[str]:
        """The jobs that the webserver knows of a location."""
        found = self.web.ask(JOBS, place=repository_of(location))["repositoryOrError"]["jobs"]
        return {job["name"] for job in found}

    def daemon(self) -> DagsterProcess:
        """The daemon over both."""
        environment = self.environment(self.root, int(self.web.url.rsplit(":", 1)[1]))
        return DagsterProcess(["dagster._daemon", "run", "-w", str(self.root / "workspace.yaml")], environment)

    def looks(self, sensor: str) -> int:
        """How often the daemon has evaluated a sensor."""
        return looks(self.instance).get(sensor, 0)

    def launch(self, location: str, job: str) -> dg.DagsterRun:
        """The run, once it has ended."""
        return self.ended(self.begin(location, job))

    def begin(self, location: str, job: str) -> str:
        """Launch a run; its identity."""
        return self.web.launch(repository_of(location), job=job)

    def again(self, run: dg.DagsterRun) -> dg.DagsterRun:
        """Its re-execution from failure, as the UI's button asks for it."""
        params = {"parentRunId": run.run_id, "strategy": "FROM_FAILURE"}
        return self.ended(self.web.begun(AGAIN, params))

    def runs(self, job: str | None = None, **tags: str) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs(dg.RunsFilter(job_name=job, tags=tags)))

    def steps(self, run: dg.DagsterRun) -> dict[str, str]:
        """How each step of a run ended."""
        kinds = {dg.DagsterEventType.STEP_SUCCESS: "success", dg.DagsterEventType.STEP_FAILURE: "failure"}
        events = [each.dagster_event for each in self.instance.all_logs(run.run_id, of_type={*kinds})]
        return {str(each.step_key): kinds[each.event_type] for each in events if each}

    def error(self, run: dg.DagsterRun) -> str:
        (event,) = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        return event.dagster_event.step_failure_data.error.to_string() if event.dagster_event else ""

    def ended(self, run_id: str) -> dg.DagsterRun:
        def run() -> dg.DagsterRun:
            found = self.instance.get_run_by_id(run_id)
            assert found is not None
            return found

        until(lambda: run().is_finished, SECONDS, self.web.process.output)
        return run()
