"""Decides for the front end what each request may do. The clients file says who may do what.

Without keys there are no clients, and everything is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from quothd.access.audit import AuditTrail
from quothd.access.clients_file import ClientTable
from quothd.access.ledger import ALL, Ledger, Limits
from quothd.access.quota import Quota
from quothd.access.rights import STRANGER, KnownClient
from quothd.access.topic_scope import EVERYTHING, TopicScope
from quothd.config.config import Config
from quothd.connections.connection import Connection
from quothd.requests.pending_request import PendingRequest
from quothwire.errors import QuothError

SHOWN_MAX = 200
"""Clients in one status: each takes 10 us of the front end, and 0.3 KB."""


class Access:
    """The rights of the clients, and what they have. Owned by the front end's thread.

    clients: those of the file; None: no keys are used. ledger: what the clients have, within their quotas.
    """

    def __init__(
        self, config: Config, clients: ClientTable | None = None, audit: AuditTrail | None = None
    ) -> None:
        self.clients = clients
        self._audit = audit
        self._totals = _totals(config)
        self.ledger = Ledger(self._limits_of)

    def configure(self, config: Config, clients: ClientTable | None) -> None:
        """Apply another configuration, and another version of the clients file."""
        self.clients = clients
        self._totals = _totals(config)

    def client_of(self, user_id: str | None) -> KnownClient | None:
        """Return the client with the User-Id of a message, its public key; None: everything is allowed.

        That is so without keys, and for a connection of the broker's own process, which has no key: None as
        the User-Id says so, an empty text does not. A key that is not in the file gets a client without
        rights.
        """
        if self.clients is None or user_id is None:
            return None
        return self.clients.of_key(user_id)

    def meet(self, connection: Connection) -> bool:
        """Count a connection for its client; beyond the quota all its requests are refused.

        Returns False if its key is not in the clients file any more.
        """
        client = self.client_of(connection.user_id)
        if client is None:
            return True
        if client is STRANGER:
            return False
        try:
            self.ledger.charge(client.name, Quota.CONNECTIONS)
            connection.counts_for = client.name
        except QuothError as problem:
            connection.problem = problem
        return True

    def leave(self, connection: Connection) -> None:
        """Count a connection no more, which has ended."""
        if connection.counts_for is not None:
            self.ledger.release(connection.counts_for, Quota.CONNECTIONS)
            connection.counts_for = None

    def admit(self, request: PendingRequest) -> None:
        """Note whose request it is.

        Raises ``denied`` without the right, ``quota_exceeded`` for a connection beyond a quota.
        """
        connection = request.connection
        if connection.problem is not None:
            raise connection.problem.with_traceback(None)  # or it would keep those of all requests
        request.client = client = self.client_of(connection.user_id)
        about = {"key": connection.user_id or "", "address": connection.socket.peer}
        if client is not None:
            about["client"] = client.name
        if self._audit is not None:
            self._audit.watch(request, **about)
        if client is not None:
            try:
                client.check(request.operation, request.topic)
            except QuothError as problem:
                if self._audit is not None:
                    self._audit.deny(request, problem, **about)
                raise

    def renew(self, request: PendingRequest) -> None:
        """Give a request that has waited the client of this version of the file.

        Raises ``denied`` if that may not make it any more; the request keeps the client that it counts for.
        """
        if request.client is None or self.clients is None:
            return
        client = self.clients.by_name.get(request.client.name, STRANGER)
        if client is not request.client:
            client.check(request.operation, request.topic)
            request.client = client

    def revoked(self, requests: Iterable[PendingRequest]) -> list[tuple[PendingRequest, QuothError]]:
        """Renew requests; returns those that are not allowed any more, and why."""
        found = []
        for request in requests:
            try:
                self.renew(request)
            except QuothError as problem:
                found.append((request, problem))
        return found

    def amounts(self, client: KnownClient | None, most: int) -> dict[str, dict[str, list[int]]]:
        """Return what clients have, by name, for a client: of itself, or as an operator of the first ones."""
        if self.clients is None or not most:
            return {}
        names = [client.name] if client is not None else []
        if client is None or client.is_operator:
            names = nsmallest(min(most, SHOWN_MAX), self.clients.by_name)
        return {name: self.ledger.amounts(name) for name in names}

    def subscriptions_of(self, user_id: str, requested: bytes) -> list[bytes]:
        """Return the subscriptions that a client gets in place of the one to a prefix that it asks for.

        An announcement has one of them exactly if it has the requested prefix, and the client may know of
        its topic. None is a prefix of another one, so that there are as few as possible. Any thread.
        """
        return scope_of(self.client_of(user_id)).beginnings(requested)

    def _limits_of(self, name: str) -> Limits:
        if name == ALL:
            return self._totals
        return self.clients.limits_of(name) if self.clients is not None else {}


def scope_of(client: KnownClient | None) -> TopicScope:
    """Return the topics that a client may know of."""
    return client.visible if client is not None else EVERYTHING


def _totals(config: Config) -> Limits:
    """Return the quotas of all clients together, except for those that hold without a ledger, too."""
    limits = {Quota.TOPIC_CREATIONS: config.topic_creations_max}
    return {**limits, Quota.STORE_BYTES: config.store_bytes_max} if config.store_bytes_max else limits
