"""Replays seen from outside: archives of known records, what came into a topic, a driver that dies."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import quoth
from kit.broker.brokers import BrokerProcess
from kit.deadlines import DEADLINE_S, eventually
from kit.spark.sparks import DIED, run_that_may_die
from kit.spark.workers import LocalWorkers
from quoth import Client
from quoth.spark.archive.manifest import ArchivedLog
from quoth.spark.archive.parquet import SCHEMA, write_files
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.replay.chunking import ChunkLimits
from quoth.spark.replay.inputs import POINTER_HEADER, ReplayRequest, input_of
from quoth.spark.replay.replayer import Replayer, StreamTally

BEGAN = 1_767_323_045_000_000
"""When the records of an archive were said, unless a test says otherwise: in the morning of a day."""
LOG = 0x5BE1


SMALL = ChunkLimits(records=40)
"""So that a few hundred records are several chunks."""


class Record(NamedTuple):
    """A record as it was archived, with its original pointer; or as a replay brought it."""

    pointer: int
    key: bytes | None
    value: bytes
    headers: dict[str, bytes]


def some_records(rng: random.Random, count: int, *, began: int = BEGAN, step: int = 1_000) -> list[Record]:
    """Records of every kind: without keys, empty, with headers. step: microseconds between two, at most."""
    found, pointer = [], began
    for number in range(count):
        pointer += rng.randint(1, step)
        key = rng.choice([None, b"", b"key %d" % number])
        value = rng.choice([b"", b"%d" % number, rng.randbytes(rng.randint(1, 300))])
        headers = rng.choice([{}, {}, {"row": b"%d" % number, "leer": b""}])
        found.append(Record(pointer, key, value, headers))
    return found


def write_archive(
    root: Path,
    topic: str,
    files: Iterable[Sequence[Record]],
    *,
    log: int = LOG,
    generation: int = 1,
) -> list[Path]:
    """Add files of records to an archive, each file of one day and one row group; returns their paths."""
    with ArchiveStore(root) as store:
        known = next((one for one in store.manifest.logs if (one.topic, one.log) == (topic, log)), None)
        before = known or ArchivedLog(topic, log, generation)
        made, ordinal = [], before.rows
        for records in files:
            made += write_files(root, before.lineage, [_archived(records, ordinal)])
            ordinal += len(records)
        store.commit(store.manifest.with_log(before.grown(made[-1].last, ordinal, made, [])))
    return [root / file.name for file in made]


def replayed(client: Client, topic: str) -> list[Record]:
    """Read a topic, if it exists, each record with the original pointer of its header."""
    if topic not in client.topics():
        return []
    return [
        _original(message.key, message.value, message.headers)
        for batch in client.batches(topic)
        for message in batch
    ]


class Meanwhile(LocalWorkers):
    """Workers that let something happen before they do their n-th work."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._left = number
        self._act = act

    def each(self, work: Any, parts: Any) -> Any:
        """See `Workers.each`."""
        self._left -= 1
        if not self._left:
            self._act()
        return super().each(work, parts)


class Behind(LocalWorkers):
    """Workers that let something happen once, after a work and before its results are known.

    is_meant: chooses the work by its first part.
    """

    def __init__(self, is_meant: Callable[[Any], bool], act: Callable[[], object]) -> None:
        self._is_meant = is_meant
        self._acts = [act]

    def each(self, work: Any, parts: Any) -> Any:
        """See `Workers.each`."""
        done = super().each(work, parts)
        if self._acts and self._is_meant(parts[0]):
            self._acts.pop()()
        return done


