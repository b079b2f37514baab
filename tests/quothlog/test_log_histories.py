"""Random histories of one log against a plain model of it: whatever happens in whatever order, both agree.

The model is a list of records, the batches that every producer may send again, and a few numbers. A history
is a random sequence of appends, retries, transactions, rolls, syncs, retention, turns of the clock, corrupted
indexes, failing disks, deaths, losses of power and openings. After each step readers get the records of the
model. After each opening every batch that was acknowledged is there, as far as it was promised for what has
happened, a batch without an answer is there or not, and no pointer that a reader has seen ever belongs to
another record. QUOTH_SEED repeats a history that failed.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from kit.broker.transactions import Loader
from kit.clocks import DAY, SECOND, ManualClock
from kit.disk.doubles import CHANGES, KINDS, Died, FaultyDisk, Kind
from kit.disk.logs import encoded
from kit.disk.memory_disk import MemoryDisk
from kit.scale import times
from quothlog import Appended, Log, LogOptions, decode
from quothlog.file_format import HORIZON_US
from quothlog.producers import RESULTS_MAX
from quothwire import batch
from quothwire.errors import QuothError
from quothwire.headers import encode_headers
from quothwire.record import Record
from quothwire.settings import DURABILITIES

STEPS = 40
EVENTS = (
    *("append", "append", "burst", "produce", "produce", "retry", "transaction", "transaction"),
    *("roll", "sync", "trim", "retain"),
    *("clock", "close", "crash", "power", "fail", "fail", "die"),
)
HALF_A_WEEK = 3 * DAY
"""The clock goes forward by less than a producer is remembered."""
TURNS = (1, SECOND // 20, SECOND, 9 * SECOND, 11 * SECOND, 45 * SECOND, 3_600 * SECOND)
TURNS_BACK = (1, SECOND, 11 * SECOND, DAY, 400 * DAY)

Content = tuple[bytes, bytes | None, dict[str, bytes]]


class Sent(NamedTuple):
    """A batch with its producer and sequence, or the records of a transaction with its version."""

    raw: bytes
    contents: list[Content]
    producer: int = 0
    sequence: int = 0


class History:
    """One log, what it should say, and what was promised about it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.events: list[str] = [f"QUOTH_SEED={seed}"]
        self.memory = MemoryDisk() if rng.random() < 0.9 else None
        self.disk = FaultyDisk(self.memory, syncs=self.memory is not None)
        self.clock = ManualClock(tick=rng.choice([0, 3, 1_000]))
        self.forward = 0
        self.options = LogOptions(
            size_limit=rng.choice([400, 3_000, 2**26]),
            count_limit=rng.choice([0, 0, 3, 150]),
            max_age=rng.choice([0.0, 0.0, 60.0]),
            max_bytes=rng.choice([0, 0, 20_000]),
            synced_reads=rng.random() < 0.4,
        )
        self.directory = directory
        self.records: list[Record] = []
        self.first = 0  # records that are not kept any more
        self.first_min = self.first_max = 0  # so many at least, even after a loss of power, and at most
        self.batches: list[tuple[Sent, int]] = []  # of producers, with their first pointers
        self.version = 0
        self.published: dict[int, tuple[int, int]] = {}  # first pointers and records, by version
        self.doubtful: list[Sent] = []  # without an answer: some of them may be there, in order
        self.synced = 0  # records that a loss of power cannot take
        self.lost_power = False
        self.seen = self.seen_synced = 0  # the highest pointer that a reader saw, and how many synced records
        self.log: Log | None = None

    def live(self) -> None:
        """All of it; whatever happens, the disk is well at the end."""
        for _ in range(STEPS):
            self.step()
        self.disk.heal()
        for _ in range(2):
            self.end()
            self.open()

    def step(self) -> None:
        """Open the log if it is not open, then let something happen."""
        try:
            if self.log is None:
                if self.rng.random() < 0.3:
                    self.disk.die(self.rng.randint(1, 6), self.rng.choice([0, 40, 90]))
                elif self.rng.random() < 0.3:
                    fail_one_of(self.disk, self.rng, KINDS)
                self.open()
            event = self.rng.choice(EVENTS)
            self.events.append(event)
            getattr(self, f"then_{event}")(self.log)
        except (Died, OSError, QuothError) as problem:
            self.events.append(f"{problem}")
            self.disk.heal()
            if isinstance(problem, Died) or (self.log is not None and self.log.failure is not None):
                self.end()
        if self.log is not None:
            self.check(self.log)

    # -- beginnings and ends ----------------------------------------------------------------------------

    def open(self) -> None:
        """Open the log, hold it against what was promised, and take over what it says of the doubtful."""
        self.events.append("open")
        log = Log.open(self.directory, filesystem=self.disk, clock=self.clock, options=self.options)
        self.disk.heal()
        self.log, self.loader = log, Loader(log)
        assert (log.findings.lost_records, log.findings.damaged_bytes, log.unsynced_bytes) == (0, 0, 0)
        assert (self.first_min if self.lost_power else self.first) <= log.first_ordinal <= self.first_max
        self.first = self.first_min = log.first_ordinal
        found = list(log.read())
        known = self.records[self.first :][: len(found)]
        assert found[: len(known)] == known
        left = self.first + len(known)
        assert left >= (self.synced if self.lost_power else len(self.records))
        assert left >= self.seen_synced
        rest = found[len(known) :]
        del self.records[left:]
        last = self.records[-1].pointer if self.records else 0
        self.batches = [(sent, first) for sent, first in self.batches if first <= last]
        for sent in self.doubtful:
            stored = rest[: len(sent.contents)]
            if [record[1:] for record in stored] == sent.contents:
                self.take(sent, stored)
                rest = rest[len(stored) :]
        assert not rest
        self.doubtful, self.lost_power = [], False
        self.synced = len(self.records)
        for version, (first, count) in self.published.items():
            again = self.loader.publish(version, [])
            assert (again.first, again.count, again.duplicate) == (first, count, True)

    def end(self) -> None:
        """The process is gone, whatever it was doing."""
        if self.log is not None:
            self.log.discard()
            self.log = None

    def then_close(self, log: Log) -> None:
        log.close()
        self.synced = len(self.records)
        self.log = None
        corrupt_an_index(self.disk, self.directory, self.rng)
        if self.rng.random() < 0.5:
            self.clock.reboot()

    def then_crash(self, log: Log) -> None:
        self.disk.heal()
        self.end()
        corrupt_an_index(self.disk, self.directory, self.rng)

    def then_power(self, log: Log) -> None:
        self.disk.heal()
        self.end()
        if self.memory is not None:
            self.memory.lose_power(self.rng)
            self.lost_power = True
        self.clock.reboot()

    def then_fail(self, log: Log) -> None:
        fail_one_of(self.disk, self.rng, ("write", "write", "write", *CHANGES))
        self.then_write(log)
        self.disk.heal()

    def then_die(self, log: Log) -> None:
        self.disk.die(self.rng.randint(1, 9), self.rng.choice([0, 40, 90]))

    # -- writing ----------------------------------------------------------------------------------------

    def then_append(self, log: Log) -> None:
        """With the log as its own producer."""
        contents = contents_of(self.rng, 100)
        sent = Sent(b"", contents)
        values, keys, headers = (list(column) for column in zip(*contents, strict=True))
        try:
            appended = log.append(values, keys=keys, headers=headers)
        except (Died, QuothError) as problem:
            if isinstance(problem, Died) or not problem.retryable:
                self.doubtful = [sent]
            raise
        self.acknowledge(sent, appended)

    def then_write(self, log: Log) -> None:
        """Let something happen that changes the disk."""
        event = self.rng.choice(("append", "burst", "produce", "transaction", "roll", "sync", "trim"))
        self.events.append(event)
        getattr(self, f"then_{event}")(log)

    def then_burst(self, log: Log) -> None:
        contents = [contents_of(self.rng, 30) for _ in range(self.rng.randint(1, 6))]
        self.put(log, [Sent(_encoded(one), one) for one in contents])

    def then_produce(self, log: Log) -> None:
        """Some batches of a producer, dense or sparse, in one burst."""
        producer = self.rng.choice((11, 12, 13))
        is_sparse = producer % 2 == 0
        sequence = max([0, *(sent.sequence for sent, _ in self.batches if sent.producer == producer)])
        new = []
        for i in range(self.rng.choice((1, 2, 5, 70))):
            sequence += self.rng.randint(1, 5) if is_sparse else 1
            values = [b"%d" % sequence, *[b""] * (i % 3)]  # which batch it is shows in its first record
            raw = encoded(values, producer, sequence, sparse=is_sparse, start=is_sparse and not i)
            new.append(Sent(raw, [(value, None, {}) for value in values], producer, sequence))
        self.put(log, new)

    def put(self, log: Log, new: list[Sent]) -> None:
        """Append batches with one call."""
        try:
            outcomes = log.append_batches([sent.raw for sent in new])
        except Died:
            self.doubtful = new
            raise
        for sent, outcome in zip(new, outcomes, strict=True):
            if isinstance(outcome, Appended):
                self.acknowledge(sent, outcome)
            elif not outcome.retryable:
                self.doubtful.append(sent)
        for problem in (one for one in outcomes if isinstance(one, QuothError)):
            raise problem

    def acknowledge(self, sent: Sent, appended: Appended) -> None:
        """The log said that it stored this."""
        count = len(sent.contents)
        assert appended == Appended(appended.first, appended.first + count - 1, count, duplicate=False)
        assert appended.first > max([self.seen, *(record.pointer for record in self.records[-1:])])
        self.take(sent, [Record(appended.first + i, *one) for i, one in enumerate(sent.contents)])

    def take(self, sent: Sent, stored: list[Record]) -> None:
        first = stored[0].pointer
        assert stored == [Record(first + i, *one) for i, one in enumerate(sent.contents)]
        self.records += stored
        if sent.producer:
            self.batches.append((sent, first))
        elif sent.sequence:
            self.published[sent.sequence] = first, len(stored)

    def then_transaction(self, log: Log) -> None:
        """Stage two parts of a version, and publish or abort them. All of it is stored, or nothing."""
        self.version += 1
        list(self.loader.own.expire())
        parts = [[[b"%d.%d.%d" % (self.version, part, row)] * 2 for row in range(2)] for part in range(2)]
        staged = [self.loader.stage(self.version, number, part) for number, part in enumerate(parts)]
        if self.rng.random() < 0.2:
            self.loader.own.abort(self.loader.id, self.version)
            return
        values = [value for part in parts for one in part for value in one]
        sent = Sent(b"", [(value, None, {}) for value in values], sequence=self.version)
        try:
            appended = self.loader.publish(self.version, staged)
        except (Died, QuothError, OSError) as problem:
            if isinstance(problem, Died) or log.failure is not None:
                self.doubtful = [sent]
            raise
        self.acknowledge(sent, appended)
        self.synced = len(self.records)

    def then_retry(self, log: Log) -> None:
        """Any of a producer's last 64 batches, several of them, in any order."""
        if not self.batches:
            return
        producer = self.rng.choice(self.batches)[0].producer
        known = [one for one in self.batches if one[0].producer == producer][-RESULTS_MAX:]
        again = self.rng.choices(known, k=5)
        outcomes = log.append_batches([sent.raw for sent, _ in again])
        for (sent, first), outcome in zip(again, outcomes, strict=True):
            count = len(sent.contents)
            assert outcome == Appended(first, first + count - 1, count, duplicate=True)

    def then_roll(self, log: Log) -> None:
        if log.roll():
            self.synced = len(self.records)

    def then_sync(self, log: Log) -> None:
        log.sync()
        self.synced = len(self.records)
        assert log.end_ordinal == len(self.records)

    def then_clock(self, log: Log) -> None:
        step = self.rng.choice(TURNS)
        if self.rng.random() < 0.4:
            self.clock.step(-self.rng.choice(TURNS_BACK))
        elif self.forward + step < HALF_A_WEEK:
            self.forward += step
            self.clock.step(step)

    def then_trim(self, log: Log) -> None:
        if self.first < len(self.records):
            self.first_max = self.rng.randrange(self.first, len(self.records))
            self.removing(log, lambda: log.trim(self.records[self.first_max].pointer)[0])

    def then_retain(self, log: Log) -> None:
        before = self.first
        self.first_max = len(self.records)
        self.removing(log, lambda: log.retain()[0])
        gone = self.records[before : self.first]
        if gone and not self.options.max_bytes:
            assert self.options.max_age
            assert gone[-1].pointer < self.clock.now() - self.options.max_age_us

    def removing(self, log: Log, act: Callable[[], int]) -> None:
        """Remove records; what is removed was sealed, so it was synced."""
        before = self.first
        try:
            removed = act()
        except (OSError, QuothError):  # a log that has died says nothing true any more
            self.see_first(log)
            raise
        self.see_first(log)
        assert removed == self.first - before
        self.first_min = self.first_max = self.first

    def see_first(self, log: Log) -> None:
        assert self.first <= log.first_ordinal <= self.first_max
        self.first = log.first_ordinal
        self.synced = max(self.synced, self.first)

    def check(self, log: Log) -> None:
        """Readers get the records of the model, all of them and from anywhere."""
        end = log.end_ordinal
        assert log.first_ordinal == self.first <= end <= len(self.records)
        assert list(log.read()) == self.records[self.first : end]
        if self.options.synced_reads:
            assert log.newest <= log.synced_pointer
        elif end < len(self.records):
            assert self.records[-1].pointer > log.synced_pointer + HORIZON_US
        info = log.info()
        assert info.first == (self.records[self.first].pointer if self.first < end else 0)
        assert (info.last, info.end_ordinal) == (self.records[end - 1].pointer if end else 0, end)
        self.seen, self.seen_synced = map(max, (self.seen, self.seen_synced), levels_of(log, self.records))
        for row in self.rng.sample(range(len(self.records)), min(3, len(self.records))):
            expected = self.records[max(self.first, row + 1) : end][:7]
            assert list(log.read(self.records[row].pointer, 7)) == expected
        after, ordinal = 0, self.first
        while (found := log.fetch(after, records_max=500)) is not None:
            headers = [batch.check(raw, log.log_id) for raw in batch.split(found.data, log.log_id)]
            for header in headers:
                assert (header.ordinal, header.base > after) == (ordinal, True)
                after, ordinal = header.last, header.end_ordinal
            assert (found.ordinal, found.next) == (headers[0].ordinal, after)
        assert ordinal == end


