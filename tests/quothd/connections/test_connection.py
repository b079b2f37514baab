"""The memory that the replies to a connection hold, and the log of connections that end."""

from __future__ import annotations

import errno
import random
from collections import Counter

import pytest
import zmq

from quothd.connections.connection import (
    CONNECTION_REPLY_BYTES_MAX,
    QUEUED_MAX,
    WRITE_S,
    Connection,
    ReplyMemory,
)
from quothd.connections.end_log import LOGGED_S, EndLog
from quothd.connections.kernel import AcceptedSocket, Counters

MIB = 2**20


def connections(memory: ReplyMemory, count: int) -> list[Connection]:
    return [Connection(memory, b"%d" % number, AcceptedSocket(10 + number)) for number in range(count)]


def queue(connection: Connection, size: int, now: float) -> None:
    """Make a reply and hand it to libzmq."""
    connection.hold(size)
    connection.queue(size, size, now)


@pytest.mark.parametrize("count", [1, 2, 9, 30])
def test_connections_that_read_nothing_hold_less_than_the_limit_together(count: int) -> None:
    """However many they are, there is room for one more."""
    memory = ReplyMemory(64 * MIB)
    silent = connections(memory, count)
    for number in range(10_000):
        connection = silent[number % count]
        if connection.room >= MIB // 16:
            queue(connection, min(connection.room, MIB // 16), 0.0)
    assert memory.held <= memory.limit * count // (count + 1) + MIB
    shares = [one.held for one in silent]
    assert max(shares) - min(shares) <= MIB // 8
    (other,) = connections(memory, 1)
    assert other.room >= memory.limit // (count + 1) - MIB


def test_one_connection_never_holds_more_than_its_own_limit() -> None:
    (one,) = connections(ReplyMemory(2**40), 1)
    assert one.room == CONNECTION_REPLY_BYTES_MAX
    one.hold(CONNECTION_REPLY_BYTES_MAX + MIB)
    assert one.room == -MIB


def test_a_reply_leaves_the_count_once_as_many_bytes_are_acknowledged(rng: random.Random) -> None:
    """The count is never lower than what is not acknowledged, and not much higher."""
    memory = ReplyMemory(2**40)
    (one,) = connections(memory, 1)
    sent = acknowledged = 0
    queue(one, 1, 0.0)
    one.look(Counters(0, 0, 1), 0.0)
    sizes = [1]
    for step in range(1, 3_000):
        now = step * 0.01
        if sent - acknowledged < 32 * MIB:
            sizes.append(rng.randrange(5_000, 2 * MIB))
            queue(one, sizes[-1], now)
            sent += sizes[-1]
        acknowledged += rng.randrange(0, sent - acknowledged + 1)
        one.look(Counters(acknowledged, 0, max(1, sent - acknowledged)), now)
        unread = sent - acknowledged
        assert min(unread, sum(sizes[-QUEUED_MAX:])) <= one.queued <= unread + max(sizes) + 1
        assert memory.held == one.held == one.queued


def test_no_more_replies_are_counted_than_libzmq_holds() -> None:
    (one,) = connections(ReplyMemory(2**40), 1)
    for _ in range(1_000):
        queue(one, MIB, 0.0)
    assert one.queued == (QUEUED_MAX + 1) * MIB


def test_an_empty_queue_of_the_kernel_ends_the_count() -> None:
    """A connection over ipc has no counter of acknowledged bytes."""
    (one,) = connections(ReplyMemory(2**40), 1)
    queue(one, MIB, 1.0)
    one.look(Counters(-1, -1, 0), 1.0, has_sent=True)
    assert one.queued == MIB, "libzmq is about to write"
    one.look(Counters(-1, -1, 5), 1.1)
    assert one.queued == MIB
    one.look(Counters(-1, -1, 0), 1.2)
    assert one.queued == one.held == 0


def test_a_reply_that_libzmq_may_not_have_written_yet_is_counted() -> None:
    """The kernel holds nothing then, either."""
    (one,) = connections(ReplyMemory(2**40), 1)
    queue(one, MIB, 1.0)
    one.look(Counters(500, 0, 0), 1.0)
    one.look(Counters(500, 0, 0), 1.0 + WRITE_S / 2)
    assert one.queued == MIB
    one.look(Counters(500, 0, 0), 1.0 + 2 * WRITE_S)
    assert one.queued == one.held == 0


def test_silence_lasts_while_nothing_is_acknowledged_and_something_is_queued() -> None:
    (one,) = connections(ReplyMemory(2**40), 1)
    assert one.silence(100.0) == 0.0
    queue(one, MIB, 100.0)
    one.look(Counters(500, 0, 10), 101.0)
    one.look(Counters(500, 0, 10), 105.0)
    assert one.silence(105.0) == 4.0
    one.look(Counters(501, 0, 9), 106.0)
    assert one.silence(107.0) == 1.0


def test_a_client_inside_the_process_is_not_counted() -> None:
    one = Connection(ReplyMemory(MIB), b"inproc")
    for _ in range(100):
        queue(one, MIB, 0.0)
    assert one.held == 0


def test_failures_and_ends_of_a_flood_are_counted_and_logged_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters: Counter[str] = Counter()
    log = EndLog(counters)
    for now in (0.0, 1.0, LOGGED_S - 0.1, LOGGED_S):
        log.note_failure(zmq.EVENT_ACCEPT_FAILED, errno.EMFILE, now)
        log.note_failure(zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400, now)
        log.note(AcceptedSocket(), "silent", now)
    assert counters == {"accepts_failed": 4, "handshakes_failed": 4, "connections_ended": 4}
    counts = [(one.event, one.fields["count"]) for one in caplog.records]  # type: ignore[attr-defined]
    assert counts == [
        ("accept_failed", 1),
        ("connection_ended", 1),
        ("accept_failed", 3),
        ("connection_ended", 3),
    ]
