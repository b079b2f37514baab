"""A thread that is held up beyond its deadline takes the answer that has come meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kit.broker.proxies import Meddler
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S
from quoth import Client, reading
from quoth.aio import io_thread
from quoth.aio import reading as aio_reading
from quoth.connection import channel, send_loop
from quoth.connection.connection import Link
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Operation


class LateClock:
    """The monotonic clock, which holds up the thread of a request that looks at it once the broker replies.

    It goes on when the reply is in the socket, and sees that all deadlines are over.
    """

    def __init__(self) -> None:
        self._links: dict[int, Link] = {}
        self._ahead = 0.0
        self._is_replied, self.is_late = threading.Event(), threading.Event()

    def sends(self, link: Link) -> None:
        """A request is sent by this thread."""
        self._links[threading.get_ident()] = link

    def reply(self) -> None:
        """Note the broker's reply; returns once a thread waits for it."""
        self._is_replied.set()
        self.is_late.wait(DEADLINE_S)

    def monotonic(self) -> float:
        """Return the time of `time.monotonic`, or a later one."""
        link = self._links.get(threading.get_ident())
        if link is not None and self._is_replied.is_set() and not self.is_late.is_set():
            self.is_late.set()
            assert link.socket.poll(int(DEADLINE_S * 1_000))
            self._ahead = 10 * DEADLINE_S
        return time.monotonic() + self._ahead


Late = Callable[[Operation], Client]


@pytest.fixture
def late(meddler: Meddler, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Late]:
    """Connects a client that is held up behind its first request of a kind; checks at the end that it was."""
    clock, send = LateClock(), Link.send

    def send_it(link: Link, frames: list[bytes]) -> None:
        clock.sends(link)
        send(link, frames)

    def hold_up(operation: Operation) -> Client:
        def reply(call: Call, _: Answer) -> bool:
            if call.operation is operation:
                clock.reply()
            return False

        client = connect(meddler)
        client._timing.resend = 0.1
        monkeypatch.setattr(Link, "send", send_it)
        for module in (aio_reading, channel, io_thread, send_loop, reading):
            monkeypatch.setattr(module, "time", clock)
        meddler.on_reply = reply
        return client

    yield hold_up
    assert clock.is_late.is_set(), "no thread was held up"


def test_a_late_reply_ends_a_call(late: Late) -> None:
    assert late(Operation.PING).ping() > 0


def test_a_late_reply_ends_a_reading(late: Late, client: Client, topic: str) -> None:
    client.publish(topic, b"a")
    with late(Operation.FETCH).read_many(topic) as found:
        assert [message.value for message in found] == [b"a"]


def test_a_late_reply_ends_a_publish_of_a_producer(late: Late, topic: str) -> None:
    with late(Operation.PUBLISH).producer(topic, timeout=2 * DEADLINE_S) as producer:
        producer.send(b"a")
    assert producer.acknowledged == 1
