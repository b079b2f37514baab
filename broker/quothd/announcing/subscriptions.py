"""Counts the subscriptions of each connection, and decides which connection has too many.

A connection is known by the descriptor that libzmq gives with each of its messages, and lives from the report
that it was accepted to the report that it was disconnected. libzmq closes a descriptor before the broker has
received the last messages that came through it, so its number may belong to another connection by then:

    accepted 20    subscriptions of 20    disconnected 20    accepted 20    subscriptions of 20
                                  the broker is here ^                      these are of either

Until all messages were received once, the messages of such a number have effect, and count for no limit. What
a message gets depends on the client that sent it, whose key it brings, and not on the connection's: libzmq
subscribes the connection of the message.

The limit of a connection is about what it asks for. The limit of all is about what they get: a client with
rights on 5,000 topics gets as many prefixes for the empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quothd.connections.kernel import AcceptedSocket

PREFIX_BYTES_FREE = 32
"""A prefix counts as one more for every so many bytes of it: libzmq needs memory for each byte."""
LEFT_MAX = 1_000
"""Subscriptions that an earlier connection may have left: its buffers have no room for more."""

PrefixesFor = Callable[[str, bytes], list[bytes]]
"""Returns what a client, by its public key, gets for a prefix that it subscribes to."""


def every_prefix(_user_id: str, prefix: bytes) -> list[bytes]:
    """Let every client have what it subscribes to."""
    return [prefix]


@dataclass(slots=True, eq=False)
class Subscriber:
    """A connection. socket: libzmq's. user_ids: the public keys in its messages: more than one if an earlier
    connection has left some.

    asked: what a client has subscribed to, and what it gets for each. gets: the prefixes that it gets, and
    for how many of those. count: of what it gets, with the weight of long prefixes. wanted: likewise, of what
    it has asked for. free: so much of that counts for no limit. reused: its descriptor was another
    connection's, which may have left messages. ended: the broker has ended it, and ignores what comes.
    """

    socket: AcceptedSocket
    user_ids: set[str] = field(default_factory=set)
    asked: dict[tuple[str, bytes], tuple[bytes, ...]] = field(default_factory=dict)
    gets: dict[tuple[str, bytes], int] = field(default_factory=dict)
    count: int = 0
    wanted: int = 0
    free: int = 0
    reused: bool = False
    ended: bool = False


class Subscriptions:
    """The connections with their subscriptions. Owned by the thread of the announcements.

    most, most_of_one: limits of all connections together, and of one. count: of all connections that the
    broker has not ended.
    """

    def __init__(self, most: int, most_of_one: int, prefixes_for: PrefixesFor) -> None:
        self.most = most
        self.most_of_one = most_of_one
        self.count = 0
        self._prefixes_for = prefixes_for
        self._subscribers: dict[int, Subscriber] = {}
        self._used: set[int] = set()
        self._reused: list[Subscriber] = []

    # -- connections ----------------------------------------------------------------------------------------

    def accept(self, socket: AcceptedSocket) -> None:
        """Note a new connection."""
        descriptor = socket.descriptor
        self.disconnect(descriptor)
        new = self._subscribers[descriptor] = Subscriber(socket, reused=descriptor in self._used)
        self._used.add(descriptor)
        if new.reused:
            self._reused.append(new)

    def disconnect(self, descriptor: int) -> None:
        """Forget a connection."""
        gone = self._subscribers.pop(descriptor, None)
        if gone is not None and not gone.ended:
            self.count -= gone.count

    def settle(self) -> None:
        """Note that no message is left that had come before the newest report of a connection."""
        for one in self._reused:
            one.reused = False
        self._reused.clear()

    def find(self, descriptor: int) -> Subscriber | None:
        """Return a connection that is there and that the broker has not ended."""
        found = self._subscribers.get(descriptor)
        return found if found is not None and not found.ended else None

    def of_users(self, user_ids: frozenset[str]) -> list[Subscriber]:
        """Return the connections of clients, by their public keys, that have subscribed to anything."""
        return [one for one in self._subscribers.values() if not one.ended and one.user_ids & user_ids]

    def end(self, subscriber: Subscriber) -> bool:
        """Ignore a connection from now on, and count it no more. False if it has ended before."""
        is_there = self.find(subscriber.socket.descriptor) is subscriber
        self.count -= subscriber.count * is_there
        subscriber.ended = True
        return is_there

    # -- subscriptions --------------------------------------------------------------------------------------

    def add(self, subscriber: Subscriber, user_id: str, prefix: bytes) -> tuple[bytes, ...]:
        """Count a subscription; returns the prefixes to which libzmq has to subscribe the connection.

        user_id: of the message. One that is there already counts no more, and is done again: it may be left
        of an earlier connection.
        """
        granted = subscriber.asked.get((user_id, prefix))
        if granted is not None:
            return granted
        granted = tuple(dict.fromkeys(self._prefixes_for(user_id, prefix)))
        subscriber.user_ids.add(user_id)
        subscriber.asked[user_id, prefix] = granted
        for one in granted:
            subscriber.gets[user_id, one] = subscriber.gets.get((user_id, one), 0) + 1
        self._count(subscriber, prefix, granted, 1)
        if subscriber.reused:
            subscriber.free = min(subscriber.free + _weight(prefix), LEFT_MAX)
        return granted

    def remove(self, subscriber: Subscriber, user_id: str, prefix: bytes) -> list[bytes]:
        """Count a subscription no more; returns the prefixes that the connection no longer gets."""
        granted = subscriber.asked.pop((user_id, prefix), None)
        if granted is None:
            return []
        gone = []
        for one in granted:
            left = subscriber.gets.pop((user_id, one)) - 1
            if left:
                subscriber.gets[user_id, one] = left
            else:
                gone.append(one)
        self._count(subscriber, prefix, granted, -1)
        return gone

    def _count(self, subscriber: Subscriber, prefix: bytes, granted: tuple[bytes, ...], sign: int) -> None:
        """Count a subscription, or, with the sign -1, count it no more."""
        wanted = _weight(prefix)
        weight = sign * max(wanted, sum(map(_weight, granted)))
        subscriber.wanted += sign * wanted
        subscriber.count += weight
        self.count += weight

    def excess(self, subscriber: Subscriber) -> tuple[Subscriber, str] | None:
        """Return the connection that has to end after a subscription of one, and the key of the limit.

        Where all together have too many, it is the one with most, whatever an earlier connection has left of
        that: those with few stay.
        """
        if subscriber.wanted - subscriber.free > self.most_of_one:
            return subscriber, "connection_subscriptions_max"
        if self.count > self.most:
            open_ones = (one for one in self._subscribers.values() if not one.ended)
            return max(open_ones, key=lambda one: one.count), "subscriptions_max"
        return None


def _weight(prefix: bytes) -> int:
    """Return how much a prefix counts."""
    return 1 + len(prefix) // PREFIX_BYTES_FREE
