"""The catalogue: 70 patterns, their other names, how carriers and proofs are found, and whether the graph is honest."""

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest
from own_modules import proved

from de_assets import catalogue
from de_assets.catalogue import Carrier, Family, UnknownPattern, UnreadableMark
from de_checks.patterns import carries

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def locations() -> list[dg.Definitions]:
    """The code locations of the project, imported after the session's home is set."""
    return catalogue.load_locations()


# The list


def test_there_are_seventy_patterns_in_nine_families() -> None:
    sizes = Counter(pattern.family for pattern in catalogue.PATTERNS.values())

    assert len(catalogue.PATTERNS) == 70
    assert sizes == {
        Family.DATA_INGESTION: 8,
        Family.ERROR_MANAGEMENT: 7,
        Family.IDEMPOTENCY: 7,
        Family.DATA_VALUE: 10,
        Family.DATA_FLOW: 8,
        Family.SECURITY: 9,
        Family.STORAGE: 9,
        Family.QUALITY: 6,
        Family.OBSERVABILITY: 6,
    }


def test_names_are_snake_case_titles_are_distinct_and_promises_are_one_sentence() -> None:
    patterns = list(catalogue.PATTERNS.values())

    assert [p.name for p in patterns if not re.fullmatch(r"[a-z]+(_[a-z]+)*", p.name)] == []
    assert len({p.title for p in patterns}) == len(patterns)
    assert [p.name for p in patterns if not re.fullmatch(r"[A-Z][^.]+\.", p.promise)] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("dead_letter", ["dead_letter"]),
        ("Dead-Letter", ["dead_letter"]),
        ("audit write audit publish", ["audit_write_audit_publish"]),
        ("Vertical Partitioner (storage)", ["vertical_partitioner_storage"]),
        ("quarantiner", ["dead_letter", "audit_write_audit_publish"]),
        ("blocker", ["audit_write_audit_publish"]),
        ("high-water mark loader", ["incremental_loader"]),
        ("Shadow Compactor", ["compactor"]),
        ("data_profiler", ["offline_observer", "online_observer"]),
        ("slowly changing dimensions 2", ["static_joiner", "merger"]),
        ("scd4", ["static_joiner", "merger"]),
        ("Data at rest to data in motion", ["change_data_capture"]),
    ],
)
def test_names_titles_and_other_names_are_found_in_any_spelling(text: str, names: list[str]) -> None:
    patterns, alias = catalogue.look_up(text)

    assert [pattern.name for pattern in patterns] == names
    assert all(alias is None or alias in pattern.aliases for pattern in patterns)


def test_other_names_hide_no_pattern_and_point_to_patterns_and_places_that_exist() -> None:
    titles = [alias.title for alias in catalogue.ALIASES]

    assert len(set(titles)) == len(titles)
    for alias in catalogue.ALIASES:
        patterns, found = catalogue.look_up(alias.title)
        assert found == alias
        assert patterns
        assert alias.place is None or (catalogue.PROJECT / alias.place).exists()


def test_an_unknown_name_gets_the_close_ones() -> None:
    with pytest.raises(UnknownPattern, match="Did you mean `quarantiner`") as error:
        catalogue.look_up("Quarantener")

    assert error.value.close == ["quarantiner"]


# Carriers


def _definitions(asset_tag: str = "pattern/full_loader", **more: object) -> dg.Definitions:
    @dg.asset(key=["bronze", "things"], tags={asset_tag: "", "team": "x"})
    def things() -> None: ...

    return dg.Definitions(assets=[things], **more)  # type: ignore[arg-type]


