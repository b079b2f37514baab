"""From publish to tail: how long a record takes from one process to another, in three ways to wait for it.

Each value holds the time at which its publish was begun, by the monotonic clock, which all processes of a
machine share. It has arrived when the consumer holds its value, checked and decoded. In between the producer
publishes to a topic that nobody tails, and pings, so that a round trip is measured at the same moments and
in the same manner, encoding included.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple

import zmq

import quoth
from quothbench.load import driver
from quothwire import batch
from quothwire.batch import Bytes
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import announcement
from quothwire.protocol.messages import Fetch, Fetched, Ping, Publish

WARM = 3
"""Records of each measurement that do not count."""
LEAD_S = 0.1
"""The producer begins when the consumer has had this long to wait."""
PULL_EVERY_MS = 1_000
"""Announcements may be dropped, so a consumer looks by itself once in a while."""
WAIT_MS = 10_000
_STAMP = struct.Struct("<q92x")

Ready = Callable[[], None]


class Trips(NamedTuple):
    """Seconds of each round trip of the producer: publishes to a topic that nobody tails, and pings."""

    publishes: list[float]
    pings: list[float]


def play(ready: Ready, part: Callable[..., Any], *arguments: Any) -> Any:
    """What both clients run, each with a part of its own."""
    return part(ready, *arguments)


def produce(ready: Ready, url: str, topic: str, untailed: str, rate: float, calls: int) -> Trips:
    """Publish `calls` records that count, `rate` of them a second, and take round trips in between."""
    with driver.dealer(url) as socket:
        tailed, alone = _Writer(socket, topic), _Writer(socket, untailed)
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


def by_announcement(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Wait for announcements and fetch what is new; returns seconds of each record."""
    with driver.dealer(url) as socket, _subscriber(url, topic) as subscriber:
        _hear(subscriber, _Writer(socket, topic))
        arrivals = _Arrivals(socket, topic)
        ready()
        while len(arrivals.took) < WARM + calls:
            if _newest(subscriber) > arrivals.after:
                arrivals.fetch()
        return arrivals.took[WARM:]


def by_wait(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Fetch with a wait, and again behind what came; returns seconds of each record."""
    with driver.dealer(url) as socket:
        _Writer(socket, topic).publish()
        arrivals = _Arrivals(socket, topic)
        ready()
        while len(arrivals.took) < WARM + calls:
            arrivals.fetch(WAIT_MS)
        return arrivals.took[WARM:]


def by_client(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Tail with the Python client; returns seconds of each record."""
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
        """Publish one; returns the seconds until it was acknowledged."""
        began = time.monotonic_ns()
        self._sequence += 1
        value = _STAMP.pack(began)
        payload = batch.encode([value], producer=self._producer, sequence=self._sequence)
        driver.ask(self._socket, Publish(), self._topic, payload)
        return (time.monotonic_ns() - began) / 1e9


class _Arrivals:
    """Records behind those that a topic held at first, and how long each of them took."""

    def __init__(self, socket: zmq.Socket[bytes], topic: str) -> None:
        self.took: list[float] = []
        self._socket = socket
        self._topic = topic
        self.after = self._ask(Fetch(after=POINTER_MAX))[0].newest

    def fetch(self, wait_ms: int = 0) -> None:
        """Fetch what is new."""
        reply, payload = self._ask(Fetch(after=self.after, wait_ms=wait_ms))
        for raw in batch.split(payload, reply.log):
            self.took += [_age(value) for value in batch.decode(raw, reply.log).values]
        self.after = reply.next

    def _ask(self, request: Fetch) -> tuple[Fetched, Bytes]:
        answer = driver.ask(self._socket, request, self._topic)
        assert isinstance(answer.reply, Fetched)
        return answer.reply, answer.payload


def _age(value: bytes) -> float:
    """Seconds since the publish of a value was begun."""
    began: int = _STAMP.unpack(value)[0]
    return (time.monotonic_ns() - began) / 1e9


def _ping(socket: zmq.Socket[bytes]) -> float:
    began = time.monotonic()
    driver.ask(socket, Ping())
    return time.monotonic() - began


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@contextmanager
def _subscriber(url: str, topic: str) -> Iterator[zmq.Socket[bytes]]:
    """A socket for the announcements of a topic."""
    with quoth.connect(url) as client:
        announcements = announcement.endpoint(client.url, client.hello())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    with context.socket(zmq.SUB) as socket:
        socket.set(zmq.LINGER, 0)
        socket.subscribe(announcement.subscription(topic))
        socket.connect(announcements)
        yield socket


def _hear(subscriber: zmq.Socket[bytes], writer: _Writer) -> None:
    """Publish until it is announced here: nobody tells a subscriber when its subscription has arrived."""
    until = time.monotonic() + driver.PATIENCE_MS / 1_000
    writer.publish()
    while not subscriber.poll(10):
        if time.monotonic() > until:
            raise error("timed_out", "no announcement was heard")
        writer.publish()


def _newest(subscriber: zmq.Socket[bytes]) -> int:
    """Wait for an announcement; returns the newest pointer, or the highest one there is after a silence."""
    if not subscriber.poll(PULL_EVERY_MS):
        return POINTER_MAX
    newest = 0
    with suppress(zmq.Again):
        while True:
            newest = announcement.decode(subscriber.recv(zmq.NOBLOCK))[1]
    return newest
