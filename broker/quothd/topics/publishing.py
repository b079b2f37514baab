"""Appends the publishes of a topic, those of a burst with one write, and acknowledges them.

A publish of the fast protocol brings its batch. The values of the simple publishes of a burst become one
batch here: a batch for each would cost as many headers, in the log and for each reader. An acknowledgement is
an event at once, or when the level that was asked for is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from quothd.access.rights import KnownClient
from quothd.metrics.measures import DURATIONS_MAX, Measures
from quothd.requests.dead_letter import LETTERS, LETTERS_AT, DeadLetterResponder
from quothd.requests.events import DiskLow, EventList
from quothd.requests.pending_request import PendingRequest, check_durability
from quothd.service.log_events import note
from quothd.topics.bindings import Bindings, BoundKind, Identity
from quothd.topics.metadata import TopicMetadata
from quothd.topics.syncing import SHARE_FULL, Syncing, Unsynced
from quothd.topics.transactions import application_of
from quothlog import Appended, Log
from quothlog.appender import Appender
from quothlog.storage.clock import Clock
from quothwire import batch
from quothwire.errors import QuothError, error
from quothwire.ingest import check_new, check_published
from quothwire.protocol.messages import Operation, Publish, Published
from quothwire.protocol.text_codec import SimplePublish


class TopicPublishes:
    """The publishes of one open topic. Owned by the topic.

    room: bytes that the active segment certainly has room for, 0 if that is not known. waiting: publishes
    to append together.
    """

    def __init__(
        self,
        log: Log,
        metadata: TopicMetadata,
        syncing: Syncing,
        events: EventList,
        bindings: Bindings,
        clock: Clock,
    ) -> None:
        self.room = 0
        self._clock = clock
        self._bindings = bindings
        self._appender = log.appender
        self._metadata = metadata
        self._syncing = syncing
        self._events = events
        self.waiting: list[PendingRequest] = []
        self._is_disk_low = False

    def fits(self, size: int) -> bool:
        """Return True if the active segment certainly has room for so many bytes."""
        if size > self.room:
            self.room = self._appender.bytes_left
        return size <= self.room

    def append(self, now: float) -> int:
        """Append the waiting publishes; returns their bytes."""
        publishes, self.waiting = self.waiting, []
        size = sum([request.size for request in publishes])
        self.room -= size
        measures, began = self._events.measures, self._clock.monotonic()
        if self._syncing.share > SHARE_FULL:
            self._syncing.sync_here(now)
            self._syncing.answer_reached(self._events)
            synced = self._clock.monotonic()
            measures.syncs.append(synced - began)
            began = synced
        outcomes = append_publishes(self._appender, publishes, self._bindings, measures)
        measures.appends.append(self._clock.monotonic() - began)
        if len(measures.appends) >= DURATIONS_MAX:
            measures.fold()
        for request, outcome, durability in outcomes:
            self.acknowledge(request, outcome, durability)
        self._syncing.measure(now)
        return size

    def acknowledge(self, request: PendingRequest, outcome: Appended | QuothError, durability: str) -> None:
        """Answer a publish, at once or when its records are synced and visible."""
        if isinstance(outcome, QuothError):
            self.refuse(request, outcome)
            return
        self._is_disk_low = False
        topic = self._metadata.topic
        level = "synced" if "synced" in (durability, topic.settings.durability) else "written"
        reply = Published(topic.log_id, outcome.first, outcome.last, outcome.count, level, outcome.duplicate)
        reached = self._appender.synced if level == "synced" else self._appender.visible
        if outcome.last > reached.pointer:
            self._syncing.waiting.append(Unsynced(request, reply, outcome.last))
        else:
            self._events.reply(request, reply)

    def refuse(self, request: PendingRequest, problem: QuothError) -> None:
        """Answer with an error; a full disk is reported to the front end, and logged until it has room
        again."""
        if problem.code == "disk_low":
            self._events.add(DiskLow())
            if not self._is_disk_low:
                note("disk_low", topic=self._metadata.topic.name, problem=problem.text)
            self._is_disk_low = True
        self._events.refuse(request, problem)


class PublishOutcome(NamedTuple):
    """The outcome of a publish, and the durability that it asked for ("" for the topic's)."""

    request: PendingRequest
    outcome: Appended | QuothError
    durability: str


def check_first(request: PendingRequest) -> None:
    """Raise the errors of the first publish, or stage, of a topic that can be found without its log.

    It reads all of the batch, as the log does again, once in the life of a topic.
    """
    if request.operation is Operation.STAGE:
        application_of(request.decode())
        raw = request.responder.payload()
        check_new(raw, batch.check(raw))
        return
    message = _checked(request)
    if isinstance(message, SimplePublish):
        batch.encode(message.values)
    else:
        raw = request.responder.payload()
        header = batch.check(raw)
        check_published(header)
        check_new(raw, header)


def append_publishes(
    appender: Appender, requests: Sequence[PendingRequest], bindings: Bindings, measures: Measures
) -> list[PublishOutcome]:
    """Append what publishes bring, in the order in which they came within each protocol.

    measures: counts what is stored.
    """
    outcomes: list[PublishOutcome] = []
    with_batch: list[PendingRequest] = []
    raws: list[batch.Bytes] = []
    simple: list[PendingRequest] = []
    for request in requests:
        try:
            message = _checked(request)
            if isinstance(message, SimplePublish):
                simple.append(request)
                continue
            raw = request.responder.payload()
            if raw[LETTERS_AT] == LETTERS:
                _check_letter(request)
            if request.client is not None:
                _admit(bindings, request.client, raw)
        except QuothError as problem:
            without_frames = problem.with_traceback(None)  # or the batch would stay until the next collection
            outcomes.append(PublishOutcome(request, without_frames, ""))
            continue
        with_batch.append(request)
        raws.append(raw)
    if with_batch:
        stored = appender.append_batches(raws)
        for request, raw, outcome in zip(with_batch, raws, stored, strict=True):
            outcomes.append(PublishOutcome(request, outcome, request.message.durability))
            if isinstance(outcome, Appended) and not outcome.duplicate:
                measures.records_in += outcome.count
                measures.bytes_in += len(raw)
        if bindings.fresh:
            bindings.save()
    return outcomes + (_append_values(appender, simple, measures) if simple else [])


def _admit(bindings: Bindings, client: KnownClient, raw: batch.Bytes) -> None:
    """Raise ``denied`` if the producer of a batch is another client. The log checks the rest of the batch."""
    if producer := batch.parse_header(raw, 0).producer:
        bindings.admit(client, Identity(BoundKind.PRODUCER, producer))


def _check_letter(request: PendingRequest) -> None:
    """Raise ``bad_batch`` for the producer id of a dead letter from anything else."""
    if not isinstance(request.responder, DeadLetterResponder):
        text = "a producer id that ends in the bytes 1e ad de: the broker keeps these for its dead letters"
        raise error("bad_batch", text, "nothing was stored; choose another id")


def _checked(request: PendingRequest) -> Publish | SimplePublish:
    message: Publish | SimplePublish = request.decode()
    if isinstance(message, Publish) and message.durability:
        check_durability(message.durability, "publish")
    return message


def _append_values(
    appender: Appender, requests: Sequence[PendingRequest], measures: Measures
) -> list[PublishOutcome]:
    """Append the values of simple publishes as one batch; if that would be too large, each as its own.

    With too many values they are halved first: to encode millions would stop all threads for a second.
    """
    if len(requests) > 1 and sum(len(one.message.values) for one in requests) > batch.BATCH_RECORDS_MAX:
        half = len(requests) // 2
        first_half = _append_values(appender, requests[:half], measures)
        return first_half + _append_values(appender, requests[half:], measures)
    values = list(chain.from_iterable(request.message.values for request in requests))
    try:
        raw = batch.encode(values)
        (outcome,) = appender.append_batches([raw])
    except QuothError as problem:
        if len(requests) > 1:
            return [one for request in requests for one in _append_values(appender, [request], measures)]
        outcome = problem.with_traceback(None)
    if isinstance(outcome, Appended):
        measures.records_in += outcome.count
        measures.bytes_in += len(raw)
    outcomes, at = [], 0
    for request in requests:
        part, count = outcome, len(request.message.values)
        if isinstance(outcome, Appended):
            first = outcome.first + at
            part = Appended(first, first + count - 1, count, False)
        outcomes.append(PublishOutcome(request, part, ""))
        at += count
    return outcomes
