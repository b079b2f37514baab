"""Compaction: fewer files, the same records, and readers who never see a mixture."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kit.deadlines import eventually
from kit.disk.damage import flip
from kit.spark.archives import FILE_BYTES, Account, files_in, of_archive, of_topic, publish
from quoth import Client
from quoth.merging.selection import Selection
from quoth.spark.archive import archived_files, naming
from quoth.spark.archive.archiver import ArchiveTally
from quoth.spark.archive.compaction import Compacted, merges_of
from quoth.spark.archive.fingerprint import total
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, Lineage
from quoth.spark.archive.parquet import COLUMNS, SCHEMA, write_files
from quoth.spark.archive.store import ArchiveStore, read_manifest

MIDNIGHT = naming.DAY_US * 20_000
Archive = Callable[..., ArchiveTally]
Compact = Callable[..., Compacted]


def test_files_of_a_day_become_one_with_the_same_records(
    client: Client, archive: Archive, compact: Compact, files: list[Path], root: Path, topic: str
) -> None:
    before = read_manifest(root).logs[0]
    done = compact()
    [after] = read_manifest(root).logs
    assert (done.merged, done.files, done.records, done.removed_files) == (
        len(files),
        1,
        before.rows,
        len(files),
    )
    assert (after.rows, after.until) == (before.rows, before.until)
    assert after.files[0].hash == total(file.hash for file in before.files)
    assert of_archive(root, topic) == of_topic(client, topic)
    assert files_in(root) == archived_files(root)
    assert compact() == Compacted()
    publish(client, topic, [40])
    archive()
    compact()
    assert of_archive(root, topic) == of_topic(client, topic)
    assert len(archived_files(root)) == 1


def test_only_the_named_topics_are_compacted(
    client: Client, archive: Archive, compact: Compact, root: Path, topic: str
) -> None:
    for name in (f"{topic}.a", f"{topic}.b"):
        publish(client, name, [40, 40, 3])
        archive(name)
    compact(topics=Selection("*.a"))
    assert [len(archived_files(root, f"*.{name}")) > 1 for name in "ab"] == [False, True]


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


def test_files_of_two_days_and_of_two_logs_stay_apart(compact: Compact, root: Path) -> None:
    with ArchiveStore(root) as store:
        for generation in (1, 2):
            begin = MIDNIGHT + 1_000 * generation
            files = written(root, generation, range(begin - 100, begin + 100, 20))
            log = ArchivedLog("t", generation, generation).grown(MIDNIGHT + 100, 200, files, [])
            store.commit(store.manifest.with_log(log))
    compact()
    assert [[file.rows for file in log.files] for log in read_manifest(root).logs] == [[200], [200]]


def test_records_of_a_task_lie_in_a_file_for_each_day(root: Path) -> None:
    day = naming.DAY_US
    parts = [records(MIDNIGHT - day - 5, 10), records(MIDNIGHT - 10, 20)]
    files = write_files(root, Lineage("t", 1, 1), parts)
    spans = [(file.first - MIDNIGHT, file.last - MIDNIGHT, file.rows) for file in files]
    assert spans == [(-day - 5, -day - 1, 5), (-day, -1, 15), (0, 9, 10)]
    days = ["day=2024-10-02", "day=2024-10-03", "day=2024-10-04"]
    assert [Path(file.name).parent.name for file in files] == days


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


def test_undamaged_files_are_merged_beside_missing_and_damaged_ones(
    client: Client, archive: Archive, compact: Compact, root: Path, topic: str
) -> None:
    for name in (f"{topic}.a", f"{topic}.b", f"{topic}.c"):
        publish(client, name, [40, 40, 3])
        archive(name)
    missing, _, damaged = (Path(archived_files(root, f"{topic}.{name}")[-1]) for name in "abc")
    missing.unlink()
    values = pq.read_metadata(damaged).row_group(0).column(COLUMNS.index("value"))
    flip(damaged, values.data_page_offset + values.total_compressed_size - 1)
    done = compact()
    assert [(one.topic, one.kind) for one in done.findings] == [
        (f"{topic}.a", "missing"),
        (f"{topic}.c", "damaged"),
    ]
    assert [len(archived_files(root, f"*.{name}")) > 1 for name in "abc"] == [True, False, True]
    assert of_archive(root, f"{topic}.b") == of_topic(client, f"{topic}.b")


def test_reader_sees_all_records_once_while_files_are_added_and_merged(
    client: Client, archive: Archive, compact: Compact, root: Path, topic: str
) -> None:
    seen: list[Account] = []
    states: set[Account] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.append(of_archive(root))

    def add() -> None:
        publish(client, topic, [40, 40, 3])
        archive(file_bytes=FILE_BYTES)
        states.add(of_topic(client, topic))

    add()
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(6):
            add()
            compact(keep_replaced=60)
            so_far = len(seen)
            eventually(lambda: len(seen) > so_far + 1, "it was read")  # noqa: B023
    finally:
        over.set()
        reader.join()
    assert set(seen) <= states


def test_replaced_files_stay_as_long_as_was_asked(
    archive: Archive, compact: Compact, files: list[Path]
) -> None:
    compact(keep_replaced=3_600)
    assert all(path.exists() for path in files)
    archive(keep_replaced=3_600)
    assert all(path.exists() for path in files)
    archive(keep_replaced=0)
    assert not any(path.exists() for path in files)
