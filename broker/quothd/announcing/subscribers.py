"""Takes the messages of subscribers from libzmq, and ends the connections of those with too many."""

from __future__ import annotations

import select
from collections.abc import Callable

import zmq

from quothd.announcing.sockets import Publisher
from quothd.announcing.subscriptions import PrefixesFor, Subscriber, Subscriptions
from quothd.config.config import Config
from quothd.connections.kernel import AcceptedSocket, accepted_socket
from quothd.service.log_events import note

SUBSCRIBE, UNSUBSCRIBE = b"\1", b"\0"
"""The first byte of a message."""
REPORTS_MAX = 1_000_000
"""All that there are: the order of reports and messages matters."""
LOGGED_S = 10.0
"""Between two log lines about connections that were ended; a line says how many there were."""


class Subscribers:
    """The subscribers over tcp and ipc. Owned by the thread of the announcements.

    subscriptions: of those that are there. closed: how many connections were ended.
    """

    def __init__(
        self,
        publisher: Publisher,
        config: Config,
        monotonic: Callable[[], float],
        prefixes_for: PrefixesFor,
    ) -> None:
        limits = config.subscriptions_max, config.connection_subscriptions_max
        self.subscriptions = Subscriptions(*limits, prefixes_for)
        self.closed = 0
        self._has_keys = bool(config.server_key)
        self._remote = publisher.remote
        self._monitor = publisher.monitor
        self._reported = select.poll()
        self._reported.register(int(publisher.monitor.socket.getsockopt(zmq.FD)), select.POLLIN)
        self._monotonic = monotonic
        self._log_at = -LOGGED_S
        self._logged = 0
        self._is_shifted = False

    def configure(self, config: Config) -> None:
        """Apply other limits. Any thread."""
        self.subscriptions.most = config.subscriptions_max
        self.subscriptions.most_of_one = config.connection_subscriptions_max

    def take_reports(self) -> None:
        """Take the reports of connections that were accepted or have ended. Necessary after each poll."""
        for event, descriptor in self._monitor.events(REPORTS_MAX):
            if event == zmq.EVENT_ACCEPTED:
                self.subscriptions.accept(_socket_of(descriptor))
            elif event == zmq.EVENT_DISCONNECTED:
                self.subscriptions.disconnect(descriptor)

    def take(self, most: int) -> int:
        """Take up to so many messages; returns how many there were."""
        for taken in range(most):
            try:
                frame = self._remote.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self.subscriptions.settle()
                self._is_shifted = False
                return taken
            if self._reported.poll(0):  # a fifth of the time that it takes to find out that there is none
                self.take_reports()  # the connection of the message was accepted before the message came
            self._take(frame)
        return most

    def end_users(self, user_ids: frozenset[str]) -> None:
        """End the connections of clients, by their public keys."""
        for subscriber in self.subscriptions.of_users(user_ids):
            self._end(subscriber)

    def _take(self, frame: zmq.Frame) -> None:
        """Let a subscription, or its end, have effect.

        Libzmq reports the subscriptions of a connection that has ended as well, without a descriptor. Behind
        a message that is neither, up to the last one that is there, it would subscribe the connection of the
        next message: so these connections end, and their clients subscribe again.
        """
        message = frame.bytes
        self._is_shifted |= message[:1] not in (SUBSCRIBE, UNSUBSCRIBE)
        try:
            subscriber = self.subscriptions.find(int(frame.get(zmq.SRCFD)))
        except zmq.ZMQError:
            return
        if subscriber is None:
            return
        if self._is_shifted:
            self._end(subscriber)
            return
        user_id = _user_id_of(frame) if self._has_keys else ""
        prefix = message[1:]
        if message[:1] == SUBSCRIBE:
            granted = self.subscriptions.add(subscriber, user_id, prefix)
            if (excess := self.subscriptions.excess(subscriber)) is not None:
                self._end_excessive(*excess)
            if not subscriber.ended:
                for one in granted:
                    self._remote.set(zmq.SUBSCRIBE, one)
        else:
            for one in self.subscriptions.remove(subscriber, user_id, prefix):
                self._remote.set(zmq.UNSUBSCRIBE, one)

    def _end_excessive(self, subscriber: Subscriber, limit: str) -> None:
        """End a connection with too many subscriptions. limit: the key of the configuration."""
        self._end(subscriber)
        self._logged += 1
        now = self._monotonic()
        if now - self._log_at >= LOGGED_S:
            about = {"peer": subscriber.socket.peer or "ipc", "subscriptions": subscriber.count}
            note("subscriber_closed", **about, limit=limit, closed=self._logged)
            self._log_at, self._logged = now, 0

    def _end(self, subscriber: Subscriber) -> None:
        """End a connection, unless it has ended and its descriptor is another one's."""
        self.take_reports()
        if self.subscriptions.end(subscriber):
            self.closed += 1
            subscriber.socket.end()


def _socket_of(descriptor: int) -> AcceptedSocket:
    """Return the socket of a connection, without a peer if it has ended, which a report will say."""
    try:
        return accepted_socket(descriptor)
    except OSError:
        return AcceptedSocket(descriptor)


def _user_id_of(frame: zmq.Frame) -> str:
    """Return the public key of the client that has sent a message.

    It is the authenticator's answer, and goes before a property of this name that the client sends. Without
    keys there would be only that one, which may be any bytes.
    """
    try:
        return str(frame.get("User-Id"))
    except (zmq.ZMQError, UnicodeDecodeError):
        return ""
