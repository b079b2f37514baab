"""Lets only principals see what the server knows of the whole broker that may see it with their own key."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.requests import HTTPConnection

from quoth.core.calls import ask
from quothweb.access.authentication import Principal, TokenAuthentication
from quothweb.brokers import BrokerClients
from quothweb.problems import HttpProblem
from quothwire.errors import QuothError
from quothwire.protocol.messages import GetStatus, Status

TRUSTED_S = 5.0
"""After so long the broker is asked again whether a key has the right admin on all topics."""


class Operators:
    """Remembers for a while which principals are operators. Belongs to the event loop.

    failure: returns the reason why the broker cannot be asked now, None if it can. A known operator stays
    one while the broker is away, and no request waits for it.
    """

    def __init__(
        self, access: TokenAuthentication, brokers: BrokerClients, failure: Callable[[], QuothError | None]
    ) -> None:
        self._access = access
        self._failure = failure
        self._brokers = brokers
        self._known: dict[Principal, float] = {}

    async def require(self, connection: HTTPConnection) -> Principal:
        """Return the principal of a request. Raises `HttpProblem` 401, or 403 without admin on all topics."""
        principal = self._access.principal_of(connection)
        if principal == self._access.server:
            return principal
        now = time.monotonic()
        if now - self._known.get(principal, -TRUSTED_S) < TRUSTED_S:
            return principal
        if (failure := self._failure()) is not None:
            if principal in self._known:
                return principal
            raise failure
        async with self._brokers.client_of(principal) as client:
            found = await client.execute(ask(Status, GetStatus(limit=0), timeout=client.timeout))
        if not found.counters:
            self._known.pop(principal, None)
            text = f"token {principal.name!r} has no right admin on all topics"
            raise HttpProblem("denied", text, "this shows all topics of the broker")
        self._known[principal] = now
        return principal
