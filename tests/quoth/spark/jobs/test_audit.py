"""The audit on Spark: what is damaged and where, the same verdict as `quoth log verify`, many small segments.

A job costs seconds, so each test harms copies of a log in many ways and looks at all of them in one job.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kit.broker.brokers import StartBroker
from kit.disk.corruptions import EVERY_HARM, Left, Scene
from kit.disk.damage import flip, insert, swap, swap_files, truncate
from kit.disk.logs import boundaries, encoded, fill, put, segments
from kit.scale import times
from quoth import connect
from quoth.spark.jobs import audit
from quoth.spark.jobs.audit import Audit, AuditFinding, logs_in
from quoth.spark.jobs.runs import TASK_FILES_MIN
from quoth.spark.jobs.session import JobSummary
from quothcli.application import run as run_command
from quothlog import Log, LogOptions, file_format
from quothlog.recovery.snapshot import listing
from quothlog.recovery.verify import Wrong, summaries, summaries_in
from quothlog.storage.filesystem import PosixDirectory, PosixFile, PosixFileSystem
from quothwire.errors import NotFound, QuothError

Result = TypeVar("Result")
MANY = times(5_000, 20_000)
SLOWER_MAX = 10
"""Than one process that looks at all of them, at most: a task for each would be 200 times slower."""


def done(spark: Any, directories: Iterable[Path], topic: str | None = None) -> Audit:
    """Audit some directories."""
    return audit.audit(spark, logs_in(directories, topic))


def found(told: Audit) -> dict[str, list[AuditFinding]]:
    """The findings by directory, in the order of files and offsets."""
    rows = [AuditFinding(*row) for row in told.findings.orderBy("path", "start").collect()]
    directories = [str(log.place.directory) for log in told.logs]
    return {directory: [row for row in rows if row.directory == directory] for directory in directories}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A closed log of four segments with three batches of four records each, of a producer it knows."""
    directory = tmp_path / "log"
    with Log.open(directory, options=LogOptions(count_limit=12)) as opened:
        for number in range(12):
            put(opened, encoded([b"%d.%d" % (number, row) for row in range(4)], 77, number + 1))
    return directory


def copies(log: Path, target: Path, harms: Sequence[Callable[[Path], object]]) -> list[Path]:
    """A copy of a log for each harm, and that harm done to it."""
    made = []
    for number, harm in enumerate(harms):
        made.append(Path(shutil.copytree(log, target / f"{number:04d}")))
        harm(made[-1])
    return made


# -- what is whole ------------------------------------------------------------------------------------------


def test_a_whole_log_is_whole(spark: Any, log: Path) -> None:
    told = done(spark, [log])
    rows = told.segments.orderBy("floor").collect()
    expected = list(summaries(log))
    assert [(row.path, row.floor, row.first, row["last"], row.ordinal, row.batches) for row in rows] == [
        (str(one.path), one.floor, one.first, one.last, 12 * number, 3) for number, one in enumerate(expected)
    ]
    assert [(row.records, row.bytes, row.sealed, row.indexed, row.topic) for row in rows] == [
        (12, one.bytes, one.sealed, one.indexed, "log") for one in expected
    ]
    assert {row["log"] for row in rows} == {f"{expected[0].log_id:016x}"}
    assert told.findings.collect() == []
    size = sum(path.stat().st_size for path in segments(log))
    summary = told.summary()
    assert summary.lines == [f"log: 4 segments, 12 batches, 48 records, {size:,} bytes: whole"]
    assert summary.good
    assert (summary.content["records"], summary.content["whole"]) == (48, True)


def test_nothing_is_changed(spark: Any, log: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in log.iterdir()}
    assert done(spark, [log]).summary().good
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in log.iterdir()} == before


def test_a_log_that_is_named_twice_is_looked_at_once(spark: Any, log: Path) -> None:
    (log.parent / "link").symlink_to(log)
    told = done(spark, [log, log.parent / "link", log.parent / "other" / ".." / "log"])
    assert told.segments.count() == 4


def test_where_there_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(FileNotFoundError):
            logs_in([tmp_path / name])


# -- what is damaged ----------------------------------------------------------------------------------------