def parts_of(records: Sequence[Record], count: int) -> list[Sequence[Record]]:
    """Records in so many ranges."""
    bounds = [len(records) * number // count for number in range(count + 1)]
    return [records[begin:end] for begin, end in pairwise(bounds)]


@dataclass
class Replaying:
    """A place with an archive or a table, and the topic into which this process replays it."""

    client: Client
    root: Path
    topic: str
    rng: random.Random = field(default_factory=random.Random)
    reports: list[str] = field(default_factory=list)

    def archived(self, count: int, files: int) -> list[Record]:
        """Write an archive of so many records of the topic `orders`, in so many files."""
        records = some_records(self.rng, count)
        write_archive(self.root, "orders", parts_of(records, files))
        return records

    def replayer(
        self, path: Path | None = None, *, limits: ChunkLimits = SMALL, workers: Any = None, **wish: Any
    ) -> Replayer:
        """Make the replay of what lies there: `replayer(since=5)`."""
        source = input_of(path or self.root, ReplayRequest(**{"to": (self.topic,), **wish}))
        return Replayer(self.client, source, workers or LocalWorkers(), self.reports.append, limits)

    def replay(self, path: Path | None = None, **how: Any) -> StreamTally:
        """Replay what lies there; returns the counts."""
        replayer = self.replayer(path, **how)
        replayer.run()
        [one] = replayer.tallies.values()
        return one

    def stored(self) -> list[Record]:
        """Read what was replayed."""
        return replayed(self.client, self.topic)

    def values(self) -> list[bytes]:
        """Read the values that were replayed."""
        return [one.value for one in self.stored()]


def run_through_kills(
    replayer: Replayer, broker: BrokerProcess, chunks: Iterable[int], seconds: float = DEADLINE_S
) -> None:
    """Run a replay to its end; the broker is killed, and comes back, as soon as so many chunks are there."""
    runner = threading.Thread(target=replayer.run)
    runner.start()
    for count in chunks:
        eventually(lambda: replayer.chunks >= count, "chunks are published", seconds)  # noqa: B023
        broker.kill()
        broker.restart()
    runner.join(seconds)
    assert not runner.is_alive()


def replay_and_die(url: str, root: Path, target: str, step: str, at: int, records: int) -> None:
    """Let a process of its own replay an archive, all of it into one topic, and be killed.

    step: before what it is killed, ``stage`` or ``publish``, or behind it, ``published``; at: which time that
    is. records: that a chunk holds.
    """
    ended = run_that_may_die("kit.spark.replays", url, str(root), target, step, str(at), str(records))
    assert ended.returncode == DIED, "it was not killed"


def main() -> None:
    url, root, target, step, at, records = sys.argv[1:]
    _die_at(step, int(at))
    with quoth.connect(url) as client:
        scene = Replaying(client, Path(root), target)
        scene.replayer(limits=ChunkLimits(records=int(records))).run()


def _die_at(step: str, at: int) -> None:
    """Be killed at the n-th time that a step is taken."""
    from quoth.transaction import PartWriter, Transaction

    owner, name = (PartWriter, "append") if step == "stage" else (Transaction, "publish")
    take: Callable[..., Any] = getattr(owner, name)
    taken = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == at and step != "published":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = take(*arguments, **options)
        if taken == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, counted)


def _archived(records: Sequence[Record], ordinal: int) -> pa.RecordBatch:
    """Records with the columns of an archive."""
    pointers = pa.array([one.pointer for one in records], pa.int64())
    pairs = [[{"key": name, "value": value} for name, value in one.headers.items()] for one in records]
    columns = {
        "offset": pointers,
        "timestamp": pointers.cast(pa.timestamp("us", "UTC")),
        "key": pa.array([one.key for one in records], pa.binary()),
        "value": pa.array([one.value for one in records], pa.binary()),
        "headers": pa.array([some or None for some in pairs], SCHEMA.field("headers").type),
        "ordinal": pa.array(range(ordinal, ordinal + len(records)), pa.int64()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)


def _original(key: bytes | None, value: bytes, headers: Any) -> Record:
    rest = dict(headers)
    return Record(int(rest.pop(POINTER_HEADER, b"0")), key, value, rest)
