"""Reading several topics at once, as their records come or in the order of their time, over one connection.

`MultiReader` decides what is requested and what is handed out; this module drives it, and waits.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from typing import Generic, Self, TypeVar

import zmq

from quoth.connection.channel import Channel
from quoth.connection.pool import Pool
from quoth.core.options import as_seconds
from quoth.core.request_state import Requests, RequestState
from quoth.merging.multi_reader import MultiReader
from quoth.message import Message
from quothwire.closing import Closeable
from quothwire.errors import error
from quothwire.protocol.binary_codec import Answer

CHECK_S = 0.5
"""Seconds between two checks whether the client was closed."""


R = TypeVar("R", bound=Requests)


class ReadingState(Generic[R]):
    """A reading without its ways of waiting, shared by both clients."""

    def __init__(self, reader: MultiReader, requests: R, url: str) -> None:
        self._reader = reader
        self._requests = requests
        self._url = url

    @property
    def topics(self) -> list[str]:
        """The topics that are read now, as far as they are known."""
        return self._reader.topics

    @property
    def watermark(self) -> int:
        """The pointer up to which all topics were handed out; 0 if they are not ordered."""
        return self._reader.watermark

    @property
    def late(self) -> int:
        """The number of records that came after a younger one of another topic.

        Records are late only if the broker's clock has stepped back.
        """
        return self._reader.late

    @property
    def waiting_for(self) -> dict[str, str]:
        """The topics that hold back the next record, each with the reason; none if no record is held back."""
        return self._reader.waiting_for(away=None if self._requests.connected else self._url)

    def _ask(self, every: float) -> None:
        for request in self._reader.ask(time.monotonic(), every):
            self._requests.ask(request)

    def _take(self, answers: list[tuple[RequestState, Answer]], began: float) -> bool:
        """Process the answers of a wait that began at that time; False if there are none."""
        now = time.monotonic()
        self._reader.waited(now - began)
        for request, answer in answers:
            self._reader.take(request, answer, now)
        return bool(answers)


class Reading(ReadingState[Channel], Closeable):
    """Records of several topics; made by `Client.tail_many` and `Client.read_many`. Belongs to one thread.

    Iterating yields messages, `portions` all that has come at once. Each topic's records keep their order;
    with ``ordered`` those of all topics come in the order of their pointers, equal ones by the topics' names.
    Close it, or use it as a context manager.
    """

    def __init__(self, pool: Pool, reader: MultiReader) -> None:
        self._pool = pool
        self._pid = os.getpid()
        self._check()
        # The end of the client's context would wait for a socket of a reading that is not resumed.
        self._own_context = None if pool.endpoint.is_inside else zmq.Context()
        self._closed = False
        self._left: Iterator[Message] = iter(())
        requests = Channel(self._own_context or pool.context, pool.endpoint, pool.timing)
        super().__init__(reader, requests, pool.endpoint.url)
        try:
            while not self._reader.is_begun:
                self._ask(math.inf)
                self._hear(CHECK_S)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        if hasattr(self, "_requests"):
            self.close()

    def close(self) -> None:
        """Close the connection. Does nothing the second time."""
        closed, self._closed = self._closed, True
        if closed:
            return
        if os.getpid() != self._pid:
            _of_parents.append((self._requests, self._own_context))
            return
        self._requests.close()
        if self._own_context is not None:
            self._own_context.term()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Return the next record."""
        while True:
            for message in self._left:
                return message
            portion = self._next_portion(math.inf)
            if portion is None:
                raise StopIteration
            self._left = iter(portion)

    def portions(self, every: float = math.inf) -> Iterator[list[Message]]:
        """Iterate over the records, as many at once as may be handed out; an empty list after `every`
        seconds.

        Raises `NotFound` when a topic that was named is deleted, and what `on_gap` raises.
        """
        every = as_seconds(every, "every")
        while (portion := self._next_portion(every)) is not None:
            yield portion

    def _next_portion(self, every: float) -> list[Message] | None:
        """Wait for records for so many seconds; None at the end."""
        silent_until = time.monotonic() + every
        while not self._closed:
            self._check()
            self._ask(every)
            portion = self._reader.hand_out()
            if portion is not None:
                return portion
            if self._reader.is_over:
                return None
            if not self._hear(silent_until - time.monotonic()) and time.monotonic() >= silent_until:
                return []
        return None

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise error("closed", "a reading stays with the process that began it", "begin one here")
        self._pool.context  # noqa: B018  # raises if the client was closed

    def _hear(self, seconds: float) -> bool:
        """Wait for answers for so many seconds, or until the next request is due; False if there are none."""
        began = time.monotonic()
        return self._take(self._requests.hear(min(seconds, self._reader.due - began, CHECK_S)), began)


_of_parents: list[object] = []
"""Connections of a parent process: kept, because closing them here would disturb it."""
