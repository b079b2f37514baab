"""Archives topics to Parquet files, commit by commit, each record once.

    plan      take the records behind the end that the manifest has for each topic, as many as a commit holds,
              and divide them into a range for each task
    write     each task writes the records of its range to files, and syncs them
    commit    replace the manifest by one that names these files: from now on they are archived
    trim      optionally, trim the topics up to the end of the archive, after reading the footers of its files

A run may be killed at any moment. The next run reads the manifest, writes the same records again, and removes
files that no manifest names. There is no other state.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quoth.client import Client
from quoth.core.options import as_seconds
from quoth.spark.archive.manifest import ArchivedFile, ArchivedLog, ArchivedLoss, Lineage
from quoth.spark.archive.parquet import COLUMNS, FILE_BYTES, write_files
from quoth.spark.archive.store import ArchiveStore
from quoth.spark.archive.verification import FileFinding, absent, check_written, named_files, require
from quoth.spark.source.partitioning import split
from quoth.spark.source.range_reader import DataLoss, RangeReader, TopicRange, into, refuse
from quoth.spark.source.ranges import named
from quoth.spark.workers import Workers, perform, until_next_look
from quothwire.errors import QuothError, error

FILES_A_SLOT = 4
"""Files that each slot of the workers writes before a commit."""
KEEP_REPLACED_S = 900.0
"""Seconds that files replaced by compaction stay, for readers that began with an older manifest."""

_LOG = logging.getLogger("quoth")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Policy:
    """The policy of an archiving.

    fail_on_loss: raise for records that are gone, instead of counting them. trim: trim topics up to the end
    of the archive. file_bytes: stored bytes for one file. keep_replaced: see `ArchiveStore.sweep`. Raises
    ``bad_request`` for file_bytes below 1.
    """

    fail_on_loss: bool = False
    trim: bool = False
    file_bytes: int = FILE_BYTES
    keep_replaced: float = KEEP_REPLACED_S

    def __post_init__(self) -> None:
        if self.file_bytes < 1:
            raise error("bad_request", f"files of {self.file_bytes} bytes", "some millions are usual")


@dataclass
class ArchiveTally:
    """The counts of an archiving.

    records, files, bytes: archived. lost, trimmed: records. removed_files: those that no manifest named.
    findings: files of earlier runs that are missing or have another size.
    """

    topics: set[str] = field(default_factory=set)
    records: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0
    removed_files: int = 0
    trimmed: int = 0
    commits: int = 0
    findings: list[FileFinding] = field(default_factory=list)


class _Increment(NamedTuple):
    """The next records of a log to archive: its ranges up to a pointer.

    ordinal: the number of records that the log held up to there. losses: records that are gone already.
    """

    log: ArchivedLog
    until: int
    ordinal: int
    ranges: list[TopicRange]
    losses: list[ArchivedLoss]


@dataclass
class TopicArchiver:
    """Archives topics to a folder. Belongs to one thread. `LocalWorkers` need no Spark.

    root: the folder, under its path for all workers and this process. topics: names, and patterns such as
    ``orders.*``. tell: called with each line for the user. sleep: waits so many seconds. key:
    the path of the key file of the tasks.
    """

    broker: Client
    root: Path
    workers: Workers
    topics: str | Sequence[str]
    policy: Policy = Policy()
    tell: Tell = _LOG.warning
    sleep: Callable[[float], object] = time.sleep
    key: str | None = None
    tally: ArchiveTally = field(default_factory=ArchiveTally, init=False)

    def run(self) -> None:
        """Archive the present records.

        Raises `NotFound` for a topic that does not exist or was created again meanwhile, `Disconnected`,
        `Damaged` for a damaged manifest, or damaged files before a trim, `Conflict` ``locked`` while another
        program works on the archive, OSError, and for lost records, if the policy says so, `NotFound`
        ``unknown_record`` or `Damaged`. Earlier commits stay.
        """
        with ArchiveStore(self.root) as store:
            self._store = store
            self.tally.removed_files += store.sweep(keep_replaced=self.policy.keep_replaced)
            names = named(self.broker, self.topics)
            self._check_files(set(names) - self.tally.topics)
            self.tally.topics.update(names)
            ends = {name: self.broker.topic(name).last for name in names}  # producers may never stop
            while increments := self._plan(ends):
                self._write(increments)
            if self.policy.trim:
                for name in names:
                    self._trim(name)

    def _check_files(self, topics: set[str]) -> None:
        """Report files of these topics that are missing or have another size, once for each archiver."""
        logs = [log for log in self._store.manifest.logs if log.topic in topics]
        found = absent(self.root, named_files(logs))
        self.tally.findings += found
        for one in found:
            self.tell(f"{one.kind}: {one.text}")

    def follow(self, interval: float) -> None:
        """Run for ever, once in `interval` seconds, also through outages of the broker.

        Raises as `run` does when a named topic is deleted, or the last one that matches a pattern. Between
        two runs the archive is unlocked, for a compaction.
        """
        seconds = as_seconds(interval, "follow")
        while True:
            began, failed = time.monotonic(), None
            try:
                self.run()
            except QuothError as problem:
                self.tell(f"{problem.code}: {problem.text}; {self._outlook(problem)}")
                failed = problem
            self.sleep(until_next_look(began, seconds, failed))

    def _outlook(self, problem: QuothError) -> str:
        """Describe how `follow` continues after an error. Raises the error, or another one, if it cannot."""
        if problem.retryable or problem.code == "locked":
            return "nothing is lost, it goes on by itself"
        if problem.code != "unknown_topic":
            raise problem
        try:  # one of a pattern's topics may have been deleted, or created again
            named(self.broker, self.topics)
        except QuothError as other:
            if not other.retryable:
                raise
        return "it goes on with what is there"

    # -- plan -------------------------------------------------------------------------------------------

    def _plan(self, ends: dict[str, int]) -> list[_Increment]:
        """Plan the next commit; empty if all is archived. ends: the last pointer of each topic."""
        size = self.policy.file_bytes * FILES_A_SLOT * self.workers.slots
        found: list[_Increment] = []
        for topic, end in ends.items():
            increment = self._next(topic, end, size) if size > 0 else None
            if increment is not None:
                found.append(increment)
                size -= sum(one.bytes for one in increment.ranges)
        return found

    def _next(self, topic: str, end: int, size: int) -> _Increment | None:
        """Plan the next records of a topic, about so many bytes; None if there are none."""
        while True:  # until the topic was neither created again nor trimmed between two requests
            log = self._store.log_of(topic, self.broker.topic(topic).log)
            there = self.broker.count(topic, log.until)
            ahead = self.broker.advance(topic, log.until, max_bytes=size)
            if log.log == there.log == ahead.log and there.gone == ahead.gone:
                break
        first = there.end - there.records  # the ordinal of the oldest one that is there
        gone = max(0, first - log.ordinal) if log.ordinal >= 0 else 0  # of a new log nothing is lost
        if log.until >= end or not (ahead.records or gone):
            return None
        parts = max(1, math.ceil(ahead.bytes / self.policy.file_bytes))
        ranges = split(self.broker, topic, log.log, ahead.after, ahead.until, parts, self.key)
        gone += ahead.records - sum(one.records for one in ranges)
        losses = []
        if gone:
            kept = ranges[0].after if ranges else ahead.until
            loss = DataLoss(topic, log.until, kept + 1, gone, "trimmed")
            if self.policy.fail_on_loss:
                refuse(loss)
            losses.append(ArchivedLoss(*loss[1:]))
        return _Increment(log, ahead.until, first + ahead.records, ranges, losses)

    # -- write and commit -------------------------------------------------------------------------------

    def _write(self, increments: list[_Increment]) -> None:
        work = partial(write_range, str(self.root), self.policy.fail_on_loss)
        ranges = [(one, increment.log.generation) for increment in increments for one in increment.ranges]
        outcomes = iter(perform(self.workers, work, ranges, self.broker.url))
        manifest = self._store.manifest
        for log, until, ordinal, parts, lost in increments:
            written = [next(outcomes) for _ in parts]
            files = [file for made, _ in written for file in made]
            losses = [*lost, *(loss for _, missed in written for loss in missed)]
            check_written(self.root, files)
            grown = log.grown(until, ordinal, files, losses)
            manifest = manifest.with_log(grown)
            self._count(grown, files, losses)
        self._store.commit(manifest)
        self.tally.commits += 1
        if self.policy.trim:
            for increment in increments:
                self._trim(increment.log.topic)

    def _count(self, log: ArchivedLog, files: list[ArchivedFile], losses: list[ArchivedLoss]) -> None:
        self.tally.records += sum(file.rows for file in files)
        self.tally.bytes += sum(file.bytes for file in files)
        self.tally.files += len(files)
        if log.generation > 1 and len(files) == len(log.files):  # its first ones
            self.tell(
                f"topic {log.topic!r} was made anew: this is its generation {log.generation}; "
                "what the one before held and had not been archived yet is gone"
            )
        for loss in losses:
            self.tally.lost += loss.records
            self.tell(
                f"{loss.records} records of {log.topic!r} behind {loss.after} and before {loss.next} are not "
                f"in the archive: {loss.reason}"
            )

    # -- trim -------------------------------------------------------------------------------------------

    def _trim(self, topic: str) -> None:
        """Trim a topic up to the end of its archive, after the footers of the files have confirmed it.

        Damaged records, which are not in the archive, stay with all records behind them: they may be
        repaired. Raises `Damaged` for a file with records of the topic that differs from the manifest.
        """
        log, info = self._store.manifest.newest(topic), self.broker.topic(topic)
        if log is None or info.log != log.log or not info.first:
            return
        damaged = (loss for loss in log.losses if loss.reason == "damaged")
        there = (one for one in damaged if self.broker.count(topic, one.after, one.next - 1).records)
        safe = next((one.after for one in there), log.until)
        for named_file in named_files([log]):
            if info.first <= named_file[1].last and named_file[1].first <= safe:
                require(self.root, named_file)
        if safe >= info.first:
            self.tally.trimmed += self.broker.trim(topic, safe + 1).records


def write_range(
    root: str, strict: bool, part: tuple[TopicRange, int]
) -> tuple[list[ArchivedFile], list[ArchivedLoss]]:
    """Write the records of a range to files, in a worker; returns them and the records that it misses.

    strict: raise for missing records. part: the range, and its log's generation.
    """
    one, generation = part
    losses: list[DataLoss] = []
    reader = RangeReader(one, refuse if strict else into(losses))
    files = write_files(Path(root), Lineage(one.topic, one.log, generation), reader.arrow(COLUMNS))
    return files, [ArchivedLoss(*loss[1:]) for loss in losses]