def test_a_flipped_bit_is_told_where_it_is(spark: Any, log: Path, tmp_path: Path, rng: random.Random) -> None:
    log_id = next(summaries(log)).log_id
    places: list[tuple[str, int, int, int, bool]] = []  # file, byte, expected start and end, expected damage
    for row, path in enumerate(segments(log)):
        offsets = boundaries(path, log_id)
        edges = [0, *offsets, *([] if path.stat().st_size == offsets[-1] else [path.stat().st_size])]
        for start, end in pairwise(edges):
            chosen = {start, end - 1, *rng.choices(range(start, end), k=3)}
            is_footer = start == offsets[-1]  # it is derived: no record is missing
            places += [(path.name, byte, start, end, not is_footer) for byte in sorted(chosen)]
        index = path.with_suffix(".idx")
        places += [(index.name, rng.randrange(index.stat().st_size), 0, 0, False)] if row < 3 else []
    bits = [1 << rng.randrange(8) for _ in places]
    harms = [
        lambda copy, place=place, bit=bit: flip(copy / place[0], place[1], bit)
        for place, bit in zip(places, bits, strict=True)
    ]
    made = copies(log, tmp_path / "flipped", harms)
    told = found(done(spark, made))
    for copy, (name, byte, start, end, damage) in zip(made, places, strict=True):
        findings = [one for one in told[str(copy)] if one.kind != "index" or name.endswith(".idx")]
        assert [(one.path, one.start, one.end) for one in findings] == [(str(copy / name), start, end)], byte
        assert [one.damage for one in findings] == [damage]


def damage_batch(path: Path, number: int) -> None:
    """Change a byte in the body of a batch of a segment."""
    flip(path, boundaries(path, next(summaries(path.parent)).log_id)[number + 1] - 1)


def batches(path: Path) -> list[tuple[int, int]]:
    """The bounds of the batches of a segment."""
    return list(pairwise(boundaries(path, next(summaries(path.parent)).log_id)))


def double(log: Path) -> None:
    """The second batch of the second segment once more, behind itself."""
    path = segments(log)[1]
    _, (start, end), _ = batches(path)
    insert(path, end, path.read_bytes()[start:end])


def disorder(log: Path) -> None:
    """The first two batches of the second segment change places."""
    path = segments(log)[1]
    one, other, _ = batches(path)
    swap(path, one, other)


def copy_of_a_segment(log: Path) -> None:
    """The first segment once more, under the name of one behind the second."""
    shutil.copy(segments(log)[0], log / f"{int(segments(log)[1].stem) + 2:017d}.seg")


def fork(log: Path) -> None:
    """A copy of the log goes on for itself, and a segment of its own comes back."""
    other = Path(shutil.copytree(log, log.with_suffix(".fork")))
    for directory, count_limit in ((log, 12), (other, 4)):
        with Log.open(directory, options=LogOptions(count_limit=count_limit)) as opened:
            fill(opened, 8)
    path = segments(other)[-1]
    shutil.move(path, log / path.name)


def tear(path: Path) -> None:
    """Cut within the last batch, of which no index says that it was synced."""
    path.with_suffix(file_format.INDEX_SUFFIX).unlink()
    truncate(path, path.stat().st_size - 5)


EACH: dict[str, tuple[Callable[[Path], object], list[tuple[str, bool, int, int]]]] = {
    # kind, is it damage, the row of the segment, records missing
    "a body": (lambda log: damage_batch(segments(log)[1], 1), [("body", True, 1, 4)]),
    "a missing segment": (lambda log: segments(log)[1].unlink(), [("segment", True, 1, 12)]),
    "the oldest segment is gone": (lambda log: segments(log)[0].unlink(), []),
    "a torn end": (
        lambda log: tear(segments(log)[3]),
        [("unfinished", False, 3, 0)],
    ),
    "a synced end that is gone": (
        lambda log: truncate(segments(log)[3], batches(segments(log)[3])[2][0]),
        [("records", True, 3, 4)],
    ),
    "a sealed segment is cut within a batch": (
        lambda log: truncate(segments(log)[1], batches(segments(log)[1])[2][0] + 80),
        [("cut", True, 1, 4)],
    ),
    "a sealed segment is cut between batches": (
        lambda log: truncate(segments(log)[1], batches(segments(log)[1])[2][0]),
        [("records", True, 1, 4)],
    ),
    "a batch twice": (double, [("repeated", True, 1, 0), ("footer", False, 1, 0)]),
    "a segment twice": (copy_of_a_segment, [("misplaced", True, 2, 0)]),
    "a segment of a fork": (fork, [("overlap", True, 4, 0)]),
    "a footer": (
        lambda log: flip(segments(log)[2], segments(log)[2].stat().st_size - 30),
        [("footer", False, 2, 0)],
    ),
    "a header block": (lambda log: flip(segments(log)[2], 30), [("block", True, 2, 0)]),
}


