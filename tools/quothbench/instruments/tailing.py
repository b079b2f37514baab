"""From publish to tail: the time of a record from one process to another, in two ways to wait for it.

Each value holds the time at which its publish began, by the monotonic clock, which all processes of a machine
share. It has arrived when the consumer holds the value, checked and decoded. In between the producer
publishes to a topic without readers, and pings, so that round trips are measured at the same time and in the
same way, encoding included.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import zmq

import quoth
from quothbench.load import driver
from quothbench.load.clients import Ready
from quothwire import batch
from quothwire.batch import Bytes
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import Fetch, Fetched, Ping, Publish

WARM = 3
"""Records of each measurement that do not count."""
LEAD_S = 0.1
"""Seconds between the beginning of the consumer's wait and the first publish."""
WAIT_MS = 10_000
_STAMP = struct.Struct("<q92x")


class Trips(NamedTuple):
    """Seconds of each round trip of the producer: publishes to a topic without readers, and pings."""

    publishes: list[float]
    pings: list[float]


def play(ready: Ready, part: Callable[..., Any], *arguments: Any) -> Any:
    """Run the part of one of two clients."""
    return part(ready, *arguments)


def produce(ready: Ready, url: str, topic: str, other_topic: str, rate: float, calls: int) -> Trips:
    """Publish `calls` records that count, `rate` of them a second, and measure round trips in between."""
    with driver.dealer(url) as socket:
        tailed, alone = _Writer(socket, topic), _Writer(socket, other_topic)
        trips = Trips([], [])
        alone.publish()
        ready()
        begin = time.monotonic() + LEAD_S
        for number in range(WARM + calls):
            _sleep_until(begin + number / rate)
            tailed.publish()
            _sleep_until(begin + (number + 1 / 3) / rate)
            trips.publishes.append(alone.publish())
            _sleep_until(begin + (number + 2 / 3) / rate)
            trips.pings.append(_ping(socket))
        return Trips(trips.publishes[WARM:], trips.pings[WARM:])


def by_long_poll(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Fetch with a wait, again behind the last record; return the seconds of each."""
    with driver.dealer(url) as socket:
        _Writer(socket, topic).publish()
        arrivals = _Arrivals(socket, topic)
        ready()
        while len(arrivals.took) < WARM + calls:
            arrivals.fetch()
        return arrivals.took[WARM:]


def by_client(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Tail with the Python client; return the seconds of each record."""
    with driver.dealer(url) as socket:
        _Writer(socket, topic).publish()
    with quoth.connect(url) as client:
        messages = client.tail(topic)
        ready()
        return [_age(message.value) for message in islice(messages, WARM + calls)][WARM:]


class _Writer:
    """Publishes single records of 100 bytes that hold the time."""

    def __init__(self, socket: zmq.Socket[bytes], topic: str) -> None:
        self._socket = socket
        self._topic = topic
        self._producer = secrets.randbits(63) + 1
        self._sequence = 0

    def publish(self) -> float:
        """Publish one; return the seconds until it was acknowledged."""
        began = time.monotonic_ns()
        self._sequence += 1
        payload = batch.encode([_STAMP.pack(began)], producer=self._producer, sequence=self._sequence)
        driver.ask(self._socket, Publish(), self._topic, payload)
        return (time.monotonic_ns() - began) / 1e9


class _Arrivals:
    """Records behind those that a topic held at first, and the seconds of each."""

    def __init__(self, socket: zmq.Socket[bytes], topic: str) -> None:
        self.took: list[float] = []
        self._socket = socket
        self._topic = topic
        self._after = self._ask(Fetch(after=POINTER_MAX))[0].newest

    def fetch(self) -> None:
        """Wait for new records and fetch them."""
        reply, payload = self._ask(Fetch(after=self._after, wait_ms=WAIT_MS))
        for raw in batch.split(payload, reply.log):
            self.took += [_age(value) for value in batch.decode(raw, reply.log).values]
        self._after = reply.next

    def _ask(self, request: Fetch) -> tuple[Fetched, Bytes]:
        answer = driver.ask(self._socket, request, self._topic)
        assert isinstance(answer.reply, Fetched)
        return answer.reply, answer.payload


def _age(value: bytes) -> float:
    """Return the seconds since the publish of a value began."""
    began: int = _STAMP.unpack(value)[0]
    return (time.monotonic_ns() - began) / 1e9


def _ping(socket: zmq.Socket[bytes]) -> float:
    began = time.monotonic()
    driver.ask(socket, Ping())
    return time.monotonic() - began


def _sleep_until(due: float) -> None:
    time.sleep(max(0.0, due - time.monotonic()))
