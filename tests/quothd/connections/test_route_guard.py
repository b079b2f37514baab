"""The guard of libzmq's routes, on a ROUTER of this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest
import zmq

from kit.broker.peers import Context
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.processes import needs_proc
from quothd.connections import route_guard
from quothd.connections.route_guard import (
    AHEAD,
    LATE_S,
    NEAR,
    PAUSE_S,
    UNSEEN_MAX,
    NextRoute,
    RouteGuard,
    find_next_route,
    may_be_late,
)
from quothd.connections.router import find_taken_route

INPROC = "inproc://guarded"
FIRST = 2**32 - 500
"""The numbers begin at zero again soon after it."""


def route(number: int) -> bytes:
    return b"\0" + (number % 2**32).to_bytes(4)


class Router:
    """A ROUTER, and clients of it."""

    def __init__(self, context: Context, stack: ExitStack) -> None:
        self._context, self._stack = context, stack
        self.socket: zmq.Socket[bytes] = stack.enter_context(context.socket(zmq.ROUTER))
        self.socket.set(zmq.ROUTER_MANDATORY, 1)
        self.socket.set(zmq.LINGER, 0)
        self.socket.bind(INPROC)

    def client(self, identity: bytes = b"") -> zmq.Socket[bytes]:
        """Let a client connect and send a message."""
        client: zmq.Socket[bytes] = self._stack.enter_context(self._context.socket(zmq.DEALER))
        client.set(zmq.LINGER, 0)
        if identity:
            client.set(zmq.IDENTITY, identity)
        client.connect(INPROC)
        client.send(b"x")
        return client

    def connect(self) -> bytes:
        self.client()
        return self.socket.recv_multipart()[0]


@pytest.fixture
def router() -> Iterator[Router]:
    """In a context of its own: a name is free again only some time after its socket has been closed."""
    with zmq.Context() as context, ExitStack() as stack:
        context.setsockopt(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
        yield Router(context, stack)


@needs_proc
def test_the_next_route_is_read_in_libzmqs_memory(router: Router) -> None:
    following = find_next_route(router.socket, router.connect)
    assert following.is_known
    for _ in range(20):
        number = following.number
        assert router.connect() == route(number)
    router.client(identity=b"chosen")
    assert router.socket.recv_multipart() == [b"chosen", b"x"]
    assert following.number == number + 1, "a chosen identity takes no number"


def test_without_a_place_of_the_next_route_the_connections_bound_it_and_nothing_is_probed(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_guard, "_places", lambda *_: [])
    following = find_next_route(router.socket, router.connect)
    guard = RouteGuard(following, _fail)
    assert not following.is_known
    for _ in range(10):
        guard.accept()
        guard.settle()
    last = following.first + 10 + UNSEEN_MAX
    assert not guard.is_chosen(route(last - 1))
    assert guard.is_chosen(route(last))
    assert guard.next_probe() == math.inf
    assert not guard.is_ahead(0)


@needs_proc
def test_a_route_ahead_is_found_and_its_client_gets_nothing_but_an_empty_message(router: Router) -> None:
    following = find_next_route(router.socket, router.connect)
    guard = RouteGuard(following, partial(find_taken_route, router.socket))
    assert not guard.is_ahead(0)
    now = PAUSE_S
    for distance in (NEAR, NEAR + 1, AHEAD // 2, AHEAD - 1):
        with closing(router.client(identity=route(following.number + distance))) as client:
            chosen, _ = router.socket.recv_multipart()
            guard.settle()
            assert guard.next_probe() < math.inf
            assert guard.is_ahead(now), distance
            assert client.recv_multipart() == [b""]
            router.socket.send_multipart([chosen, b"", b"whole"])
            assert client.recv_multipart() == [b"", b"whole"], "no message is left half sent"
        eventually(lambda: _is_free(router.socket, chosen), "the client has left")  # noqa: B023
        now += PAUSE_S
    router.client(identity=route(following.number + AHEAD + 10))
    router.socket.recv_multipart()
    guard.settle()
    assert not guard.is_ahead(now), "further away than it looks"
    for _ in range(10):
        assert not guard.is_ahead(now)
        router.connect()
    router.connect()
    assert guard.is_ahead(now), "found at the first new route that brings it near, without a pause"


def _is_free(socket: zmq.Socket[bytes], chosen: bytes) -> bool:
    socket.poll(0)
    try:
        socket.send_multipart([chosen, b""])
    except zmq.ZMQError as problem:
        return problem.errno == zmq.EHOSTUNREACH
    return False


@needs_proc
def test_all_routes_are_probed_after_a_report_and_then_none(router: Router) -> None:
    probed: list[int] = []
    following = find_next_route(router.socket, router.connect)
    guard = RouteGuard(following, _noting(probed))
    guard.is_ahead(0)
    probed.clear()
    guard.settle()
    assert not guard.is_ahead(PAUSE_S / 2)
    assert not probed
    due = guard.next_probe()
    assert due < math.inf
    guard.is_ahead(due)
    assert {*probed} >= {following.number + distance for distance in range(NEAR, AHEAD)}
    assert guard.next_probe() == math.inf
    assert not {*probed} & {following.number + distance for distance in range(NEAR)}
    probed.clear()
    guard.is_ahead(due + 10)
    assert not probed


def test_a_route_is_chosen_unless_it_was_given_out_since_the_connection_was_there() -> None:
    following = NextRoute(FIRST)
    guard = RouteGuard(following, _fail)
    following.accepted = 1_000 - UNSEEN_MAX
    for number in (0, 499, 500, 999):
        assert not guard.is_chosen(route(FIRST + number)), number
    for number in (-1, 1_000):
        assert guard.is_chosen(route(FIRST + number)), number
    assert guard.is_chosen(route(FIRST + 599), earliest=(FIRST + 600) % 2**32)
    assert not guard.is_chosen(route(FIRST + 600), earliest=(FIRST + 600) % 2**32)
    for other in (b"x", b"\0", route(FIRST) + b"x", b"\1" + route(FIRST)[1:]):
        assert guard.is_chosen(other)


def test_under_any_route_like_those_of_libzmq_a_message_may_be_late_at_first() -> None:
    for number in (0, FIRST, 2**32 - 1):
        assert may_be_late(route(number), LATE_S - 0.1)
        assert not may_be_late(route(number), LATE_S)
    for other in (b"x", b"\0", route(FIRST) + b"x", b"\1" + route(FIRST)[1:]):
        assert not may_be_late(other, 0.0)


@needs_proc
def test_a_connection_can_have_the_numbers_since_the_last_reports_but_one(router: Router) -> None:
    following = find_next_route(router.socket, router.connect)
    guard = RouteGuard(following, _fail)
    for _ in range(3):
        before = following.number
        router.connect()
        guard.settle()
        router.connect()
        guard.settle()
        assert guard.accept() == before + 1


def _fail(_begin: int, _count: int) -> int:
    raise AssertionError("a route was probed")


def _noting(probed: list[int]) -> Callable[[int, int], int]:
    def find_taken(begin: int, count: int) -> int:
        probed.extend(range(begin, begin + count))
        return -1

    return find_taken
