"""A schedule: requests are sent at times that were decided beforehand, however long earlier ones take.

The time of a call counts from when it was due, so that a stall shows in every call that it delays, and not
only in the first one. Calls that could not be sent in time are counted.

Between two calls the sender sleeps on its socket until `SPIN_S` before the next one is due; from then on it
polls clock and socket without a pause, since the system wakes a sleeping process 0.1 to 0.2 ms late. The
price is processor time that the broker may lack: at 1,000 calls/s a fifth of a processor, at 5,000 a whole
one.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import NamedTuple

import zmq

from quothbench.load import driver
from quothbench.load.clients import Ready
from quothbench.load.driver import Requests

SPIN_S = 0.0002
LATE_S = 0.0001
"""Half a round trip: about how late a sender is that takes the answer to another call."""
ON_THEIR_WAY_MAX = 1_000
"""Below the number of requests at which a topic answers `busy`."""
LEAD_S = 0.01

_clock = time.perf_counter


class ScheduleResult(NamedTuple):
    """The result of a schedule.

    took: seconds of each call, from when it was due to its answer. late: calls that were sent more than
    `LATE_S` behind their time. held: calls that waited until fewer than `ON_THEIR_WAY_MAX` were on their way.
    """

    took: list[float]
    late: int
    held: int


def scheduled(ready: Ready, url: str, warm_up: Requests, make: Requests, rate: float) -> ScheduleResult:
    """Keep a schedule, in the process of a client, after calls that do not count."""
    requests = make()
    with driver.dealer(url) as socket:
        driver.round_trips(socket, warm_up())
        ready()
        return keep(socket, requests, rate)


def keep(socket: zmq.Socket[bytes], requests: Sequence[driver.Frames], rate: float) -> ScheduleResult:
    """Send `rate` requests a second and wait for all answers.

    requests: numbered from 0. Raises ``timed_out``, and the error of a reply.
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
    return ScheduleResult(flight.took, late, held)


class _Flight:
    """The calls that are on their way, and the seconds of those that were answered."""

    def __init__(self, socket: zmq.Socket[bytes], begin: float, rate: float) -> None:
        self.took: list[float] = []
        self._socket = socket
        self._begin = begin
        self._rate = rate

    def due(self, number: int) -> float:
        """Return when a call has to be sent."""
        return self._begin + number / self._rate

    def take_until(self, until: float) -> None:
        """Take answers until a time of the clock."""
        while True:
            self._take()
            left = until - _clock()
            if left <= 0:
                return
            if left > SPIN_S:  # ZeroMQ's poll takes whole milliseconds only
                select.select([self._socket.fileno()], [], [], left - SPIN_S)

    def take_some(self, count: int) -> None:
        """Take answers until there have been so many."""
        self._take()
        while len(self.took) < count:
            if not self._socket.poll(driver.TIMEOUT_MS):
                raise driver.timed_out()
            self._take()

    def _take(self) -> None:
        """Take the answers that have arrived."""
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.took.append(_clock() - self.due(driver.correlation(frames)))
