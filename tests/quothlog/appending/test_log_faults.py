"""A disk that fails, at each operation in turn: nothing refused is stored, nothing acknowledged is lost.

One story runs again and again, with a different operation of the disk failing each time: a dense producer
appends through rolls, syncs, retention, a clean end and a new start. A refused request is tried again, after
a new start if the log says so. In the end every batch is there once, in order.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.clocks import ManualClock
from kit.disk.doubles import CHANGES, Died, FaultyDisk, Kind
from kit.disk.logs import copy, encoded, outcome_of, put, values
from quothlog import Appended, Log, LogOptions
from quothwire.errors import BrokerFailure, QuothError, Unavailable

OpenLog = Callable[..., Log]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BATCHES = 14
OPTIONS = LogOptions(count_limit=8)
VALUES = [[b"%d.%d" % (n, i) for i in range(n % 3 + 1)] for n in range(1, BATCHES + 1)]


def dense(sequence: int) -> bytes:
    return encoded(VALUES[sequence - 1], 5, sequence)


class Story:
    """The producer, the operator and the log, on a disk of which one operation fails."""

    def __init__(
        self, directory: Path, clock: ManualClock, disk: FaultyDisk, stored: list[bytes] | None = None
    ) -> None:
        """stored: takes the values that were acknowledged."""
        self.directory = directory
        self.clock = clock
        self.disk = disk
        self.stored = stored if stored is not None else []
        self.refusals: list[str] = []
        self.log = self.open()

    def open(self) -> Log:
        """Open the log; after a failed opening the operator tries once more, on a disk that is well."""
        for _ in range(2):
            try:
                return Log.open(self.directory, filesystem=self.disk, clock=self.clock, options=OPTIONS)
            except OSError as problem:
                self.refusals.append(f"opening: {errno.errorcode[problem.errno or 0]}")
                self.disk.heal()
        raise AssertionError("a log that cannot be opened on a disk that is well")

    def restart(self) -> None:
        """As the hint of `storage_failed` says."""
        self.log.close()
        self.disk.heal()
        self.log = self.open()

    def attempt(self, act: Callable[[], object]) -> None:
        """Try an act; a failure must have changed nothing."""
        try:
            act()
        except QuothError as problem:
            self.refused(problem)

    def refused(self, problem: QuothError) -> None:
        """Check the log after a refusal, and heal the disk."""
        self.refusals.append(problem.code)
        assert values(self.log) == self.stored, "visible, although it was refused"
        if problem.code == "storage_failed":
            assert isinstance(problem, BrokerFailure)
            self.disk.heal()
            assert self.log.failure is not None
            assert outcome_of(self.log, encoded([b"x"])) == "storage_failed", "until the next start"
            for refusing in (self.log.sync, self.log.appender.begin_sync):
                with pytest.raises(BrokerFailure):
                    refusing()
            self.restart()
            assert values(self.log) == self.stored, "visible after the next start, although it was refused"
        else:
            assert problem.code in ("disk_low", "busy")
            assert isinstance(problem, Unavailable)
            assert self.log.failure is None
            self.disk.heal()

    def append(self, sequence: int) -> None:
        """Append the batch until it is stored."""
        for _ in range(2):
            (outcome,) = self.log.append_batches([dense(sequence)])
            if isinstance(outcome, Appended):
                assert not outcome.duplicate
                self.stored += VALUES[sequence - 1]
                assert values(self.log) == self.stored
                return
            self.refused(outcome)
        raise AssertionError("refused by a disk that is well")

    def close(self) -> None:
        """End cleanly, or as cleanly as the disk lets."""
        try:
            self.log.close()
        except QuothError as problem:
            self.refusals.append(f"closing: {problem.code}")
        self.log.close()

    def tell(self) -> None:
        """All of it."""
        for sequence in range(1, BATCHES + 1):
            self.append(sequence)
            if sequence % 4 == 3:
                self.attempt(self.log.sync)
            if sequence == 6:
                self.attempt(self.log.roll)
            if sequence == 9:
                self.close()
                self.log = self.open()
            if sequence == 12:
                self.log._lock.release()
                self.log = self.open()

    def end(self) -> None:
        """The log is as if nothing had ever failed, now, after a crash and after a clean end."""
        assert values(self.log) == self.stored == [value for one in VALUES for value in one]
        assert self.log.end_ordinal == len(self.stored)
        self.disk.heal()
        copied = copy(self.directory, self.directory.with_suffix(".crashed"))
        with Log.open(copied, clock=self.clock, filesystem=self.disk) as crashed:
            assert values(crashed) == self.stored
            again = put(crashed, *map(dense, range(1, BATCHES + 1)))
            assert all(outcome.duplicate for outcome in again)
        self.close()
        self.log = self.open()
        assert values(self.log) == self.stored
        assert not list(self.directory.glob("*.tmp"))
        self.log.close()


def refusals_on(directory: Path, disk: FaultyDisk) -> list[str]:
    """Tell the story on a disk; returns how its failures were reported."""
    story = Story(directory, ManualClock(tick=1_000), disk)
    story.tell()
    story.end()
    return story.refusals


@pytest.fixture
def counts(tmp_path: Path) -> dict[Kind, int]:
    """Count the operations of each kind that the story takes when nothing fails."""
    disk = FaultyDisk()
    story = Story(tmp_path / "undisturbed", ManualClock(tick=1_000), disk)
    story.tell()
    assert story.refusals == []
    return {kind: disk.count(kind) for kind in CHANGES}


@pytest.mark.parametrize("problem", [errno.EIO, *FULL], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", ["write", "sync", "create", "rename", "sync_directory"])
def test_each_operation_fails_once(tmp_path: Path, counts: dict[Kind, int], kind: Kind, problem: int) -> None:
    """EIO stops the writing until the next start, a full disk until there is room again."""
    refusals: set[str] = set()
    for nth in range(1, counts[kind] + 1):
        disk = FaultyDisk(syncs=False)
        disk.fail(kind, nth, problem, written=nth * 17 % 60)
        refusals.update(refusals_on(tmp_path / str(nth), disk))
    expected = {
        "write": {"disk_low" if problem in FULL else "storage_failed"},
        "create": {"disk_low" if problem in FULL else "storage_failed"},
        "rename": {"disk_low" if problem in FULL else "storage_failed"},
        "sync": {"storage_failed", "closing: storage_failed"},
        "sync_directory": {"storage_failed"},
    }
    assert expected[kind] <= refusals
    assert refusals - expected[kind] <= {
        f"opening: {errno.errorcode[problem]}", "opening: EIO", "disk_low" if problem in FULL else ""
    }  # fmt: skip


@pytest.mark.parametrize("problem", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.get)
def test_each_file_is_refused_once_for_want_of_descriptors_or_memory(
    tmp_path: Path, counts: dict[Kind, int], problem: int
) -> None:
    refusals: set[str] = set()
    for nth in range(1, counts["create"] + 1):
        disk = FaultyDisk(syncs=False)
        disk.fail("create", nth, problem)
        refusals.update(refusals_on(tmp_path / str(nth), disk))
    assert refusals == {"busy", f"opening: {errno.errorcode[problem]}"}


@pytest.mark.parametrize("problem", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_each_write_fails_together_with_the_cutting_back(
    tmp_path: Path, counts: dict[Kind, int], problem: int
) -> None:
    """A write that cannot be undone stops the writing, whatever the reason."""
    for nth in range(1, counts["write"] + 1):
        for written in (0, 1, 70):
            disk = FaultyDisk(syncs=False)
            disk.fail("write", nth, problem, written=written)
            disk.fail("truncate", problem=errno.EIO)
            refusals_on(tmp_path / f"{nth}-{written}", disk)


def test_process_dies_at_each_change_of_the_disk(tmp_path: Path, counts: dict[Kind, int]) -> None:
    """Acknowledged batches are there, the others wholly or not at all, and the start succeeds."""
    for nth in range(1, sum(counts.values()) + 1):
        for written in (0, 50, 90):
            directory = tmp_path / f"{nth}.{written}"
            disk = FaultyDisk(syncs=False)
            disk.die(nth, written)
            clock = ManualClock(tick=1_000)
            stored: list[bytes] = []
            try:
                Story(directory, clock, disk, stored).tell()
            except Died as death:
                death.__traceback__ = None  # it holds the log, and the log its lock
            disk.heal()
            with Log.open(directory, clock=clock, options=OPTIONS, filesystem=disk) as log:
                found = values(log)
                following = len(found) > len(stored)
                expected = [value for one in VALUES for value in one][: len(found)]
                assert found == expected
                assert found[: len(stored)] == stored
                whole = [sum(map(len, VALUES[:n])) for n in range(BATCHES + 1)]
                assert len(found) in whole
                assert whole.index(len(found)) - whole.index(len(stored)) == following
                known = put(log, *map(dense, range(1, BATCHES + 1)))
                assert [one.duplicate for one in known].count(False) == BATCHES - whole.index(len(found))
                assert values(log) == [value for one in VALUES for value in one]
