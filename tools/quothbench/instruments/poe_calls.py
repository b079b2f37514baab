"""The calls of Poe's benchmark: what each client of `quoth bench table` sends, one call after the other.

They are the operations of Poe's driver for basho_bench. A client has a pointer of its own in each topic. A
read asks for the records behind it, and the pointer goes on to the last one of them. At the end of a topic a
read brings nothing: the client is caught up there. `read` stays there, `read_wrap` goes back to pointer 0.

These calls differ from Poe's in three things. A client takes one topic after the other, and Poe's one at
random, of 3 in the version that is published. Alternating is a write, then a read of the same topic, and
Poe's chose one of the two at random. A client whose `read` is caught up in all topics ends, and Poe's went
on with reads of nothing, which its rates counted like the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import zmq

from quothbench.load import driver
from quothbench.load.topics import Payload
from quothwire import batch
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetch, Fetched

_MINI_BYTES = 1


class Load(StrEnum):
    """The calls of the clients."""

    WRITE = "write"
    WRITE_MINI = "write_mini"
    READ = "read"
    READ_WRAP = "read_wrap"
    ALTERNATING = "alternating"

    @property
    def writes(self) -> bool:
        """True if clients write."""
        return self not in (Load.READ, Load.READ_WRAP)

    @property
    def reads(self) -> bool:
        """True if clients read, so that there must be records before they begin."""
        return self not in (Load.WRITE, Load.WRITE_MINI)

    def payload(self, usual: Payload) -> Payload:
        """Return the payload of a call: `write_mini` has messages of one byte, whatever is usual."""
        return usual._replace(size=_MINI_BYTES) if self is Load.WRITE_MINI else usual


class CallTimes(NamedTuple):
    """The calls of one client. took: seconds of each. messages: written and read. caught_up: empty reads."""

    took: list[float]
    messages: int
    caught_up: int


class _TopicCalls:
    """The writes to one topic, and the pointer of its reads."""

    def __init__(self, topic: str, payload: Payload) -> None:
        self.writes = driver.endless_publishes(topic, payload.values)
        self.pointer = 0
        self._topic = topic
        self._records = payload.records
        self._bytes = len(batch.encode(payload.values))

    def read(self) -> driver.Frames:
        """Make the request of the records behind the pointer: one batch, as it was written."""
        fetch = Fetch(after=self.pointer, ordinal=-1, records_max=self._records, bytes_max=self._bytes)
        return [b"", *binary_codec.encode_request(fetch, 0, self._topic)]

    def take(self, reply: driver.Frames) -> int:
        """Go on behind the records of a reply; return their number. They are not decoded."""
        answer = binary_codec.decode_answer(reply[1:])
        assert isinstance(answer.reply, Fetched)
        stored = batch.split(answer.payload, answer.reply.log)
        self.pointer = answer.reply.next
        return sum(batch.parse_header(one, answer.reply.log).records for one in stored)


class ClientCalls:
    """The calls of one client: to one topic after the other, again and again.

    messages: that were written and read so far. caught_up: reads that found none.
    """

    def __init__(self, work: Load, topics: Sequence[str], payload: Payload) -> None:
        """payload: of a call of this work. Reads begin at pointer 0."""
        self.messages = self.caught_up = 0
        self._work = work
        self._records = payload.records
        self._topics = [_TopicCalls(topic, payload) for topic in topics]
        self._reading: _TopicCalls | None = None
        self._found = 0

    def requests(self) -> Iterator[driver.Frames]:
        """Yield the requests. Each reply has to be given to `answered` before the next one is taken.

        They end if the work is `read` and all topics are caught up, otherwise never.
        """
        topics = deque(self._topics)
        while topics:
            topic = topics.popleft()
            if self._work.writes:
                self._reading = None
                yield next(topic.writes)
            is_caught_up = False
            if self._work.reads:
                self._reading = topic
                yield topic.read()
                is_caught_up = not self._found
            if is_caught_up and self._work is Load.READ_WRAP:
                topic.pointer = 0
            if not (is_caught_up and self._work is Load.READ):
                topics.append(topic)

    def answered(self, reply: driver.Frames) -> None:
        """Count the messages of a call."""
        self._found = self._records if self._reading is None else self._reading.take(reply)
        self.messages += self._found
        self.caught_up += not self._found

    def measure(self, socket: zmq.Socket[bytes], seconds: float) -> CallTimes:
        """Make calls for so long, or until they end. Raises the error of a reply, and ``timed_out``."""
        took = driver.round_trips(socket, self.requests(), seconds, self.answered)
        return CallTimes(took, self.messages, self.caught_up)
