"""Producers that send streams of batches through everything, each in a thread.

Each keeps an `Account`. What a broker must never say to it, whatever died meanwhile, ends the stream with an
error, and so fails the test.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Self

import quoth
from kit.client.accounts import SENT_ROWS, Account, planned
from kit.deadlines import pause
from quoth import Ack, BrokerFailure, Client, Disconnected, Unavailable

PATIENCE_S = 60.0
"""How long a broker may be away, kills in a row included."""
PACE_S = 0.05

Over = Callable[[], bool]


def publish(client: Client, account: Account, over: Over) -> None:
    """One batch after the other, each retried by `Client.publish` with more or less patience."""
    chance = random.Random(account.stream)
    for number in count(1):
        if over():
            return
        keys, values = planned(account.stream, number)
        account.sent.append(number)
        try:
            timeout = chance.choice((0.2, PATIENCE_S))
            ack = client.publish(account.topic, values, key=keys, timeout=timeout)
        except (Disconnected, BrokerFailure):
            continue
        except Unavailable:
            account.refused.add(number)
        else:
            assert (ack.count, ack.last) == (len(values), ack.first + len(values) - 1)
            account.stored[number] = ack.first
        pause(chance.random() * PACE_S)


def send(client: Client, account: Account, over: Over) -> None:
    """A `quoth.Producer`, whose batches are full each time, so that all know what is in them."""
    chance = random.Random(account.stream)
    waiting: deque[tuple[int, Future[Ack]]] = deque()
    options = {"batch": SENT_ROWS, "linger": PATIENCE_S, "max_buffer": 60 * SENT_ROWS}
    with client.producer(account.topic, timeout=PATIENCE_S, **options) as producer:  # type: ignore[arg-type]
        for number in count(1):
            if over():
                break
            keys, values = planned(account.stream, number)
            account.sent.append(number)
            waiting.append((number, producer.future()))
            for key, value in zip(keys, values, strict=True):
                producer.send(value, key=key)
            _settle(waiting, account)
            pause(chance.random() * PACE_S)
    _settle(waiting, account)
    assert not waiting


def _settle(waiting: deque[tuple[int, Future[Ack]]], account: Account) -> None:
    while waiting and waiting[0][1].done():
        number, future = waiting.popleft()
        ack = future.result()
        assert ack.count == SENT_ROWS
        account.stored[number] = ack.first


class Streams:
    """The streams of some accounts, over one client. The name of a stream begins with what sends it."""

    def __init__(self, url: str, accounts: Sequence[Account]) -> None:
        self._over = threading.Event()
        self._stack = ExitStack()
        client = self._stack.enter_context(quoth.connect(url, timeout=PATIENCE_S))
        pool = self._stack.enter_context(ThreadPoolExecutor(len(accounts)))
        self._running = [
            pool.submit(send if one.stream.startswith("send") else publish, client, one, self._over.is_set)
            for one in accounts
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        self._stack.close()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise what ended a stream."""
        for stream in self._running:
            if stream.done():
                stream.result()