def levels_of(log: Log, records: list[Record]) -> tuple[int, int]:
    """Check reads that ask for a level, whatever the log shows to others.

    Returns the newest pointer that a written one sees, and how many records the log held at the synced end.
    """
    written, synced = (log.visible_at(level) for level in DURABILITIES)
    assert log.first_ordinal <= synced.ordinal <= written.ordinal <= len(records)
    assert written.pointer <= max(log.synced_pointer, log.appender.active.floor - 1) + HORIZON_US
    for level, end in zip(DURABILITIES, (written, synced), strict=True):
        assert decode(log.slice(0, durability=level)) == records[log.first_ordinal : end.ordinal]
        assert list(log.read(end.pointer, durability=level)) == []
    return written.pointer, synced.ordinal


def fail_one_of(disk: FaultyDisk, rng: random.Random, kinds: Sequence[Kind]) -> None:
    kind, nth, written = rng.choice(kinds), rng.choice([1, 1, 2, 4]), rng.choice([0, 50])
    problems = [errno.EIO, errno.ENOSPC, *([errno.EMFILE] if kind == "create" else [])]
    disk.fail(kind, nth, rng.choice(problems), written=written)
    if kind == "write" and rng.random() < 0.3:
        disk.fail("truncate")  # so that what was written cannot be cut off again


