"""Appending the publishes of one burst, from both protocols, with one write.

A fast publish brings its batch. What simple publishes bring is encoded here, all of a burst as one batch: a
batch for each would cost as many headers, and everybody who reads it later would pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quothd.requests.pending_request import PendingRequest
from quothd.topics import transactions
from quothlog import Appended, Log
from quothwire import batch
from quothwire.errors import QuothError, error, shown
from quothwire.ingest import check_new, check_published
from quothwire.protocol.messages import Operation, Publish, Published
from quothwire.protocol.text_codec import SimplePublish
from quothwire.settings import DURABILITIES


class Outcome(NamedTuple):
    """What became of a publish, and the durability that it asked for ("" for the topic's)."""

    job: PendingRequest
    outcome: Appended | QuothError
    durability: str


class Waiting(NamedTuple):
    """A publish whose records are written and whose acknowledgement waits for an fsync."""

    job: PendingRequest
    reply: Published


class _Singles:
    """The values of simple publishes, gathered into one batch."""

    def __init__(self) -> None:
        self.jobs: list[PendingRequest] = []
        self.counts: list[int] = []
        self.values: list[bytes] = []

    def add(self, job: PendingRequest, values: Sequence[bytes]) -> None:
        """Take in the values of one publish."""
        self.jobs.append(job)
        self.counts.append(len(values))
        self.values += values

    def has_room(self, values: Sequence[bytes]) -> bool:
        """Do these values still fit into the batch?"""
        return len(self.values) + len(values) <= batch.BATCH_RECORDS_MAX


def check_first(job: PendingRequest) -> None:
    """Raise what is wrong with the first publish, or stage, of a topic, as far as no log is needed to see it.

    It reads all of the batch, which the log does again: 20 ns a record, once in the life of a topic.
    """
    if job.operation is Operation.STAGE:
        transactions.glance(job)
        check_new(batch.parse(job.responder.payload()))
    elif isinstance(request := _request_of(job), SimplePublish):
        batch.encode(request.values)
    else:
        parsed = batch.parse(job.responder.payload())
        check_published(parsed.header)
        check_new(parsed)


def append_jobs(log: Log, jobs: Sequence[PendingRequest]) -> Iterator[Outcome]:
    """Append what publishes bring, in the order in which they came within each protocol."""
    batches: list[PendingRequest] = []
    singles = _Singles()
    for job in jobs:
        try:
            request = _request_of(job)
            if isinstance(request, SimplePublish):
                if not singles.has_room(request.values):
                    yield from _append_singles(log, singles)
                    singles = _Singles()
                singles.add(job, request.values)
                continue
        except QuothError as problem:
            yield Outcome(job, problem, "")
            continue
        batches.append(job)
    outcomes = log.append_batches([job.responder.payload() for job in batches])
    for job, outcome in zip(batches, outcomes, strict=True):
        yield Outcome(job, outcome, job.request.durability)
    yield from _append_singles(log, singles)


def acknowledged(log_id: int, outcome: Appended, *levels: str) -> Published:
    """The acknowledgement of a publish, with the higher of the levels that it and its topic ask for."""
    level = "synced" if "synced" in levels else "written"
    return Published(log_id, outcome.first, outcome.last, outcome.count, level, outcome.duplicate)


def _request_of(job: PendingRequest) -> Publish | SimplePublish:
    request: Publish | SimplePublish = job.decode()
    if isinstance(request, Publish) and request.durability and request.durability not in DURABILITIES:
        text = f"durability of publish is {shown(request.durability)}: it must be {' or '.join(DURABILITIES)}"
        raise error("bad_request", text, "empty for the topic's own")
    return request


def _append_singles(log: Log, singles: _Singles) -> Iterator[Outcome]:
    """Append gathered values as one batch; if that would be too large, each publish as its own."""
    if not singles.jobs:
        return
    try:
        (outcome,) = log.append_batches([batch.encode(singles.values)])
    except QuothError as problem:
        outcome = problem
        if len(singles.jobs) > 1:
            yield from _append_each(log, singles)
            return
    at = 0
    for job, count in zip(singles.jobs, singles.counts, strict=True):
        yield Outcome(job, _share(outcome, at, count), "")
        at += count


def _append_each(log: Log, singles: _Singles) -> Iterator[Outcome]:
    at = 0
    for job, count in zip(singles.jobs, singles.counts, strict=True):
        own = _Singles()
        own.add(job, singles.values[at : at + count])
        yield from _append_singles(log, own)
        at += count


def _share(outcome: Appended | QuothError, at: int, count: int) -> Appended | QuothError:
    """The part of a batch's outcome that belongs to one publish in it."""
    if isinstance(outcome, QuothError):
        return outcome
    first = outcome.first + at
    return Appended(first, first + count - 1, count, False)