def test_each_damage_is_told_by_its_kind(spark: Any, log: Path, tmp_path: Path) -> None:
    made = copies(log, tmp_path / "harmed", [harm for harm, _ in EACH.values()])
    told = found(done(spark, made))
    for copy, (name, (_, expected)) in zip(made, EACH.items(), strict=True):
        rows = [one for one in told[str(copy)] if one.kind != "index"]
        paths = [segments(copy)[row] for _, _, row, _ in expected]
        assert [Path(one.path) for one in rows] == paths, name
        assert [(one.kind, one.damage, one.records) for one in rows] == [
            (kind, damage, records) for kind, damage, _, records in expected
        ], name


def test_missing_records_are_told_by_pointer_and_ordinal(spark: Any, log: Path) -> None:
    before, gone, _, _ = summaries(log)
    gone.path.unlink()
    (finding,) = found(done(spark, [log]))[str(log)]
    assert (finding.after, finding.next) == (before.last, gone.last + 1)
    assert (finding.ordinal, finding.records) == (12, 12)


def test_segments_that_change_names_and_batches_that_change_places(
    spark: Any, log: Path, tmp_path: Path
) -> None:
    made = copies(
        log,
        tmp_path / "harmed",
        [lambda copy: swap_files(*segments(copy)[1:3]), disorder],
    )
    swapped, disordered = found(done(spark, made)).values()
    assert [one.kind for one in swapped if one.damage] == ["misplaced", "misplaced", "segment"]
    assert [one.records for one in swapped if one.damage] == [0, 0, 24]
    assert [(one.kind, one.records, one.damage) for one in disordered] == [
        ("records", 4, False),
        ("repeated", 0, True),
    ], "the first one is where the second should be, and the other way round"


def test_what_is_not_the_logs_is_a_note(spark: Any, log: Path) -> None:
    with Log.open(log, options=LogOptions(count_limit=12)) as opened:
        fill(opened, 1)
    last = segments(log)[-1]
    tear(last)
    with Log.open(log):
        pass
    (log / "notes.txt").write_text("not a segment")
    told = done(spark, [log])
    notes = [(one.kind, Path(one.path).name) for one in found(told)[str(log)]]
    assert ("foreign", "notes.txt") in notes
    (aside,) = [name for kind, name in notes if kind == "set_aside"]
    assert aside.startswith(f"{last.name}.")
    assert aside.endswith(".torn")
    assert told.summary().good


def blind(log: Path) -> None:
    """No header block says which log it is."""
    for path in segments(log):
        flip(path, 20)


def test_a_log_that_cannot_be_read_does_not_hide_the_others(spark: Any, log: Path, tmp_path: Path) -> None:
    (blank,) = copies(log, tmp_path / "blank", [blind])
    told = done(spark, [blank, log])
    assert [(one.kind, one.damage) for one in found(told)[str(blank)]] == [("unreadable", True)]
    assert found(told)[str(log)] == []
    assert not told.summary().good
    assert told.segments.count() == 4


# -- the same as `quoth log verify` -------------------------------------------------------------------------


@pytest.fixture
def harmed(left: Left, tmp_path: Path, rng: random.Random) -> dict[str, Path]:
    """A data directory for each harm."""
    made = {}
    for number, (name, harm) in enumerate(EVERY_HARM.items()):
        scene = Scene(left, tmp_path / f"{number:03d}")
        harm(scene, rng)
        made[name] = scene.directory
    return made


