"""Producers that send streams of batches through everything, in threads and in processes of their own.

Each keeps an `Account`. What a broker must never say to it, whatever died meanwhile, ends the stream with an
error, and so fails the test.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import quoth
from kit.client.accounts import SENT_ROWS, Account, planned
from kit.deadlines import pause
from kit.machine.processes import python_of
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
        account.sent(number)
        try:
            timeout = chance.choice((0.2, PATIENCE_S))
            ack = client.publish(account.topic, values, key=keys, timeout=timeout)
        except (Disconnected, BrokerFailure):
            continue
        except Unavailable:
            account.refused(number)
        else:
            assert (ack.count, ack.last) == (len(values), ack.first + len(values) - 1)
            account.acknowledged(number, ack.first)
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
            account.sent(number)
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
        account.acknowledged(number, ack.first)


# -- many of them -------------------------------------------------------------------------------------------


class Streams:
    """Streams, each in a thread. names: TOPIC~STREAM, a stream's name begins with what sends it."""

    def __init__(self, url: str, folder: Path, names: Sequence[str]) -> None:
        self._over = threading.Event()
        self._stack = ExitStack()
        client = self._stack.enter_context(quoth.connect(url, timeout=PATIENCE_S))
        self._pool = self._stack.enter_context(ThreadPoolExecutor(len(names)))
        self._running = [self._pool.submit(self._run, client, folder, name) for name in names]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._stack.close()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise what ended a stream."""
        for stream in self._running:
            if stream.done():
                stream.result()

    def _run(self, client: Client, folder: Path, name: str) -> None:
        topic, _, stream = name.partition("~")
        account = Account(folder, topic, stream)
        work = publish if stream.startswith("publish") else send
        work(client, account, self._over.is_set)
        account.close()


class StreamsProcess:
    """`Streams` in a process of their own, which dies with the test."""

    def __init__(self, url: str, folder: Path, names: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*python_of("kit.client.streams"), url, str(folder), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def check(self) -> None:
        """Raise if it has ended by itself."""
        if self._process.poll() is not None:
            raise AssertionError(self._end())

    def kill(self) -> None:
        """End it in the middle of what it does."""
        self.check()
        os.kill(self._process.pid, signal.SIGKILL)
        self._end()
        assert self._process.returncode == -signal.SIGKILL

    def finish(self) -> None:
        """Let it send what it has begun, and end."""
        said = self._end()
        assert (self._process.returncode, said) == (0, "")

    def close(self) -> None:
        """End it if it is still there."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._end()

    def _end(self) -> str:
        _, said = self._process.communicate(timeout=PATIENCE_S)
        return said.decode()


def main() -> None:
    """Send streams until the input ends: URL, FOLDER, names."""
    url, folder, *names = sys.argv[1:]
    with Streams(url, Path(folder), names) as streams:
        reading = threading.Thread(target=sys.stdin.read, daemon=True)
        reading.start()
        while reading.is_alive():
            reading.join(0.1)
            streams.check()
