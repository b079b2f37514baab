"""A good client as a program: `good_client URL CORES`. It publishes a record and fetches it, again and again.

For each pair it says when it began, how long both took in seconds, and the pointer of the record, which is
acknowledged and was read. As the clients of Quoth do, it sends a request again if the connection has ended;
the record is stored once nevertheless. It ends with its stdin.
"""

from __future__ import annotations

import os
import secrets
import select
import sys
import time
from contextlib import closing

import zmq

from kit.broker.peers import FastPeer, code_of, found_in, replied
from kit.deadlines import pause
from kit.disk.logs import encoded
from kit.floods.cores import pin
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Fetch, Publish, Request

TOPIC = "good"
INTERVAL_S = 0.004
_BUSY_S = 0.002
_LOOK_S = 0.2


class GoodPeer:
    """A peer that sends its requests until they are answered. Owned by one thread."""

    def __init__(self, peer: FastPeer) -> None:
        self._peer = peer
        self._ends = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._producer = secrets.randbits(63)
        self._published = 0

    def publish(self, value: bytes) -> int:
        """Publish a record; returns its pointer."""
        self._published += 1
        payload = encoded([value], self._producer, self._published)
        pointer: int = replied(self._answer(Publish(), payload)).last
        return pointer

    def fetch(self, after: int) -> list[int]:
        """Fetch; returns the pointers of the records."""
        return [one.pointer for one in found_in(self._answer(Fetch(after=after)), after).records]

    def close(self) -> None:
        """Watch the connection no longer."""
        self._peer.socket.disable_monitor()
        self._ends.close(linger=0)

    def _answer(self, request: Request, payload: bytes | None = None) -> Answer:
        """Send a request until the broker is not busy; returns its answer, however long that takes."""
        sockets = [self._peer.socket, self._ends]
        sent = {self._peer.send(request, TOPIC, payload)}
        while True:
            ready, _, _ = zmq.select(sockets, [], [], _LOOK_S)
            if not ready and is_over(0):
                raise SystemExit
            if self._ends in ready:
                self._ends.recv_multipart()
                sent.add(self._peer.send(request, TOPIC, payload))
            if self._peer.socket in ready and (answer := self._peer.receive()).correlation in sent:
                if code_of(answer) != "busy":
                    return answer
                pause(_BUSY_S)
                sent.add(self._peer.send(request, TOPIC, payload))


def main() -> None:
    """Work until stdin ends."""
    url, cores = sys.argv[1:]
    pin(os.getpid(), {int(core) for core in cores.split(",")})
    with zmq.Context() as context, FastPeer(context, url) as peer, closing(GoodPeer(peer)) as good:
        print("ready", flush=True)
        pointer, due = 0, time.monotonic()
        while not is_over(due - time.monotonic()):
            began = time.monotonic()
            due = max(due + INTERVAL_S, began)
            after, pointer = pointer, good.publish(b"x" * 100)
            middle = time.monotonic()
            fetched = good.fetch(after)
            ended = time.monotonic()
            assert fetched == [pointer]
            print(began, middle - began, ended - middle, pointer, flush=True)


def is_over(seconds: float) -> bool:
    """Wait so long for the end of stdin; returns whether it has come."""
    return bool(select.select([sys.stdin], [], [], max(0.0, seconds))[0])
