"""The audit on Spark: the same verdict as `quoth log verify`, for any number of logs, beside a broker.

A job costs seconds, so each test corrupts copies of a log in many ways and looks at all of them in one job.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kit.broker.brokers import StartBroker
from kit.disk.corruptions import EVERY_CORRUPTION, Scene, leave_behind
from kit.disk.damage import flip, truncate
from kit.disk.logs import encoded, fill, put, segments
from kit.scale import some
from quoth import connect
from quoth.spark.jobs import audit
from quoth.spark.jobs.audit import Audit, AuditFinding, logs_in
from quothcli.application import run as run_command
from quothlog import Log, LogOptions, file_format
from quothlog.recovery.verify import Wrong, summaries
from quothwire.errors import NotFound


def done(spark: Any, directories: Iterable[Path], topic: str | None = None) -> Audit:
    """Audit some directories."""
    return audit.audit(spark, logs_in(directories, topic))


def found(report: Audit) -> dict[str, list[AuditFinding]]:
    """The findings by directory, in the order of files and offsets."""
    rows = [AuditFinding(*row) for row in report.findings.orderBy("path", "start").collect()]
    directories = [str(log.place.directory) for log in report.logs]
    return {directory: [row for row in rows if row.directory == directory] for directory in directories}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A closed log of four segments with three batches of four records each."""
    directory = tmp_path / "log"
    with Log.open(directory, options=LogOptions(count_limit=12)) as opened:
        for number in range(12):
            put(opened, encoded([b"%d.%d" % (number, row) for row in range(4)], 77, number + 1))
    return directory


def test_intact_log_is_reported_whole_unchanged_and_read_once_under_all_its_names(
    spark: Any, log: Path
) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in log.iterdir()}
    (log.parent / "link").symlink_to(log)
    report = done(spark, [log, log.parent / "link", log.parent / "other" / ".." / "log"])
    rows = report.segments.orderBy("floor").collect()
    expected = list(summaries(log))
    assert [(row.path, row.floor, row.first, row["last"], row.ordinal, row.batches) for row in rows] == [
        (str(one.path), one.floor, one.first, one.last, 12 * number, 3) for number, one in enumerate(expected)
    ]
    assert [(row.records, row.bytes, row.sealed, row.indexed, row.topic) for row in rows] == [
        (12, one.bytes, one.sealed, one.indexed, "log") for one in expected
    ]
    assert {row["log"] for row in rows} == {f"{expected[0].log_id:016x}"}
    summary = report.summary()
    size = sum(path.stat().st_size for path in segments(log))
    assert summary.lines == [f"log: 4 segments, 12 batches, 48 records, {size:,} bytes: whole"]
    assert (summary.good, summary.content["whole"], summary.content["records"]) == (True, True, 48)
    assert summary.content["findings"] == []
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in log.iterdir()} == before


def test_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(FileNotFoundError):
            logs_in([tmp_path / name])


# -- what is found ------------------------------------------------------------------------------------------


def tear(log: Path) -> None:
    """Cut within the last batch, of which no index says that it was synced."""
    path = segments(log)[-1]
    path.with_suffix(file_format.INDEX_SUFFIX).unlink()
    truncate(path, path.stat().st_size - 5)


def quarantined(log: Path) -> None:
    """Let an opening cut off a torn end, and put a file beside the segments."""
    with Log.open(log, options=LogOptions(count_limit=12)) as opened:
        fill(opened, 1)
    tear(log)
    with Log.open(log):
        pass
    (log / "notes.txt").write_text("not a segment")


def blind(log: Path) -> None:
    """No header block says which log it is."""
    for path in segments(log):
        flip(path, 20)


def damage_index(log: Path) -> None:
    """Change the index of a sealed segment."""
    flip(segments(log)[1].with_suffix(file_format.INDEX_SUFFIX), 40)


BESIDE = {
    # kind, is it damage
    tear: [("unfinished", False)],
    quarantined: [("foreign", False), ("set_aside", False)],
    blind: [("unreadable", True)],
    damage_index: [("index", False)],
    segments: [],
}


