"""Reads archives independently of the product, and runs a process that works on one and is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from xxhash import xxh3_128_intdigest

import quoth
from kit.spark.sparks import DIED, run_that_may_die
from kit.spark.workers import LocalWorkers
from quoth import Client, Gap
from quoth.spark.archive import archived_files
from quoth.spark.archive.archiver import ArchiveTally, Policy, TopicArchiver
from quoth.spark.archive.compaction import Compacted, compact
from quoth.spark.archive.manifest import ArchivedLog, ArchiveManifest
from quoth.spark.archive.store import ArchiveStore, read_manifest
from quoth.spark.workers import Workers

FILE_BYTES = 1_500
"""Small files, so that a run has several of them."""
_STEPS = ("fsync", "replace", "mkdir", "unlink", "rename")


class Account(NamedTuple):
    """Records in any order: how many, and a sum over all that each of them holds."""

    records: int
    sum: int


def account(rows: Iterable[tuple[int, bytes | None, bytes, Mapping[str, bytes]]]) -> Account:
    """Account for records of pointer, key, value and headers, in plain Python."""
    records = total = 0
    for pointer, key, value, headers in rows:
        records += 1
        total += xxh3_128_intdigest(repr((pointer, key, value, sorted(headers.items()))).encode())
    return Account(records, total)


def of_topic(client: Client, topic: str, *, after: int = 0) -> Account:
    gaps: list[Gap] = []
    found = [message for batch in client.batches(topic, after=after, on_gap=gaps.append) for message in batch]
    return account((one.pointer, one.key, one.value, one.headers) for one in found)


def of_archive(root: Path, topic: str | None = None) -> Account:
    return account(map(_row, rows_of(root, topic)))


def rows_of(root: Path, topic: str | None = None) -> list[dict[str, Any]]:
    rows = [row for path in archived_files(root, topic) for row in pq.ParquetFile(path).read().to_pylist()]
    for row in rows:
        assert row["timestamp"] == datetime.fromtimestamp(0, UTC) + timedelta(microseconds=row["offset"])
    return rows


def files_in(root: Path) -> list[str]:
    """All files below the folders of topics, and what was left beside the manifest."""
    found = [
        path for path in root.rglob("*") if path.is_file() and not path.name.startswith("_manifest.json")
    ]
    return sorted(str(path) for path in found)


@dataclass
class Archiving:
    """A topic, and an archive of it in small files, by this process."""

    client: Client
    root: Path
    topic: str
    reports: list[str] = field(default_factory=list)

    def publish(self, batches: Sequence[int], mark: str = "") -> None:
        """See `publish`."""
        publish(self.client, self.topic, batches, mark)

    def archiver(self, topics: Any = None, sleep: Any = time.sleep, **policy: Any) -> TopicArchiver:
        """Make an archiver, of the topic if no others are named."""
        wanted = Policy(**{"file_bytes": FILE_BYTES, **policy})
        names = self.topic if topics is None else topics
        return TopicArchiver(
            self.client, self.root, LocalWorkers(), names, wanted, self.reports.append, sleep
        )

    def archive(self, topics: Any = None, **policy: Any) -> ArchiveTally:
        """Archive what is there; returns the counts."""
        archiver = self.archiver(topics, **policy)
        archiver.run()
        return archiver.tally

    def compact(self, workers: Workers = LocalWorkers(), keep_replaced: float = 0, **how: Any) -> Compacted:  # noqa: B008
        """Compact the archive; returns the counts."""
        with ArchiveStore(self.root) as store:
            return compact(store, workers, keep_replaced=keep_replaced, **how)

    @property
    def manifest(self) -> ArchiveManifest:
        """The present manifest."""
        return read_manifest(self.root)

    @property
    def log(self) -> ArchivedLog:
        """The newest log of the topic."""
        found = self.manifest.newest(self.topic)
        assert found is not None
        return found

    def check(self) -> None:
        """Compare the archive with the topic."""
        assert of_archive(self.root, self.topic) == of_topic(self.client, self.topic)


def work(action: str, url: str, root: Path, *, die_at: int = 0) -> int:
    """`run` in a process of its own; returns how often that changed the disk, or `DIED`.

    die_at: it is killed instead of its n-th change.
    """
    ended = run_that_may_die("kit.spark.archives", action, url, str(root), str(die_at))
    return DIED if ended.returncode else int(ended.stdout)


def run(action: str, client: Client, root: Path, topics: str = "*") -> None:
    """Work on an archive in this process. action: ``archive``, ``trim`` or ``compact``."""
    if action == "compact":
        with ArchiveStore(root) as store:
            compact(store, LocalWorkers(), keep_replaced=0)
    else:
        policy = Policy(trim=action == "trim", file_bytes=FILE_BYTES)
        TopicArchiver(client, root, LocalWorkers(), topics, policy).run()


def main() -> None:
    """The process: says how often it changed the disk."""
    action, url, root, die_at = sys.argv[1:]
    changes = _count_changes(int(die_at))
    with quoth.connect(url) as client:
        run(action, client, Path(root))
    print(len(changes))


def _count_changes(die_at: int) -> list[str]:
    """Count every change of the disk from now on; the n-th one kills the process instead."""
    changes: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **options: Any) -> Any:
            changes.append(name)
            if len(changes) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return change

    for name in _STEPS:
        setattr(os, name, counted(name, getattr(os, name)))
    return changes


def publish(client: Client, topic: str, batches: Sequence[int], mark: str = "") -> None:
    """Publish batches of so many records, of every kind: without keys, empty, with headers."""
    for number, count in enumerate(batches):
        values = [b"%s %d %d" % (mark.encode(), number, row) if row % 7 else b"" for row in range(count)]
        keys = [b"key %d" % row if row % 3 else None for row in range(count)] if number % 2 else None
        headers = [{"row": b"%d" % row, "mark": b""} if row % 2 else {} for row in range(count)]
        client.publish(topic, values, key=keys, headers=headers if number % 3 == 0 else None)


def _row(row: dict[str, Any]) -> tuple[int, bytes | None, bytes, dict[str, bytes]]:
    headers = {pair["key"]: pair["value"] for pair in row["headers"] or ()}
    return row["offset"], row["key"], row["value"], headers


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    """Write the changed table of a file, with the same footer."""
    with pq.ParquetFile(path) as opened:
        table, metadata = change(opened.read()), opened.metadata.metadata
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({name: value for name, value in metadata.items() if b"quoth" in name})
