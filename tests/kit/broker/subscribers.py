"""Subscribers to announcements, good ones and hostile ones."""

from __future__ import annotations

import os
import subprocess
import sys

import zmq

from kit.broker.peers import FastPeer, Subscriber
from kit.deadlines import becomes, eventually
from quothwire.closing import Closeable

FLOOD = """
import os, sys, zmq

url, prefixes, sockets = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
context = zmq.Context()
subscribed = [context.socket(zmq.SUB) for _ in range(sockets)]
for socket in subscribed:
    socket.set(zmq.SNDHWM, 0)
    for _ in range(prefixes // sockets):
        socket.subscribe(os.urandom(20))
for socket in subscribed:
    socket.connect(url)
print("connected", flush=True)
while True:
    for socket, _ in zmq.zmq_poll([(socket, zmq.POLLIN) for socket in subscribed], -1):
        socket.recv()
"""
"""Subscribes to random prefixes, and does so again whenever its connections are closed."""


class Flood:
    """A process with many subscriptions."""

    def __init__(self, url: str, prefixes: int, sockets: int) -> None:
        command = [sys.executable, "-c", FLOOD, url, str(prefixes), str(sockets)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"connected\n"

    def kill(self) -> None:
        """End it as a crash does. A second call does nothing."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Closings(Closeable):
    """Hears when the connections of a socket end. Closed before the socket."""

    def __init__(self, peer: Subscriber) -> None:
        self._peer = peer
        self._reports = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)

    def close(self) -> None:
        """End the reports: libzmq's I/O thread would wait for a reader of them."""
        self._peer.socket.disable_monitor()
        self._reports.close(linger=0)

    def happen(self) -> bool:
        """Wait until a connection has ended."""
        return bool(self._reports.poll(20_000)) and bool(self._reports.recv_multipart())


def counted(fast: FastPeer, name: str) -> int:
    """Return a counter of the broker."""
    return int(fast.status().counters[name])


def subscriptions_are(fast: FastPeer, count: int) -> None:
    """Wait until the broker has so many subscriptions."""
    becomes(lambda: counted(fast, "subscriptions"), count, f"{count} subscriptions")


def random_prefixes(count: int) -> list[bytes]:
    """Return prefixes of 20 bytes. libzmq takes the end of a subscription to b"\1..." for a subscription."""
    return [b"p" + os.urandom(19) for _ in range(count)]


def hears(fast: FastPeer, listener: Subscriber, topic: str) -> None:
    """Wait until a subscriber gets the announcement of a publish that follows its subscription."""

    def published() -> bool:
        fast.publish(topic, [b"x"])
        return not listener.is_silent(0.02) and listener.next()[0] == topic

    eventually(published, f"an announcement of {topic}")
