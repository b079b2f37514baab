"""A schedule: requests sent at times that were decided beforehand, whatever becomes of earlier ones.

The time of a call counts from when it was due, so that a stall shows in every call that it delays, and not
only in the one that it met. A call that could not be sent in time is told.

Between two calls the sender sleeps on its socket until `SPIN_S` before the next one is due; from then on it
looks at clock and socket without a pause, since the system wakes whoever sleeps 0.1 to 0.2 ms late. The price
is processor time that the broker may lack: at 1,000 calls/s a fifth of a processor, at 5,000 a whole one.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import NamedTuple

import zmq

from quothbench.load import driver
from quothwire.errors import error

SPIN_S = 0.0002
LATE_S = 0.0001
"""Half a round trip, which is about what a sender is late that takes the answer to another call."""
ON_THEIR_WAY_MAX = 1_000
"""Below what a topic takes before it says `busy`."""
LEAD_S = 0.01

_clock = time.perf_counter


class Kept(NamedTuple):
    """How a schedule was kept.

    took: seconds of each call, from when it was due to its answer. late: calls that were sent more than
    `LATE_S` behind their time. held: calls that had to wait until fewer than `ON_THEIR_WAY_MAX` were on
    their way.
    """

    took: list[float]
    late: int
    held: int


def keep(socket: zmq.Socket[bytes], requests: Sequence[driver.Frames], rate: float) -> Kept:
    """Send so many requests a second and wait for all answers.

    requests: numbered from 0. Raises ``timed_out``, and what a broker refuses.
    """
    flight = _Flight(socket, _clock() + LEAD_S, rate)
    late = held = 0
    for number, frames in enumerate(requests):
        flight.take_until(flight.due(number))
        if number - len(flight.took) >= ON_THEIR_WAY_MAX:
            held += 1
            flight.take_some(number - ON_THEIR_WAY_MAX + 1)
        late += _clock() - flight.due(number) > LATE_S
        socket.send_multipart(frames)
    flight.take_some(len(requests))
    return Kept(flight.took, late, held)


class _Flight:
    """Calls that are on their way, and how long those took that have come back."""

    def __init__(self, socket: zmq.Socket[bytes], begin: float, rate: float) -> None:
        self.took: list[float] = []
        self._socket = socket
        self._begin = begin
        self._rate = rate

    def due(self, number: int) -> float:
        """When a call has to be sent."""
        return self._begin + number / self._rate

    def take_until(self, until: float) -> None:
        """Take answers until the clock says so."""
        while True:
            self._take()
            left = until - _clock()
            if left <= 0:
                return
            if left > SPIN_S:  # a poll of ZeroMQ's own knows no less than a millisecond
                select.select([self._socket.fileno()], [], [], left - SPIN_S)

    def take_some(self, count: int) -> None:
        """Take answers until there have been so many."""
        self._take()
        while len(self.took) < count:
            if not self._socket.poll(driver.PATIENCE_MS):
                raise error("timed_out", f"no answer for {driver.PATIENCE_MS / 1_000:g} s")
            self._take()

    def _take(self) -> None:
        """Take the answers that are there."""
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.took.append(_clock() - self.due(driver.correlation(frames)))
