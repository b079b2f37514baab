"""The connections of a ROUTER, with reports of libzmq that come when the test says so."""

from __future__ import annotations

import os
import select
import socket
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import addressof, c_uint32
from pathlib import Path
from socket import AF_INET, AF_UNIX
from typing import cast

import pytest
import zmq

from kit.deadlines import DEADLINE_S
from kit.machine.processes import needs_proc
from kit.zmtp import reset
from quothd.config.config import Config
from quothd.connections.connection_table import ConnectionTable
from quothd.connections.holders import LEAST_HELD_BYTES
from quothd.connections.memory import MemoryWatch
from quothd.connections.monitor import Monitor, MonitorEvent
from quothd.connections.route_guard import LATE_S, NextRoute, RouteGuard
from quothd.connections.router import route_of
from quothd.connections.stuck import RESET_S, STUCK_S
from quothlog.storage.clock import SystemClock

ROUTE = b"of a client"
CONNECTIONS_MAX = 8
STUCK = CONNECTIONS_MAX // 4
"""So many connections may be stuck."""


class ScriptedMonitor:
    """Reports what a test has put in `waiting`."""

    def __init__(self) -> None:
        self.waiting: deque[MonitorEvent] = deque()

    def events(self, enough: int) -> Iterator[MonitorEvent]:
        """Yield the reports."""
        while self.waiting:
            yield self.waiting.popleft()

    def accepts(self, descriptor: int) -> None:
        """Report a connection that was accepted."""
        self.waiting.append(MonitorEvent(zmq.EVENT_ACCEPTED, descriptor))


class Pairs:
    """Connections to a server of this process. server: listens, over TCP or ipc."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.clients: list[socket.socket] = []
        self.accepted: list[socket.socket] = []

    def connect(self) -> int:
        """Connect once more; returns the descriptor of the accepted side."""
        client = socket.socket(self._server.family)
        self.clients.append(client)
        client.connect(self._server.getsockname())
        self.accepted.append(self._server.accept()[0])
        return self.accepted[-1].fileno()


@pytest.fixture
def monitor() -> ScriptedMonitor:
    """Return the monitor of the table."""
    return ScriptedMonitor()


@pytest.fixture
def resets() -> list[str]:
    """Return a list that gets an item at each reset."""
    return []


@pytest.fixture
def next_number() -> c_uint32:
    """Return the number that libzmq would give out next."""
    return c_uint32(0)


@pytest.fixture
def table(monitor: ScriptedMonitor, resets: list[str], next_number: c_uint32) -> ConnectionTable:
    """Return a table without connections."""
    guard = RouteGuard(NextRoute(0, addressof(next_number)), lambda _begin, _count: -1)
    watch = MemoryWatch(2**40, SystemClock().monotonic)
    reports = cast("Monitor", monitor)
    ports = guard, watch, reports, Counter[str](), lambda _: True, lambda _: None
    return ConnectionTable(Config(connections_max=CONNECTIONS_MAX), *ports, lambda: resets.append("reset"))


@pytest.fixture(params=["tcp", "ipc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pairs(kind: str, tmp_path: Path) -> Iterator[Pairs]:
    """Return connections over TCP, or over ipc where a test says so."""
    family, address = (AF_INET, ("127.0.0.1", 0)) if kind == "tcp" else (AF_UNIX, str(tmp_path / "s"))
    with socket.socket(family) as server, ExitStack() as stack:
        server.bind(address)
        server.listen()
        pairs = Pairs(server)
        yield pairs
        for one in (*pairs.clients, *pairs.accepted):
            stack.enter_context(one)


tcp_only = pytest.mark.parametrize("kind", ["tcp"])


@contextmanager
def connected_again(server: socket.socket, descriptor: int, monitor: ScriptedMonitor) -> Iterator[None]:
    """Give a descriptor that was closed to another connection; both reports wait to be read."""
    with socket.create_connection(server.getsockname()), server.accept()[0] as accepted:
        os.dup2(accepted.fileno(), descriptor)
        try:
            monitor.waiting.append(MonitorEvent(zmq.EVENT_DISCONNECTED, descriptor))
            monitor.accepts(descriptor)
            yield
        finally:
            if accepted.fileno() != descriptor:
                os.close(descriptor)


@needs_proc
def test_a_client_that_comes_back_with_the_descriptor_of_its_ended_connection_is_met_anew(
    table: ConnectionTable, monitor: ScriptedMonitor
) -> None:
    """Its first message may be read before the reports of libzmq."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()), server.accept()[0] as accepted:
            descriptor = accepted.fileno()
            monitor.accepts(descriptor)
            assert table.meet(ROUTE, (descriptor, b""), 0.0)
            former = table.routes[ROUTE]
            assert table.users == {ROUTE: descriptor}
            table.end_users(frozenset(("",)))
            assert not table.users, "the next message is looked at"
            assert not table.meet(ROUTE, (descriptor, b""), 0.0), "what came before the end is dropped"
        with connected_again(server, descriptor, monitor):
            assert table.meet(ROUTE, (descriptor, b""), 0.0)
            assert table.routes[ROUTE] is not former
            assert not table.routes[ROUTE].is_gone


