"""A connection that is reset while libzmq does not read it ends no process.

The clients send more requests than libzmq receives ahead, and a PING of ZMTP behind them.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from kit.broker.brokers import StartBroker
from kit.broker.peers import FastPeer, Peers, replied
from kit.deadlines import eventually
from kit.machine.processes import descriptors, needs_proc
from kit.pure import needs_compiled
from kit.scale import times
from kit.zmtp import COMMAND, frame, raw, request, reset, shake_hands
from quothd.announcing.sockets import SUBSCRIPTIONS_QUEUED_MAX
from quothd.frontend.endpoints import RECEIVED_MAX
from quothd.threads import polling
from quothwire.protocol.messages import Ping, Pong

PING = frame(b"\x04PING\0\0", COMMAND)
CLIENTS = times(100, 3_000)
"""Without protection, one of the first twenty ended the broker."""
REQUESTS = request(Ping()) * (3 * RECEIVED_MAX)
SUBSCRIPTIONS = b"".join(frame(b"\1" + b"%d" % number) for number in range(20 * SUBSCRIPTIONS_QUEUED_MAX))


def answers(peer: FastPeer) -> None:
    """Let a good client send a ping and get the answer."""
    assert isinstance(replied(peer.answer_to(peer.send(Ping()))), Pong)


@needs_compiled
@needs_proc
@pytest.mark.parametrize(("kind", "sent"), [(b"DEALER", REQUESTS), (b"SUB", SUBSCRIPTIONS)])
def test_clients_that_are_killed_with_a_heartbeat_behind_unread_messages_do_not_end_the_broker(
    start_broker: StartBroker, peers: Peers, kind: bytes, sent: bytes
) -> None:
    broker = start_broker()
    peer = peers.fast(broker)
    answers(peer)
    before = descriptors(broker.pid)
    place = SimpleNamespace(url=broker.url if kind == b"DEALER" else broker.announcements)
    for _ in range(CLIENTS):
        connection = raw(place)
        shake_hands(connection, kind=kind)
        connection.sendall(sent + PING)
        reset(connection)
    answers(peer)
    eventually(lambda: descriptors(broker.pid) <= before, "all connections are closed")
    assert broker.exit_status is None, broker.stderr
    assert "resets_unguarded" not in broker.stderr


@needs_compiled
@needs_proc
def test_a_client_over_ipc_that_reads_nothing_and_ends_does_not_end_the_broker(
    start_broker: StartBroker, peers: Peers, tmp_path: Path
) -> None:
    """Its answers leave no room to write: the kernel reports the end, and not that a write would fail."""
    path = tmp_path / "at"
    broker = start_broker(listen=f"ipc://{path}")
    peer = peers.fast(broker)
    answers(peer)
    before = descriptors(broker.pid)
    with ExitStack() as stack:
        for _ in range(times(3, 30)):
            connection = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
            connection.connect(str(path))
            shake_hands(connection)
            connection.settimeout(0.05)
            with suppress(TimeoutError):
                for _ in range(1_000):
                    connection.sendall(REQUESTS + PING)
            connection.shutdown(socket.SHUT_RDWR)
        answers(peer)
        eventually(lambda: descriptors(broker.pid) <= before, "all connections are closed")
    assert broker.exit_status is None, broker.stderr


@needs_compiled
def test_what_came_before_a_reset_is_received_whole() -> None:
    """libzmq has read all of it, and stopped at the fifth message: the others follow once there is room."""
    assert polling.guard_polling()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.set(zmq.LINGER, 0)
        router.set(zmq.RCVHWM, 4)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        connection = raw(SimpleNamespace(url=f"tcp://127.0.0.1:{port}"))
        shake_hands(connection)
        connection.sendall(b"".join(frame(b"%d" % number) + PING for number in range(50)))
        assert router.poll(5_000)
        reset(connection)
        router.set(zmq.RCVTIMEO, 5_000)
        assert [int(router.recv_multipart()[1]) for _ in range(50)] == [*range(50)]


def test_a_broker_without_compiled_functions_says_what_may_end_it(start_broker: StartBroker) -> None:
    broker = start_broker(prefix=("env", "QUOTH_NATIVE=0"))
    assert ("resets_unguarded" in broker.stderr) == (sys.platform == "linux")