def test_findings_beside_damaged_records_are_notes_and_an_unreadable_log_does_not_hide_others(
    spark: Any, log: Path, tmp_path: Path
) -> None:
    copies = [Path(shutil.copytree(log, tmp_path / f"copy {number}")) for number in range(len(BESIDE))]
    for copy, change in zip(copies, BESIDE, strict=True):
        change(copy)
    report = done(spark, copies)
    for copy, (change, expected) in zip(copies, BESIDE.items(), strict=True):
        kinds = {(one.kind, one.damage) for one in found(report)[str(copy)]}
        assert kinds == set(expected), change.__name__
    summary = report.summary()
    assert not summary.good
    assert [row["damaged"] for row in summary.content["logs"]] == [0, 0, 1, 0, 0]


def test_job_prints_the_damage_in_a_line_and_writes_it_as_parquet(
    spark: Any, log: Path, tmp_path: Path
) -> None:
    damaged, out = segments(log)[1], tmp_path / "out"
    flip(damaged, damaged.read_bytes().index(b"4.0"))
    report = audit.job([log], out=str(out))(spark)
    damage, total = report.lines
    assert damage.startswith(f"damage  body        {damaged}: bytes ")
    assert damage.endswith("; 4 records missing, from ordinal 16 on")
    assert total.startswith("log: 4 segments, 11 batches, 44 records, ")
    assert total.endswith(" bytes: 1 damaged, 4 records missing")
    assert not report.good
    assert {path.name for path in out.iterdir()} == {"segments", "findings"}
    assert list(out.glob("findings/*.parquet"))
    with pytest.raises(FileExistsError, match="exists already"):
        audit.job([log], out=str(out))


def verdict(directory: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    """Run `quoth log verify`; returns its exit status, and the object of each topic."""
    status = run_command(["log", "verify", str(directory), "--format", "json"])
    return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_the_same_verdict_as_log_verify(
    spark: Any, tmp_path: Path, rng: random.Random, capfd: pytest.CaptureFixture[str]
) -> None:
    left = leave_behind(tmp_path / "data", killed=True)
    corrupted: dict[str, Path] = {}
    for number, name in enumerate(some([*EVERY_CORRUPTION], rng, 3)):
        scene = Scene(left, tmp_path / f"{number:03d}")
        EVERY_CORRUPTION[name](scene, rng)
        corrupted[name] = scene.directory
    report = done(spark, corrupted.values())
    findings, content = found(report), report.summary().content
    rows = {row["directory"]: row for row in content["logs"]}
    assert len(rows) == 2 * len(corrupted)
    for name, directory in corrupted.items():
        status, topics = verdict(directory, capfd)
        here = [row for row in rows.values() if Path(row["directory"]).is_relative_to(directory)]
        assert bool(status) == any(row["damaged"] for row in here), name
        for topic in topics:
            row = rows[topic["directory"]]
            for key in ("topic", "segments", "records", "bytes", "missing"):
                assert row[key] == topic[key], (name, key)
            keys = ("kind", "path", "start", "end", "records", "ordinal", "after", "next")
            damages = [one._asdict() for one in findings[topic["directory"]] if one.kind in set(Wrong)]
            assert sorted([one[key] for key in keys] for one in damages) == sorted(
                [one[key] for key in keys] for one in topic["damages"]
            ), name


# -- beside a broker ----------------------------------------------------------------------------------------


def test_segments_written_sealed_or_removed_during_an_audit_are_no_damage(
    spark: Any, start_broker: StartBroker
) -> None:
    broker = start_broker(count_limit=50)
    over = threading.Event()

    def write() -> None:
        with connect(broker.url) as client:
            number = 0
            while not over.is_set():
                ack = client.publish("busy", [b"x" * (number % 300)] * (number % 40 + 1))
                number += 1
                if number % 100 == 0:
                    client.trim("busy", before=ack.last - 20_000)

    with connect(broker.url) as client:
        client.publish("quiet", [b"only"])
    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = []
        for _ in range(3):
            summary = done(spark, [broker.directory]).summary()
            assert summary.good, summary.lines
            seen.append({row["topic"]: row["records"] for row in summary.content["logs"]})
    finally:
        over.set()
        writer.join()
    assert all(records["quiet"] == 1 for records in seen)
    assert len({records.get("busy") for records in seen}) > 1, "nothing was written meanwhile"
    assert done(spark, [broker.directory], "quiet").segments.count() == 1
    with pytest.raises(NotFound):
        logs_in([broker.directory], "no-such")
