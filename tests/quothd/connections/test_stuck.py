"""Ended connections that libzmq does not close, and the endpoints that are opened again."""

from __future__ import annotations

import stat
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from kit.broker.peers import Context
from kit.deadlines import DEADLINE_S, eventually
from kit.machine.processes import needs_proc
from quothd.config.config import Config
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
def test_endpoints_that_are_opened_again_get_their_clients_back(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with ExitStack() as stack:
        router, *clients = (
            stack.enter_context(context.socket(kind)) for kind in (zmq.ROUTER, *[zmq.DEALER] * 3)
        )
        for one in (router, *clients):
            one.set(zmq.LINGER, 0)
            one.set(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
        router.bind("tcp://127.0.0.1:*")
        urls = [router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"), f"ipc://{path}"]
        router.bind(urls[1])
        router.bind("inproc://local")
        for client, url in zip(clients, [*urls, "inproc://local"], strict=True):
            client.connect(url)
            client.send(b"before")
        assert [router.recv_multipart()[1] for _ in clients] == [b"before"] * 3
        bind_again(router, urls, Config(dir=tmp_path, ipc_mode=0o660), SystemClock())
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        answered: set[object] = set()

        def reach_all() -> bool:
            for client in clients:
                client.send(b"again")
            while router.poll(50):
                route, _ = router.recv_multipart()
                router.send_multipart([route, b"reply"])
            answered.update(client for client in clients if client.poll(0))
            return len(answered) == len(clients)

        eventually(reach_all, "all clients are connected again")
