"""Hadoop's settings as an engine has them: its own defaults as Hadoop wrote them, and none of YARN and MapReduce."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from pyspark.sql import SparkSession

from de_resources.local.class_archive import class_archive
from de_resources.local.engine_conf import engine_conf
from de_resources.local.hadoop_defaults import hadoop_defaults, keep_hadoop_defaults
from de_resources.local.jars import engine_jars
from de_resources.local.spark_connect import SPARK_HOME
from de_resources.settings import Settings


def written(name: str) -> dict[str, str]:
    """The defaults of one file as Hadoop's jar has them; without values that name other settings."""
    (jar,) = (SPARK_HOME / "jars").glob("hadoop-client-api-*.jar")
    with zipfile.ZipFile(jar) as content:
        found = Xml.fromstring(content.read(name)).iterfind("property")  # noqa: S314 - of PySpark's own jar
    texts = {each.findtext("name", "").strip(): each.findtext("value", "") for each in found}
    return {key: value for key, value in texts.items() if value and "${" not in value}


def settings_of(spark: SparkSession) -> dict[str, Any]:
    """What a query of the session begins with."""

    def entries() -> Iterator[tuple[str, Any]]:
        found = spark._jsparkSession.sessionState().newHadoopConf().iterator()  # type: ignore[attr-defined]
        while found.hasNext():
            entry = found.next()
            yield entry.getKey(), entry.getValue()

    return dict(entries())


def test_an_engine_has_hadoops_own_defaults_and_none_of_yarn_and_mapreduce(spark: SparkSession) -> None:
    own = settings_of(spark)
    assert not [name for name in own if name.startswith("yarn.")]
    assert len(set(own) & set(written("mapred-default.xml"))) <= 3, "Spark names a few by itself"
    of_core = written("core-default.xml")
    assert len(of_core) > 200
    # Two that Spark sets, the buffer's size for one.
    assert len({name for name, value in of_core.items() if own.get(name) != value}) <= 2


def test_it_stands_first_where_it_was_made_and_engines_start_where_it_was_not(tmp_path: Path) -> None:
    ours = Settings.from_environment({"DE_HOME": str(tmp_path), "DE_JARS": str(tmp_path / "jars")})
    ours.jars.mkdir()
    (ours.jars / "engine").symlink_to(Path(os.environ["DE_JARS"]) / "engine")
    fetched = [str(jar) for jar in engine_jars(ours)]
    before = class_archive(ours)
    assert engine_conf(ours, "local[2]")["spark.driver.extraClassPath"].split(os.pathsep) == fetched
    jar = keep_hadoop_defaults(ours)
    assert jar is not None
    made = jar.stat().st_mtime_ns
    assert engine_conf(ours, "local[2]")["spark.driver.extraClassPath"].split(os.pathsep) == [str(jar), *fetched]
    assert class_archive(ours) != before, "classes are kept for one class path"
    assert keep_hadoop_defaults(ours) == jar
    assert jar.stat().st_mtime_ns == made
    assert [path.name for path in ours.jars.iterdir() if path.name not in {"engine", "classes", ".lock"}] == [jar.name]


def test_jars_that_nobody_may_write_beside_are_used_without_it(tmp_path: Path) -> None:
    """As a cache that is shared read-only; a file in the place of the folder refuses everybody, root as well."""
    (tmp_path / "jars").write_text("")
    ours = Settings.from_environment({"DE_HOME": str(tmp_path), "DE_JARS": str(tmp_path / "jars")})
    assert keep_hadoop_defaults(ours) is None
    assert hadoop_defaults(ours) == []
