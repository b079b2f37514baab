"""Random histories of one log: appends, failing disks, deaths, losses of power, openings, in any order.

After every opening each batch whose appending was acknowledged is there, once and in order, as far as it was
promised for what has happened; a batch without any answer is there or not; no pointer that
a reader has seen ever belongs to another record; and what is new lies above all of them, whatever the clock
says, so that a reader with a cursor gets it. Every seed is a history of its own.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
from pathlib import Path

import pytest

from kit.clocks import DAY, MINUTE, SECOND, ManualClock
from kit.disk.doubles import Died, FaultyDisk, Kind, MemoryDisk
from kit.disk.logs import encoded, salvaged
from kit.scale import times
from quothlog import Log, LogOptions
from quothwire.errors import QuothError

STEPS = 40
KINDS_OPENING: tuple[Kind, ...] = (
    "open", "read", "create", "write", "sync", "truncate", "rename", "remove", "sync_directory",
)  # fmt: skip
KINDS_WRITING: tuple[Kind, ...] = ("create", "write", "sync", "truncate", "rename", "sync_directory")
EVENTS = ("append",) * 4 + ("sync", "roll", "close", "kill", "power", "clock", "fail", "die")


class History:
    """One log, what was promised about it, and what has been seen of it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.told: list[str] = [f"QUOTH_SEED={seed}"]
        self.memory = MemoryDisk()
        self.disk = FaultyDisk(self.memory)
        self.clock = ManualClock(tick=self.rng.choice([0, 1, 1_000]))
        self.options = LogOptions(count_limit=self.rng.choice([0, 3]))
        self.directory = directory
        self.written: list[bytes] = []
        self.synced = 0  # of what is written
        self.open_questions: set[bytes] = set()
        self.seen: dict[int, bytes] = {}
        self.unseen: dict[int, bytes] = {}  # acknowledged, and not visible yet
        self.count = 0
        self.log: Log | None = None

    def live(self) -> None:
        """All of it; whatever happens, the disk is well at the end."""
        for _ in range(STEPS):
            self.step()
        self.disk.heal()
        self.end()
        self.open()
        self.end()

    def story(self) -> str:
        """Return what happened so far, for the text of a failure."""
        return ", ".join(self.told)

    def step(self) -> None:
        """Open the log if it is not open, then let something happen."""
        try:
            if self.log is None:
                self.threaten_opening()
                self.open()
                self.disk.heal()
            event = self.rng.choice(EVENTS)
            self.told.append(event)
            getattr(self, f"then_{event}")(self.log)
        except Died:
            self.told.append("died")
            self.disk.heal()
            self.end()
        except (OSError, QuothError) as problem:
            self.told.append(f"{problem}")
            self.disk.heal()
            if self.log is not None and self.log.failure is not None:
                self.end()

    def threaten_opening(self) -> None:
        if self.rng.random() < 0.4:
            self.disk.die(self.rng.randint(1, 6), self.rng.choice([0, 40, 90]))
        elif self.rng.random() < 0.3:
            self.fail_one_of(KINDS_OPENING)

    def fail_one_of(self, kinds: tuple[Kind, ...]) -> None:
        problem = self.rng.choice([errno.EIO, errno.ENOSPC])
        self.disk.fail(
            self.rng.choice(kinds), self.rng.randint(1, 4), problem, written=self.rng.choice([0, 50])
        )

    def open(self) -> None:
        """Open the log and hold it against what was promised."""
        self.told.append("open")
        log = self.log = Log.open(
            self.directory, filesystem=self.disk, clock=self.clock, options=self.options
        )
        found = salvaged(log)
        values = [record.value for record in found]
        assert [value for value in values if value not in self.open_questions] == self.written, self.story()
        cursor = self.cursor()
        for record in found:
            assert record.pointer in self.seen or record.pointer > cursor, self.story()
            assert self.seen.setdefault(record.pointer, record.value) == record.value, self.story()
        self.written, self.synced = values, len(values)  # opening has synced what it found
        self.open_questions.clear()
        self.unseen.clear()

    def cursor(self) -> int:
        """Return the cursor of a reader that has seen everything."""
        return max(self.seen, default=0)

    def end(self) -> None:
        """The process is gone, whatever it was doing."""
        if self.log is not None:
            self.log.discard()
            self.log = None

    def then_append(self, log: Log) -> None:
        self.count += 1
        value = b"<%d>" % self.count * self.rng.randint(1, 20)
        self.open_questions.add(value)
        (outcome,) = log.append_batches([encoded([value])])
        if not isinstance(outcome, QuothError):
            assert outcome.first > self.cursor(), self.story()
            self.written.append(value)
            self.unseen[outcome.first] = value
            self.look(log)
        if not isinstance(outcome, QuothError) or outcome.retryable:
            self.open_questions.discard(value)
        if isinstance(outcome, QuothError):
            raise outcome

    def look(self, log: Log) -> None:
        """Readers see what they may; it does not matter who reads it."""
        for pointer in sorted(self.unseen):
            if pointer <= log.newest:
                self.seen[pointer] = self.unseen.pop(pointer)

    def then_sync(self, log: Log) -> None:
        log.sync()
        self.look(log)
        self.synced = len(self.written)

    def then_roll(self, log: Log) -> None:
        if log.roll():
            self.synced = len(self.written)

    def then_close(self, log: Log) -> None:
        log.close()
        self.synced = len(self.written)
        self.log = None

    def then_kill(self, log: Log) -> None:
        self.disk.heal()
        self.end()

    def then_power(self, log: Log) -> None:
        self.then_kill(log)
        self.memory.lose_power(self.rng)
        self.clock.reboot()
        self.open_questions.update(self.written[self.synced :])
        del self.written[self.synced :]

    def then_clock(self, log: Log) -> None:
        self.clock.step(self.rng.choice([-400 * DAY, -5 * SECOND, -SECOND, SECOND, MINUTE, 400 * DAY]))

    def then_fail(self, log: Log) -> None:
        self.fail_one_of(KINDS_WRITING)

    def then_die(self, log: Log) -> None:
        self.disk.die(self.rng.randint(1, 9), self.rng.choice([0, 40, 90]))


@pytest.mark.parametrize("part", range(4))
def test_every_history_keeps_what_was_promised(tmp_path: Path, part: int) -> None:
    """Also a death in the middle of opening, and a loss of power after that."""
    given = os.environ.get("QUOTH_SEED")
    seeds = [secrets.randbits(32) for _ in range(times(60, 5_000))] if given is None else [int(given)]
    for seed in seeds:
        History(tmp_path / str(seed), seed).live()