@needs_proc
def test_a_client_with_the_descriptor_of_one_that_left_without_a_message_is_not_taken_for_it(
    table: ConnectionTable, monitor: ScriptedMonitor
) -> None:
    """The end of the former is reported behind thousands of other reports, and would end the later one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()), server.accept()[0] as accepted:
            descriptor = accepted.fileno()
            monitor.accepts(descriptor)
            table.take_events(0.0)
        with connected_again(server, descriptor, monitor):
            assert table.meet(ROUTE, (descriptor, b""), 0.0)
            table.take_events(0.0)
            assert not table.routes[ROUTE].is_gone


@needs_proc
@tcp_only
def test_a_client_that_has_lost_its_route_is_ended_although_the_other_one_is_ended_before_it_is_met(
    table: ConnectionTable, monitor: ScriptedMonitor, pairs: Pairs
) -> None:
    """libzmq has given the route to the other one at its handshake."""
    former, other = pairs.connect(), pairs.connect()
    monitor.accepts(former)
    monitor.accepts(other)
    assert table.meet(ROUTE, (former, b""), 0.0)
    connection = table.routes[ROUTE]
    for _ in range(CONNECTIONS_MAX):
        monitor.accepts(pairs.connect())
    table.take_events(0.0)
    assert pairs.clients[1].recv(1) == b"", "one too many"
    assert not table.meet(ROUTE, (other, b""), 0.0)
    assert connection.is_gone
    assert pairs.clients[0].recv(1) == b""
    assert not table.routes


@needs_proc
def test_a_late_message_of_an_ended_connection_does_not_end_the_one_that_has_its_descriptor(
    table: ConnectionTable, monitor: ScriptedMonitor, next_number: c_uint32
) -> None:
    """Both routes are libzmq's. A client that goes on with a route of before has chosen it."""
    former, own = route_of(1), route_of(2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()), server.accept()[0] as accepted:
            descriptor = accepted.fileno()
            monitor.accepts(descriptor)
            next_number.value = 2
            for _ in range(2):
                table.take_events(0.0)
            assert table.meet(former, (descriptor, b""), 0.0)
        with connected_again(server, descriptor, monitor):
            next_number.value = 3
            table.take_events(0.0)
            assert not table.meet(former, (descriptor, b""), 0.0)
            assert table.meet(own, (descriptor, b""), 0.0)
            assert not table.meet(former, (descriptor, b""), 0.0)
            assert not table.routes[own].is_gone
            assert not table.meet(former, (descriptor, b""), LATE_S)
            assert table.routes[own].is_gone


def hold(pairs: Pairs) -> None:
    """Let the newest connection have received what is no whole message yet."""
    sent = 2 * LEAST_HELD_BYTES
    while sent > 0:
        pairs.clients[-1].send(bytes(LEAST_HELD_BYTES))
        sent -= len(pairs.accepted[-1].recv(LEAST_HELD_BYTES))


@needs_proc
@tcp_only
def test_connections_that_hold_memory_and_were_reset_by_their_clients_are_stuck(
    table: ConnectionTable, monitor: ScriptedMonitor, pairs: Pairs, resets: list[str]
) -> None:
    """The watch of the memory finds them, and cannot end them any more."""
    for _ in range(STUCK + 1):
        monitor.accepts(pairs.connect())
        table.take_events(0.0)
        hold(pairs)
    for client in pairs.clients:
        reset(client)
    for accepted in pairs.accepted:
        assert select.select([accepted], [], [], DEADLINE_S)[0], "the reset has come"
    table._holders.end_largest(2**30, 1.0)
    table.tick(1.0)
    assert not resets
    table.tick(1.0 + 2 * STUCK_S)
    assert not resets
    table.tick(1.0 + 2 * STUCK_S + RESET_S)
    assert resets
    assert table._counters["connections_ended"] == 0, "the clients have ended them"


@needs_proc
def test_a_reset_follows_if_connections_over_tcp_stay_open_behind_their_end_and_not_over_ipc(
    table: ConnectionTable, monitor: ScriptedMonitor, pairs: Pairs, resets: list[str], kind: str
) -> None:
    """A reset would not close those over ipc."""
    for number in range(STUCK + 1):
        monitor.accepts(pairs.connect())
        assert table.meet(b"%d" % number, (pairs.accepted[-1].fileno(), b""), 0.0)
    table.end_users(frozenset(("",)))
    monitor.accepts(pairs.connect())
    table.take_events(2 * STUCK_S)
    table.tick(2 * STUCK_S)
    assert not resets
    is_tcp = kind == "tcp"
    ended = bool(select.select([pairs.clients[-1]], [], [], DEADLINE_S if is_tcp else 0)[0])
    assert ended is is_tcp, "what is open ends before, so that libzmq closes it"
    table.tick(2 * STUCK_S + RESET_S)
    assert bool(resets) is is_tcp


@needs_proc
@tcp_only
def test_connections_that_their_clients_have_closed_are_ended_where_the_table_is_full(
    table: ConnectionTable, monitor: ScriptedMonitor, pairs: Pairs
) -> None:
    """libzmq closes none of them here. The second look finds them."""
    for number in range(CONNECTIONS_MAX):
        monitor.accepts(pairs.connect())
        assert table.meet(b"%d" % number, (pairs.accepted[-1].fileno(), b""), 0.0)
    pairs.clients[0].close()
    assert select.select([pairs.accepted[0]], [], [], DEADLINE_S)[0], "its end has come"
    for now in (10.0, 10.0 + 2 * STUCK_S):
        assert not table.routes[b"0"].is_gone
        monitor.accepts(pairs.connect())
        table.take_events(now)
    assert table.routes[b"0"].is_gone
    assert not table.routes[b"1"].is_gone
