"""Appends the publishes of a burst, from both protocols, with one write.

A publish of the fast protocol has its batch. The values of the simple publishes of a burst become one batch
here: a batch for each would cost as many headers, in the log and for each reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quothd.requests.pending_request import PendingRequest
from quothd.topics.transactions import application_of
from quothlog import Appended, Log
from quothwire import batch
from quothwire.errors import QuothError, error, shown
from quothwire.ingest import check_new, check_published
from quothwire.protocol.messages import Operation, Publish, Published
from quothwire.protocol.text_codec import SimplePublish
from quothwire.settings import DURABILITIES


class PublishOutcome(NamedTuple):
    """What became of a publish, and the durability that it asked for ("" for the topic's)."""

    request: PendingRequest
    outcome: Appended | QuothError
    durability: str


class _Values:
    """The values of simple publishes, for one batch."""

    def __init__(self) -> None:
        self.requests: list[PendingRequest] = []
        self.counts: list[int] = []
        self.values: list[bytes] = []

    def add(self, request: PendingRequest, values: Sequence[bytes]) -> None:
        """Add the values of one publish."""
        self.requests.append(request)
        self.counts.append(len(values))
        self.values += values

    def has_room(self, values: Sequence[bytes]) -> bool:
        """Whether these values still fit into the batch."""
        return len(self.values) + len(values) <= batch.BATCH_RECORDS_MAX


def check_first(request: PendingRequest) -> None:
    """Raise what is wrong with the first publish, or stage, of a topic, as far as that shows without its log.

    It reads all of the batch, as the log does again: 20 ns a record, once in the life of a topic.
    """
    if request.operation is Operation.STAGE:
        application_of(request.decode())
        check_new(batch.parse(request.responder.payload()))
        return
    message = _checked(request)
    if isinstance(message, SimplePublish):
        batch.encode(message.values)
    else:
        parsed = batch.parse(request.responder.payload())
        check_published(parsed.header)
        check_new(parsed)


def append_publishes(log: Log, requests: Sequence[PendingRequest]) -> Iterator[PublishOutcome]:
    """Append what publishes bring, in the order in which they came within each protocol."""
    with_batch: list[PendingRequest] = []
    values = _Values()
    for request in requests:
        try:
            message = _checked(request)
        except QuothError as problem:
            yield PublishOutcome(request, problem, "")
            continue
        if not isinstance(message, SimplePublish):
            with_batch.append(request)
            continue
        if not values.has_room(message.values):
            yield from _append_values(log, values)
            values = _Values()
        values.add(request, message.values)
    if with_batch:
        outcomes = log.appender.append_batches([request.responder.payload() for request in with_batch])
        for request, outcome in zip(with_batch, outcomes, strict=True):
            yield PublishOutcome(request, outcome, request.message.durability)
    if values.requests:
        yield from _append_values(log, values)


def acknowledged(log_id: int, outcome: Appended, *levels: str) -> Published:
    """The acknowledgement of a publish, with the higher of the levels that it and its topic ask for."""
    level = "synced" if "synced" in levels else "written"
    return Published(log_id, outcome.first, outcome.last, outcome.count, level, outcome.duplicate)


def _checked(request: PendingRequest) -> Publish | SimplePublish:
    message: Publish | SimplePublish = request.decode()
    if isinstance(message, Publish) and message.durability and message.durability not in DURABILITIES:
        text = f"durability of publish is {shown(message.durability)}: it must be {' or '.join(DURABILITIES)}"
        raise error("bad_request", text, "empty for the topic's own")
    return message


def _append_values(log: Log, values: _Values) -> Iterator[PublishOutcome]:
    """Append values as one batch; if that would be too large, each publish as its own."""
    try:
        (outcome,) = log.append_batches([batch.encode(values.values)])
    except QuothError as problem:
        outcome = problem
        if len(values.requests) > 1:
            yield from _append_each(log, values)
            return
    at = 0
    for request, count in zip(values.requests, values.counts, strict=True):
        yield PublishOutcome(request, _share(outcome, at, count), "")
        at += count


def _append_each(log: Log, values: _Values) -> Iterator[PublishOutcome]:
    at = 0
    for request, count in zip(values.requests, values.counts, strict=True):
        own = _Values()
        own.add(request, values.values[at : at + count])
        yield from _append_values(log, own)
        at += count


def _share(outcome: Appended | QuothError, at: int, count: int) -> Appended | QuothError:
    """The part of a batch's outcome that belongs to one publish in it."""
    if isinstance(outcome, QuothError):
        return outcome
    first = outcome.first + at
    return Appended(first, first + count - 1, count, False)
