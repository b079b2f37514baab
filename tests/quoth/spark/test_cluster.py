"""The recipes for a cluster in README.md: what they submit reads and writes topics, on hosts of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pyspark
import pytest

import quoth.spark
from kit.broker.brokers import BrokerProcess
from kit.scale import long_form
from kit.spark.clusters import needs_namespaces, standalone
from kit.spark.sparks import JAVA_OPTIONS, JOB_S, spark_home, starts_spark

README = Path(quoth.spark.__path__[0], "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
ROOT = Path(__file__).parents[3]
INSTALLED = Path(pyspark.__path__[0])
COUNT = 200
JOB = """\
import json, os, sys
from pyspark.sql import SparkSession
import quoth.spark

url, topic, reports = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.range(0, 200, 1, 2).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("quoth").options(url=url, topic=topic).mode("append").save()

def look(batches):
    import pyarrow
    place = json.dumps([sys.executable, quoth.__file__, pyarrow.__file__])
    for batch in batches:
        rows = [{"place": place, "value": value} for value in batch.column("value").to_pylist()]
        yield pyarrow.RecordBatch.from_pylist(rows)

table = quoth.spark.read_topic(spark, topic, url=url, parts=2)
seen = table.mapInArrow(look, "place STRING, value BINARY").collect()
with open(reports, "w") as file:
    said = {"values": sorted(bytes(row.value).decode() for row in seen),
            "places": sorted({path for row in seen for path in json.loads(row.place)})}
    json.dump(said, file)
"""


def block(holds: str) -> str:
    """The block of README.md that holds a text."""
    found: list[str] = [one for one in BLOCKS if holds in one]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """The folder where a job is submitted."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "job.py").write_text(JOB)
    return folder


@pytest.fixture(scope="module")
def home(java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of Spark."""
    return spark_home(tmp_path_factory.mktemp("home"))


def shell(script: str, folder: Path, **variables: str) -> None:
    """Run a block of README.md."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env={**kept, "PATH": path, **variables},
        capture_output=True, text=True, timeout=4 * JOB_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def submitted(
    script: str, folder: Path, home: Path, master: str, broker: BrokerProcess, topic: str
) -> list[str]:
    """Submit the job as a block says, with this Spark; returns the files that its workers ran."""
    (folder / "conf").mkdir(exist_ok=True)
    settings = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
    }
    lines = "".join(f"{name} {text}\n" for name, text in settings.items())
    (folder / "conf" / "spark-defaults.conf").write_text(lines)
    words = shlex.join([broker.url, topic, str(folder / "reports")])
    if home != INSTALLED:
        script = re.sub(r"(?m)^export SPARK_HOME=.*$", f"export SPARK_HOME={home}", script)
    script = script.replace("job.py", f"job.py {words}")
    shell(
        script, folder, SPARK_CONF_DIR=str(folder / "conf"), SPARK_LOCAL_IP="127.0.0.1", SPARK_HOME=str(home)
    )
    said: dict[str, Any] = json.loads((folder / "reports").read_text())
    assert said["values"] == sorted(map(str, range(COUNT)))
    return list(said["places"])


def pack_links(folder: Path) -> None:
    """An environment that has all packages of this one by a link, in seconds, as an archive."""
    env = folder / "env"
    EnvBuilder(symlinks=True).create(env)
    (site,) = env.glob("lib/python*/site-packages")
    (site / "here.pth").write_text("\n".join(path for path in sys.path if "packages" in path))
    (site / "quoth.pth").write_text("\n".join(str(ROOT / part) for part in ("client/python", "broker")))
    with tarfile.open(folder / "env.tar.gz", "w:gz") as packed:
        packed.add(env, ".")


@starts_spark
def test_executors_with_a_folder_of_their_own_run_the_packed_environment(
    broker: BrokerProcess, topic: str, driver: Path, home: Path
) -> None:
    pack_links(driver)
    submit = block("--archives")
    ran = submitted(submit, driver, home, "local-cluster[1,1,1024]", broker, topic)
    pythons = [path for path in ran if path.endswith("python")]
    assert pythons
    assert all(Path(path).is_relative_to(home / "work") for path in pythons)


@pytest.fixture
def cluster(java: None, driver: Path, tmp_path: Path) -> Iterator[str]:
    """Two workers that do not have the driver's folder, nor the packages of this environment."""
    import pyarrow

    hidden = [driver, Path(pyarrow.__file__).parent, ROOT / "client", ROOT / "broker"]
    with standalone(INSTALLED, tmp_path / "cluster", hidden) as url:
        yield url


@pytest.mark.timeout(10 * JOB_S)
@long_form
@needs_namespaces
@starts_spark
def test_both_recipes_work_where_the_folder_of_the_driver_is_not_there(
    broker: BrokerProcess, topic: str, driver: Path, cluster: str, tmp_path: Path
) -> None:
    shell(block("venv-pack -p").replace("install quoth", f"install {ROOT}"), driver)
    packed = submitted(block("--archives"), driver, INSTALLED, cluster, broker, topic)
    assert all(re.match(rf"{tmp_path}/cluster/worker-[01]/app-", path) for path in packed), packed

    site, python = str(tmp_path / "site"), os.path.realpath(sys.executable)
    own = {"/mnt/site quoth": f"{site} {ROOT}", "/mnt/site": site, "/usr/bin/python3": python}
    shell(replaced(block("--target"), own), driver)
    ran = submitted(replaced(block("executorEnv"), own), driver, INSTALLED, cluster, broker, f"{topic}-2")
    assert [path for path in ran if path != python and not Path(path).is_relative_to(site)] == []


def replaced(text: str, by: dict[str, str]) -> str:
    """The text with other words in it."""
    for old, new in by.items():
        text = text.replace(old, new)
    return text
