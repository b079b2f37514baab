"""Publishes output batches, several at a time, until the broker has each of them exactly once.

    pending ──sent──► in flight ──stored, or a duplicate──► done
       ▲                  │
       │                  ├── unknown_producer: unless the topic has it, it begins the producer anew, alone
       └──────────────────┼── out_of_sequence: it was overtaken; under the producer id of the next level
                          └── forgotten_sequence: the topic itself shows whether it is stored

A connection that is lost is not made again by itself: what it had not sent is gone, and all that is not done
is sent again in order, over another one. A batch that was refused for a moment may be overtaken all the same,
since sequences of a sparse producer may have holes. The broker remembers the last 64 results of a producer,
and no more batches are ever unfinished at once: so it knows for certain that an overtaken one was not stored.
A producer that the topic may not know sends its first batch alone: if that one was overtaken, the broker
would take it for one that is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from quoth.client import Client
from quoth.columns import check_size
from quoth.connection.channel import Channel
from quoth.core.options import deadline_in
from quoth.core.request_state import RequestState
from quothrules.routing.output_batch import OutputBatch
from quothwire.closing import Closeable
from quothwire.errors import AuthError, BrokerFailure, Disconnected, NotFound, QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Publish, Published

LEVELS_MAX = 16
"""Producer ids that are tried for one batch. A second one is rare."""
KNOWN_MAX = 10_000
"""Producers that are known to be known. Others send their next batch alone."""
CLOCK_US = 60_000_000
"""A target may have pointers that are so much behind those of its source, whose records came faster than one
in a microsecond."""
HEAR_S = 0.1
"""Within this time a lost connection is noticed."""


class OutputPublisher(Closeable):
    """Publishes batches over a connection of its own. Belongs to one thread.

    in_flight: batches on their way at once. not_before: a pointer; nothing was stored before.
    """

    def __init__(self, client: Client, in_flight: int, not_before: int) -> None:
        self.in_flight = in_flight
        self.stored_before = 0
        """The batches that turned out to be stored by an earlier attempt."""
        self._client = client
        self._not_before = not_before
        self._channel: Channel | None = None
        self._known: set[int] = set()
        """Producers of which a batch was stored, or recognised, since this publisher was made."""

    def publish(self, batches: Sequence[OutputBatch]) -> None:
        """Publish batches in order; each that is not done yet is stored then, or has a problem.

        Raises the error of a broker that is away or cannot store anything now. Then the batches that are not
        done are to be published again.
        """
        channel = self._channel = self._channel or self._client._requests(once=True)
        order = {batch: number for number, batch in enumerate(batches)}
        pending = deque(batch for batch in batches if not batch.is_done)
        sent: dict[RequestState, OutputBatch] = {}
        try:
            while pending or sent:
                while pending and self._send(channel, pending[0], sent):
                    pending.popleft()
                again = [
                    batch
                    for request, answer in (channel.hear(HEAR_S) if sent else ())
                    if not self._settle(batch := sent.pop(request), answer)
                ]
                if channel.link.connected is False:
                    raise error("disconnected", "the connection was lost")
                if again:
                    pending = deque(sorted((*again, *pending), key=order.__getitem__))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _send(self, channel: Channel, batch: OutputBatch, sent: dict[RequestState, OutputBatch]) -> bool:
        """Send a batch; False if it has to wait for those in flight."""
        producer = batch.producer
        is_known = producer in self._known
        if len(sent) >= self.in_flight:
            return False
        if not is_known and any(other.producer == producer for other in sent.values()):
            return False
        try:
            payload = batch.encode(begins=not is_known and batch.is_absent)
            check_size(payload, self._client._payload_bytes_max)
        except QuothError as problem:
            batch.problem, batch.is_done = problem, True
            return True
        request = RequestState(Publish(), batch.target, payload, deadline=deadline_in(self._client.timeout))
        sent[request] = batch
        channel.ask(request)
        return True

    def _settle(self, batch: OutputBatch, answer: Answer) -> bool:
        """Take the answer for a batch; False if it is to be sent again. Raises the error of an outage."""
        reply = answer.reply
        if isinstance(reply, Published):
            self._note_stored(batch, is_new=not reply.duplicate)
        elif isinstance(reply, QuothError):
            self._settle_refused(batch, reply)
        return batch.is_done

    def _settle_refused(self, batch: OutputBatch, problem: QuothError) -> None:
        if problem.code == "sequence_reused":  # stored by an earlier version of the rules
            self._note_stored(batch, is_new=False)
        elif problem.code == "unknown_producer":
            self._known.discard(batch.producer)
            if not batch.is_absent and self._is_stored(batch):
                self._note_stored(batch, is_new=False)
            batch.is_absent = True
        elif problem.code == "out_of_sequence":
            self._raise_level(batch)
        elif problem.code == "forgotten_sequence":
            if self._is_stored(batch):
                self._note_stored(batch, is_new=False)
            else:
                batch.is_absent = True
                self._raise_level(batch)
        elif is_outage(problem):
            raise problem
        else:
            batch.problem, batch.is_done = problem, True

    def _note_stored(self, batch: OutputBatch, *, is_new: bool) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known.add(batch.producer)
        self.stored_before += not is_new
        batch.is_done = True

    def _raise_level(self, batch: OutputBatch) -> None:
        """Let a batch be sent under another producer id."""
        self._known.add(batch.producer)
        batch.level += 1
        if batch.level >= LEVELS_MAX:
            batch.problem = error("out_of_sequence", f"{LEVELS_MAX} producers have been overtaken")
            batch.is_done = True

    def _is_stored(self, batch: OutputBatch) -> bool:
        """Look for a batch in its topic."""
        source = batch.source
        producers = {source.producer(batch.target, level) for level in range(LEVELS_MAX)}
        after = max(0, source.pointer - CLOCK_US, self._not_before - CLOCK_US)
        try:
            return any(
                stored.header.sequence == source.pointer and stored.header.producer in producers
                for stored in self._client.stored(batch.target, after=after)
            )
        except NotFound:
            return False


def is_outage(problem: QuothError) -> bool:
    """Return True for an error that passes, or that says nothing about the record."""
    return problem.retryable or isinstance(problem, AuthError | BrokerFailure | Disconnected)
