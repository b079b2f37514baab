"""All connections of the ROUTER: who is there, which of them have to go.

libzmq accepts a connection and reports its descriptor; its first message brings the route. A connection is
ended when

    there are too many       the one that has been there for longest without any request, else the new one
    it takes no replies      for `SILENCE_S`
    memory is short          the one that holds most of it, in replies or in a message that has no end
    a quota is used up       the newest one of its client, `GOODBYE_S` after its first request is refused
    its route is taken       by a later one, which has the same identity

Its client connects again and goes on, if it is able to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import zmq

from quothd.config.config import Config
from quothd.connections.connection import Connection, ReplyMemory, Sender
from quothd.connections.end_log import EndLog
from quothd.connections.holders import Accepted, MemoryHolders
from quothd.connections.kernel import AcceptedSocket, accepted_socket
from quothd.connections.memory import MemoryWatch
from quothd.connections.monitor import Monitor
from quothd.connections.route_guard import RouteGuard, may_be_late
from quothd.connections.stuck import Reset, StuckConnections
from quothd.connections.unread_replies import UnreadReplies

REPLIES_PART = 4
"""Of `memory_max`: the replies that are not read yet take as much."""
EVENTS_MAX = 200
"""Reports that are read at once, in 1 ms: churn of connections delays no request for longer."""
LOCAL_MAX = 1_000
"""Connections inside the process that the table keeps, whether they have ended or not."""
GOODBYE_S = 1.0
"""So long a client may take to read why its connection is ended."""


class ConnectionTable:
    """The connections by route and by descriptor. Owned by the front end's thread.

    routes: the connections that have sent a message. users: the keys of their clients, or their descriptors,
    for `receive_messages`. met: called with each of them at its first message; it is ended soon if it has a
    problem then. left: called with each of them that has ended. reset: closes all over TCP. connections_max:
    more are ended. guard: of the routes. watch: the memory of the process.

    Where clients have keys, messages from inside the process are looked at one by one: no other client may
    come under such a route.
    """

    def __init__(
        self,
        config: Config,
        guard: RouteGuard,
        watch: MemoryWatch,
        monitor: Monitor,
        counters: Counter[str],
        met: Callable[[Connection], bool],
        left: Callable[[Connection], None],
        reset: Callable[[], None],
    ) -> None:
        self.connections_max = config.connections_max
        self.watch = watch
        self._memory = ReplyMemory(config.memory_max // REPLIES_PART)
        self._has_keys = bool(config.server_key)
        self.users: dict[bytes, bytes | int] = {}
        self.monitor, self._guard = monitor, guard
        self._counters = counters
        self._met, self._left = met, left
        self.routes: dict[bytes, Connection] = {}
        self._accepted: dict[int, Accepted] = {}
        self._unproven: dict[int, Accepted] = {}
        self.unread = UnreadReplies(self._end_silent)
        self._refused: dict[Connection, float] = {}
        self._stuck = StuckConnections(config.connections_max)
        self._reset = Reset(reset)
        self._now = 0.0
        self._local: dict[Connection, None] = {}
        self._departed: list[Connection] = []
        self._holders = MemoryHolders(self._accepted, self._memory)
        self._ends = EndLog(counters)

    def start(self) -> None:
        """Begin to watch the memory of the process. Raises RuntimeError if no thread can be started."""
        self.watch.start(self._holders)

    def close(self) -> None:
        """End the watch, and the reports of libzmq, before its socket is closed."""
        self.watch.stop()
        self.monitor.close()

    def gauges(self) -> dict[str, int]:
        """Return how many connections there are, and the memory of replies and of the process."""
        return {
            "connections": len(self._accepted),
            "connections_max": self.connections_max,
            "reply_bytes": self._memory.held,
            "memory_used": self.watch.used,
            "memory_max": self.watch.limit,
        }

    # -- messages -------------------------------------------------------------------------------------------

    def meet(self, route: bytes, sender: Sender, now: float) -> bool:
        """Take note of the sender of a message whose route is new, or belongs to another client by now.

        Returns False if the message has to be dropped, since the client has chosen its route: with a key,
        since another client could choose it, too, and get its answers; else if it is like those of libzmq.
        The same holds for a key that was revoked between the handshake and the first message, and for a
        message that may be late, whose connection goes on.
        """
        descriptor, key = sender
        if descriptor < 0 and key:  # libzmq says a key, and not the connection: it has no place in the table
            return False
        user_id = self._user_id(descriptor, key)
        accepted = self._sender_of(route, descriptor, now)
        found = self.routes.get(route)
        if accepted is not None and accepted.is_ended:
            if not self._has_keys and found is not accepted.connection:
                self._end_former(found, now)
            return False
        if found is not None and (found.socket.descriptor, found.user_id) == (descriptor, user_id):
            return True
        earliest = accepted.earliest if accepted is not None else None
        if descriptor >= 0 and (user_id or not route[0]) and self._guard.is_chosen(route, earliest):
            if found is None and accepted is not None and may_be_late(route, now - accepted.since):
                return False
            if accepted is not None:
                self._end(accepted, "identity", now)
            if not self._has_keys:
                self._end_former(found, now)
            return False
        self._end_former(found, now)
        connection = self._add(route, descriptor, user_id, accepted)
        if descriptor >= 0 or not self._has_keys:
            self.users[route] = key if self._has_keys else descriptor
        if not self._met(connection):
            if accepted is not None:
                self._end(accepted, "revoked", now)
            return False
        if connection.problem is not None:
            self._refused[connection] = now + GOODBYE_S
        return True

    def _sender_of(self, route: bytes, descriptor: int, now: float) -> Accepted | None:
        """Return the connection that a message came from, once the reports about it are read."""
        accepted = self._accepted.get(descriptor)
        if descriptor >= 0 and (accepted is None or not accepted.is_of(self.routes.get(route))):
            while self.take_events(now):
                pass
            accepted = self._accepted.get(descriptor)
        return accepted

    def _add(
        self, route: bytes, descriptor: int, user_id: str | None, accepted: Accepted | None
    ) -> Connection:
        """Add the connection of a route. accepted: None for one that libzmq does not report, or no longer."""
        socket = accepted.socket if accepted is not None else AcceptedSocket(descriptor)
        connection = Connection(self._memory, route, socket, user_id)
        if accepted is not None:
            if accepted.connection is not None:
                self._forget(accepted.connection)
            accepted.connection = connection
            if accepted.is_ended:  # just now, by the watch
                connection.is_gone = True
            self._unproven.pop(descriptor, None)
        self.routes[route] = connection
        if descriptor < 0:
            self._meet_local(connection)
        elif accepted is None:
            self._departed.append(connection)
        return connection

    def _end_former(self, found: Connection | None, now: float) -> None:
        """End the connection that has lost its route: libzmq takes no message from it any more."""
        if found is not None:
            self._forget(found)
            self._end_connection(found, "identity", now)

    def _meet_local(self, connection: Connection) -> None:
        """Note a connection inside the process, the end of which libzmq does not report.

        One for which nothing waits may have ended: the oldest of those is left out of the table. If it sends
        another message, it is met again.
        """
        self._guard.accept()
        self._local[connection] = None
        if len(self._local) > LOCAL_MAX:
            oldest = next(iter(self._local))
            del self._local[oldest]
            if oldest.parked or oldest.held:
                self._local[oldest] = None
            elif self.routes.get(oldest.route) is oldest:
                del self.routes[oldest.route]
                self.users.pop(oldest.route, None)

    def _user_id(self, descriptor: int, key: bytes) -> str | None:
        """Return the key of a client as text. Without keys, peers write what they like: that is ignored."""
        if descriptor < 0:
            return None
        return key.decode("ascii", "replace") if self._has_keys else ""

    def of(self, route: bytes) -> Connection:
        """Return the connection of a route; a new one that nothing knows if it has ended."""
        found = self.routes.get(route)
        return found if found is not None else Connection(self._memory, route)

    # -- reports of libzmq ----------------------------------------------------------------------------------

    def take_events(self, now: float) -> bool:
        """Take the reports of libzmq; true if there may be more."""
        taken = 0
        for event, value in self.monitor.events(EVENTS_MAX):
            taken += 1
            if event == zmq.EVENT_ACCEPTED:
                self._accept(value, now)
            elif event == zmq.EVENT_DISCONNECTED:
                self._disconnect(value)
            elif event == zmq.EVENT_LISTENING:
                self._listen()
            elif event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._ends.note_failure(event, value, now)
        if taken < EVENTS_MAX:
            self._guard.settle()
        return taken >= EVENTS_MAX

    def _accept(self, descriptor: int, now: float) -> None:
        self._disconnect(descriptor)
        earliest = self._guard.accept()
        try:
            accepted = Accepted(accepted_socket(descriptor), earliest, now)
        except OSError:  # it has ended
            return
        self._accepted[descriptor] = self._unproven[descriptor] = accepted
        if len(self._accepted) > self.connections_max:
            oldest = next(iter(self._unproven))
            self._end(self._unproven.pop(oldest), "too_many", now)  # its number is free once libzmq says so
            for accepted in self._stuck.closed(self._accepted, now):
                self._end(accepted, "closed", now)

    def _disconnect(self, descriptor: int) -> None:
        self._unproven.pop(descriptor, None)
        self._stuck.remove(descriptor)
        accepted = self._accepted.pop(descriptor, None)
        if accepted is not None and accepted.connection is not None:
            self._forget(accepted.connection)

    def _forget(self, connection: Connection) -> None:
        if self.routes.get(connection.route) is connection:
            del self.routes[connection.route]
            self.users.pop(connection.route, None)
        self._local.pop(connection, None)
        self._refused.pop(connection, None)
        self.unread.forget(connection)
        connection.is_gone = True
        self._left(connection)

    def _listen(self) -> None:
        """Forget the connections from before a reset, whose ends libzmq does not report."""
        if self._reset.ends():
            for descriptor in [one for one, found in self._accepted.items() if found.socket.peer]:
                self._disconnect(descriptor)

    # -- ends -----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """End the connections that are refused, or take no replies; returns the time of the next call."""
        self._now = now
        if self._reset.tick(now, len(self._accepted), is_needed=self._stuck.are_too_many(now)):
            for accepted in [one for one in self._accepted.values() if one.socket.peer]:
                self._end(accepted, "reset", now)
        if self._guard.is_ahead(now):
            self._end_unproven(now)
        due = min(self._guard.next_probe(), self.unread.tick(now), self._reset.at)
        if self._refused or self._departed or self._holders.ended:
            due = min(due, self._end_due(now))
        return due

    def _end_due(self, now: float) -> float:
        """Forget or end what has to go; returns the time of the next call."""
        while self._departed:  # they had ended before their messages came
            self._forget(self._departed.pop())
        while self._holders.ended:
            accepted, was_open = self._holders.ended.popleft()
            if was_open:
                self._ends.note(accepted.socket, "memory", now)
            if self._accepted.get(accepted.socket.descriptor) is accepted:
                self._leave(accepted, now)
        self._end_refused(now)
        return next(iter(self._refused.values()), math.inf)

    def end_users(self, user_ids: frozenset[str]) -> None:
        """End the connections of clients whose keys are not valid any more."""
        for accepted in [*self._accepted.values()]:
            if accepted.connection is not None and accepted.connection.user_id in user_ids:
                self._end(accepted, "revoked", self._now)

    def _end_unproven(self, now: float) -> None:
        """End the connections without a message: one of them has a route that libzmq will give out soon."""
        self.take_events(now)
        while self._unproven:
            self._end(self._unproven.popitem()[1], "identity", now)

    def _end_refused(self, now: float) -> None:
        """End the connections that are beyond a quota, and have had time to read that."""
        for connection in [one for one, due in self._refused.items() if due <= now]:
            del self._refused[connection]
            self._end_connection(connection, "quota", now)

    def _end_silent(self, connection: Connection, now: float) -> None:
        self._end_connection(connection, "silent", now)

    def _end_connection(self, connection: Connection, reason: str, now: float) -> None:
        accepted = self._accepted.get(connection.socket.descriptor)
        if accepted is not None and accepted.connection is connection:
            self._end(accepted, reason, now)

    def _end(self, accepted: Accepted, reason: str, now: float) -> None:
        if accepted.is_ended:
            return
        self._leave(accepted, now)
        if accepted.end(now):
            self._ends.note(accepted.socket, reason, now)

    def _leave(self, accepted: Accepted, now: float) -> None:
        """Take note of an end. The next message on its route may be of a later client with its descriptor."""
        if accepted.socket.peer:  # a reset closes no others
            self._stuck.add(accepted.socket.descriptor, now)
        connection = accepted.connection
        if connection is not None and self.routes.get(connection.route) is connection:
            self.users.pop(connection.route, None)
