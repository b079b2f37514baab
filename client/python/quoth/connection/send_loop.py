"""The send loop: keeps batches in flight over one link, in order, until each of them is settled.

Turn by turn it sends the batches that may be sent, waits for something to happen, and takes the answers.
`Inflight` decides what to send, and what the outcome of a batch is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import zmq

from quoth.connection.connection import Link
from quoth.core.inflight import Inflight
from quoth.core.options import Timing
from quoth.core.outgoing import OutgoingBatch
from quothwire.errors import QuothError, error

TURN_S = 1.0
"""The longest duration of a turn in which nothing happens."""
REFUSED_S = 0.2
"""Seconds after a broker has refused the connection until the next one is tried."""
B = TypeVar("B", bound=OutgoingBatch)


@dataclass(frozen=True, slots=True)
class BatchSupply(Generic[B]):
    """The batches that are ready to be sent. All times are those of the monotonic clock.

    take: returns the next batch if there is one at this time and it may be sent. next_at: when there will be
    one, as far as is known. began: when the timeout of the oldest one began to run. Both are infinite if
    there is none.
    """

    take: Callable[[float, Callable[[B], bool]], B | None]
    next_at: Callable[[], float]
    began: Callable[[], float]


class SendLoop(Generic[B]):
    """Sends the batches of a supply. Owned by one thread.

    timeout: seconds after which a batch that could not be delivered has failed. timing: says when everything
    is sent again without an answer; None for only when a lost connection is made again.
    """

    def __init__(
        self,
        link: Link,
        inflight: Inflight[B],
        supply: BatchSupply[B],
        timeout: float,
        timing: Timing | None = None,
    ) -> None:
        self._link = link
        self._inflight = inflight
        self._supply = supply
        self._timeout = timeout
        self._timing = timing
        self._heard_at = time.monotonic()
        self._redial_at = -math.inf

    def turn(self, seconds: float = TURN_S) -> None:
        """Send what may be sent, wait for at most so many seconds, and take the answers."""
        now = time.monotonic()
        self._check_clock(now)
        self._fill_window(now)
        if self._link.refused is not None and max(self._supply.next_at(), self._redial_at) <= now:
            self._link.redial()
        found = self._link.wait(min(self._pause(time.monotonic()), seconds))
        if found:
            self._inflight.again_at = time.monotonic()
        self._take_answers()
        if found and self._link.refused is not None:
            self._end_all()
            self._redial_at = time.monotonic() + REFUSED_S

    def _take_answers(self) -> bool:
        """Take the answers that have come; False if there were none."""
        heard = False
        while (answer := self._link.receive()) is not None:
            heard = True
            self._heard_at = time.monotonic()
            self._inflight.take(answer, self._heard_at)
        return heard

    def _pause(self, now: float) -> float:
        """Return the seconds for which there is nothing to do unless an answer comes."""
        dues = [math.inf]
        if self._link.refused is not None:
            dues.append(max(self._supply.next_at(), self._redial_at))
        if self._inflight.ended is not None:
            dues.append(self._supply.next_at())
        if self._link.connected and self._inflight.again_at is not None:
            dues.append(self._inflight.again_at)
        elif self._link.connected and self._inflight.has_room:
            dues.append(self._supply.next_at())
        oldest = self._inflight.oldest
        dues.append((oldest.began if oldest else self._supply.began()) + self._timeout)
        return min(dues) - now

    def _fill_window(self, now: float) -> None:
        """Send what may be sent. Nothing is given to a link that is not connected: so it is certain that
        nothing of it was stored."""

        def may_send(batch: B) -> bool:
            has_room = bool(self._link.connected) and self._inflight.has_room
            return has_room or self._inflight.ended is not None or self._is_expired(batch, now)

        while (batch := self._supply.take(now, may_send)) is not None:
            try:
                if self._is_expired(batch, now):
                    text = f"{self._inflight.what}: it could not be sent in time"
                    raise error("timed_out", text, "nothing of it was stored")
                self._send(self._inflight.launch(batch), now)
            except QuothError as problem:
                self._inflight.refuse(batch, problem)

    def _end_all(self) -> None:
        """Fail what is in flight and what is ready: the broker has refused the connection."""
        inflight, link = self._inflight, self._link
        # All of it first: what becomes ready once the first one has failed is for the next connection.
        ready = list(iter(partial(self._supply.take, time.monotonic(), lambda _: True), None))
        inflight.give_up(link.auth_failed(inflight.what, is_sent=True))
        for batch in ready:
            inflight.refuse(batch, link.auth_failed(inflight.what, is_sent=False))

    def _send(self, frames: list[bytes], now: float) -> None:
        try:
            self._link.send(frames)
        except zmq.Again:
            self._inflight.pause(now)

    def _check_clock(self, now: float) -> None:
        """Begin the next round if it is due; give up expired batches."""
        inflight, link = self._inflight, self._link
        if inflight.oldest is None:
            inflight.again_at = None
            self._heard_at = now
            return
        resend = math.inf if self._timing is None else self._timing.resend
        if now - self._heard_at > resend and link.connected:
            inflight.again_at = self._heard_at = now
        if self._is_expired(inflight.oldest, now):
            if not self._take_answers():  # some may have come since the last turn
                inflight.give_up(link.no_answer(inflight.what))
        elif link.connected and inflight.again_at is not None and now >= inflight.again_at:
            for frames in inflight.next_round():
                self._send(frames, now)

    def _is_expired(self, batch: OutgoingBatch, now: float) -> bool:
        return now - batch.began > self._timeout
