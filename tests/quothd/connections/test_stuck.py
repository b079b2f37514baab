"""Ended connections that libzmq does not close, and the endpoints that are opened again."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
import zmq

from kit.broker.peers import Context
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.processes import needs_proc
from quothd.connections.holders import Accepted
from quothd.connections.kernel import accepted_socket
from quothd.connections.stuck import STUCK_MAX, STUCK_S, StuckConnections
from quothd.frontend.endpoints import bind_again
from quothlog.storage.clock import SystemClock


@pytest.mark.parametrize(("connections_max", "most"), [(10_000, STUCK_MAX), (64, 16), (1, 0)])
def test_ended_connections_are_too_many_once_they_are_not_closed_for_a_while(
    connections_max: int, most: int
) -> None:
    stuck = StuckConnections(connections_max)
    for descriptor in range(most + 1):
        assert not stuck.are_too_many(1_000.0)
        stuck.add(descriptor, float(descriptor))
    last = float(most)
    assert not stuck.are_too_many(last + STUCK_S)
    assert stuck.are_too_many(last + STUCK_S + 0.1)
    stuck.remove(0)
    assert not stuck.are_too_many(1_000.0)


def test_connections_that_are_closed_in_time_are_never_too_many() -> None:
    stuck = StuckConnections(10_000)
    for number in range(10 * STUCK_MAX):
        stuck.add(number, float(number))
        stuck.remove(number - 4)
        assert not stuck.are_too_many(float(number))


@needs_proc
def test_connections_that_their_clients_have_closed_are_found_at_the_second_look() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        table: dict[int, Accepted] = {}
        clients = []
        for _ in range(3):
            clients.append(socket.create_connection(server.getsockname()))
            accepted = stack.enter_context(server.accept()[0])
            table[accepted.fileno()] = Accepted(accepted_socket(accepted.fileno()), 0, 0.0)
        first, second, third = table.values()
        stuck = StuckConnections(100)
        assert stuck.closed(table, 10.0) == []
        clients[0].close()
        clients[2].close()
        eventually(lambda: first.socket.is_closed() and third.socket.is_closed(), "their ends have come")
        assert not second.socket.is_closed()
        assert stuck.closed(table, 12.0) == [], "too soon for another look"
        assert stuck.closed(table, 20.0) == []
        third.end(21.0)
        assert stuck.closed(table, 30.0) == [first]
        clients[1].close()


@needs_proc
def test_endpoints_that_are_opened_again_get_their_clients_back(context: Context) -> None:
    urls: list[str] = []
    with ExitStack() as stack:
        router = stack.enter_context(context.socket(zmq.ROUTER))
        clients = [stack.enter_context(context.socket(zmq.DEALER)) for _ in range(3)]
        for one in (router, *clients):
            one.set(zmq.LINGER, 0)
            one.set(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
        for _ in range(2):
            router.bind("tcp://127.0.0.1:*")
            urls.append(router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
        router.bind("inproc://local")
        for client, url in zip(clients, [*urls, "inproc://local"], strict=True):
            client.connect(url)
            client.send(b"before")
        assert [router.recv_multipart()[1] for _ in clients] == [b"before"] * 3
        bind_again(router, urls, SystemClock())
        answered: set[object] = set()

        def reach_all() -> bool:
            for client in clients:
                client.send(b"again", zmq.NOBLOCK)
            while router.poll(50):
                route, _ = router.recv_multipart()
                router.send_multipart([route, b"reply"])
            answered.update(client for client in clients if client.poll(0))
            return len(answered) == len(clients)

        eventually(reach_all, "all clients are connected again")
