"""The connections of a ROUTER, with reports of libzmq that come when the test says so."""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from collections.abc import Iterator
from typing import cast

import pytest
import zmq

from kit.machine.processes import needs_proc
from quothd.config.config import Config
from quothd.connections.connection_table import ConnectionTable
from quothd.connections.memory import MemoryWatch
from quothd.connections.monitor import Monitor, MonitorEvent
from quothd.connections.route_guard import NextRoute, RouteGuard
from quothlog.storage.clock import SystemClock

ROUTE = b"of a client"


class ScriptedMonitor:
    """Reports what a test has put in `waiting`."""

    def __init__(self) -> None:
        self.waiting: deque[MonitorEvent] = deque()

    def events(self, enough: int) -> Iterator[MonitorEvent]:
        """Yield the reports."""
        while self.waiting:
            yield self.waiting.popleft()


@pytest.fixture
def monitor() -> ScriptedMonitor:
    """Return the monitor of the table."""
    return ScriptedMonitor()


@pytest.fixture
def table(monitor: ScriptedMonitor) -> ConnectionTable:
    """Return a table without connections."""
    guard = RouteGuard(NextRoute(0), lambda _begin, _count: -1)
    watch = MemoryWatch(2**40, SystemClock().monotonic)
    reports = cast("Monitor", monitor)
    ports = guard, watch, reports, Counter[str](), lambda _: True, lambda _: None, lambda: None
    return ConnectionTable(Config(connections_max=10), *ports)


@needs_proc
def test_a_client_that_comes_back_with_the_descriptor_of_its_ended_connection_is_met_anew(
    table: ConnectionTable, monitor: ScriptedMonitor
) -> None:
    """Its first message may be read before the reports of libzmq."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()), server.accept()[0] as accepted:
            descriptor = accepted.fileno()
            monitor.waiting.append(MonitorEvent(zmq.EVENT_ACCEPTED, descriptor))
            assert table.meet(ROUTE, (descriptor, b""), 0.0)
            former = table.routes[ROUTE]
            assert table.users == {ROUTE: descriptor}
            table.end_users(frozenset(("",)))
            assert not table.users, "the next message is looked at"
            assert not table.meet(ROUTE, (descriptor, b""), 0.0), "what came before the end is dropped"
        with socket.create_connection(server.getsockname()), server.accept()[0] as accepted:
            os.dup2(accepted.fileno(), descriptor)
            try:
                monitor.waiting.append(MonitorEvent(zmq.EVENT_DISCONNECTED, descriptor))
                monitor.waiting.append(MonitorEvent(zmq.EVENT_ACCEPTED, descriptor))
                assert table.meet(ROUTE, (descriptor, b""), 0.0)
                assert table.routes[ROUTE] is not former
                assert not table.routes[ROUTE].is_gone
            finally:
                if accepted.fileno() != descriptor:
                    os.close(descriptor)
