"""One page that is shown: its request, the sender of it, and what is refreshed while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import HTTPConnection, Request

from quothweb.access.authentication import Principal
from quothweb.brokers import BrokerClient
from quothweb.config import WebConfig
from quothweb.monitoring.observer import BrokerObserver
from quothweb.services import WebServices, services_of
from quothwire.errors import error

T = TypeVar("T")

PRINCIPAL = "quothweb.principal"
"""The key of the principal in the scope of a request that the guard has let in."""
ANSWER_S = 5.0
"""Time that the broker may take for what a page shows at once."""


class PageView:
    """A page of one viewer. Belongs to the event loop."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.services: WebServices = services_of(request)
        self.principal: Principal = request.scope[PRINCIPAL]
        self._refreshers: list[Callable[[], object]] = []
        self._shown: object = None

    @property
    def config(self) -> WebConfig:
        """The configuration of the server."""
        return self.services.config

    @property
    def observer(self) -> BrokerObserver:
        """The last known state of the broker."""
        return self.services.observer

    @property
    def now(self) -> int:
        """The clock of the broker as it was last seen, 0 before the first answer."""
        return self.observer.metrics.time if self.observer.metrics is not None else 0

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.request.query_params.get(name, default)

    def url(self, *parts: str, **query: object) -> str:
        """Return the URL of a page. Empty parameters of the query are left out."""
        return page_url(self.config.root_path, *parts, **query)

    def topic_url(self, topic: str, *parts: str, **query: object) -> str:
        """Return the URL of a page of a topic."""
        return self.url("topic", topic, *parts, **query)

    async def ask(self, work: Callable[[BrokerClient], Awaitable[T]], seconds: float = ANSWER_S) -> T:
        """Ask the broker with the viewer's key. Raises `QuothError`, at once while the broker is away."""
        if self.observer.failure is not None:
            raise self.observer.failure
        try:
            async with asyncio.timeout(seconds), self.services.brokers.client_of(self.principal) as client:
                return await work(client)
        except TimeoutError:
            raise error("timed_out", f"the broker has not answered within {seconds:g} s") from None

    def live(self, refresh: Callable[[], object]) -> None:
        """Call a function now, and whenever the broker was asked."""
        refresh()
        self._refreshers.append(refresh)

    def refresh(self, *, anew: bool = False) -> None:
        """Refresh what has changed since the last time. anew: all of it."""
        state = (
            self.observer.rounds,
            self.observer.failure,
            self.observer.metrics_problem,
            int(self.observer.age) if self.observer.failure else 0,
        )
        if anew or state != self._shown:
            self._shown = state
            for refresh in self._refreshers:
                refresh()


def page_url(root: str, *parts: str, **query: object) -> str:
    """Return the URL of a page below a root."""
    given = {name: value for name, value in query.items() if value not in ("", None)}
    path = "/".join(quote(part, safe="") for part in parts)
    return f"{root}/{path}" + (f"?{urlencode(given)}" if given else "")


def local_path(connection: HTTPConnection) -> str:
    """Return the path of a request below the root."""
    path: str = connection.scope["path"]
    return path.removeprefix(connection.scope.get("root_path", ""))