def verdict(directory: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    """Run `quoth log verify`; returns its exit status, and the object of each topic."""
    status = run_command(["log", "verify", str(directory), "--format", "json"])
    return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_the_same_verdict_as_log_verify(
    spark: Any, harmed: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    told = done(spark, harmed.values())
    findings, content = found(told), told.summary().content
    rows = {row["directory"]: row for row in content["logs"]}
    assert len(rows) == 2 * len(harmed)
    for name, directory in harmed.items():
        status, topics = verdict(directory, capfd)
        here = [row for row in rows.values() if Path(row["directory"]).is_relative_to(directory)]
        assert bool(status) == any(row["damaged"] for row in here), name
        for topic in topics:
            row = rows[topic["directory"]]
            assert [row[key] for key in ("topic", "segments", "records", "bytes", "missing")] == [
                topic[key] for key in ("topic", "segments", "records", "bytes", "missing")
            ], name
            damages = [one for one in findings[topic["directory"]] if one.kind in set(Wrong)]
            expected = [
                (one["path"], one["start"], one["end"], one["records"], one["ordinal"], one["after"])
                for one in topic["damages"]
            ]
            assert sorted(
                (one.path, one.start, one.end, one.records, one.ordinal, one.after) for one in damages
            ) == sorted(expected), name


def test_looked_at_in_pieces_nothing_is_told_otherwise(harmed: dict[str, Path]) -> None:
    """A segment that is verified alone has the findings that it has among all."""
    for name, directory in harmed.items():
        for folder in sorted(directory.glob("topics/*~*")):
            log_id = int(folder.name[-16:], 16)
            try:
                listed = listing(folder, log_id)
            except (QuothError, FileNotFoundError):
                continue
            expected = list(summaries(folder, log_id=log_id))
            pieces = [summaries_in(listed, range(row, row + 1)) for row in range(len(listed.floors))]
            assert [one for piece in pieces for one in piece] == expected, name


# -- beside a broker ----------------------------------------------------------------------------------------


def test_beside_a_broker_that_writes_and_trims(spark: Any, start_broker: StartBroker) -> None:
    """Segments that are written, sealed or removed during the audit are no damage."""
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
        for _ in range(8):
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


# -- many small segments ------------------------------------------------------------------------------------


class _Unsynced(PosixFileSystem):
    """A disk on which nothing is waited for."""

    def create(self, path: Path) -> PosixFile:
        return _UnsyncedFile(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC)

    def open_directory(self, path: Path) -> PosixDirectory:
        return _UnsyncedDirectory(path)


class _UnsyncedFile(PosixFile):
    def sync(self) -> None:
        pass


class _UnsyncedDirectory(PosixDirectory):
    def sync(self) -> None:
        pass


def timed(act: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that a call takes, and its result."""
    began = time.monotonic()
    result = act()
    return time.monotonic() - began, result


def audited(spark: Any, directory: Path) -> tuple[Audit, JobSummary]:
    """Audit a directory and sum up what is found."""
    told = done(spark, [directory])
    return told, told.summary()


@pytest.mark.timeout(300)
def test_thousands_of_segments_are_a_matter_of_seconds(spark: Any, tmp_path: Path) -> None:
    directory = tmp_path / "small"
    with Log.open(directory, options=LogOptions(count_limit=1), filesystem=_Unsynced()) as log:
        for _ in range(MANY):
            log.append([b"x"])
    harmed = segments(directory)[MANY // 2 + 1]
    flip(harmed, harmed.stat().st_size - 70)
    alone, _ = timed(lambda: sum(len(one.damages) for one in summaries(directory)))
    session, _ = timed(lambda: spark.range(10).groupBy("id").count().collect())
    took, (told, summary) = timed(lambda: audited(spark, directory))
    print(f"{MANY} segments in {took:.1f} s, in one process {alone:.1f} s, a small job {session:.1f} s")
    assert (summary.content["segments"], summary.content["records"]) == (MANY, MANY - 1)
    assert [one["path"] for one in summary.content["findings"]] == [str(harmed)]
    assert told.segments.rdd.getNumPartitions() == MANY // TASK_FILES_MIN
    assert took < SLOWER_MAX * (alone + session)
