"""Announces the newest pointers of topics, if there are subscribers.

The socket is an XPUB: a subscription comes as a message of a byte 1 and the prefix, and its end as one of a
byte 0 and the prefix. Without any, nothing is encoded or sent.
"""

from __future__ import annotations

import zmq

from quothwire.protocol import announcement

SUBSCRIPTIONS_MAX = 1_000
"""So many are taken at once, so that a client that changes them all the time delays no request."""


class Announcer:
    """The socket of the announcements. Owned by the front end's thread.

    news: the newest pointers, by topic, that are to be announced. announced: how many were sent.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.news: dict[str, int] = {}
        self.announced = 0
        self._prefixes: set[bytes] = set()

    def take_subscriptions(self) -> None:
        """Take the subscriptions that have come."""
        for _ in range(SUBSCRIPTIONS_MAX):
            try:
                message = self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            if message[:1] == b"\1":
                self._prefixes.add(message[1:])
            elif message[:1] == b"\0":
                self._prefixes.discard(message[1:])

    def announce(self) -> None:
        """Send the news. libzmq drops what a subscriber does not take."""
        if self._prefixes:
            for topic, newest in self.news.items():
                self.socket.send(announcement.encode(topic, newest), zmq.NOBLOCK)
            self.announced += len(self.news)
        self.news.clear()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close(linger=0)
