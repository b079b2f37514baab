"""`quoth bench spark`, with a Spark of its own."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from kit.deadlines import appears, eventually
from kit.machine.commands import Command
from kit.machine.processes import children, needs_proc, runs
from kit.scale import long_form
from kit.spark.sparks import JOB_S, starts_spark


@long_form
@starts_spark
def test_source_is_compared_with_parquet(alone: Command, tmp_path: Path) -> None:
    chosen = ("--figure", "source", "--size", "100", "--rows", "20000", "--rounds", "1", "--format", "json")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    process = alone.start("bench", "spark", *chosen, "--dir", str(there), cwd=here).process
    out, err = process.communicate(timeout=JOB_S)
    assert process.returncode == 0, err.decode()
    conditions, *rows = map(json.loads, out.splitlines())
    assert (conditions["benchmark"], conditions["rows"], conditions["rounds"]) == (
        "spark",
        "20,000 of 100 B",
        1,
    )
    assert "durability" in conditions
    assert [(row["way"], row["against"], row["required"], row["aim"]) for row in rows] == [
        ("source", "parquet read", 0.7, 0.9),
    ]
    for row in rows:
        assert row["value_bytes"] == 100
        rates = row["rows_per_second"], row["their_rows_per_second"]
        assert row["ratio"]["median"] == pytest.approx(rates[0] / rates[1])
        assert 0.01 < row["ratio"]["median"] < 100
        assert row["java_nanoseconds_per_row"] > 0
        ratio = row["processor_ratio"]
        assert 0.01 < ratio["low"] <= ratio["median"] <= ratio["high"] < 100
    assert not [*here.iterdir(), *there.iterdir()]


@long_form
@needs_proc
@starts_spark
def test_sigterm_ends_all_processes_and_removes_the_directory(alone: Command, tmp_path: Path) -> None:
    chosen = ("--figure", "source", "--size", "100", "--rows", "20000", "--rounds", "1000")
    running = alone.start("bench", "spark", *chosen, "--dir", str(tmp_path))
    appears(tmp_path, "*/*/rows.parquet/_SUCCESS", "it has made what it reads", JOB_S)
    appears(tmp_path, "*/*/tmp*", "it measures")
    started = children(running.process.pid)
    assert len(started) >= 2, "the broker and Java"
    ended = running.end(signal.SIGTERM)
    assert ended.status == 143
    eventually(lambda: not [pid for pid in started if runs(pid)], "all of its processes end")
    assert not list(tmp_path.iterdir())


def test_spark_without_java_is_an_error(alone: Command, tmp_path: Path) -> None:
    ended = alone(
        "bench", "spark", "--rows", "1", "--dir", str(tmp_path), environment={"JAVA_HOME": str(tmp_path)}
    )
    assert ended.status == 1
    assert ended.err.startswith("quoth: no_spark: ")
    assert "Java 17" in ended.err
    assert not list(tmp_path.iterdir())
