"""Keeps the routes free that libzmq gives out next, and knows which ones it has given out.

A ROUTER gives each connection a zero and a number of 32 bits, each number one more than the last. A client
may choose such a route in its handshake. libzmq ends the process when it comes to a number that is taken, and
does not report who has taken it. So each time it has given out numbers, the next `AHEAD` ones are probed: a
connection that has one of them has chosen it.

No function tells the next number. It is read in libzmq's memory, at the place where two clients that connect
one after the other have shown it to be. Without such a place no route is probed.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections import Counter
from collections.abc import Callable

import zmq

from quothd.connections.router import NUMBERS, ROUTE_BYTES

AHEAD = 1_000
"""So many routes are probed: more than are given out until a connection that has one of them is ended."""
NEAR = 64
"""So many at the front are not: libzmq may give them out to other clients meanwhile."""
PAUSE_S = 0.1
"""Between two probes of all the others, 0.2 ms each. Those that follow are probed as the number grows."""
UNSEEN_MAX = 100
"""Connections inside the process, which libzmq does not report: they get routes, too."""
LATE_S = 2.0
"""So long after a connection has ended, the messages that came over it may wait to be read."""
_SOCKET_BYTES = 2**12
"""A ROUTER of libzmq takes less."""
_TRIES = 10


class NextRoute:
    """The number that libzmq gives out next. Belongs to the thread that uses the socket.

    first: one that was given out before those of all clients. place: the address of the next one; without it,
    the number of connections gives an upper bound.
    """

    def __init__(self, first: int, place: int | None = None) -> None:
        self.first = first
        self.accepted = 0
        self._cell = None if place is None else ctypes.c_uint32.from_address(place)

    @property
    def is_known(self) -> bool:
        """True if it is no bound."""
        return self._cell is not None

    @property
    def number(self) -> int:
        """Return the number, or a bound that it is below."""
        if self._cell is not None:
            return self._cell.value
        return (self.first + self.accepted + UNSEEN_MAX) % NUMBERS


def find_next_route(router: zmq.Socket[bytes], connect: Callable[[], bytes]) -> NextRoute:
    """Find where libzmq keeps the next number. connect: lets a client connect, and returns its route.

    Other clients may connect meanwhile; the place is the one that is right twice.
    """
    first = None
    right: Counter[int] = Counter()
    for _ in range(_TRIES):
        number = _number_of(connect())
        first = number if first is None else first
        right.update(_places(int(router.underlying), (number + 1) % NUMBERS))
        found = [place for place, count in right.items() if count > 1]
        if len(found) == 1:
            return NextRoute(first, found[0])
    return NextRoute(first or 0)


def _places(address: int, number: int) -> list[int]:
    """Return the addresses of a number in the memory of a socket; none where that cannot be read."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            held = memory.read(_SOCKET_BYTES)
    except OSError:
        return []
    wanted = number.to_bytes(4, sys.byteorder)
    return [address + at for at in range(0, len(held), 4) if held[at : at + 4] == wanted]


class RouteGuard:
    """Finds routes that clients have chosen. Belongs to the thread that uses the socket."""

    def __init__(self, following: NextRoute, find_taken: Callable[[int, int], int]) -> None:
        """find_taken: does as `find_taken_route` of the socket."""
        self._following = following
        self._find_taken = find_taken
        self._begin = following.number
        self._is_due = following.is_known
        self._again_at = 0.0
        self._earliest = self._settled = following.first

    def accept(self) -> int:
        """Count a connection whose report is read; returns a number that is not above that of its route."""
        self._following.accepted += 1
        return self._earliest

    def settle(self) -> None:
        """Take note that all reports are read: those that come from now on are of later connections.

        A report may come a moment after the connection, so the numbers are those of the last call.
        """
        if self._following.is_known:
            self._is_due = True
            self._earliest, self._settled = self._settled, self._following.number

    def is_chosen(self, route: bytes, earliest: int | None = None) -> bool:
        """Return True for a route that libzmq cannot have given out.

        earliest: of the connection, as `accept` returned it.
        """
        if route[0] or len(route) != ROUTE_BYTES:
            return True
        begin = self._following.first if earliest is None else earliest
        return _distance(begin, _number_of(route)) >= _distance(begin, self._following.number)

    def next_probe(self) -> float:
        """Return the monotonic time of the next call of `is_ahead`, infinity if nothing has happened."""
        return self._again_at if self._is_due else math.inf

    def is_ahead(self, now: float) -> bool:
        """Probe the routes that libzmq gives out next; true if a connection has one of them.

        Those that were not probed yet come at once; the others too, some time after a connection may have
        chosen one.
        """
        following = self._following
        is_due = self._is_due and now >= self._again_at
        if (following.number == self._begin and not is_due) or not following.is_known:
            return False
        self._find_taken(following.number + AHEAD, 1)  # libzmq may give out routes within each call
        begin = following.number
        count = min(_distance(self._begin, begin), AHEAD - NEAR) if not is_due else AHEAD - NEAR
        self._begin, self._is_due = begin, not is_due
        if is_due:
            self._again_at = now + PAUSE_S
        number = self._find_taken(begin + AHEAD - count, count)
        return number >= 0 and _distance(following.number, number) < AHEAD  # else it was given out just now


def may_be_late(route: bytes, age: float) -> bool:
    """Return True if a message may have come over an ended connection that had the same descriptor.

    age: seconds since the later connection was reported. The number makes no difference: what happens then
    must not tell a client which ones libzmq has given out.
    """
    return age < LATE_S and not route[0] and len(route) == ROUTE_BYTES


def _number_of(route: bytes) -> int:
    return int.from_bytes(route[1:])


def _distance(begin: int, end: int) -> int:
    return (end - begin) % NUMBERS
