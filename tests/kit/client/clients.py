"""One client for both protocols: what can be said in either, with the same arguments and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import zmq

from kit.broker.peers import FastPeer, HasUrl, Peers
from quothwire.protocol.messages import ListTopics, Topics

Pairs = list[tuple[int, bytes]]


class Client(Protocol):
    """The calls that both protocols have."""

    def publish(self, topic: str, *values: bytes) -> tuple[int, int]:
        """Append values; returns their first and last pointer."""

    def read(self, topic: str, after: int = 0, limit: int = 100, wait_ms: int = 0) -> tuple[int, Pairs]:
        """The cursor to go on with, and at most `limit` records above `after`."""

    def topics(self, after: str = "") -> list[str]:
        """Names of topics."""


class FastClient:
    """The fast protocol as a `Client`: limits are made exact here, as every client library does."""

    def __init__(self, peer: FastPeer) -> None:
        self.peer = peer

    def publish(self, topic: str, *values: bytes) -> tuple[int, int]:
        """See `Client.publish`."""
        reply = self.peer.publish(topic, values)
        assert reply.count == len(values)
        return reply.first, reply.last

    def read(self, topic: str, after: int = 0, limit: int = 100, wait_ms: int = 0) -> tuple[int, Pairs]:
        """See `Client.read`."""
        found = self.peer.fetch(topic, after, records_max=limit, wait_ms=wait_ms)
        records = found.records[:limit]
        following = records[-1].pointer if records else found.reply.next
        return following, [(record.pointer, record.value) for record in records]

    def topics(self, after: str = "") -> list[str]:
        """See `Client.topics`."""
        reply = self.peer.call(ListTopics(after=after))
        assert isinstance(reply, Topics)
        return reply.names


Connect = Callable[[HasUrl], Client]
PROTOCOLS = ("fast", "simple", "simple over REQ")


def connect(peers: Peers, broker: HasUrl, protocol: str) -> Client:
    """A client that speaks one of the `PROTOCOLS`."""
    match protocol:
        case "fast":
            return FastClient(peers.fast(broker))
        case "simple":
            return peers.simple(broker)
        case _:
            return peers.simple(broker, zmq.REQ)


def read_all(client: Client, topic: str, after: int = 0, limit: int = 100) -> Pairs:
    """Everything above a pointer."""
    found: Pairs = []
    while True:
        after, records = client.read(topic, after, limit)
        if not records:
            return found
        found += records
