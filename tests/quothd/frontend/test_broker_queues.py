"""The queues between threads and clients: the outbox with its wakeup, and the queue of replies."""

from __future__ import annotations

import math
import random
import select
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest
import zmq

from kit.clocks import SECOND, ManualClock
from kit.deadlines import DEADLINE_S
from quothd.connections.connection import (
    CONNECTION_REPLY_BYTES_MAX,
    REPLY_BYTES,
    SILENCE_S,
    Connection,
    ReplyMemory,
)
from quothd.connections.router import ReplyQueue
from quothd.requests.events import Answered, Event
from quothd.threads.executor import Executor
from quothd.threads.outbox import Outbox

# -- events ---------------------------------------------------------------------------------------------


Posted = tuple[Executor, Sequence[Event]]


def event(number: int) -> Posted:
    return cast(Executor, "a topic"), (Answered(cast(Any, number), []),)


def is_readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def take(outbox: Outbox[Any]) -> list[Posted]:
    outbox.attend(readable=is_readable(outbox.fd))
    return list(outbox.take(math.inf, time.monotonic))


def nothing() -> None:
    """Let no other thread work."""


class Interrupted(Outbox[Any]):
    """An outbox in the middle of whose wakeups another thread works. before, after: calls around a drain."""

    def __init__(self) -> None:
        super().__init__()
        self.before = self.after = self.instead = nothing

    def wake(self) -> None:
        """See `Outbox.wake`: the events are in the queue already."""
        self.instead()
        super().wake()

    def _drain(self) -> None:
        self.before()
        super()._drain()
        self.after()


def test_an_event_posted_around_a_wakeup_is_taken_and_a_later_one_wakes() -> None:
    """A wakeup may come after its event was taken."""
    for moment in ("before", "after", "instead"):
        outbox = Interrupted()
        taken: list[Posted] = []
        if moment == "instead":
            outbox.instead = lambda outbox=outbox, taken=taken: taken.extend(take(outbox))  # type: ignore[misc]
        else:
            setattr(outbox, moment, lambda outbox=outbox: outbox.post(*event(2)))
        outbox.post(*event(1))
        assert is_readable(outbox.fd)
        outbox.instead = nothing
        taken += take(outbox)
        outbox.before = outbox.after = nothing
        assert taken == ([event(1)] if moment == "instead" else [event(1), event(2)]), moment
        assert outbox.leave()
        assert not is_readable(outbox.fd)
        outbox.post(*event(3))
        assert is_readable(outbox.fd)
        assert take(outbox) == [event(3)]
        outbox.close()


def test_leave_returns_false_while_an_event_is_queued() -> None:
    """The event was posted without a wakeup."""
    outbox: Outbox[Any] = Outbox()
    assert take(outbox) == []
    outbox.post(*event(1))
    assert not is_readable(outbox.fd)
    assert not outbox.leave()
    assert take(outbox) == [event(1)]
    assert outbox.leave()
    outbox.close()


def test_a_take_beyond_its_time_takes_one_event() -> None:
    """The front end looks at its sockets in between."""
    outbox: Outbox[Any] = Outbox()
    for i in range(100):
        outbox.post(*event(i))
    for i in range(100):
        assert not outbox.leave()
        outbox.attend(readable=is_readable(outbox.fd))
        assert list(outbox.take(time.monotonic(), time.monotonic)) == [event(i)]
    assert outbox.leave()
    assert not is_readable(outbox.fd)
    outbox.close()


