"""The parts of one server, which the gateway, the metrics and the pages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from starlette.requests import HTTPConnection

from quothweb.access.authentication import Principal, TokenAuthentication
from quothweb.access.operators import Operators
from quothweb.access.token_file import TokenTable
from quothweb.brokers import BrokerClient, BrokerClients
from quothweb.config import WebConfig
from quothweb.monitoring.observer import BrokerObserver
from quothweb.problems import HttpProblem
from quothweb.streams import Streams
from quothwire.config.sources import Sourced


class WebServices:
    """The state of a server: its configuration, who may ask, the clients of the broker, what is in progress.

    Belongs to the event loop. `services_of` finds it for a request.
    """

    def __init__(self, found: Sourced[WebConfig], tokens: TokenTable | None) -> None:
        self.config = config = found.config
        self.origins = found.origins
        """Where the values of the configuration come from, by the key; the others are defaults."""
        self.access = TokenAuthentication(tokens, config)
        self.brokers = BrokerClients(config)
        self.streams = Streams(config.streams_max)
        self.body_bytes = 0
        """Bytes of the bodies of all requests in progress."""
        self.damaged_logs: set[int] = set()
        """The ids of logs in which an answer was cut at damage: no cache keeps their records."""
        self.operators = Operators(self.access, self.brokers, lambda: self.observer.failure)
        self.observer = BrokerObserver(self.own_client, config.poll_interval)
        self._requests: Counter[str] = Counter()

    @asynccontextmanager
    async def own_client(self) -> AsyncIterator[BrokerClient]:
        """Lend the client with the key of the server, for metrics and pages."""
        async with self.brokers.client_of(self.access.server) as client:
            yield client

    @contextmanager
    def counted(self, principal: Principal) -> Iterator[None]:
        """Count a request in progress. Raises `HttpProblem` 429 above the limit of its token."""
        name = principal.name
        if name and self._requests[name] >= self.config.requests_per_token_max:
            text = f"token {name!r} has {self._requests[name]} requests in progress, the limit"
            raise HttpProblem("too_many_requests", text)
        self._requests[name] += 1
        try:
            yield
        finally:
            self._requests[name] -= 1
            if not self._requests[name]:
                del self._requests[name]

    def replace_tokens(self, tokens: TokenTable | None) -> frozenset[str]:
        """Take another version of the tokens file; returns the names of those that are revoked or changed."""
        before, self.access.tokens = self.access.tokens, tokens
        revoked = (before or TokenTable()).changed(tokens or TokenTable())
        self.streams.revoke(revoked)
        self.brokers.revoke(revoked)
        return revoked

    async def close(self) -> None:
        """End all that waits, and close the clients of the broker."""
        await self.streams.stop(0.0)
        await self.brokers.close()


def services_of(connection: HTTPConnection) -> WebServices:
    """Return the services of the server that a request was sent to."""
    scope: Any = connection.scope
    found = scope["quothweb"]
    assert isinstance(found, WebServices)
    return found


def principal_of(connection: HTTPConnection) -> Principal:
    """Return the sender of a request. Raises `HttpProblem` 401, or 429 after many wrong tokens."""
    return services_of(connection).access.principal_of(connection)
