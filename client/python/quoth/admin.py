"""The calls of a client about topics and the broker, and the connections that all of its calls take."""

from __future__ import annotations

import time
from typing import TypeVar, Unpack

from quoth.connection.connection import Context
from quoth.connection.pool import Pool
from quoth.core import calls
from quoth.core.request_state import ClientCall
from quoth.core.timing import Timing
from quoth.timestamps import Timestamp, as_pointer
from quothwire import batch as wire
from quothwire.closing import Closeable
from quothwire.protocol.messages import (
    DescribeTopic,
    Ping,
    Pong,
    RollTopic,
    Status,
    TopicInfo,
    Trimmed,
    TrimTopic,
    UpdateTopic,
    Welcome,
)
from quothwire.settings import GivenSettings, as_sent
from quothwire.topic import check_topic

T = TypeVar("T")


class AdminClient(Closeable):
    """The part of a `quoth.Client` that reads and writes no records."""

    def __init__(self, url: str, context: Context | None, timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._timing = Timing()
        self._pool = Pool(url, context, self._timing)
        self._payload_bytes_max = wire.BATCH_BYTES_MAX

    def __repr__(self) -> str:
        closed = ", closed" if self._pool.is_closed else ""
        return f"<quoth.Client {self.url}, timeout={self.timeout}{closed}>"

    def close(self) -> None:
        """Close the connections. Does nothing the second time."""
        self._pool.close()

    # -- topics -----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """Return the names of all topics, in the order of their UTF-8 bytes."""
        return self._run(calls.topics(self.timeout))

    def topic(self, topic: str) -> TopicInfo:
        """Describe one topic. Does not open a hibernating one."""
        return self._run(calls.info(DescribeTopic(), topic, self.timeout))

    def create_topic(self, topic: str, **settings: Unpack[GivenSettings]) -> TopicInfo:
        """Create a topic: ``create_topic("orders", max_age="7d", max_bytes="1GiB", durability="synced")``.

        Other settings are those of the broker's configuration; see `quothwire.settings.TopicSettings`.
        Raises `Conflict` ``topic_exists``, `RequestError` ``bad_setting``.
        """
        return self._run(calls.create_topic(topic, as_sent(settings), self.timeout))

    def update_topic(self, topic: str, **settings: Unpack[GivenSettings]) -> TopicInfo:
        """Change settings of a topic, given as for `create_topic`; the others stay as they are."""
        return self._run(calls.info(UpdateTopic(as_sent(settings)), topic, self.timeout))

    def delete_topic(self, topic: str) -> Trimmed:
        """Delete a topic and its records; returns the number of removed records and bytes.

        Deletes only the topic that exists now, not one that another client creates meanwhile under its name.
        Returns zeros if a request whose answer was lost has deleted it. Raises `NotFound` ``unknown_topic``.
        """
        return self._run(calls.delete_topic(topic, self.timeout))

    def trim(self, topic: str, before: Timestamp) -> Trimmed:
        """Remove the segments that hold only records before a pointer or a time."""
        request = TrimTopic(as_pointer(before))
        return self._run(calls.ask(Trimmed, request, check_topic(topic), timeout=self.timeout))

    def roll(self, topic: str) -> TopicInfo:
        """Seal the topic's active segment."""
        return self._run(calls.info(RollTopic(), topic, self.timeout))

    # -- the broker -------------------------------------------------------------------------------------

    def hello(self) -> Welcome:
        """Return the broker's version, its limits and the address of its announcements."""
        return self._greet()

    def status(self) -> Status:
        """Return the broker's status, with the states of all topics. Does not open hibernating ones."""
        return self._run(calls.status(self.timeout))

    def ping(self) -> float:
        """Return the seconds that a round trip takes."""
        began = time.perf_counter()
        self._run(calls.ask(Pong, Ping(), timeout=self.timeout))
        return time.perf_counter() - began

    def _greet(self, wait: float | None = None) -> Welcome:
        welcome = self._run(calls.greet(self.timeout, wait))
        self._payload_bytes_max = calls.payload_bytes_max(welcome)
        return welcome

    def _run(self, call: ClientCall[T]) -> T:
        with self._pool.channel() as channel:
            return channel.run(call)
