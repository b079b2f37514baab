"""The large replies that libzmq has taken, at real sockets."""

from __future__ import annotations

import random
import select
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
import zmq

from kit.broker.peers import Context, set_key
from kit.deadlines import DEADLINE_S, eventually
from kit.keys import new_key
from kit.machine.processes import needs_proc
from kit.zmtp import message, shake_hands
from quothd.connections.connection import Connection, ReplyMemory, memory_of
from quothd.connections.kernel import AcceptedSocket, Counters, accepted_socket
from quothd.connections.router import ReplyQueue, send_message
from quothd.connections.unread_replies import LOOK_S, UnreadReplies

SIZE = 2**19
SMALL_BUFFER = 4_096
ACKNOWLEDGED_S = 0.02
"""A host may acknowledge what was read a moment later, without more bytes."""
LARGE = {"many frames": [b"x"] * 1_000, "one frame": [bytes(60_000)]}
"""Replies; the overhead of a frame is more than the first one has, and next to nothing of the second."""
SMALL = [b"x" * 250] * 4


def never(connection: Connection, now: float) -> None:
    raise AssertionError("it is not silent")


@needs_proc
def test_a_reply_that_was_taken_just_now_is_counted_in_the_next_turn_too() -> None:
    """libzmq may not have written it yet."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as accepted,
    ):
        memory = ReplyMemory(2**30)
        connection = Connection(memory, b"route", accepted_socket(accepted.fileno()))
        unread = UnreadReplies(never)
        for now in (100.0, 200.0):
            connection.hold(SIZE)
            unread.add(connection, SIZE, SIZE, now)
            assert unread.tick(now + 0.001) == now + LOOK_S
            assert memory.held == SIZE
            unread.tick(now + LOOK_S)
            assert memory.held == 0


def all_acknowledged(accepted: AcceptedSocket) -> int:
    """Wait until all that was written is acknowledged; returns how many bytes that is."""

    def found() -> Counters | None:
        counters = accepted.tcp_counters()
        return counters if counters is not None and not counters.unread else None

    eventually(found, "all is acknowledged")
    counters = accepted.tcp_counters()  # again: those of a call are not of the same instant
    assert counters is not None
    return counters.acknowledged


class Line:
    """A client of a ROUTER that reads what a test lets it read, and the replies to it.

    ends: for each large reply, the bytes that the connection has written once that is written.
    """

    def __init__(self, router: zmq.Socket[bytes], client: socket.socket) -> None:
        self._client = client
        shake_hands(client)
        client.sendall(message([b"hello"]))
        route = router.recv(copy=False)
        router.recv()
        self._socket = accepted_socket(int(route.get(zmq.SRCFD)))
        self.memory = ReplyMemory(2**30)
        self.connection = Connection(self.memory, route.bytes, self._socket)
        self._unread = UnreadReplies(never)
        ways = partial(send_message, router), lambda _: self.connection, self._unread.add
        self._replies = ReplyQueue(*ways, Counter(), lambda: 0.0)
        self._written = all_acknowledged(self._socket)
        self.ends: list[int] = []

    def counters(self) -> Counters:
        counters = self._socket.counters()
        assert counters is not None
        return counters

    def send(self, frames: list[bytes]) -> None:
        """Send a reply."""
        whole = [self.connection.route, *frames]
        held = self.connection.hold_large(whole)
        self._replies.send(whole, held, self.connection)
        self._written += sum(len(frame) + (2 if len(frame) < 256 else 9) for frame in frames)
        if held:
            self.ends.append(self._written)

    def read(self, size: int) -> None:
        """Read up to so many bytes of the replies, if some have come."""
        if select.select([self._client], [], [], ACKNOWLEDGED_S)[0]:
            self._client.recv(size)

    def is_written(self) -> bool:
        """Return whether all replies so far are in the kernel, or acknowledged."""
        counters = self.counters()
        return counters.acknowledged + counters.unread == self._written

    def is_read(self) -> bool:
        """Return whether the client has acknowledged all."""
        return self.counters().acknowledged == self._written

    def is_exact(self, held: int) -> bool:
        """Return whether the replies that count are those that are not acknowledged. held: bytes of each.

        The time is that of the last reply, so that nothing is concluded from an empty queue of the kernel.
        """
        before = self.counters()
        self._unread.look(self.connection, 0.0)
        if self.counters() != before:
            return False
        outstanding = sum(end > before.acknowledged for end in self.ends)
        return outstanding - 1 <= self.connection.queued / held <= outstanding


@pytest.fixture
def line(context: Context) -> Iterator[Line]:
    """Connect a client to a ROUTER, with little room in the kernel for what it does not read."""
    with context.socket(zmq.ROUTER) as router, socket.socket() as client:
        router.set(zmq.LINGER, 0)
        router.set(zmq.RCVTIMEO, int(DEADLINE_S * 1_000))
        router.set(zmq.SNDBUF, SMALL_BUFFER)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        client.settimeout(DEADLINE_S)
        client.connect(("127.0.0.1", port))
        yield Line(router, client)


@needs_proc
@pytest.mark.parametrize("frames", LARGE.values(), ids=LARGE)
def test_replies_count_until_the_client_has_acknowledged_them(
    line: Line, rng: random.Random, frames: list[bytes]
) -> None:
    """Small ones before and between them, and the heads of frames, make no difference."""
    held = memory_of([line.connection.route, *frames])
    for _ in range(3):
        for _ in range(200):
            line.send(SMALL)
        while not line.is_read():
            line.read(10_000)
        line.send(SMALL)
        eventually(line.is_written, "it is in the kernel")
        for _ in range(20):
            line.send(frames)
            line.send(SMALL)
        while not line.is_read():
            eventually(partial(line.is_exact, held), "the count is right")
            line.read(rng.randrange(1, 200_000))
        eventually(partial(line.is_exact, held), "the count is right")
        assert not line.memory.held


@needs_proc
@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("frames", LARGE.values(), ids=LARGE)
def test_the_bytes_on_the_wire_are_known_also_of_encrypted_replies(
    context: Context, frames: list[bytes], is_encrypted: bool
) -> None:
    with context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as client:
        for one in (router, client):
            one.set(zmq.LINGER, 0)
        if is_encrypted:
            key = new_key("broker")
            router.set(zmq.CURVE_SERVER, 1)
            router.set(zmq.CURVE_SECRETKEY, key.secret_key.encode())
            set_key(client, new_key("client", key))
        client.connect(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
        client.send(b"hello")
        route = router.recv(copy=False)
        router.recv()
        accepted = accepted_socket(int(route.get(zmq.SRCFD)))
        connection = Connection(ReplyMemory(2**30), route.bytes, accepted)
        ways = partial(send_message, router), lambda _: connection, UnreadReplies(never).add
        queue = ReplyQueue(*ways, Counter(), lambda: 0.0, is_encrypted=is_encrypted)
        whole = [route.bytes, *frames]
        before = all_acknowledged(accepted)
        queue.send(whole)
        assert client.recv_multipart() == frames
        written = all_acknowledged(accepted) - before
        assert 0 <= written - queue._written(whole) <= 7 * sum(len(frame) > 255 for frame in frames)
