"""What makes a retry recognisable: producer ids, and how many batches each of them has stored."""

from __future__ import annotations

import os
from collections.abc import Callable

from quoth.core.request_state import ClientCall, RequestState
from quoth.message import Ack
from quothwire.errors import BrokerFailure, QuothError
from quothwire.protocol.messages import Publish, Published

FORGOTTEN = frozenset(("unknown_producer", "out_of_sequence"))
"""Said to a producer all of whose earlier batches are settled: the broker does not have them any more. The
topic was made anew, the producer was forgotten, or a loss of power or damage took them."""

Encode = Callable[[int, int], bytes]
"""Makes the bytes of a batch for a producer id and a sequence."""


def new_producer_id() -> int:
    """A random id, never 0."""
    return (int.from_bytes(os.urandom(8)) >> 1) + 1


class Sequences:
    """The producer ids under which one publish after the other is made, one for each topic.

    Of no use any more after a publish whose outcome is not known: nobody could say what comes next.
    """

    def __init__(self) -> None:
        self._stored: dict[str, tuple[int, int]] = {}

    def publish(self, request: Publish, topic: str, encode: Encode, deadline: float) -> ClientCall[Ack]:
        """Publish a batch, which is stored once whatever happens to the connection.

        Raises what the broker answers, or `Disconnected`.
        """
        try:
            return (yield from self._publish(request, topic, encode, deadline))
        except QuothError as problem:
            if problem.code not in FORGOTTEN:
                raise
        del self._stored[topic]
        return (yield from self._publish(request, topic, encode, deadline))

    def _publish(self, request: Publish, topic: str, encode: Encode, deadline: float) -> ClientCall[Ack]:
        producer, stored = self._stored.setdefault(topic, (new_producer_id(), 0))
        payload = encode(producer, stored + 1)
        try:
            reply = (yield RequestState(request, topic, payload, deadline=deadline)).reply
        except BrokerFailure:
            del self._stored[topic]  # it may have been written before the disk failed
            raise
        assert isinstance(reply, Published)
        self._stored[topic] = (producer, stored + 1)
        return Ack(reply.first, reply.last, reply.count, reply.durability, reply.duplicate)
