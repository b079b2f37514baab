"""Transactions as an application makes them: batches that it stages, in a log or through a broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from kit.broker.peers import FastPeer, replied
from quothlog import Appended, Log, LogOptions
from quothlog.transactions.commit import Commit
from quothlog.transactions.transactions import LogTransactions
from quothwire import batch
from quothwire.batch import Flag
from quothwire.protocol.messages import (
    AbortTransaction,
    GetTransaction,
    Published,
    PublishStaged,
    Stage,
    TransactionInfo,
)
from quothwire.protocol.transaction import StagedPart, encode_parts, producer_of, sequence_of

LOADER = "loader"
Batches = Sequence[Sequence[bytes]]


def staged(
    values: Sequence[bytes],
    version: int,
    application: str = LOADER,
    headers: Sequence[bytes] | None = None,
) -> bytes:
    """A batch as a task stages it."""
    return batch.encode(
        values,
        headers=headers,
        producer=producer_of(application),
        sequence=sequence_of(version),
        flags=int(Flag.TRANSACTION),
    )


def part_of(part: int, attempt: int, batches: Batches) -> StagedPart:
    return StagedPart(part, attempt, len(batches), sum(map(len, batches)))


class Loader:
    """An application at work on an open log, without a broker."""

    def __init__(self, log: Log, application: str = LOADER, **limits: int) -> None:
        """limits: of `Log.transactions`."""
        self.log = log
        self.id = producer_of(application)
        self.own: LogTransactions = log.transactions(**limits)
        self._application = application

    def stage(self, version: int, part: int, batches: Batches, attempt: int = 7) -> StagedPart:
        """Stage a part, whole."""
        for number, values in enumerate(batches):
            raw = staged(values, version, self._application)
            self.own.stage(self.id, version, part, attempt, number, raw)
        return part_of(part, attempt, batches)

    def publish(self, version: int, parts: Iterable[StagedPart]) -> Appended:
        """Publish parts, durably, with all steps that this takes."""
        outcome = self.own.publish(self.id, version, list(parts))
        if isinstance(outcome, Commit):
            return self.carry_out(outcome)
        assert outcome is not None
        self.log.sync()
        self.own.tidy()
        return outcome

    def carry_out(self, publication: Commit) -> Appended:
        """Execute all steps of a large commit. An error of the disk is raised as the client gets it."""
        try:
            publication.prepare()
            self.own.place(publication)
            publication.commit()
        except OSError as problem:
            raise self.own.withdraw(publication, problem) from problem
        return self.own.adopt(publication)


class Job:
    """An application at work on a topic, through a broker."""

    def __init__(self, peer: FastPeer, topic: str, application: str = LOADER) -> None:
        self.peer = peer
        self.topic = topic
        self.application = application

    def stage(self, version: int, part: int, batches: Batches, attempt: int = 7) -> StagedPart:
        """Stage a part, whole, a few batches on their way at once."""
        for start in range(0, len(batches), 8):
            asked = [
                self.send_stage(version, part, number, batches[number], attempt)
                for number in range(start, min(start + 8, len(batches)))
            ]
            for answer in self.peer.answers_to(asked):
                replied(answer)
        return part_of(part, attempt, batches)

    def send_stage(
        self, version: int, part: int, number: int, values: Sequence[bytes], attempt: int = 7
    ) -> int:
        request = Stage(self.application, version, part, attempt, number)
        return self.peer.send(request, self.topic, staged(values, version, self.application))

    def send_publish(self, version: int, parts: Sequence[StagedPart]) -> int:
        request = PublishStaged(self.application, version, len(parts))
        return self.peer.send(request, self.topic, encode_parts(parts))

    def publish(self, version: int, parts: Sequence[StagedPart]) -> Published:
        """Publish parts. Raises the error of the broker."""
        reply = replied(self.peer.answer_to(self.send_publish(version, parts)))
        assert isinstance(reply, Published)
        return reply

    def abort(self, version: int) -> TransactionInfo:
        reply = self.peer.call(AbortTransaction(self.application, version), self.topic)
        assert isinstance(reply, TransactionInfo)
        return reply

    def standing(self, version: int) -> TransactionInfo:
        reply = self.peer.call(GetTransaction(self.application, version), self.topic)
        assert isinstance(reply, TransactionInfo)
        return reply


SMALL = LogOptions(size_limit=2**20)
LARGE = LogOptions(size_limit=5_000)
"""A quarter of a segment is soon reached, so transactions become segments of their own."""
PARTS = [[[b"%d.%d.%d" % (part, n, i) + b"-" * 150 for i in range(3)] for n in range(4)] for part in range(5)]
WHOLE = [value for part in PARTS for values in part for value in values]

sizes = pytest.mark.parametrize("options", [SMALL, LARGE], ids=["appended", "segments"])


def stage_all(loader: Loader, version: int = 1, attempt: int = 7) -> list[StagedPart]:
    return [loader.stage(version, part, batches, attempt) for part, batches in enumerate(PARTS)]


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.suffix in (".staged", ".merged", ".plan")]
