"""Real Spark sessions, which leave nothing behind, and streaming queries whose rows are kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.machine.processes import python_of

JAVA_MIN = 17
TESTS = Path(__file__).resolve().parents[2]
"""Folder from which processes of a test import `kit`."""
DIED = -signal.SIGKILL
"""The exit status of a process that was killed."""
HEAP = "1g"
JOB_S = 240.0
"""In which a process has started Spark, done a small job and ended, beside ten others that do the like."""
SPARK_TEST_S = 2 * JOB_S
"""In which a test that uses the session of all tests has ended."""
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Half the time for a Java that does one small job; nothing in /tmp. Not for measurements."""
DRIVER_OPTIONS = f"{JAVA_OPTIONS} -Xms512m -Xmn300m"
"""A heap that grows step by step is searched for garbage at each step, a sixth of the time of a small job."""


def starts_spark(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that starts a Spark of its own, or several one after the other."""
    for mark in (pytest.mark.spark, pytest.mark.usefixtures("java"), pytest.mark.timeout(4 * JOB_S)):
        test = mark(test)
    return test


def java_is_there() -> bool:
    """True if there is a Java that Spark 4 runs on."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return False
    version = re.search(r'version "(\d+)', said)
    return version is not None and int(version[1]) >= JAVA_MIN


def spark_home(directory: Path) -> Path:
    """A Spark made of links: what a cluster of local processes leaves behind lies in this directory.

    It lacks the zip with the same modules as are installed, whose source each worker would compile anew.
    """
    import pyspark

    home = directory / "spark"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    return home


@contextmanager
def session(master: str, directory: Path, **settings: str) -> Iterator[Any]:
    """A Spark session whose files lie in a directory."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {HEAP} pyspark-shell"  # read before there is a JVM
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("quoth tests")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory),
        "spark.python.daemon.module": "kit.spark.daemon",
        "spark.executorEnv.PYTHONPATH": str(TESTS),  # for what workers get from here
        **settings,
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(TESTS))  # of Java, for its workers, which run `kit.spark.daemon`
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def run_that_may_die(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module's `main` in a process of its own, which succeeds or has the exit status `DIED`."""
    command = [*python_of(module), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode in (0, DIED), ended.stderr
    return ended


Rows = list[Any]


class Queries:
    """Runs of one query, each a restart with the same checkpoint; what a batch brought replaces what an
    earlier run of it did, as an exactly-once sink would have it."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: dict[int, Rows] = {}
        self.on_batch: Callable[[int], object] = lambda _: None
        """Called with the number of a batch before its rows are taken."""

    def start(self, stream: Any, **trigger: Any) -> Any:
        """Begin a run. trigger: as of `DataStreamWriter.trigger`, AvailableNow unless it says another one."""
        writer = stream.writeStream.foreachBatch(self._keep)
        located = writer.option("checkpointLocation", str(self.checkpoint))
        return located.trigger(**trigger or {"availableNow": True}).start()

    def run(self, stream: Any) -> Any:
        """A run over what is there now; returns the query, which has ended. Raises what it failed with."""
        query = self.start(stream)
        assert query.awaitTermination(JOB_S), "it does not end"
        return query

    @property
    def rows(self) -> Rows:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def values(self) -> list[bytes]:
        """The values of all rows in the order of their offsets."""
        return [bytes(row.value) for row in sorted(self.rows, key=lambda row: (row.topic, row.offset))]

    def _keep(self, frame: Any, number: int) -> None:
        self.on_batch(number)
        self.batches[number] = frame.collect()
