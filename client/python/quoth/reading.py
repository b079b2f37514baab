"""Reading several topics at once, as their records come or in the order of their time, over one connection.

What is asked and what may be handed out the `MultiReader` says; this drives it, and waits.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Self

import zmq

from quoth.connection.pool import Pool
from quoth.connection.request_mux import RequestMultiplexer
from quoth.core.deadline import as_seconds
from quoth.core.multi_reader import MultiReader, ReadPlan
from quoth.message import Message, OnGap
from quothwire.closing import Closeable
from quothwire.errors import error

LOOK_S = 0.5
"""How often it is looked whether the client was closed."""


class Reading(Closeable):
    """Records of several topics; made by `Client.tail_many` and `Client.read_many`. Belongs to one thread.

    Iterating gives messages, `portions` what has come at once. Each topic's records keep their order; with
    ``ordered`` those of all topics come in the order of their pointers, equal ones by the topics' names.
    To be closed, or used as a context manager.
    """

    def __init__(
        self,
        pool: Pool,
        timeout: float,
        topics: str | Iterable[str],
        plan: ReadPlan,
        on_gap: OnGap | None,
    ) -> None:
        self._gathering = MultiReader(topics, plan, on_gap, timeout)
        self._pool = pool
        self._pid = os.getpid()
        self._check()
        # A client's own context ends with it, which would wait for a socket of a reading that is not resumed.
        self._own_context = None if pool.url.startswith("inproc:") else zmq.Context()
        self._closed = False
        self._one_by_one = chain.from_iterable(self.portions())
        self._questions = RequestMultiplexer(self._own_context or pool.context, pool.url)
        try:
            while not self._gathering.is_begun:
                self._ask(math.inf)
                self._hear(LOOK_S)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        if hasattr(self, "_questions"):
            self.close()

    def close(self) -> None:
        """Close the connection. Does nothing the second time."""
        closed, self._closed = self._closed, True
        if closed:
            return
        if os.getpid() != self._pid:
            _parents.append((self._questions, self._own_context))
            return
        self._questions.close()
        if self._own_context is not None:
            self._own_context.term()

    # -- for the application ----------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """The next record."""
        return next(self._one_by_one)

    def portions(self, every: float = math.inf) -> Iterator[list[Message]]:
        """The records, as many at once as may be handed out; nothing after `every` seconds of silence.

        Raises `NotFound` when a topic that was named is deleted, and what `on_gap` raises.
        """
        every = as_seconds(every, "every")
        silent_until = time.monotonic() + every
        while not self._closed:
            self._check()
            self._ask(every)
            portion = self._gathering.hand_out()
            if portion is not None:
                yield portion
                silent_until = time.monotonic() + every
            elif self._gathering.is_over:
                return
            elif not self._hear(silent_until - time.monotonic()) and time.monotonic() >= silent_until:
                yield []
                silent_until = time.monotonic() + every

    @property
    def topics(self) -> list[str]:
        """The topics that are read now."""
        return self._gathering.topics

    @property
    def watermark(self) -> int:
        """Everything up to this pointer has been handed out, of all topics; 0 if they are not ordered."""
        return self._gathering.watermark

    @property
    def late(self) -> int:
        """Records that came after a younger one of another topic, because the broker's clock stepped back."""
        return self._gathering.late

    @property
    def waiting_for(self) -> dict[str, str]:
        """The topics that hold back the next record, each with the reason; none if no record is held back."""
        return self._gathering.waiting_for(away=None if self._questions.connected else self._pool.url)

    # -- asking and hearing -----------------------------------------------------------------------------

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise error("closed", "a reading stays with the process that began it", "begin one here")
        self._pool.context  # noqa: B018  # raises if the client was closed

    def _ask(self, every: float) -> None:
        for exchange in self._gathering.ask(time.monotonic(), every):
            self._questions.ask(exchange)

    def _hear(self, seconds: float) -> bool:
        """Take in what is answered within so many seconds, at the latest when there is something to ask."""
        began = time.monotonic()
        answers = self._questions.hear(min(seconds, self._gathering.due - began, LOOK_S))
        now = time.monotonic()
        self._gathering.waited(now - began)
        for exchange, answer in answers:
            self._gathering.take(exchange, answer, now)
        return bool(answers)


_parents: list[object] = []
"""Connections of a parent process: kept, because closing them here would disturb it."""
