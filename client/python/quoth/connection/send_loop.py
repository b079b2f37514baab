"""Keeping batches on their way: over one link, in order, until each of them is settled.

Turn by turn, whoever drives it lets it send what may be sent, wait for something to happen, and take the
answers. What to send and what has become of it the `Inflight` tells.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import zmq

from quoth.connection.connection import Link
from quoth.core.inflight import Inflight
from quoth.core.outgoing import OutgoingBatch
from quoth.core.request_state import RESEND_S
from quothwire.errors import QuothError, error

TURN_S = 1.0
"""A turn takes no longer, though nothing happens."""
P = TypeVar("P", bound=OutgoingBatch)


@dataclass(frozen=True, slots=True)
class BatchSupply(Generic[P]):
    """What is ready to leave. All times are those of the monotonic clock.

    take: gives the next batch, if there is one at this time and it may leave. leaves_at: when there will be
    one, as far as is known. began: when the time of the oldest one began to run. Infinite if there is none.
    """

    take: Callable[[float, Callable[[P], bool]], P | None]
    leaves_at: Callable[[], float]
    began: Callable[[], float]


class SendLoop(Generic[P]):
    """Carries what a supply has. Owned by one thread.

    timeout: seconds after which a batch that could not be delivered has failed. resends: everything is sent
    again after a silence, not only when a lost connection was found again.
    """

    def __init__(
        self,
        link: Link,
        pipeline: Inflight[P],
        supply: BatchSupply[P],
        timeout: float,
        *,
        resends: bool = True,
    ) -> None:
        self._link = link
        self._pipeline = pipeline
        self._supply = supply
        self._timeout = timeout
        self._resends = resends
        self._heard_at = time.monotonic()

    def turn(self, seconds: float = TURN_S) -> None:
        """Send what may be sent, wait at most so long for something to happen, and take the answers."""
        now = time.monotonic()
        self._look_at_clock(now)
        self._fill_window(now)
        if self._link.wait(min(self._pause(time.monotonic()), seconds)):
            self._pipeline.again_at = time.monotonic()
        self._take_answers()

    def _take_answers(self) -> bool:
        """Take those that have come; False if there were none."""
        heard = False
        while (answer := self._link.receive()) is not None:
            heard = True
            self._heard_at = time.monotonic()
            self._pipeline.take(answer, self._heard_at)
        return heard

    def _pause(self, now: float) -> float:
        """How long there is nothing to do unless something comes."""
        moments = [math.inf]
        if self._link.connected and self._pipeline.again_at is not None:
            moments.append(self._pipeline.again_at)
        elif self._link.connected and self._pipeline.has_room:
            moments.append(self._supply.leaves_at())
        oldest = self._pipeline.oldest
        moments.append((oldest.began if oldest else self._supply.began()) + self._timeout)
        return min(moments) - now

    def _fill_window(self, now: float) -> None:
        """Send what may be sent. Nothing is handed to libzmq that is not connected: it is certain then that
        nothing of it was stored."""

        def may_leave(parcel: P) -> bool:
            may_send = bool(self._link.connected) and self._pipeline.has_room
            return may_send or self._is_expired(parcel, now)

        while (parcel := self._supply.take(now, may_leave)) is not None:
            try:
                if self._is_expired(parcel, now):
                    text = f"{self._pipeline.what}: it could not be sent in time"
                    raise error("timed_out", text, "nothing of it was stored")
                self._send(self._pipeline.launch(parcel), now)
            except QuothError as problem:
                self._pipeline.refuse(parcel, problem)

    def _send(self, frames: list[bytes], now: float) -> None:
        try:
            self._link.send(frames)
        except zmq.Again:
            self._pipeline.pause(now)

    def _look_at_clock(self, now: float) -> None:
        pipeline, link = self._pipeline, self._link
        if pipeline.oldest is None:
            pipeline.again_at = None
            self._heard_at = now
            return
        if self._resends and now - self._heard_at > RESEND_S and link.connected:
            pipeline.again_at = self._heard_at = now
        if self._is_expired(pipeline.oldest, now):
            if not self._take_answers():  # some may have come since the last turn
                pipeline.give_up(link.nobody(pipeline.what))
        elif link.connected and pipeline.again_at is not None and now >= pipeline.again_at:
            for frames in pipeline.next_round():
                self._send(frames, now)

    def _is_expired(self, parcel: OutgoingBatch, now: float) -> bool:
        return now - parcel.began > self._timeout
