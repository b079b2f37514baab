"""`quoth pipeline`: jobs as commands and by spark-submit; without Spark, without Java."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quothcli.main
from kit.broker.brokers import BrokerProcess
from kit.deadlines import eventually
from kit.disk.damage import flip
from kit.disk.logs import segments
from kit.machine.commands import Command
from kit.scale import long_form
from kit.spark.replays import BEGAN, LOG, Record, write_archive
from kit.spark.sparks import JAVA_OPTIONS, JOB_S, spark_home, starts_spark
from quoth import connect
from quoth.spark.jobs import archive, audit, replay, stats
from quoth.spark.jobs.session import Job, JobBroker

AUDIT = (quothcli.main.__file__, "pipeline", "audit")
SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")


def damage_a_batch(directory: Path) -> Path:
    """Change a byte of the batch of 3.0 to 3.4; returns its file."""
    path = segments(directory)[1]
    flip(path, path.read_bytes().index(b"3.0"))
    return path


def ran(*command: str | Path, directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a job that is no command, to its end. variables: of its environment."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=JOB_S,
    )


# -- audit --------------------------------------------------------------------------------------------------


@long_form
@starts_spark
def test_audit_reports_damage_and_fails(alone: Command, directory: Path) -> None:
    damaged = damage_a_batch(directory)
    result = alone("pipeline", "audit", str(directory), "--master", "local[1]", seconds=JOB_S)
    assert result.status == 1
    damage, total = result.lines
    assert damage.startswith(f"damage  body        {damaged}: bytes ")
    assert total.startswith("readings: 3 segments, 5 batches, 25 records, ")


@long_form
@starts_spark
def test_audit_by_spark_submit(directory: Path, tmp_path: Path) -> None:
    submit = (SPARK_SUBMIT, "--master", "local[1]", "--conf", "spark.ui.enabled=false", *AUDIT)
    result = ran(*submit, directory, "--format", "json", directory=tmp_path)
    assert result.returncode == 0, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    assert (content["whole"], content["segments"], content["records"]) == (True, 3, 30)


@long_form
@starts_spark
def test_audit_in_executors_that_are_processes_of_their_own(directory: Path, tmp_path: Path) -> None:
    """Tasks are imported there by their name."""
    damaged = damage_a_batch(directory)
    settings = {
        "spark.local.dir": tmp_path,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    result = ran(
        sys.executable, *AUDIT, directory, "--master", "local-cluster[2,1,1024]", *conf, "--format", "json",
        directory=tmp_path, SPARK_HOME=str(spark_home(tmp_path)),
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    assert [(one["path"], one["kind"]) for one in content["findings"]] == [(str(damaged), "body")]
    assert (content["segments"], content["records"]) == (3, 25)
    assert len(list((tmp_path / "spark" / "work").glob("app-*/[01]"))) == 2, "the executors' directories"


# -- jobs that Spark breaks off ------------------------------------------------------------------------------


@long_form
@starts_spark
def test_replay_whose_workers_fail_names_their_error(
    alone: Command, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    write_archive(tmp_path / "archive", topic, [[Record(BEGAN, b"k", b"v", {})]], log=LOG)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "xxhash.py").write_text("raise ImportError('not for this processor')")
    words = (
        "--url",
        broker.url,
        "--master",
        "local[1]",
        "--conf",
        f"spark.executorEnv.PYTHONPATH={tmp_path}/old",
    )
    process = alone.start("pipeline", "replay", str(tmp_path / "archive"), *words).process
    out, err = process.communicate(timeout=JOB_S)
    assert (process.returncode, out) == (1, b"")
    said, hint = err.decode().splitlines()[-2:]
    error = "ImportError: not for this processor"
    assert re.fullmatch(rf"quoth: spark_failed: replay: {error} \(host \S+, executor driver\)", said)
    assert hint == "hint: chunks that were published are whole: run it again to go on behind them"


def test_each_job_describes_its_state_when_it_is_broken_off(
    broker: BrokerProcess, topic: str, directory: Path, tmp_path: Path
) -> None:
    with connect(broker.url) as client:
        client.publish(topic, b"x")
    root = tmp_path / "archive"
    write_archive(root, topic, [[Record(BEGAN, b"k", b"v", {})]], log=LOG)
    place = JobBroker(broker.url)
    jobs = {
        "archived": archive.archiving(root, topic, broker=place),
        "merged": archive.compaction(root),
        "chunks": replay.job(root, broker=place),
        "/out may not be whole": audit.job([directory], out=str(tmp_path / "out")),
        "run it again": stats.job(topic, broker=place),
    }
    assert [word for word, job in jobs.items() if not isinstance(job, Job) or word not in job.kept] == []


# -- refused before there is a session --------------------------------------------------------------


def test_audit_without_a_log_is_refused(alone: Command, tmp_path: Path) -> None:
    result = alone("pipeline", "audit", str(tmp_path / "missing"))
    assert (result.status, result.out) == (3, b"")
    assert result.err.startswith("quoth: not_found: ")
    as_script = ran(sys.executable, *AUDIT, "missing", directory=tmp_path)
    assert (as_script.returncode, as_script.stderr) == (3, result.err)


def test_wrong_setting_is_refused(alone: Command, directory: Path) -> None:
    result = alone("pipeline", "audit", str(directory), "--conf", "spark.ui.enabled")
    assert result.status == 2
    assert "'spark.ui.enabled' is not NAME=VALUE" in result.err


def test_missing_java_is_reported(alone: Command, directory: Path, tmp_path: Path) -> None:
    result = alone("pipeline", "audit", str(directory), environment={"JAVA_HOME": str(tmp_path)})
    assert (result.status, result.out) == (1, b"")
    first, hint = result.err.splitlines()
    assert first == f"quoth: no_spark: Spark needs Java, and JAVA_HOME, {tmp_path}, holds none"
    assert "openjdk-17" in hint


def test_missing_pyspark_is_reported(alone: Command, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('not there', name='pyspark')")
    result = alone(
        "pipeline", "audit", str(directory), environment={"PYTHONPATH": str(tmp_path)}, seconds=JOB_S
    )
    assert (result.status, result.out) == (1, b"")
    first, hint = result.err.splitlines()
    assert first == "quoth: no_spark: this runs on Spark, and pyspark is not installed"
    assert "pip install 'quoth[spark]'" in hint


@pytest.mark.parametrize("job", ["archive", "compact", "verify"])
@long_form
@starts_spark
def test_job_with_a_missing_or_damaged_file_of_the_manifest_fails(
    quoth: Command, topic: str, tmp_path: Path, job: str
) -> None:
    root = tmp_path / "archive"
    values = [[Record(BEGAN + number, b"k", b"v", {})] for number in range(2)]
    write_archive(root, topic, values, log=LOG)
    with connect(quoth.url) as client:
        client.publish(topic, b"value")
    missing, damaged = sorted(root.rglob("*.parquet"))
    missing.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    of = (topic,) if job == "archive" else ()
    ended = quoth("pipeline", job, str(root), *of, "--master", "local[1]", seconds=JOB_S)
    assert ended.status == 1, ended
    said = ended.out.decode() + ended.err
    assert missing.name in said
    assert damaged.name in said


@long_form
@starts_spark
def test_job_that_is_ended_together_with_its_java_has_the_status_of_the_signal(
    quoth: Command, topic: str, tmp_path: Path
) -> None:
    with connect(quoth.url) as client:
        client.publish(topic, b"x")
    words = ("pipeline", "archive", str(tmp_path / "archive"), topic, "--follow", "1", "--master", "local[1]")
    process = quoth.start(*words, start_new_session=True).process
    eventually((tmp_path / "archive" / "_manifest.json").exists, "a first commit", JOB_S)
    ends_by_sigterm(process)


@starts_spark
def test_job_that_is_ended_with_java_and_running_tasks_has_the_status_of_the_signal(
    quoth: Command, topic: str, tmp_path: Path
) -> None:
    with connect(quoth.url) as client:
        for _ in range(200):
            client.publish(topic, [b"x"] * 10_000)
    words = ("pipeline", "archive", str(tmp_path / "archive"), topic, "--master", "local[1]")
    process = quoth.start(*words, start_new_session=True).process
    eventually(lambda: any((tmp_path / "archive").rglob(".*.parquet*")), "that a file is written", JOB_S)
    ends_by_sigterm(process)


def ends_by_sigterm(process: subprocess.Popen[bytes]) -> None:
    """Send the signal to all of its processes, as systemd does; it must print nothing."""
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=JOB_S)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert b"quoth: " not in err