def test_every_kind_of_definition_can_carry() -> None:
    @dg.asset_check(asset=dg.AssetKey(["bronze", "things"]), metadata=carries("skew_detector", "full_loader"))
    def evenly_spread() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.sensor(job_name="maintenance", tags={"pattern/readiness_marker": ""})
    def by_tag() -> None: ...

    @dg.sensor(job_name="maintenance", metadata=carries("readiness_marker"))
    def by_metadata() -> None: ...

    job = dg.define_asset_job("maintenance", selection="*", tags={"pattern/compactor": ""})
    schedule = dg.ScheduleDefinition(job=job, cron_schedule="@daily", tags={"pattern/compactor": ""})
    defs = _definitions(asset_checks=[evenly_spread], sensors=[by_tag, by_metadata], jobs=[job], schedules=[schedule])

    assert catalogue.carriers(defs) == {
        "full_loader": [Carrier("asset", "bronze/things"), Carrier("check", "bronze/things:evenly_spread")],
        "skew_detector": [Carrier("check", "bronze/things:evenly_spread")],
        "readiness_marker": [Carrier("sensor", "by_metadata"), Carrier("sensor", "by_tag")],
        "compactor": [Carrier("job", "maintenance"), Carrier("schedule", "maintenance_schedule")],
    }


def test_a_tag_with_an_unknown_pattern_is_an_error_that_names_its_carrier() -> None:
    with pytest.raises(UnknownPattern, match=r"`full_loadr` \(tag `pattern/full_loadr` of the asset bronze/things\)"):
        catalogue.carriers(_definitions("pattern/full_loadr"))


def test_an_alias_is_no_tag() -> None:
    with pytest.raises(UnknownPattern):
        catalogue.carriers(_definitions("pattern/quarantiner"))


def test_a_location_that_does_not_exist_is_no_location() -> None:
    assert catalogue.load_locations(["de_assets.absent", "de_absent.definitions"]) == []


# Proofs

_MARKED = """
    import pytest
    from pytest import mark

    pytestmark = [pytest.mark.pattern("proxy"), pytest.mark.filterwarnings("ignore")]
    CASES = [pytest.param(1, marks=pytest.mark.pattern("bucket")), 2]
    sorts = mark.pattern("sorter")

    def test_module_mark(): ...

    @pytest.mark.pattern("merger", "data_overwrite")
    def test_two_names(): ...

    @sorts
    async def test_named_mark(): ...

    @pytest.mark.parametrize("case", CASES)
    def test_named_parameters(case): ...

    @pytest.mark.parametrize("case", [pytest.param(1, marks=[pytest.mark.pattern("manifest")])])
    def test_parameters(case): ...

    @pytest.mark.pattern("encryptor")
    class TestGroup:
        pytestmark = pytest.mark.pattern("wrapper")

        def test_class_marks(self): ...

        class TestInner:
            @pytest.mark.pattern("normalizer")
            def test_inner(self): ...

    class Helper:
        @pytest.mark.pattern("denormalizer")
        def test_of_no_test_class(self): ...

    @pytest.mark.pattern("denormalizer")
    def check(): ...
"""


