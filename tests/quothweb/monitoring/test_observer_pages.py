"""The observer of the broker's metrics, with replies that a test has made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quothweb.monitoring.observer import BrokerObserver
from quothwire.protocol.metric_messages import Metrics


def reply(serial: int, *names: str, more: bool = False) -> Metrics:
    """A reply whose rows have its serial as their log."""
    rows = [{"name": name, "log": serial} for name in names]
    return Metrics("quothd", 1, 1.0, serial, 3, {}, {}, {}, {}, rows, more)


class Replies:
    """Stands for the broker. since: those of the requests."""

    url = "tcp://127.0.0.1:1"
    timeout = 1.0

    def __init__(self, *replies: Metrics) -> None:
        self._replies = [*replies]
        self.since: list[int] = []

    async def execute(self, call: Any) -> Metrics:
        self.since.append(next(call)._request.since)
        return self._replies.pop(0)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        yield self


def test_changes_behind_a_reply_without_rows_are_observed() -> None:
    async def observe() -> None:
        for _ in range(2):
            await observer.observe()

    listing = reply(10), reply(10, "a", "b", "c")
    replies = Replies(*listing, reply(20, more=True), reply(30, "b", more=True), reply(40, "a"))
    observer = BrokerObserver(replies.lend, 1.0)
    asyncio.run(observe())
    assert replies.since == [0, 0, 10, 20, 30]
    assert {name: row["log"] for name, row in observer.topics.items()} == {"a": 40, "b": 30, "c": 10}
    assert observer.failure is None
