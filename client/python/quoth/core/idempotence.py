"""Producer ids and sequences, by which the broker recognises a retry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from quoth.columns import RecordColumns, check_size
from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Ack
from quoth.tracing import sending
from quothwire import batch as wire
from quothwire.errors import AuthError, BrokerFailure, QuothError
from quothwire.protocol.messages import Publish, Published

if TYPE_CHECKING:
    from quoth.tracing.spans import PublishSpan

FORGOTTEN = frozenset(("unknown_producer", "out_of_sequence"))
"""Errors for a producer whose earlier batches are all settled: the broker does not have them any more.
The topic was deleted and created again, the producer was forgotten, or a loss of power or damage took
them."""


class Publishing(NamedTuple):
    """A batch to publish.

    bytes_max: those that it may have. deadline: by the monotonic clock. url: that of the broker, for spans.
    """

    request: Publish
    topic: str
    columns: RecordColumns
    bytes_max: int
    deadline: float
    url: str = ""


def new_producer_id() -> int:
    """Return a random id, never 0."""
    return (int.from_bytes(os.urandom(8)) >> 1) + 1


class Sequences:
    """Producer ids for publishes that follow one another, one id for each topic.

    Not to be used again after a publish with an unknown outcome: the next sequence is not known then.
    """

    def __init__(self) -> None:
        self._stored: dict[str, tuple[int, int]] = {}

    def publish(self, given: Publishing) -> ClientCall[Ack]:
        """Publish a batch, which is stored once whatever happens to the connection.

        Raises the error that the broker answers, `Disconnected`, or ``too_large``.
        """
        span = sending(given.topic, len(given.columns.values), given.url)
        return self._publish_known(given) if span is None else self._publish_in(span, given)

    def _publish_in(self, span: PublishSpan, given: Publishing) -> ClientCall[Ack]:
        """Publish a batch whose records carry the context of a span."""
        with span:
            columns = span.carried(given.columns, given.bytes_max)
            ack = yield from self._publish_known(given._replace(columns=columns))
            span.note_stored(ack.first)
        return ack

    def _publish_known(self, given: Publishing) -> ClientCall[Ack]:
        """Publish a batch, again from the start where the broker has forgotten the producer."""
        try:
            return (yield from self._publish(given))
        except QuothError as problem:
            if problem.code not in FORGOTTEN:
                raise
        del self._stored[given.topic]
        return (yield from self._publish(given))

    def _publish(self, given: Publishing) -> ClientCall[Ack]:
        request, topic, columns, bytes_max, deadline, _ = given
        producer, stored = self._stored.setdefault(topic, (new_producer_id(), 0))
        payload = wire.encode(*columns, producer=producer, sequence=stored + 1)
        check_size(payload, bytes_max)
        try:
            reply = (yield RequestState(request, topic, payload, deadline=deadline)).reply
        except (AuthError, BrokerFailure):  # it may have been written before the key, or the disk, failed
            del self._stored[topic]
            raise
        assert isinstance(reply, Published)
        self._stored[topic] = (producer, stored + 1)
        return Ack.of(reply)
