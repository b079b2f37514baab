"""The log against a plain model of it, by chance: whatever happens in whatever order, they say the same.

The model is a list of records, a list of the batches that every producer may send again, and a few numbers.
A run is a random sequence of appends, retries, rolls, syncs, retention, turns of the clock, harmed indexes,
clean ends, crashes and losses of power. When it fails, hypothesis prints the shortest one that does, and a
line that repeats it.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kit.clocks import DAY, SECOND, ManualClock
from kit.disk.doubles import FaultyDisk, MemoryDisk
from kit.disk.logs import encoded, put
from kit.scale import times
from quothlog import Appended, Log, LogOptions
from quothlog.file_format import HORIZON_US
from quothlog.producers import RESULTS_MAX
from quothlog.storage.filesystem import FileSystem
from quothwire import batch
from quothwire.record import Record

HALF_A_WEEK = 3 * DAY
"""The clock goes forward by less than a producer is remembered."""
PRODUCERS = (11, 12, 13)

sizes = st.sampled_from([1, 1, 1, 2, 3, 10, 100, 1_000])
seeds = st.integers(0, 2**32 - 1)
options = st.builds(
    LogOptions,
    size_limit=st.sampled_from([400, 3_000, 2**26]),
    count_limit=st.sampled_from([0, 0, 5, 1_500]),
    max_age=st.sampled_from([0.0, 0.0, 60.0]),
    max_bytes=st.sampled_from([0, 0, 20_000]),
    synced_reads=st.booleans(),
)


@dataclass
class Stored:
    """A batch that a producer may send again."""

    raw: bytes
    sequence: int
    first: int
    records: int


def columns(
    size: int, seed: int
) -> tuple[list[bytes], list[bytes | None] | None, list[dict[str, bytes]] | None]:
    """Values, some of them empty, perhaps with keys, perhaps with headers."""
    rng = random.Random(seed)
    values = [rng.randbytes(rng.choice((0, 1, 5, 30))) for _ in range(size)]
    keys = [rng.choice((None, b"", b"k", rng.randbytes(9))) for _ in range(size)]
    headers = [rng.choice(({}, {"h": rng.randbytes(3)}, {"a": b"", "é": b"2"})) for _ in range(size)]
    return values, rng.choice((None, keys)), rng.choice((None, headers))


class LogAgainstModel(RuleBasedStateMachine):
    """One log and what it should say. This one is in memory and may lose its power."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="quoth-model-")
        self.directory = Path(self.temporary.name) / "log"
        self.clock = ManualClock(tick=3)
        self.forward = 0
        self.records: list[Record] = []
        self.first = 0  # records that are not kept any more
        self.batches: list[tuple[int, Stored]] = []  # (producer, batch), in the order of the log
        self.synced = 0  # records that a loss of power cannot take
        self.seen = 0  # the highest pointer that a reader saw
        self.seen_records = 0
        self.disk = self.new_disk()
        self.log: Log | None = None

    def new_disk(self) -> FileSystem:
        return MemoryDisk()

    @initialize(options=options)
    def begin(self, options: LogOptions) -> None:
        self.options = options
        self.open()

    def open(self) -> None:
        self.log = Log.open(self.directory, options=self.options, clock=self.clock, filesystem=self.disk)
        assert self.live.findings.damaged_bytes == 0
        assert self.live.unsynced_bytes == 0

    @property
    def live(self) -> Log:
        assert self.log is not None
        return self.log

    def take(self, appended: Appended, stored: list[tuple[bytes, bytes | None, dict[str, bytes]]]) -> None:
        """The records that the log said it stored."""
        assert not appended.duplicate
        assert appended.count == len(stored) == appended.last - appended.first + 1
        assert appended.first > max([self.seen, *(record.pointer for record in self.records[-1:])])
        self.records += [Record(appended.first + i, *one) for i, one in enumerate(stored)]

    # -- writing ----------------------------------------------------------------------------------------

    @rule(size=sizes, seed=seeds)
    def append(self, size: int, seed: int) -> None:
        values, keys, headers = columns(size, seed)
        appended = self.live.append(values, keys=keys, headers=headers)
        stored = [
            (value, keys[i] if keys else None, headers[i] if headers else {})
            for i, value in enumerate(values)
        ]
        self.take(appended, stored)

    @rule(counts=st.lists(sizes, min_size=1, max_size=6), seed=seeds)
    def append_a_burst(self, counts: list[int], seed: int) -> None:
        rng = random.Random(seed)
        batches = [[rng.randbytes(rng.choice((0, 3))) for _ in range(count)] for count in counts]
        for appended, values in zip(put(self.live, *map(encoded, batches)), batches, strict=True):
            self.take(appended, [(value, None, {}) for value in values])

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 70), gap=st.integers(1, 5))
    def produce(self, producer: int, count: int, gap: int) -> None:
        """Some batches of a producer, dense or sparse, in one burst."""
        sparse = producer % 2 == 0
        newest = max([0, *(one.sequence for who, one in self.batches if who == producer)])
        new = []
        for i in range(count):
            newest += gap if sparse else 1
            values = [b"%d" % newest] * (i % 3)
            raw = encoded([b"", *values], producer, newest, sparse=sparse, start=sparse and not i)
            new.append((raw, newest, [b"", *values]))
        for appended, (raw, sequence, values) in zip(
            put(self.live, *(raw for raw, _, _ in new)), new, strict=True
        ):
            self.take(appended, [(value, None, {}) for value in values])
            self.batches.append((producer, Stored(raw, sequence, appended.first, appended.count)))

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Any of a producer's last 64 batches, several of them, in any order."""
        producer = data.draw(st.sampled_from(sorted({who for who, _ in self.batches})))
        known = [one for who, one in self.batches if who == producer][-RESULTS_MAX:]
        again = data.draw(st.lists(st.sampled_from(range(len(known))), min_size=1, max_size=5))
        outcomes = put(self.live, *(known[i].raw for i in again))
        for i, outcome in zip(again, outcomes, strict=True):
            one = known[i]
            assert outcome == Appended(one.first, one.first + one.records - 1, one.records, duplicate=True)

    @rule()
    def roll(self) -> None:
        if self.live.roll():
            self.synced = len(self.records)

    @rule()
    def sync(self) -> None:
        self.live.sync()
        self.synced = len(self.records)
        assert self.live.end_ordinal == len(self.records)

    # -- what is kept -----------------------------------------------------------------------------------

    @precondition(lambda self: len(self.records) > self.first)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        row = data.draw(st.integers(self.first, len(self.records) - 1))
        before = self.records[row].pointer
        removed, _ = self.live.trim(before)
        self.drop(removed)
        assert self.first <= row

    @rule()
    def retain(self) -> None:
        removed, _ = self.live.retain()
        gone = self.records[self.first : self.first + removed]
        self.drop(removed)
        assert removed == 0 or self.options.max_age or self.options.max_bytes
        if removed and not self.options.max_bytes:
            assert gone[-1].pointer < self.clock.now() - self.options.max_age_us

    def drop(self, removed: int) -> None:
        """Remove so many records; those that a roll has left are synced."""
        self.first += removed
        self.synced = max(self.synced, self.first)
        assert self.live.first_ordinal == self.first

    # -- time -------------------------------------------------------------------------------------------

    @rule(step=st.sampled_from([1, 50_000, SECOND, 9 * SECOND, 11 * SECOND, 45 * SECOND, 3_600 * SECOND]))
    def step_forward(self, step: int) -> None:
        if self.forward + step < HALF_A_WEEK:
            self.forward += step
            self.clock.step(step)

    @rule(step=st.sampled_from([1, 50_000, SECOND, 11 * SECOND, DAY]))
    def step_back(self, step: int) -> None:
        self.clock.step(-step)

    # -- ends and beginnings ----------------------------------------------------------------------------

    @rule(reboot=st.booleans(), harm=st.integers(0, 4), seed=seeds)
    def end_cleanly(self, reboot: bool, harm: int, seed: int) -> None:
        self.live.close()
        self.harm_indexes(harm, seed)
        if reboot:
            self.clock.reboot()
        self.open()
        self.synced = len(self.records)

    @rule(harm=st.integers(0, 4), seed=seeds)
    def crash(self, harm: int, seed: int) -> None:
        """The process dies; the operating system has all that was written."""
        self.log = None
        self.harm_indexes(harm, seed)
        self.open()
        self.synced = len(self.records)

    @precondition(lambda self: isinstance(self.disk, MemoryDisk))
    @rule(seed=seeds)
    def lose_power(self, seed: int) -> None:
        assert isinstance(self.disk, MemoryDisk)
        self.log = None
        self.disk.lose_power(random.Random(seed))
        self.clock.reboot()
        self.open()
        left = self.live.end_ordinal
        assert self.synced <= left <= len(self.records)
        assert left >= self.seen_records or not self.options.synced_reads
        del self.records[left:]
        self.synced = self.seen_records = left
        last = self.records[-1].pointer if self.records else 0
        self.batches = [(who, one) for who, one in self.batches if one.first <= last]

    def harm_indexes(self, harm: int, seed: int) -> None:
        """Nothing, or one index deleted, emptied, changed in one byte, or put in place of another."""
        rng = random.Random(seed)
        names = sorted(name for name in self.disk.list(self.directory) if name.endswith(".idx"))
        if not harm or not names:
            return
        path, other = self.directory / rng.choice(names), self.directory / rng.choice(names)
        content = self.disk.open(other).read(2**20, 0)
        if harm == 1:
            self.disk.remove(path)
            return
        if harm == 2:
            content = b""
        if harm == 3 and content:
            place = rng.randrange(len(content))
            content = content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
        self.disk.create(path).append([content])

    # -- what always holds ------------------------------------------------------------------------------

    @invariant()
    def reads_are_those_of_the_model(self) -> None:
        log = self.live
        end = log.end_ordinal
        assert log.first_ordinal == self.first <= end <= len(self.records)
        assert list(log.read()) == self.records[self.first : end]
        if self.options.synced_reads:
            assert log.newest <= log.synced_pointer
        elif end < len(self.records):
            assert self.records[-1].pointer > log.synced_pointer + HORIZON_US
        info = log.info()
        assert info.end_ordinal == end
        assert info.first == (self.records[self.first].pointer if self.first < end else 0)
        if end:
            assert info.last == log.newest == self.records[end - 1].pointer
        self.seen = max(self.seen, log.newest)
        self.seen_records = max(self.seen_records, end)

    @invariant()
    def reads_from_anywhere_are_those_of_the_model(self) -> None:
        if not self.records:
            return
        end = self.live.end_ordinal
        rng = random.Random(len(self.records))
        for _ in range(3):
            row, limit = rng.randrange(len(self.records)), rng.choice((1, 2, 7))
            expected = self.records[max(self.first, row + 1) : end][:limit]
            assert list(self.live.read(self.records[row].pointer, limit)) == expected

    @invariant()
    def ordinals_are_consecutive_and_pointers_rise(self) -> None:
        log, after, ordinal, last = self.live, 0, self.first, 0
        while (found := log.fetch(after, records_max=500)) is not None:
            assert found.ordinal == ordinal
            for raw in batch.split(found.data, log.log_id):
                header = batch.check(raw, log.log_id)
                assert header.ordinal == ordinal
                assert header.base > last
                ordinal, last = header.end_ordinal, header.last
            assert found.next == last
            after = last
        assert ordinal == log.end_ordinal

    def teardown(self) -> None:
        if self.log is not None:
            self.log.close()
        self.temporary.cleanup()


class LogOnTheRealDisk(LogAgainstModel):
    """The same with real files, where the power does not fail."""

    def new_disk(self) -> FileSystem:
        return FaultyDisk(syncs=False)


def how_often(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.mark.timeout(600)  # to find the shortest run that fails takes longer than all that succeed
def test_log_in_memory_is_its_model() -> None:
    run_state_machine_as_test(LogAgainstModel, settings=how_often(times(25, 50), 30))


@pytest.mark.timeout(600)
def test_log_on_the_real_disk_is_its_model() -> None:
    run_state_machine_as_test(LogOnTheRealDisk, settings=how_often(times(5, 8), 30))