def test_events_of_many_threads_are_taken_in_their_order() -> None:
    """The taker polls whenever there are none."""
    outbox: Outbox[Any] = Outbox()
    each = 5_000

    def post(number: int) -> None:
        for i in range(each):
            outbox.post(*event(number * each + i))

    posters = [threading.Thread(target=post, args=(number,)) for number in range(4)]
    for one in posters:
        one.start()
    found: list[Posted] = []
    while len(found) < 4 * each:
        if outbox.leave():
            assert select.select([outbox.fd], [], [], DEADLINE_S)[0], f"{len(found)} taken, then silence"
        found += take(outbox)
    for one in posters:
        one.join()
    numbers = [cast(int, one.request) for _, (one,) in found if isinstance(one, Answered)]
    for number in range(4):
        own = [i for i in numbers if i // each == number]
        assert own == list(range(number * each, (number + 1) * each))
    outbox.close()


# -- replies --------------------------------------------------------------------------------------------


class Router:
    """A ROUTER with room for so many messages for each client, and the queue of replies through it.

    problem: raised by each send.
    """

    def __init__(self) -> None:
        self.room: Counter[bytes] = Counter()
        self.sent: list[list[bytes]] = []
        self.gone: set[bytes] = set()
        self.problem: zmq.ZMQError | None = None
        self.counters: Counter[str] = Counter()
        self.clock = ManualClock()
        self.memory = ReplyMemory(2**40)
        self.connections: dict[bytes, Connection] = {}
        self.queued: Counter[bytes] = Counter()
        ways = cast(Any, self.send), self.connection_of, self.count
        self.replies = ReplyQueue(*ways, self.counters, self.clock.monotonic)

    def connection_of(self, route: bytes) -> Connection:
        return self.connections.setdefault(route, Connection(self.memory, route))

    def count(self, connection: Connection, size: int, _sent: int, _now: float) -> None:
        self.queued[connection.route] += size
        connection.hold(-size)

    def send(self, frames: list[bytes]) -> bool:
        if self.problem is not None:
            raise self.problem
        if frames[0] in self.gone:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        if not self.room[frames[0]]:
            return False
        self.room[frames[0]] -= 1
        self.sent.append(frames)
        return True


@pytest.fixture
def router() -> Router:
    return Router()


def test_replies_keep_their_order_when_the_socket_is_full(router: Router, rng: random.Random) -> None:
    """Of each client, with room that comes and goes; no client waits for another one."""
    clients = [b"a", b"b", b"c"]
    expected: dict[bytes, list[bytes]] = {client: [] for client in clients}
    for number in range(2_000):
        client = rng.choice(clients)
        router.room[rng.choice(clients)] += rng.choice((0, 0, 1, 3))
        expected[client].append(b"%d" % number)
        router.replies.send([client, expected[client][-1]])
        router.clock.step(rng.randrange(SECOND // 100))
        router.replies.offer_again(router.clock.monotonic(), math.inf)
    router.room.update(dict.fromkeys(clients, 10_000))
    router.replies.offer_again(router.clock.monotonic() + 1, math.inf)
    assert not router.replies.kept
    for client in clients:
        assert [frames[1] for frames in router.sent if frames[0] == client] == expected[client]


def test_a_client_that_reads_nothing_for_a_while_loses_its_replies(router: Router) -> None:
    """The attempts become rarer. The client gets the next one once it takes again."""
    for _ in range(5):
        router.replies.send([b"a", b"x"])
    now, tries = 0.0, 0
    while (again := router.replies.next_try()) < math.inf:
        assert again > now
        now = again
        router.replies.offer_again(now, math.inf)
        tries += 1
    assert SILENCE_S <= now < SILENCE_S + 1
    assert tries < 1_000
    assert router.counters["replies_dropped"] == 5
    router.room[b"a"] = 1
    router.replies.send([b"a", b"y"])
    assert router.sent == [[b"a", b"y"]]


def test_replies_alternate_between_clients_after_each_time_slice(router: Router) -> None:
    replies = router.replies
    for row in range(3):
        for client in (b"a", b"b"):
            replies.send([client, b"%d" % row])
    router.room.update({b"a": 10, b"b": 10})
    for _ in range(6):
        assert replies.kept
        now = replies.next_try()
        replies.offer_again(now, until=0.0)
        assert replies.next_try() in (now, math.inf)
    assert not replies.kept
    assert [b"".join(frames) for frames in router.sent] == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]


def test_the_queued_bytes_of_a_client_are_bounded_with_the_memory_of_each_reply_and_frame(
    router: Router,
) -> None:
    for client, frames, size in (
        (b"large", [bytes(2**20)], 2**20),
        (b"small", [b""], REPLY_BYTES),
        (b"many frames", [b"0123456789"] * 10_000, 58 * 10_000),
    ):
        router.counters.clear()
        router.replies.send([client, bytes(CONNECTION_REPLY_BYTES_MAX * 7 // 8)])
        most = CONNECTION_REPLY_BYTES_MAX // 8 // size
        for _ in range(most + 10):
            router.replies.send([client, *frames])
        assert 8 <= router.counters["replies_dropped"] <= 10 + most // 2, client


@pytest.mark.parametrize("room", [0, 10])
def test_nothing_is_held_for_replies_that_were_sent_or_dropped(router: Router, room: int) -> None:
    """The bytes of a topic's large reply, and of a small one that was kept."""
    one = router.connection_of(b"a")
    for frames, held in (([b"x"], 0), ([bytes(2**20)], 2**20 + 100)):
        router.room[b"a"] = room
        one.hold(held)
        router.replies.send([b"a", *frames], held, one if held else None)
        assert bool(router.replies.kept) == (not room)
        assert (one.held > 0) == (not room)
    router.gone.add(b"a")
    router.replies.offer_again(1.0, math.inf)
    assert not router.replies.kept
    assert one.held == router.memory.held == 0


def test_a_reply_to_a_connection_that_has_ended_goes_to_no_other_one_with_its_route(router: Router) -> None:
    one = router.connection_of(b"a")
    one.is_gone = True
    router.room[b"a"] = 1
    one.hold(100)
    router.replies.send([b"a", b"x"], 100, one)
    assert router.sent == []
    assert one.held == 0
    assert router.counters["replies_unroutable"] == 1


def test_a_reply_is_large_by_all_its_frames(router: Router) -> None:
    """Of the text protocol, each record has a frame."""
    one = router.connection_of(b"a")
    assert one.hold_large([b"a", b"", b"ok", b"1", b"value", b"2"]) == 0
    assert one.hold_large([b"a", b"", b"ok", b"1", bytes(2**20), b"2", b"x"]) == one.held > 2**20


def test_replies_to_a_client_that_left_are_dropped_and_an_error_of_the_socket_is_raised(
    router: Router,
) -> None:
    for _ in range(3):
        router.replies.send([b"a", b"x"])
    router.gone.add(b"a")
    router.replies.offer_again(1.0, math.inf)
    assert not router.replies.kept
    assert router.counters["replies_unroutable"] == 3
    router.problem = zmq.ZMQError(zmq.ENOTSOCK)
    with pytest.raises(zmq.ZMQError):
        router.replies.send([b"a", b"x"])
