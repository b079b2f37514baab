"""A good client as a program: `good_client URL CORES`. It publishes a record and fetches it, again and again.

For each pair it says when it began, how long both took in seconds, and the pointer of the record, which is
acknowledged and was read. It ends with its stdin.
"""

from __future__ import annotations

import os
import select
import sys
import time

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


def main() -> None:
    """Work until stdin ends."""
    url, cores = sys.argv[1:]
    pin(os.getpid(), {int(core) for core in cores.split(",")})
    with zmq.Context() as context, FastPeer(context, url) as peer:
        print("ready", flush=True)
        pointer, due = 0, time.monotonic()
        while not is_over(due - time.monotonic()):
            began = time.monotonic()
            due = max(due + INTERVAL_S, began)
            published = replied(answered(peer, Publish(), encoded([b"x" * 100])))
            middle = time.monotonic()
            fetched = found_in(answered(peer, Fetch(after=pointer)), pointer)
            ended = time.monotonic()
            pointer = published.last
            assert [one.pointer for one in fetched.records] == [pointer]
            print(began, middle - began, ended - middle, pointer, flush=True)


def answered(peer: FastPeer, request: Request, payload: bytes | None = None) -> Answer:
    """Send a request until the broker is not busy; returns its answer, however long that takes."""
    while True:
        correlation = peer.send(request, TOPIC, payload)
        while peer.is_silent(_LOOK_S):
            if is_over(0):
                raise SystemExit
        answer = peer.answer_to(correlation)
        if code_of(answer) != "busy":
            return answer
        pause(_BUSY_S)


def is_over(seconds: float) -> bool:
    """Wait so long for the end of stdin; returns whether it has come."""
    return bool(select.select([sys.stdin], [], [], max(0.0, seconds))[0])
