"""Archiving: what topics hold goes into Parquet files, commit by commit, each record once.

    plan      where the manifest says that the archive ends, the next stretch of each topic begins: as much of
              them as one commit shall hold, cut into a range for each task
    write     a task writes the records of its range into files, durably; nobody knows of them yet
    commit    the manifest is replaced by one that names them: from then on they are archived
    trim      if that is wanted: the topic lets go of what is archived, once the files' footers say so too

Whatever dies in between, the manifest tells where to go on: the next run writes the same records again, and
files that were never named are removed. So a run may be killed at any moment and be started again, by hand
or by cron; there is nothing else that it has to remember.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quoth.client import Client
from quoth.core.deadline import as_seconds
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, ArchivedLoss
from quoth.spark.archive.parquet import COLUMNS, ArchiveWriter, Lineage, require_footer
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.archive.verification import FileFinding, absent, check_written, named_files
from quoth.spark.source.data_loss import DataLoss, into, refuse
from quoth.spark.source.partitioning import split
from quoth.spark.source.range_reader import RangeReader, TopicRange
from quoth.spark.source.ranges import named
from quoth.spark.workers import Workers, perform, until_next_look
from quothwire.errors import QuothError, error

FILE_BYTES = 128 * 2**20
"""Stored bytes for one file: what a reader of Parquet likes, and what a task does in seconds."""
FILES_A_SLOT = 4
"""How many of those each slot of the workers writes before a commit."""
KEEP_REPLACED_S = 900.0
"""How long files stay that compaction has replaced: for readers that have begun with the manifest before."""

_LOG = logging.getLogger("quoth")
Tell = Callable[[str], None]


class Policy(NamedTuple):
    """How to archive. fail_on_loss: end when records are gone, instead of counting them. trim: let topics go
    of what is archived. file_bytes: stored bytes for one file. keep_replaced: see `ArchiveStore.sweep`."""

    fail_on_loss: bool = False
    trim: bool = False
    file_bytes: int = FILE_BYTES
    keep_replaced: float = KEEP_REPLACED_S


@dataclass
class ArchiveTally:
    """What was done: records, files and their bytes that were archived, records that were lost, files without
    a name in the manifest that were removed, records that topics let go of, commits. findings: files that
    were archived before and are missing or have another size."""

    topics: set[str] = field(default_factory=set)
    records: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0
    removed: int = 0
    trimmed: int = 0
    commits: int = 0
    findings: list[FileFinding] = field(default_factory=list)


class WrittenFiles(NamedTuple):
    """What a task has written, and what it could not."""

    files: list[ArchivedFile]
    losses: list[ArchivedLoss]


class _Increment(NamedTuple):
    """What is to be archived of a log next: its ranges up to a pointer. ordinal: how many records the log had
    held by then. losses: what is gone already."""

    log: ArchivedLog
    until: int
    ordinal: int
    ranges: list[TopicRange]
    losses: list[ArchivedLoss]


class TopicArchiver:
    """Archives topics into a folder. Belongs to one thread. It needs no Spark if its workers are `Here`.

    root: the folder, as all workers and this process know it. topics: names, and patterns such as
    ``orders.*``. tell: gets what a person should know, line by line. Raises ``bad_request`` for a policy of
    files without bytes.
    """

    def __init__(
        self,
        broker: Client,
        root: Path,
        workers: Workers,
        topics: str | Iterable[str],
        policy: Policy = Policy(),  # noqa: B008
        tell: Tell = _LOG.warning,
    ) -> None:
        if policy.file_bytes < 1:
            raise error("bad_request", f"files of {policy.file_bytes} bytes", "some millions are usual")
        self.tally = ArchiveTally()
        self._broker = broker
        self._root = root
        self._workers = workers
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._policy = policy
        self._tell = tell

    def run(self) -> None:
        """Archive what is there by now.

        Raises `NotFound` for a topic that does not exist or was made anew meanwhile, `Disconnected`,
        `Damaged` for a manifest, or files before a trim, that do not check, `Conflict` ``locked`` while
        another one goes on with the archive, OSError, and for lost records, if the policy says so, `NotFound`
        ``unknown_record`` or `Damaged`. What was committed before stays.
        """
        with ArchiveStore(self._root) as store:
            self._store = store
            self.tally.removed += store.sweep(keep_replaced=self._policy.keep_replaced)
            names = named(self._broker, self._topics)
            self._look_at_files(set(names) - self.tally.topics)
            self.tally.topics.update(names)
            ends = {name: self._broker.topic(name).last for name in names}  # producers may go on for ever
            while stretches := self._plan(ends):
                self._write(stretches)
            if self._policy.trim:
                for name in names:
                    self._trim(name)

    def _look_at_files(self, topics: set[str]) -> None:
        """Report which files of these topics are missing or have another size: once in the life of this."""
        logs = [log for log in self._store.manifest.logs if log.topic in topics]
        found = absent(self._store.root, named_files(logs))
        self.tally.findings += found
        for one in found:
            self._tell(f"{one.kind}: {one.text}")

    def follow(self, interval: float) -> None:
        """Archive what comes, for ever: looks every so many seconds, and goes on when the broker was away.

        It ends as `run` does when a topic that is named is deleted, or the last one of the patterns.

        Between two looks the archive is free, for a compaction above all.
        """
        seconds = as_seconds(interval, "follow")
        while True:
            began, failed = time.monotonic(), None
            try:
                self.run()
            except QuothError as problem:
                self._tell(f"{problem.code}: {problem.text}; {self._outlook(problem)}")
                failed = problem
            time.sleep(until_next_look(began, seconds, failed))

    def _outlook(self, problem: QuothError) -> str:
        """How following goes on. Raises the problem, or another one, if it does not."""
        if problem.retryable or problem.code == "locked":
            return "nothing is lost, it goes on by itself"
        if problem.code != "unknown_topic":
            raise problem
        try:  # one of a pattern's topics may have been deleted, or made anew
            named(self._broker, self._topics)
        except QuothError as other:
            if not other.retryable:
                raise
        return "it goes on with what is there"

    # -- plan -------------------------------------------------------------------------------------------

    def _plan(self, ends: dict[str, int]) -> list[_Increment]:
        """What the next commit shall hold, nothing if all is archived. ends: up to where each topic is."""
        room = self._policy.file_bytes * FILES_A_SLOT * self._workers.slots
        found: list[_Increment] = []
        for topic, end in ends.items():
            stretch = self._next(topic, end, room) if room > 0 else None
            if stretch is not None:
                found.append(stretch)
                room -= sum(one.bytes for one in stretch.ranges)
        return found

    def _next(self, topic: str, end: int, room: int) -> _Increment | None:
        """What follows in a topic, about so many bytes of it; None if nothing does."""
        while True:  # until it was neither made anew nor trimmed between two of these questions
            log = self._store.log_of(topic, self._broker.topic(topic).log)
            there = self._broker.count(topic, log.until)
            ahead = self._broker.advance(topic, log.until, max_bytes=room)
            if log.log == there.log == ahead.log and there.gone == ahead.gone:
                break
        first = there.end - there.records  # the ordinal of the oldest one that is there
        gone = max(0, first - log.ordinal) if log.ordinal >= 0 else 0  # of a new log nothing is lost
        if log.until >= end or not (ahead.records or gone):
            return None
        parts = max(1, math.ceil(ahead.bytes / self._policy.file_bytes))
        ranges = split(self._broker, topic, log.log, ahead.after, ahead.until, parts)
        gone += ahead.records - sum(one.records for one in ranges)
        losses = self._lost(log, gone, ranges[0].after if ranges else ahead.until)
        return _Increment(log, ahead.until, first + ahead.records, ranges, losses)

    def _lost(self, log: ArchivedLog, records: int, first: int) -> list[ArchivedLoss]:
        """Records that retention has removed before they could be archived."""
        if not records:
            return []
        loss = DataLoss(log.topic, log.until, first + 1, records, "trimmed")
        if self._policy.fail_on_loss:
            refuse(loss)
        return [_archived(loss)]

    # -- write and commit -------------------------------------------------------------------------------

    def _write(self, stretches: list[_Increment]) -> None:
        root, strict = str(self._store.root), self._policy.fail_on_loss
        ranges = [(one, stretch.log.generation) for stretch in stretches for one in stretch.ranges]
        work, url = partial(write_range, root, strict), self._broker.url
        outcomes = iter(perform(self._workers, work, ranges, url) if ranges else ())
        manifest = self._store.manifest
        for stretch in stretches:
            written = [next(outcomes) for _ in stretch.ranges]
            files = [file for one in written for file in one.files]
            losses = [*stretch.losses, *(loss for one in written for loss in one.losses)]
            check_written(self._store.root, files)
            grown = stretch.log.grown(stretch.until, stretch.ordinal, files, losses)
            manifest = manifest.with_log(grown)
            self._count(grown, files, losses)
        self._store.commit(manifest)
        self.tally.commits += 1
        if self._policy.trim:
            for stretch in stretches:
                self._trim(stretch.log.topic)

    def _count(self, log: ArchivedLog, files: list[ArchivedFile], losses: list[ArchivedLoss]) -> None:
        self.tally.records += sum(file.rows for file in files)
        self.tally.bytes += sum(file.bytes for file in files)
        self.tally.files += len(files)
        if log.generation > 1 and len(files) == len(log.files):  # its first ones
            self._tell(
                f"topic {log.topic!r} was made anew: this is its generation {log.generation}; "
                "what the one before held and had not been archived yet is gone"
            )
        for loss in losses:
            self.tally.lost += loss.records
            self._tell(
                f"{loss.records} records of {log.topic!r} behind {loss.after} and before {loss.next} are not "
                f"in the archive: {loss.reason}"
            )

    # -- trim -------------------------------------------------------------------------------------------

    def _trim(self, topic: str) -> None:
        """Let the topic go of what is archived, as far as the files that hold it say so themselves.

        What is damaged there and so is not in the archive stays, with all behind it: it may be mended. Raises
        `Damaged` for a file that holds some of it and is not what the manifest says.
        """
        log, info = self._store.manifest.newest(topic), self._broker.topic(topic)
        if log is None or info.log != log.log or not info.first:
            return
        damaged = (loss for loss in log.losses if loss.reason == "damaged")
        there = (one for one in damaged if self._broker.count(topic, one.after, one.next - 1).records)
        safe = next((one.after for one in there), log.until)
        root, lineage = self._store.root, Lineage(topic, log.log, log.generation)
        for file in log.files:
            if info.first <= file.last and file.first <= safe:
                require_footer(root, lineage, file)
                for found in absent(root, [(lineage, file)]):
                    raise error("damaged", found.text)
        if safe >= info.first:
            self.tally.trimmed += self._broker.trim(topic, safe + 1).records


def write_range(root: str, strict: bool, part: tuple[TopicRange, int]) -> WrittenFiles:
    """The work of a task: the records of a range as files. part: the range, and its log's generation.

    strict: raise if a record is not there any more.
    """
    one, generation = part
    losses: list[DataLoss] = []
    reader = RangeReader(one, refuse if strict else into(losses))
    with ArchiveWriter(Path(root), Lineage(one.topic, one.log, generation)) as writer:
        for records in reader.arrow(COLUMNS):
            writer.write(records)
    return WrittenFiles(writer.written, list(map(_archived, losses)))


def _archived(loss: DataLoss) -> ArchivedLoss:
    """A loss as the manifest has it."""
    return ArchivedLoss(loss.after, loss.next, loss.records, loss.reason)