def test_marks_are_read_as_pytest_applies_them(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("tests")
    (folder / "test_marked.py").write_text(dedent(_MARKED))
    pytester.makeini("[pytest]\nmarkers = pattern(*names)")
    items, _ = pytester.inline_genitems(folder)
    applied = {
        (name, item.nodeid.partition("[")[0])
        for item in items
        for mark in item.iter_markers("pattern")
        for name in mark.args
    }

    read = catalogue.tests(folder)

    assert {(name, test) for name, tests in read.items() for test in tests} == applied
    assert read["bucket"] == ["tests/test_marked.py::test_named_parameters"]
    assert read["normalizer"] == ["tests/test_marked.py::TestGroup::TestInner::test_inner"]
    assert len(read["proxy"]) == 7
    assert "denormalizer" not in read


@pytest.mark.parametrize(
    ("mark", "error", "message"),
    [
        ('pytest.mark.pattern("mergr")', UnknownPattern, r"`mergr` \(tests/unit/test_x.py:1\).*`merger`"),
        ("pytest.mark.pattern(*NAMES)", UnreadableMark, "tests/unit/test_x.py:1"),
        ("pytest.mark.pattern(NAME)", UnreadableMark, "literal names"),
    ],
)
def test_marks_that_claim_nothing_known_are_errors(
    tmp_path: Path, mark: str, error: type[Exception], message: str
) -> None:
    file = tmp_path / "tests" / "unit" / "test_x.py"
    file.parent.mkdir(parents=True)
    file.write_text(f"@{mark}\ndef test_it(): ...\n")

    with pytest.raises(error, match=message):
        catalogue.tests(tmp_path / "tests")


# Status and files


def test_only_what_is_carried_counts_and_only_with_a_test_is_it_proved() -> None:
    carrier = Carrier("asset", "bronze/things")
    carriers = [{"merger": [carrier]}, {"merger": [Carrier("job", "other")], "proxy": [carrier]}]

    found = {s.pattern.name: s for s in catalogue.status(carriers, {"merger": ["t"], "bucket": ["t"]})}

    assert len(found) == 70
    assert found["merger"].carriers == (carrier, Carrier("job", "other"))
    assert [name for name, s in found.items() if s.is_carried] == ["merger", "proxy"]
    assert [name for name, s in found.items() if s.is_proved] == ["merger"]


def test_the_modules_of_a_pattern_are_named_after_it_or_declare_it(tmp_path: Path) -> None:
    files = {
        "merger.py": "",
        "io.py": '"""Writes.\n\nPatterns: Data Overwrite and, by mode,\nMerger."""',
        "stateful.py": '"""Pattern *Stateful Merger*: restores first."""',
        "other.py": '"""Not the Merger: it declares no pattern."""',
        "later.py": '"""Pattern: Proxy.\n\nUnlike the Merger."""',
        "sensor.py": '"""Merger: what it begins with is what it is."""',
        "subject.py": '"""Merger and others are spoken of."""',
    }
    (tmp_path / "de_assets").mkdir()
    for name, text in files.items():
        (tmp_path / "de_assets" / name).write_text(text)

    assert catalogue.modules(catalogue.PATTERNS["merger"], tmp_path) == [
        "de_assets/io.py",
        "de_assets/merger.py",
        "de_assets/sensor.py",
    ]


def test_the_index_says_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "patterns" / "idempotency" / "merger.md"
    page.parent.mkdir(parents=True)
    page.touch()
    (tmp_path / "de_checks").mkdir()
    (tmp_path / "de_checks" / "merger.py").touch()
    checks = [Carrier("check", f"silver/{name}:rows_are_unique") for name in ("a", "b")]
    statuses = catalogue.status(
        [{"merger": [Carrier("asset", "silver/a"), *checks]}],
        {
            "merger": ["tests/unit/test_m.py::test_1", "tests/unit/test_m.py::test_2"],
            "proxy": ["tests/ui/test_p.py::test"],
        },
    )
    of = {s.pattern.name: s for s in statuses}

    lines = catalogue.index([of["merger"], of["proxy"], of["bucket"]], tmp_path).splitlines()

    promises = {name: catalogue.PATTERNS[name].promise for name in of}
    assert "3 patterns: 1 carried by the graph, 1 of them proved by marked tests; 1 have a page." in lines
    assert lines[-12:] == [
        "## Idempotency",
        "",
        "| pattern | files | carried by | tests | missing |",
        "|---|---|---|---|---|",
        f"| **[Merger](idempotency/merger.md)**<br>{promises['merger']} "
        "| [`de_checks/merger.py`](../../de_checks/merger.py) "
        "| asset `silver/a`<br>check `rows_are_unique` of `silver/a`, `silver/b` "
        "| [`unit/test_m`](../../tests/unit/test_m.py) | – |",
        f"| **Proxy**<br>{promises['proxy']} | – | – | [`ui/test_p`](../../tests/ui/test_p.py) | carrier, page |",
        "",
        "## Storage",
        "",
        "Not here yet:",
        "",
        f"- **Bucket**: {promises['bucket']}",
    ]


# The real graph and the real tests


def test_every_tag_of_the_graph_names_a_pattern(locations: list[dg.Definitions]) -> None:
    assert locations
    assert [name for location in locations for name in catalogue.carriers(location)]


@pytest.mark.xdist_group("imports")
def test_every_mark_names_a_pattern() -> None:
    assert proved()


@pytest.mark.xdist_group("imports")
def test_no_pattern_is_claimed_without_a_marked_test(locations: list[dg.Definitions]) -> None:
    carriers = [catalogue.carriers(location) for location in locations]
    statuses = catalogue.status(carriers, proved())

    unproved = {s.pattern.name: [str(c) for c in s.carriers] for s in statuses if s.is_carried and not s.is_proved}

    assert unproved == {}, "these are carried, but no test has their mark"
