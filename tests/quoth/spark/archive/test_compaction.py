"""Compaction: fewer files, the same records, and readers who never see a mixture."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kit.deadlines import eventually
from kit.disk.damage import flip
from kit.spark.archives import FILE_BYTES, Account, Archiving, files_in, of_archive, of_topic, publish
from quoth.merging.selection import Selection
from quoth.spark.archive import archived_files, naming
from quoth.spark.archive.compaction import Compacted, merges_of
from quoth.spark.archive.fingerprint import fingerprint, total
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, Lineage
from quoth.spark.archive.parquet import COLUMNS, ROW_GROUP_BYTES, SCHEMA, write_files
from quoth.spark.archive.store import ArchiveStore

MIDNIGHT = naming.DAY_US * 20_000


def test_files_of_a_day_become_one_with_the_same_records(scene: Archiving, files: list[Path]) -> None:
    before = scene.log
    done = scene.compact()
    [after] = scene.manifest.logs
    assert (done.merged, done.removed_files) == (len(files), len(files))
    assert (done.files, done.records) == (1, before.rows)
    assert (after.rows, after.until) == (before.rows, before.until)
    assert after.files[0].hash == total(file.hash for file in before.files)
    scene.check()
    assert files_in(scene.root) == archived_files(scene.root)
    assert scene.compact() == Compacted()
    scene.publish([40])
    scene.archive()
    scene.compact()
    scene.check()
    assert len(archived_files(scene.root)) == 1


# -- days and logs ------------------------------------------------------------------------------------------


def records(first: int, count: int) -> pa.RecordBatch:
    pointers = list(range(first, first + count))
    columns: dict[str, list[Any]] = {"offset": pointers, "timestamp": pointers, "ordinal": pointers}
    columns |= {"value": [b"%d" % pointer for pointer in pointers]}
    columns |= dict.fromkeys(("key", "headers"), [None] * count)
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def written(root: Path, generation: int, firsts: range) -> list[ArchivedFile]:
    """Files of twenty records each, from these pointers on."""
    lineage = Lineage("t", generation, generation)
    return [file for first in firsts for file in write_files(root, lineage, [records(first, 20)])]


def test_file_of_two_days_is_reported_and_stays(scene: Archiving) -> None:
    with ArchiveStore(scene.root) as store:
        one, other = written(scene.root, 1, range(MIDNIGHT - 40, MIDNIGHT, 20))
        path, rows = scene.root / other.name, records(MIDNIGHT - 10, 20)
        with pq.ParquetWriter(path, SCHEMA) as writer:
            writer.write_batch(rows)
        size, last = path.stat().st_size, MIDNIGHT + 9
        other = ArchivedFile(other.name, MIDNIGHT - 10, last, 20, size, MIDNIGHT - 10, fingerprint(rows))
        log = ArchivedLog("t", 1, 1).grown(last, 40, [one, other], [])
        store.commit(store.manifest.with_log(log))
    done = scene.compact()
    assert [one.text.partition(": ")[2] for one in done.findings] == ["its records are of more than one day"]
    assert (done.merged, scene.manifest.logs[0]) == (0, log)


def test_files_of_two_days_and_of_two_logs_stay_apart(scene: Archiving) -> None:
    with ArchiveStore(scene.root) as store:
        for generation in (1, 2):
            begin = MIDNIGHT + 1_000 * generation
            files = written(scene.root, generation, range(begin - 100, begin + 100, 20))
            log = ArchivedLog("t", generation, generation).grown(MIDNIGHT + 100, 200, files, [])
            store.commit(store.manifest.with_log(log))
    scene.compact()
    assert [[file.rows for file in log.files] for log in scene.manifest.logs] == [[200], [200]]


def test_records_of_a_task_lie_in_a_file_for_each_day(scene: Archiving) -> None:
    day = naming.DAY_US
    parts = [records(MIDNIGHT - day - 5, 10), records(MIDNIGHT - 10, 20)]
    files = write_files(scene.root, Lineage("t", 1, 1), parts)
    spans = [(file.first - MIDNIGHT, file.last - MIDNIGHT, file.rows) for file in files]
    assert spans == [(-day - 5, -day - 1, 5), (-day, -1, 15), (0, 9, 10)]
    days = ["day=2024-10-02", "day=2024-10-03", "day=2024-10-04"]
    assert [Path(file.name).parent.name for file in files] == days


def test_writer_of_a_file_holds_one_row_group_at_a_time(tmp_path: Path) -> None:
    held: list[int] = []
    before = pa.total_allocated_bytes()

    def large() -> Iterator[pa.RecordBatch]:
        for number in range(4 * ROW_GROUP_BYTES // 2**22):
            held.append(pa.total_allocated_bytes() - before)
            values = pa.array([bytes(2**22)], pa.binary())
            yield records(MIDNIGHT + number, 1).set_column(SCHEMA.get_field_index("value"), "value", values)

    write_files(tmp_path, Lineage("t", 1, 1), large())
    assert max(held) < 1.5 * ROW_GROUP_BYTES


MERGED: list[tuple[list[int], list[list[int]]]] = [
    ([], []),
    ([5], []),
    ([5, 5], [[5, 5]]),
    ([5, 100, 5], []),
    ([5, 5, 100, 5, 5, 5], [[5, 5], [5, 5, 5]]),
    ([60, 60, 60], [[60, 60]]),
    ([60, 60, 30, 50, 30, 1], [[60, 60], [30, 50, 30]]),
    ([99] * 5, [[99, 99], [99, 99]]),
]


def test_neighbours_are_merged_until_they_are_large() -> None:
    for sizes, merged in MERGED:
        files = [ArchivedFile(f"{n}", n, n, 1, size, n, 0) for n, size in enumerate(sizes)]
        assert [[file.bytes for file in several] for several in merges_of(files, 100)] == merged


# -- beside damage and readers ------------------------------------------------------------------------------


def test_undamaged_files_of_the_named_topics_are_merged_beside_missing_and_damaged_ones(
    scene: Archiving,
) -> None:
    def are_merged() -> list[bool]:
        return [len(archived_files(scene.root, f"*.{name}")) == 1 for name in "abcd"]

    for name in "abcd":
        publish(scene.client, f"{scene.topic}.{name}", [40, 40, 3])
        scene.archive(f"{scene.topic}.{name}")
    missing, damaged = (Path(archived_files(scene.root, f"*.{name}")[-1]) for name in "ac")
    scene.compact(topics=Selection("*.d"))
    assert are_merged() == [False, False, False, True]
    missing.unlink()
    values = pq.read_metadata(damaged).row_group(0).column(COLUMNS.index("value"))
    flip(damaged, values.data_page_offset + values.total_compressed_size - 1)
    done = scene.compact()
    assert [(one.topic, one.kind) for one in done.findings] == [
        (f"{scene.topic}.a", "missing"),
        (f"{scene.topic}.c", "damaged"),
    ]
    assert are_merged() == [False, True, False, True]
    assert of_archive(scene.root, f"{scene.topic}.b") == of_topic(scene.client, f"{scene.topic}.b")


def test_reader_sees_all_records_once_while_files_are_added_and_merged(scene: Archiving) -> None:
    seen: list[Account] = []
    states: set[Account] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.append(of_archive(scene.root))

    def add() -> None:
        scene.publish([40, 40, 3])
        scene.archive(file_bytes=FILE_BYTES)
        states.add(of_topic(scene.client, scene.topic))

    add()
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(6):
            add()
            scene.compact(keep_replaced=60)
            so_far = len(seen)
            eventually(lambda: len(seen) > so_far + 1, "it was read")  # noqa: B023
    finally:
        over.set()
        reader.join()
    assert set(seen) <= states


def test_replaced_files_stay_as_long_as_was_asked(scene: Archiving, files: list[Path]) -> None:
    scene.compact(keep_replaced=3_600)
    assert all(path.exists() for path in files)
    scene.archive(keep_replaced=3_600)
    assert all(path.exists() for path in files)
    scene.archive(keep_replaced=0)
    assert not any(path.exists() for path in files)
