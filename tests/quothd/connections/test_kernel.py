"""The kernel's counters of a connection, and its end, by the descriptor of another library."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Event, Thread

import pytest

from kit.deadlines import eventually
from kit.scale import times
from quothd.connections.kernel import IN_PROCESS, accepted_socket

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone counts the bytes of a connection")


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection, that of the client first."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with (
        closing(socket.create_server((request.param, 0), family=family)) as server,
        closing(socket.create_connection(server.getsockname()[:2])) as client,
        closing(server.accept()[0]) as accepted,
    ):
        yield client, accepted


@linux
def test_counters_tell_what_has_come_and_what_the_peer_has_acknowledged(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, accepted = pair
    found = accepted_socket(accepted.fileno())
    client.sendall(bytes(1_000))
    accepted.sendall(bytes(5_000))
    eventually(lambda: found.counters() == (5_000, 1_000, 0), "everything has arrived")
    assert found.received() == 1_000


def test_the_end_of_a_connection_reaches_its_client(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    found = accepted_socket(accepted.fileno())
    assert found.peer.endswith(f":{client.getsockname()[1]}")
    assert found.end()
    client.settimeout(5)
    assert client.recv(1) == b""
    accepted.close()
    assert not found.end()


def test_a_descriptor_that_changes_hands_meanwhile_is_a_whole_socket_or_none(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    local, other = socket.socketpair()
    ends = Event()
    with closing(local), closing(other), closing(socket.socket()) as changing:
        descriptor = changing.fileno()

        def change_hands() -> None:
            while not ends.is_set():
                os.dup2(pair[1].fileno(), descriptor)
                os.dup2(local.fileno(), descriptor)

        thread = Thread(target=change_hands)
        thread.start()
        try:
            for _ in range(times(20_000, 100_000)):
                with suppress(OSError):
                    found = accepted_socket(descriptor)
                    assert bool(found.peer) == (found.family != socket.AF_UNIX)
        finally:
            ends.set()
            thread.join()


def test_a_descriptor_that_belongs_to_another_connection_by_now_is_left_alone() -> None:
    first, client = socket.socketpair()
    second, other = socket.socketpair()
    with closing(first), closing(client), closing(second), closing(other):
        found = accepted_socket(first.fileno())
        os.dup2(second.fileno(), first.fileno())
        assert found.counters() is None
        assert found.received() is None
        assert not found.end()
        other.sendall(b"x")
        assert first.recv(1) == b"x"


def test_a_descriptor_that_belongs_to_a_file_by_now_is_left_alone() -> None:
    first, client = socket.socketpair()
    with closing(first), closing(client), open(os.devnull, "rb") as file:
        found = accepted_socket(first.fileno())
        os.dup2(file.fileno(), first.fileno())
        assert found.counters() is None
        assert not found.end()


def test_a_connection_over_ipc_has_the_bytes_that_are_not_read() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        found = accepted_socket(one.fileno())
        one.sendall(bytes(500))
        counters = found.counters()
        assert counters is not None
        assert counters[:2] == (-1, -1)
        assert counters.unread >= 500
        assert len(other.recv(500)) == 500
        assert found.counters() == (-1, -1, 0)
        assert found.received() is None
        assert found.peer == ""


def test_a_client_in_the_process_has_no_socket() -> None:
    assert IN_PROCESS.counters() is None
    assert IN_PROCESS.received() is None
    assert not IN_PROCESS.end()