def corrupt_an_index(disk: FaultyDisk, directory: Path, rng: random.Random) -> None:
    """Nothing, or one index deleted, emptied, changed in one bit, or put in place of another."""
    disk.heal()
    names = sorted(name for name in disk.list(directory) if name.endswith(".idx"))
    corruption = rng.randrange(5) if names else 0
    if not corruption:
        return
    path, other = directory / rng.choice(names), directory / rng.choice(names)
    content = bytearray(disk.open(other).read(2**20, 0))
    if corruption == 1:
        disk.remove(path)
        return
    if corruption == 2:
        content.clear()
    if corruption == 3 and content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file = disk.create(path)
    file.append([content])
    file.sync()


def contents_of(rng: random.Random, most: int) -> list[Content]:
    """Values, some of them empty, perhaps with keys, perhaps with headers."""
    with_keys, with_headers = rng.random() < 0.5, rng.random() < 0.5
    return [
        (
            rng.randbytes(rng.choice((0, 1, 5, 30))),
            rng.choice((None, b"", b"k", rng.randbytes(9))) if with_keys else None,
            rng.choice(({}, {"h": rng.randbytes(3)}, {"a": b"", "é": b"2"})) if with_headers else {},
        )
        for _ in range(rng.choice((1, 1, 1, 2, 3, 10, most)))
    ]


def _encoded(contents: list[Content]) -> bytes:
    values, keys, headers = (list(column) for column in zip(*contents, strict=True))
    return batch.encode(values, keys, [encode_headers(one) for one in headers])


@pytest.mark.parametrize("part", range(4))
def test_random_histories_keep_every_promise(tmp_path: Path, part: int) -> None:
    """Also a death in the middle of opening, and a loss of power after that."""
    given = os.environ.get("QUOTH_SEED")
    seeds = [secrets.randbits(32) for _ in range(times(9, 500))] if given is None else [int(given)]
    for seed in seeds:
        history = History(tmp_path / str(seed), seed)
        try:
            history.live()
        except AssertionError as problem:
            problem.add_note(", ".join(history.events))
            raise
        finally:
            history.end()
