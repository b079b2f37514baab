"""Compaction: fewer files, the same records, and readers who never see a mixture."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.deadlines import eventually
from kit.disk.damage import flip
from kit.spark.archives import FILE_BYTES, Account, files_in, of_archive, of_topic, publish
from quoth import Client
from quoth.merging.selection import Selection
from quoth.spark.archive import archived_files, naming
from quoth.spark.archive.archiver import Policy, TopicArchiver
from quoth.spark.archive.compaction import Compacted, Compactor, merges_of
from quoth.spark.archive.fingerprint import fingerprint
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog
from quoth.spark.archive.parquet import SCHEMA, ArchiveWriter, Lineage, read_file
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quoth.spark.workers import LocalWorkers
from quothwire.errors import Damaged

MIDNIGHT = naming.DAY_US * 20_000
TARGET = 10 * FILE_BYTES


def archive(client: Client, root: Path, topic: str, runs: int = 3) -> None:
    """Archive in so many runs, each of several files."""
    for run in range(runs):
        publish(client, topic, [40, 40, 3], f"run {run}")
        TopicArchiver(client, root, LocalWorkers(), topic, Policy(file_bytes=FILE_BYTES)).run()


def compact(root: Path, keep_replaced: float = 0, **options: Any) -> Compacted:
    with ArchiveStore(root) as store:
        compactor = Compactor(store, LocalWorkers(), keep_replaced=keep_replaced, **options)
        compactor.run()
    return compactor.done


def test_files_of_a_day_become_one_with_the_same_records(client: Client, tmp_path: Path, topic: str) -> None:
    archive(client, tmp_path, topic)
    before, files = read_manifest(tmp_path).logs[0], archived_files(tmp_path)
    done = compact(tmp_path)
    [after] = read_manifest(tmp_path).logs
    assert (done.merged, done.files, done.records, done.removed) == (len(files), 1, before.rows, len(files))
    assert (after.rows, after.hash, after.until) == (before.rows, before.hash, before.until)
    assert of_archive(tmp_path, topic) == of_topic(client, topic)
    assert files_in(tmp_path) == archived_files(tmp_path)
    assert compact(tmp_path) == Compacted()


def test_archiving_goes_on_behind_a_compaction(client: Client, tmp_path: Path, topic: str) -> None:
    for _ in range(3):
        archive(client, tmp_path, topic, runs=1)
        compact(tmp_path)
    assert of_archive(tmp_path, topic) == of_topic(client, topic)
    assert len(archived_files(tmp_path)) == 1


def test_files_that_overlap_are_named_and_stay(client: Client, tmp_path: Path, topic: str) -> None:
    archive(client, tmp_path, topic)
    with ArchiveStore(tmp_path) as store:
        [log] = store.manifest.logs
        twice = replace(log, files=(*log.files, log.files[-1]))
        store.commit(store.manifest.with_log(twice))
    done = compact(tmp_path)
    assert [("overlaps" in one.text, one.name) for one in done.findings] == [(True, log.files[-1].name)]
    assert (done.merged, read_manifest(tmp_path).logs[0].files) == (0, twice.files)


def test_file_of_two_days_is_named_and_stays(tmp_path: Path) -> None:
    lineage, files = Lineage("t", 1, 1), []
    with ArchiveStore(tmp_path) as store:
        for first in (MIDNIGHT - 40, MIDNIGHT - 20):
            with ArchiveWriter(tmp_path, lineage) as writer:
                writer.write(records(first, 20))
            files += writer.written
        path = tmp_path / files[1].name
        rows = records(MIDNIGHT - 10, 20)
        with pq.ParquetWriter(path, SCHEMA) as other:
            other.write_batch(rows)
        found = files[1]._replace(
            first=MIDNIGHT - 10, last=MIDNIGHT + 9, bytes=path.stat().st_size, hash=fingerprint(rows)
        )
        log = ArchivedLog("t", 1, 1).grown(
            MIDNIGHT + 9, 40, [files[0], found._replace(ordinal=MIDNIGHT - 10)], []
        )
        store.commit(store.manifest.with_log(log))
    done = compact(tmp_path)
    assert [one.text.partition(": ")[2] for one in done.findings] == ["its records are of more than one day"]
    assert (done.merged, read_manifest(tmp_path).logs[0]) == (0, log)


def test_only_the_topics_that_are_named_are_compacted(client: Client, tmp_path: Path, topic: str) -> None:
    archive(client, tmp_path, f"{topic}.a", 2)
    archive(client, tmp_path, f"{topic}.b", 2)
    compact(tmp_path, topics=Selection("*.a"))
    assert len(archived_files(tmp_path, "*.a")) == 1
    assert len(archived_files(tmp_path, "*.b")) > 1


def test_files_of_two_days_and_of_two_logs_stay_apart(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path) as store:
        for generation in (1, 2):
            lineage, files = Lineage("t", generation, generation), []
            for first in range(MIDNIGHT - 100, MIDNIGHT + 100, 20):
                with ArchiveWriter(tmp_path, lineage) as writer:
                    writer.write(records(first + 1_000 * generation, 20))
                files += writer.written
            log = ArchivedLog("t", generation, generation).grown(MIDNIGHT + 100, 200, files, [])
            store.commit(store.manifest.with_log(log))
    compact(tmp_path)
    logs = read_manifest(tmp_path).logs
    assert [[file.rows for file in log.files] for log in logs] == [[200], [200]]
    assert [log.rows for log in logs] == [200, 200]


def test_records_of_a_task_lie_in_a_file_for_each_day(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, Lineage("t", 1, 1)) as writer:
        writer.write(records(MIDNIGHT - naming.DAY_US - 5, 10))
        writer.write(records(MIDNIGHT - 10, 20))
    spans = [(file.first - MIDNIGHT, file.last - MIDNIGHT, file.rows) for file in writer.written]
    day = naming.DAY_US
    assert spans == [(-day - 5, -day - 1, 5), (-day, -1, 15), (0, 9, 10)]
    assert [Path(file.name).parent.name for file in writer.written] == [
        "day=2024-10-02",
        "day=2024-10-03",
        "day=2024-10-04",
    ]


def records(first: int, count: int) -> pa.RecordBatch:
    pointers = list(range(first, first + count))
    return pa.RecordBatch.from_pydict(
        {
            "offset": pointers,
            "timestamp": pointers,
            "key": [None] * count,
            "value": [b"%d" % pointer for pointer in pointers],
            "headers": [None] * count,
            "ordinal": pointers,
        },
        schema=SCHEMA,
    )


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([], []),
        ([5], []),
        ([5, 5], [[5, 5]]),
        ([100, 5], []),
        ([5, 100, 5], []),
        ([5, 5, 100, 5, 5, 5], [[5, 5], [5, 5, 5]]),
        ([60, 60, 60], [[60, 60]]),
        ([60, 60, 30, 50, 30, 1], [[60, 60], [30, 50, 30]]),
        ([99] * 5, [[99, 99], [99, 99]]),
    ],
)
def test_neighbours_are_merged_until_they_are_large(sizes: list[int], merged: list[list[int]]) -> None:
    files = [ArchivedFile(f"{n}", n, n, 1, size, n, 0) for n, size in enumerate(sizes)]
    found = list(merges_of(files, 100))
    assert [[file.bytes for file in several] for several in found] == merged


@pytest.mark.parametrize("how", ["missing", "another"])
def test_what_is_not_what_it_was_is_not_merged(client: Client, tmp_path: Path, topic: str, how: str) -> None:
    archive(client, tmp_path, topic)
    before = read_manifest(tmp_path)
    one, other, *_ = map(Path, archived_files(tmp_path))
    if how == "missing":
        one.unlink()
    else:
        one.write_bytes(other.read_bytes())
    [found] = compact(tmp_path).findings
    assert (found.kind, Path(found.name).name) == ("missing" if how == "missing" else "damaged", one.name)
    assert read_manifest(tmp_path) == before
    assert set(archived_files(tmp_path)) - {str(one)} <= set(files_in(tmp_path))


def is_readable(root: Path, file: ArchivedFile) -> bool:
    try:
        list(read_file(root, file))
    except Damaged:
        return False
    return True


def test_what_is_whole_is_merged_beside_what_is_not(
    client: Client, tmp_path: Path, topic: str, rng: random.Random
) -> None:
    for name in (f"{topic}.a", f"{topic}.b", f"{topic}.c"):
        archive(client, tmp_path, name)
    gone, harmed = (read_manifest(tmp_path).newest(f"{topic}.{name}") for name in "ac")
    assert gone is not None
    assert harmed is not None
    (tmp_path / gone.files[-1].name).unlink()
    while is_readable(tmp_path, harmed.files[-1]):  # some bytes say nothing
        flip(tmp_path / harmed.files[-1].name, rng.randrange(harmed.files[-1].bytes))
    done = compact(tmp_path)
    assert [(one.topic, one.kind) for one in done.findings] == [
        (f"{topic}.a", "missing"),
        (f"{topic}.c", "damaged"),
    ]
    assert [len(archived_files(tmp_path, f"*.{name}")) > 1 for name in "abc"] == [True, False, True]
    assert of_archive(tmp_path, f"{topic}.b") == of_topic(client, f"{topic}.b")


def test_no_flipped_byte_gets_into_a_merged_file(
    client: Client, tmp_path: Path, topic: str, rng: random.Random
) -> None:
    """Compaction reports the byte and changes nothing, or the byte has no meaning."""
    archive(client, tmp_path, topic)
    held, before = of_topic(client, topic), read_manifest(tmp_path)
    path = Path(archived_files(tmp_path)[0])
    content, noticed = path.read_bytes(), 0
    for at in rng.sample(range(len(content)), 40):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
        if compact(tmp_path, keep_replaced=60).findings:
            noticed += 1
            assert read_manifest(tmp_path) == before
        else:
            assert of_archive(tmp_path) == held, at
            with ArchiveStore(tmp_path) as store:
                store.commit(before)
                before = store.manifest
    assert noticed > 5


def test_who_reads_meanwhile_sees_all_records_once(client: Client, tmp_path: Path, topic: str) -> None:
    """Runs add to the archive and compactions merge it, while a thread reads it again and again."""
    publish(client, topic, [40])
    TopicArchiver(client, tmp_path, LocalWorkers(), topic, Policy(file_bytes=FILE_BYTES)).run()
    seen: list[Account] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.append(of_archive(tmp_path))

    reader = threading.Thread(target=read)
    reader.start()
    states = {of_topic(client, topic)}
    try:
        for _ in range(6):
            archive(client, tmp_path, topic, runs=1)
            states.add(of_topic(client, topic))
            compact(tmp_path, keep_replaced=60)
            so_far = len(seen)
            eventually(lambda: len(seen) > so_far + 1, "it was read")  # noqa: B023
    finally:
        over.set()
        reader.join()
    assert len(seen) > 6
    assert set(seen) <= states
    assert len(files_in(tmp_path)) > len(archived_files(tmp_path))
    compact(tmp_path)
    assert files_in(tmp_path) == archived_files(tmp_path)


def test_replaced_files_stay_as_long_as_was_asked(client: Client, tmp_path: Path, topic: str) -> None:
    archive(client, tmp_path, topic)
    files = archived_files(tmp_path)
    compact(tmp_path, keep_replaced=3_600)
    assert set(files) < set(files_in(tmp_path))
    TopicArchiver(client, tmp_path, LocalWorkers(), topic, Policy(keep_replaced=3_600)).run()
    assert set(files) < set(files_in(tmp_path))
    TopicArchiver(client, tmp_path, LocalWorkers(), topic, Policy(keep_replaced=0)).run()
    assert files_in(tmp_path) == archived_files(tmp_path)
