"""The large replies that libzmq has taken, at real sockets."""

from __future__ import annotations

import socket

from kit.machine.processes import needs_proc
from quothd.connections.connection import Connection, ReplyMemory
from quothd.connections.kernel import accepted_socket
from quothd.connections.unread_replies import LOOK_S, UnreadReplies

SIZE = 2**19


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
