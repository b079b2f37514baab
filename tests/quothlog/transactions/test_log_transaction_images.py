"""Every disk that a loss of power may leave while transactions are staged and published, opened.

After every single change of the disk the power fails. What is left holds each transaction whole or not at
all: what was published and synced is there, once and with its pointers; what is not there can be published,
or publishing says which parts are missing, and works once they are staged again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path

import pytest

from kit.broker.transactions import Loader, part_of
from kit.disk.images import Image, PowerCuts
from kit.disk.logs import encoded, put, salvaged
from kit.scale import times
from quothlog import Appended, Log, LogOptions
from quothlog.transactions.commit import Commit
from quothwire.errors import Conflict
from quothwire.protocol.transaction import StagedPart

APPENDED = LogOptions(size_limit=64 * 2**10)
SEGMENTS = LogOptions(size_limit=600)


def batches_of(version: int) -> list[list[list[bytes]]]:
    """The parts of a version: their batches, whose values say their place."""
    return [
        [[b"v%d.%d.%d" % (version, part, number) + b"." * 300] for number in range(2)] for part in range(2)
    ]


def values_of(version: int) -> list[bytes]:
    """Read the records of a version."""
    return [value for part in batches_of(version) for values in part for value in values]


class Life(PowerCuts):
    """A log and an application on a disk that loses its power at every moment, and what was promised."""

    def __init__(self, directory: Path, options: LogOptions, samples: int, seed: int) -> None:
        super().__init__(directory, options, piece=512, samples=samples, share=0.2, seed=seed)
        self.acknowledged: dict[int, Appended] = {}
        self.begun = 0  # versions of which something was staged
        self.synced: list[bytes] = []
        self.unsynced: list[bytes] = []
        self.fates: set[str] = set()
        self.open()

    def promised(self) -> tuple[Hashable, ...]:
        return tuple(self.acknowledged), len(self.synced), self.seen

    def open(self) -> None:
        self.log = self.opened_on(self.disk, self.clock, self.directory)
        self.loader = Loader(self.log)

    def append(self, value: bytes, *, synced: bool = True) -> None:
        """Append a record. synced: False leaves it to what comes next, which is synced after it."""
        put(self.log, encoded([value]))
        self.unsynced.append(value)
        self.seen = max(self.seen, self.log.newest)
        if synced:
            self.log.sync()
            self.is_synced()

    def is_synced(self) -> None:
        self.synced += self.unsynced
        self.unsynced.clear()

    def stage(self, version: int, attempt: int = 7) -> list[StagedPart]:
        self.begun = max(self.begun, version)
        return [
            self.loader.stage(version, part, batches, attempt)
            for part, batches in enumerate(batches_of(version))
        ]

    def publish(self, version: int, parts: list[StagedPart]) -> None:
        outcome = self.loader.own.publish(self.loader.id, version, parts)
        assert outcome is not None
        if isinstance(outcome, Commit):
            outcome.prepare()
            self.loader.own.place(outcome)
            outcome.commit()
            outcome = self.loader.own.adopt(outcome)
        else:
            self.log.sync()
        self.acknowledged[version] = outcome
        self.is_synced()
        self.seen = max(self.seen, outcome.last)
        self.loader.own.tidy()
        self.fail_here()

    def check(self, image: Image, reopened: Callable[[], Log]) -> None:
        with reopened() as log:
            found = [(one.pointer, one.value) for one in salvaged(log)]
            assert found == sorted(found)
            ours = [value for _, value in found if value[:1] != b"v"]
            assert ours[: len(self.synced)] == self.synced
            loader = Loader(log)
            for version in range(1, self.begun + 1):
                self.check_version(loader, version, {value: at for at, value in found})
            assert log.end_ordinal == len(salvaged(log))
            assert log.append(b"goes on").first > self.seen
        with reopened() as log:
            assert salvaged(log)[-1].value == b"goes on"

    def check_version(self, loader: Loader, version: int, found: dict[bytes, int]) -> None:
        """A transaction is there whole, with the acknowledged pointers, or not at all."""
        wanted = values_of(version)
        there = [found[value] for value in wanted if value in found]
        state = "unknown"
        with_newer = version < max([0, *(v for v in range(self.begun + 1) if values_of(v)[0] in found)])
        if not with_newer or there:
            state = loader.own.standing(loader.id, version).state
        if there:
            assert there == list(range(there[0], there[0] + len(wanted))), "a part of a transaction"
            assert state == "published"
            again = loader.publish(version, [])
            assert (again.first, again.duplicate) == (there[0], True)
        assert version not in self.acknowledged or there[:1] == [self.acknowledged[version].first], (
            "lost, or elsewhere"
        )
        if there or with_newer:
            self.fates.add("published" if there else "overtaken")
            return
        assert state in ("staged", "unknown")
        parts = [part_of(part, 7, batches) for part, batches in enumerate(batches_of(version))]
        try:
            published = loader.publish(version, parts)
            self.fates.add("published again")
        except Conflict as problem:
            if problem.code != "not_staged":
                raise
            self.fates.add("staged again")
            parts = [
                loader.stage(version, part, batches, 9) for part, batches in enumerate(batches_of(version))
            ]
            published = loader.publish(version, parts)
        assert published.first > self.seen
        left = {one.pointer: one.value for one in salvaged(loader.log)}
        assert [left[published.first + i] for i in range(published.count)] == wanted


@pytest.mark.parametrize(
    ("options", "samples"),
    [(APPENDED, times(24, 120)), (SEGMENTS, times(6, 15))],
    ids=["appended", "segments"],
)
def test_a_transaction_is_whole_or_not_there_on_every_disk_that_a_loss_of_power_may_leave(
    tmp_path: Path, options: LogOptions, samples: int, seed: int
) -> None:
    """Staged, published, staged again, aborted, across a clean end and a death of the process."""
    life = Life(tmp_path / "log", options, samples, seed)
    life.append(b"before")
    life.publish(1, life.stage(1))
    life.append(b"between")
    life.stage(2, attempt=8)
    parts = life.stage(2)
    life.log.close()
    life.open()
    life.append(b"not synced", synced=False)
    life.publish(2, parts)
    life.stage(3)
    life.log.discard()
    life.open()
    life.loader.own.abort(life.loader.id, 3)
    life.publish(3, life.stage(3))
    life.append(b"after")
    life.log.close()
    assert len(life.opened) > 100
    assert {"published", "published again", "staged again"} <= life.fates
