"""Clients of either protocol with the same calls."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from kit.broker.peers import FastPeer, HasUrl, Peers, SimplePeer
from quothwire.protocol.messages import ListTopics, Topics

Pairs = list[tuple[int, bytes]]


class FastClient:
    """The fast protocol with the calls of `SimplePeer`: limits are exact here, as in every client library."""

    def __init__(self, peer: FastPeer) -> None:
        self.peer = peer

    def publish(self, topic: str, *values: bytes) -> tuple[int, int]:
        reply = self.peer.publish(topic, values)
        assert reply.count == len(values)
        return reply.first, reply.last

    def read(self, topic: str, after: int = 0, limit: int = 100, wait_ms: int = 0) -> tuple[int, Pairs]:
        found = self.peer.fetch(topic, after, records_max=limit, wait_ms=wait_ms)
        records = found.records[:limit]
        following = records[-1].pointer if records else found.reply.next
        return following, [(record.pointer, record.value) for record in records]

    def topics(self, after: str = "") -> list[str]:
        reply = self.peer.call(ListTopics(after=after))
        assert isinstance(reply, Topics)
        return reply.names


Client = FastClient | SimplePeer
"""What can be said in either protocol, with the same arguments and results."""
Connect = Callable[[HasUrl], Client]
PROTOCOLS = ("fast", "simple", "simple over REQ")


def connect(peers: Peers, broker: HasUrl, protocol: str) -> Client:
    match protocol:
        case "fast":
            return FastClient(peers.fast(broker))
        case "simple":
            return peers.simple(broker)
        case _:
            return peers.simple(broker, zmq.REQ)


def read_all(client: Client, topic: str, after: int = 0, limit: int = 100) -> Pairs:
    found: Pairs = []
    while True:
        after, records = client.read(topic, after, limit)
        if not records:
            return found
        found += records
