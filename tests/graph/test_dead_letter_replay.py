"""Replay of dead letters: what was injected and repaired is what arrives, once, marked, and survives every rerun."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark.sql.types as T
import pytest
from deltalake import DeltaTable
from other_reader import multiset
from seeding import constrain, seed
from typer.testing import CliRunner, Result

import de_assets.cli.dlq  # noqa: F401 - registers the commands
from de_assets import definitions
from de_assets.cli.application import application
from de_assets.cli.run import dagster_instance
from de_assets.cli.terminal import console
from de_assets.contracts.visits import BronzeVisits, VisitsDeadLetter
from de_assets.partitions import CALENDAR, hourly
from de_assets.ranges import range_tags
from de_assets.resources import resources
from de_assets.sources.landing import hour_folder
from de_assets.sources.simulator import Defect, Irregularities, Truth, World, land_visits
from de_assets.transforms.error_management.dead_letter import CLOSED, identify
from de_resources.contract import Contract
from de_resources.delta.write import constraints
from de_resources.delta.write.crash_points import at
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("dead_letter")

RATES = Irregularities(duplicates=0.05, malformed=0.1, missing=0.1)
HOURS = [CALENDAR.start + timedelta(hours=n) for n in range(4)]
KEYS = hourly.get_partition_keys()[:4]
FIRST, SECOND, GIVEN_UP, AGED = range(4)
BRONZE = ("bronze/visits", "bronze/visits_dead_letter")
NEW = {"was_dead_lettered", "letter_id", "status", "repair_of", "attempts", "why"}


@dataclass
class Blog:
    """A lake of its own, with the truth about every damaged line: what it was before."""

    settings: Settings
    clean: Path
    outputs: list[str] = field(default_factory=list)

    def de(self, *arguments: str) -> Result:
        result = CliRunner().invoke(application(), ["dlq", *arguments])
        self.outputs.append(result.output)
        return result

    def rows(self, name: str, *hours: int) -> list[dict[str, Any]]:
        wanted = {HOURS[n] for n in hours}
        rows = DeltaTable(f"{self.settings.lake_root}/{name}").to_pyarrow_table().to_pylist()
        return [row for row in rows if row["landing_hour"] in wanted]

    def open(self, *hours: int) -> list[dict[str, Any]]:
        return [row for row in self.rows("bronze/visits_dead_letter", *hours) if row["status"] == "open"]

    def versions(self) -> list[int]:
        return [DeltaTable(f"{self.settings.lake_root}/{name}").version() for name in BRONZE]

    def lines(self, hour: int) -> list[bytes]:
        return (hour_folder(self.settings.landing, HOURS[hour]) / "part-00000.json").read_bytes().splitlines()

    def damaged(self, hour: int) -> list[tuple[str, str, str]]:
        """Letter, visit and undamaged line of every injected defect."""
        clean = (hour_folder(self.clean, HOURS[hour]) / "part-00000.json").read_text().splitlines()
        undamaged = {json.loads(line)["visit_id"]: line for line in clean}
        truth, lines = Truth(self.settings.landing).hour(HOURS[hour]), self.lines(hour)
        rows: list[dict[str, Any]] = [*truth.rows(Defect.MALFORMED), *truth.rows(Defect.MISSING)]
        return [(identify(HOURS[hour], lines[r["position"]]), r["visit_id"], undamaged[r["visit_id"]]) for r in rows]

    def computed_before(self, asset: str, *hours: int) -> None:
        """As a run tells it that computed these hours; their rows are looked at when another one has."""
        with dagster_instance(self.settings) as instance:
            for n in hours:
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(dg.AssetKey(asset.split("/")), partition=KEYS[n])
                )

    def run(self, *assets: str, hours: tuple[int, int]) -> None:
        """Without checks: what is replayed by the commands is judged by theirs."""
        job = definitions.defs.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection={dg.AssetKey(a.split("/")) for a in assets}, asset_check_selection=set()
        )
        with dagster_instance(self.settings) as instance:
            tags = range_tags(KEYS[hours[0]], KEYS[hours[1]])
            assert job.execute_in_process(instance=instance, tags=tags, raise_on_error=False).success


@pytest.fixture(scope="module")
def blog(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blog]:
    home = tmp_path_factory.mktemp("replayed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DE_HOME", str(home))
        patch.setenv("DAGSTER_HOME", str(home / "dagster"))
        patch.setattr(console, "width", 240)
        settings = Settings.from_environment()
        own = dg.Definitions(
            assets=definitions.defs.assets,
            asset_checks=definitions.defs.asset_checks,
            resources=resources(settings, engine),
            executor=dg.in_process_executor,
        )
        patch.setattr(definitions, "defs", own)
        # Those of columns that the aged tables gain, one commit each: tables/test_constraints.py asks for them.
        patch.setattr(constraints, "enforce", lambda *_: {})
        blog = Blog(settings, home / "undamaged")
        world = World(seed=5, epoch=CALENDAR.start - timedelta(days=180), users=30, guests=50)
        land_visits(settings.landing, world, HOURS, per_hour=60, irregularities=RATES)
        land_visits(blog.clean, world, HOURS, per_hour=60)
        aged_lake(blog)
        blog.run(*BRONZE, hours=(FIRST, GIVEN_UP))
        blog.computed_before("silver/visits", FIRST, SECOND)
        yield blog


def aged_lake(blog: Blog) -> None:
    """Both tables as an earlier version of the graph left them, with one letter; written without an engine."""
    payload = sound_line(blog)
    letter = {
        "payload": payload, "raw": payload.decode(), "reason": "old", "source_file": "f", "job_version": "0",
        "landing_hour": HOURS[AGED],
    }  # fmt: skip
    visit = {"visit_id": "v", "user_id": "u", "page": "p", "raw": "r", "source_file": "f"}
    visit |= {"event_time": HOURS[AGED], "landing_hour": HOURS[AGED]}
    for name, model, row in zip(BRONZE, (BronzeVisits, VisitsDeadLetter), (visit, letter), strict=True):
        contract = Contract.of(model)
        columns = [T.StructField(f.name, f.dataType) for f in contract.struct_type() if f.name not in NEW]
        uri, rules = f"{blog.settings.lake_root}/{name}", contract.constraints().items()
        seed(uri, [row], T.StructType(columns), partitioned_by=["landing_hour"])
        constrain(uri, {rule: sql for rule, sql in rules if not any(f"`{column}`" in sql for column in NEW)})


def sound_line(blog: Blog) -> bytes:
    """A line that the earlier version did not understand, and this one does."""
    damaged = {letter for letter, *_ in blog.damaged(AGED)}
    copies = Counter(blog.lines(AGED))
    return next(li for li, n in copies.items() if n == 1 and identify(HOURS[AGED], li) not in damaged)


def repaired_file(path: Path, lines: list[tuple[str, str]]) -> str:
    path.write_text("".join(json.dumps({"id": i, "raw": raw}) + "\n" for i, raw in lines))
    return str(path)


def test_what_is_set_aside_can_be_looked_at_without_its_text(blog: Blog, tmp_path: Path) -> None:
    export = tmp_path / "letters.jsonl"
    shown = blog.de("inspect", "--partition", KEYS[FIRST], "--export", str(export))
    assert shown.exit_code == 0, shown.output
    injected = blog.damaged(FIRST)
    assert f"{len(injected)} dead letter(s)" in shown.output
    assert export.stat().st_mode & 0o777 == 0o600
    exported = [json.loads(line) for line in export.read_text().splitlines()]
    assert Counter(e["id"] for e in exported) == Counter(letter for letter, *_ in injected), "Spark's ids are Python's"
    assert {e["raw"] for e in exported} <= {line.decode(errors="replace") for line in blog.lines(FIRST)} | {
        e["raw"] for e in exported if "\ufffd" in e["raw"]
    }
    refused = blog.de("inspect", "--export", str(export))
    assert refused.exit_code == 1
    assert "is there already" in refused.stderr


def test_repaired_lines_arrive_once_and_marked_though_a_run_dies_between_the_two_tables(
    blog: Blog, tmp_path: Path
) -> None:
    injected = [(FIRST, *d) for d in blog.damaged(FIRST)] + [(SECOND, *d) for d in blog.damaged(SECOND)]
    *mended, (_, hopeless, *_) = injected
    lines = [(letter, line) for _, letter, _, line in mended]
    before = blog.versions()
    unknown = blog.de("replay", "--repaired", repaired_file(tmp_path / "unknown", [*lines, ("0" * 16, "{}")]))
    assert (unknown.exit_code, f"line {len(lines) + 1}" in unknown.stderr) == (1, True)
    assert blog.versions() == before
    assert not (blog.settings.landing / "visits_decisions").exists()

    file = repaired_file(tmp_path / "repaired", [*lines, (hopeless, '{"visit_id": ')])
    with dies_before("bronze.visits"):
        assert blog.de("replay", "--repaired", file).exit_code == 1
    assert [row["repair_of"] for row in blog.open(FIRST, SECOND)] == [hopeless], "the letters' table was written first"
    assert not any(row["was_dead_lettered"] for row in blog.rows("bronze/visits", FIRST, SECOND))
    replayed = blog.de("replay", "--repaired", file)
    assert replayed.exit_code == 0, replayed.output
    assert re.search(rf"silver/visits\s.*{KEYS[FIRST]}\.\.{KEYS[SECOND]}", replayed.output)
    for n in (FIRST, SECOND):
        valid, dead = blog.rows("bronze/visits", n), blog.rows("bronze/visits_dead_letter", n)
        came_back = Counter(row["visit_id"] for row in valid if row["was_dead_lettered"])
        assert came_back == Counter(visit for h, _, visit, _ in mended if h == n)
        assert len(valid) + len(dead) == len(blog.lines(n)) + sum(h == n for h, *_ in injected)
        assert {row["status"] for row in dead if not row["repair_of"]} == {"replayed"}
    (again,) = blog.open(FIRST, SECOND)
    assert (again["repair_of"], again["attempts"], again["raw"]) == (hopeless, 1, '{"visit_id": ')

    before = blog.versions()
    twice = blog.de("replay", "--repaired", file)
    assert twice.exit_code == 0
    assert f"{len(set(i for i, _ in lines) | {hopeless})} letter(s) are repaired already" in twice.output
    assert "Nothing was run" in twice.output
    assert blog.versions() == before

    second = repaired_file(tmp_path / "second", [(again["letter_id"], injected[-1][3])])
    assert blog.de("replay", "--repaired", second, "--no-run").exit_code == 0
    valid, letters = (multiset(blog.rows(name, FIRST, SECOND)) for name in BRONZE)
    blog.run(*BRONZE, "silver/visits", "silver/visits_late", hours=(FIRST, SECOND))
    assert blog.open(FIRST, SECOND) == []
    found, left = (multiset(blog.rows(name, FIRST, SECOND)) for name in BRONZE)
    assert valid <= found, "every rerun repairs them again"
    assert found.total() == valid.total() + 1
    assert letters - left == multiset([again]), "of the letters only the one that was repaired twice is another"
    ids = {
        row["visit_id"] for row in DeltaTable(f"{blog.settings.lake_root}/silver/visits").to_pyarrow_table().to_pylist()
    }
    assert {visit for _, _, visit, _ in injected} <= ids


def test_lines_that_come_again_change_nothing_and_what_is_discarded_stays_so_with_its_reason(blog: Blog) -> None:
    """The parser is still the same. All is decided before one run of both hours."""
    visits = multiset(blog.rows(BRONZE[0], GIVEN_UP))
    letters = Counter(row["letter_id"] for row in blog.open(GIVEN_UP))
    retried = ("replay", "--all", "--partition", KEYS[GIVEN_UP], "--no-run")
    assert blog.de(*retried).exit_code == 0
    landed = list((blog.settings.landing / "visits_decisions").rglob("*.json"))
    assert blog.de(*retried).output.startswith("0 line(s) decided about")
    assert list((blog.settings.landing / "visits_decisions").rglob("*.json")) == landed

    one, reason = blog.open(GIVEN_UP)[0]["letter_id"], "not a JSON object of the expected form"
    assert "Say `--why`" in blog.de("discard", one).stderr
    assert blog.de("discard", "--reason", reason, "--why", "no hour is named").exit_code == 1
    named = blog.de(
        "discard", "--partition", KEYS[GIVEN_UP], "--reason", reason, "--why", "a proxy's pages", "--no-run"
    )
    assert f"To be run: bronze/visits and bronze/visits_dead_letter, for {KEYS[GIVEN_UP]}." in named.output
    assert any(row["reason"] == reason for row in blog.open(GIVEN_UP)), "nothing was run"

    aged = identify(HOURS[AGED], sound_line(blog))
    assert aged in blog.de("inspect", "--reason", "old").output
    assert blog.de("discard", one, aged, "--why", "too old", "--no-run").exit_code == 0
    blog.run(*BRONZE, hours=(GIVEN_UP, AGED))
    assert multiset(blog.rows(BRONZE[0], GIVEN_UP)) == visits
    found = blog.rows(BRONZE[1], GIVEN_UP)
    assert Counter(row["letter_id"] for row in found) == letters, "the same lines again are the same letters"
    left = blog.open(GIVEN_UP)
    assert left
    assert {row["attempts"] for row in left} == {1}
    assert not any(row["reason"] == reason or row["letter_id"] == one for row in left)
    gone = {row["letter_id"]: row["why"] for row in found if row["status"] == "discarded"}
    assert gone[one] in ("a proxy's pages", "too old")
    assert set(gone.values()) <= {"a proxy's pages", "too old"}
    assert len(blog.rows(BRONZE[0], GIVEN_UP)) + len(found) == len(blog.lines(GIVEN_UP))
    assert "already" in blog.de("discard", one, "--why", "once more").output

    # Of the earlier version, whose table had no identities; the line, dead once, could be understood by now.
    (closed,) = [row for row in blog.rows(BRONZE[1], AGED) if row["letter_id"] == aged]
    assert (closed["status"], closed["reason"]) == ("discarded", CLOSED)
    assert len(blog.rows(BRONZE[0], AGED)) + len(blog.rows(BRONZE[1], AGED)) == len(blog.lines(AGED))


@contextmanager
def dies_before(table: str) -> Iterator[None]:
    def die(reached: str) -> None:
        if reached == table:
            raise OSError("the disk is gone")

    with at("before_write", die):
        yield


def test_nothing_that_was_printed_is_personal(blog: Blog) -> None:
    """Comes last: everything that the commands above printed."""
    text = "".join(blog.outputs)
    assert text
    for n, _ in enumerate(HOURS):
        for line in blog.lines(n):
            for address in re.findall(rb'"ip":"([^"]+)"', line):
                assert address.decode() not in text
