"""The connections to the broker: a client for each token in use, and one of the server itself.

So the rights, the quotas and the audit log of a request are those of the key that its token names. A client
is opened at the first use, waits for a broker that is away, and is closed when it was idle, or its token
revoked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from quoth.aio import Client
from quoth.core.idempotence import Publishing
from quoth.core.request_state import ClientCall
from quoth.message import Ack
from quothweb.access.authentication import Principal
from quothweb.config import WebConfig
from quothweb.problems import HttpProblem
from quothweb.service.log_events import note
from quothwire.errors import QuothError

T = TypeVar("T")

WAIT_S = 5.0
"""For which the broker holds a request that waits for records, also that of a client that has gone."""
LOOK_S = 5.0
"""Between two searches for idle clients."""


class BrokerClient(Client):
    """A client of the broker that also executes calls which `quoth.aio.Client` has no method for."""

    def __init__(self, url: str, timeout: float, key_file: str) -> None:
        super().__init__(url, None, timeout, key=key_file or None)
        self._timing.tail_wait = WAIT_S
        self.uses = 0
        """Requests in progress."""
        self.used_at = time.monotonic()

    @property
    def is_closed(self) -> bool:
        """True if it takes no more calls: it was closed, or its thread has failed."""
        return self._io_thread.is_stopping

    async def execute(self, call: ClientCall[T]) -> T:
        """Execute a call and return its result. A cancelled one is given up."""
        return await self._run(call)

    async def publish_columns(self, given: Publishing) -> Ack:
        """Publish records that are columns already, as `publish` does."""
        return await self._publish(given)


class BrokerClients:
    """The clients in use, by the principal. Belongs to the event loop."""

    def __init__(self, config: WebConfig) -> None:
        self._config = config
        self._open: dict[Principal, BrokerClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def client_of(self, principal: Principal) -> AsyncIterator[BrokerClient]:
        """Lend the client of a principal. Raises `HttpProblem` if none can be opened."""
        client = self._open.get(principal)
        if client is None or client.is_closed:
            client = self._open_client(principal)
        client.uses += 1
        try:
            yield client
        finally:
            client.uses -= 1
            client.used_at = time.monotonic()

    def revoke(self, names: Iterable[str]) -> None:
        """Close the clients of some tokens. Calls that are under way end with ``closed``."""
        revoked = set(names)
        for principal in [one for one in self._open if one.name in revoked]:
            self._close(principal)

    def close_idle(self) -> None:
        """Close the clients that were not used for long, except for that of the server."""
        now = time.monotonic()
        for principal, client in tuple(self._open.items()):
            if principal.name and not client.uses and now - client.used_at >= self._config.idle_timeout:
                self._close(principal)

    async def close_idle_for_ever(self) -> None:
        """Close idle clients every few seconds."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.close_idle()

    async def close(self) -> None:
        """Close all of them."""
        for principal in tuple(self._open):
            self._close(principal)
        if self._closing:
            await asyncio.wait(self._closing)

    def _open_client(self, principal: Principal) -> BrokerClient:
        if principal.name:
            self._make_room(principal)
        try:
            client = BrokerClient(self._config.url, self._config.timeout, principal.key_file)
        except QuothError as problem:
            note("key_refused", token=principal.name, problem=problem.text)
            text = "the key with which this request would ask the broker cannot be used"
            raise HttpProblem("key_unusable", text) from None
        self._open[principal] = client
        return client

    def _make_room(self, principal: Principal) -> None:
        """Close the idlest client of another token if as many of tokens are open as there may be."""
        others = [one for one in self._open if one.name and one != principal]
        if len(others) < self._config.tokens_open_max:
            return
        idle = [one for one in others if not self._open[one].uses]
        if not idle:
            text = f"{len(others)} tokens have requests in progress, which is the limit"
            raise HttpProblem("overloaded", text)
        self._close(min(idle, key=lambda one: self._open[one].used_at))

    def _close(self, principal: Principal) -> None:
        client = self._open.pop(principal)
        task = asyncio.ensure_future(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
