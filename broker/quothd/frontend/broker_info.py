"""Answers the requests about the broker as a whole: hello, ping, list, status."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

from quothd.access.access import scope_of
from quothd.access.rights import KnownClient
from quothd.access.topic_scope import TopicScope
from quothd.announcing.announcer import Announcer
from quothd.connections.connection_table import ConnectionTable
from quothd.frontend.child_processes import ChildProcesses
from quothd.frontend.dispatcher import Dispatcher
from quothd.frontend.endpoints import Bound
from quothd.keys.authentication import Authentication
from quothd.metrics.disk_watch import DiskWatch
from quothd.requests.pending_request import PendingRequest
from quothd.topics.metadata import under_both_names
from quothlog.producers import RESULTS_MAX
from quothwire import VERSION, batch
from quothwire.errors import QuothError
from quothwire.native import implementation
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import (
    FETCH_BYTES_MAX,
    WAIT_MS_MAX,
    GetStatus,
    ListTopics,
    Operation,
    Pong,
    Status,
    Topics,
    Welcome,
)
from quothwire.protocol.metric_messages import GetMetrics, Metrics
from quothwire.topic import TOPIC_BYTES_MAX, check_topic

SERVER = f"quothd {VERSION}"
DISK_LOW_S = 10.0
"""The disk counts as low for so long after a refused write. A producer that was refused tries again."""


class BrokerInfo:
    """Answers the requests about the broker. Owned by the front end's thread. counters: its own, by name."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        processes: ChildProcesses,
        announcer: Announcer,
        authentication: Authentication,
        connections: ConnectionTable,
        bound: Bound,
        counters: Counter[str],
        process_id: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._processes = processes
        self._announcer = announcer
        self._authentication = authentication
        self._connections = connections
        shared = dispatcher.shared
        self._disk = DiskWatch(shared.filesystem, shared.directory, shared.reader_pool.submit)
        self._bound = bound
        self._counters = counters
        self._process_id = process_id
        self._clock = dispatcher.shared.clock
        self._began = self._clock.monotonic()
        self._recovery_ms: int | None = None

    def tick(self, now: float) -> None:
        """Execute what is due."""
        self._disk.tick(now)
        if self._recovery_ms is None and not self._dispatcher.scheduler.is_opening_all:
            self._recovery_ms = round(1_000 * (now - self._began))
        self._dispatcher.registry.metrics.count_finished()

    def refuse(self, request: PendingRequest, problem: QuothError) -> Frames:
        """Return the frames of an error, and count it."""
        return self._dispatcher.registry.metrics.refuse(request, problem)

    def answer(self, pending: PendingRequest) -> Frames:
        """The frames of the answer. Raises ``bad_request`` and the like."""
        request, responder = pending.decode(), pending.responder
        if isinstance(request, ListTopics | GetStatus | GetMetrics) and request.after:
            check_topic(request.after)
        match request:
            case ListTopics():
                asked = request.after, request.limit, scope_of(pending.client)
                return responder.reply(Topics(self._dispatcher.registry.names(*asked)))
            case GetStatus():
                client = pending.client
                is_operator = client is None or client.is_operator
                status = self._status if is_operator else self._visible_status
                amounts = self._dispatcher.access.amounts(client, request.limit)
                return responder.reply(status(request, scope_of(client), amounts))
            case GetMetrics():
                return responder.reply(self._metrics(request, pending.client))
            case _ if pending.operation is Operation.HELLO:
                return responder.reply(self._welcome())
            case _:
                return responder.reply(Pong(self._clock.now()))

    def summary(self, *, is_stopping: bool) -> str:
        """Describe in a line what the broker does now."""
        dispatcher = self._dispatcher
        if is_stopping:
            return f"stopping, {counted(len(dispatcher.scheduler.active))} still awake"
        topics, unopened = len(dispatcher.registry), len(dispatcher.scheduler.unopened)
        parts = [f"serving {counted(topics)} at {self._bound.urls[0]}"]
        if unopened:
            parts.append(f"opening {topics - unopened} of {topics}")
        if self._clock.monotonic() - dispatcher.disk_low_at < DISK_LOW_S:
            parts.append("disk low: publishes are refused")
        if not self._authentication.is_running:
            parts.append("authenticator down: new connections are refused")
        if not self._announcer.is_running:
            parts.append("announcer down: records are read later")
        return ", ".join(parts)

    def _welcome(self) -> Welcome:
        config = self._dispatcher.config
        limits = {
            "batch_bytes_max": batch.BATCH_BYTES_MAX,
            "batch_records_max": batch.BATCH_RECORDS_MAX,
            "frame_bytes_max": config.frame_bytes_max,
            "topic_bytes_max": TOPIC_BYTES_MAX,
            "wait_ms_max": WAIT_MS_MAX,
            "fetch_bytes_max": FETCH_BYTES_MAX,
            "results_max": RESULTS_MAX,
            "durability": config.durability,
            "sync_interval": config.sync_interval,
        }
        operations = [operation.name.lower() for operation in Operation]
        where = self._bound.announcements, self._bound.announcements_port
        return Welcome(SERVER, [binary_codec.VERSION], operations, limits, *where)

    def _visible_status(self, request: GetStatus, scope: TopicScope, clients: dict[str, Any]) -> Status:
        """Return the status for a client that is no admin of all topics: only of what it may see."""
        registry = self._dispatcher.registry
        return Status(
            server=SERVER,
            pid=0,
            directory="",
            uptime=self._clock.monotonic() - self._began,
            topics=registry.count(scope),
            active=0,
            waits=0,
            counters={},
            states=registry.states(request.after, request.limit, scope),
            clients=clients,
        )

    def _status(self, request: GetStatus, scope: TopicScope, clients: dict[str, Any]) -> Status:
        dispatcher = self._dispatcher
        return Status(
            server=SERVER,
            pid=self._process_id,
            directory=str(Path(dispatcher.config.dir).resolve()),
            uptime=self._clock.monotonic() - self._began,
            topics=len(dispatcher.registry),
            active=len(dispatcher.scheduler.active),
            waits=len(dispatcher.pending_fetches),
            counters=under_both_names(self._all_counters()),
            states=dispatcher.registry.states(request.after, request.limit, scope),
            clients=clients,
        )

    def _metrics(self, request: GetMetrics, client: KnownClient | None) -> Metrics:
        """Return the metrics: of the whole broker for an admin of all topics, else of visible topics."""
        registry = self._dispatcher.registry
        is_operator = client is None or client.is_operator
        page = registry.page(request, client)
        of_broker = registry.metrics.maps() if is_operator else ({}, {}, {})
        return Metrics(
            server=SERVER,
            time=self._clock.now(),
            uptime=self._clock.monotonic() - self._began,
            serial=page.serial,
            topics=registry.count(scope_of(client)),
            counters=self._all_counters() if is_operator else {},
            errors=of_broker[0],
            requests=of_broker[1],
            durations=of_broker[2],
            rows=page.rows,
            more=page.more,
        )

    def _all_counters(self) -> dict[str, int]:
        """Return the counters and gauges of the broker."""
        dispatcher = self._dispatcher
        return {
            **self._counters,
            "syncs": dispatcher.shared.fsync_thread.runs,
            "threads": threading.active_count(),
            "compiled": int(implementation() == "C"),
            "takeovers": dispatcher.shared.guard.takeovers,
            "active": len(dispatcher.scheduler.active),
            "waits": len(dispatcher.pending_fetches),
            "unopened": len(dispatcher.scheduler.unopened),
            **dispatcher.registry.totals(),
            **({} if self._recovery_ms is None else {"recovery_ms": self._recovery_ms}),
            **self._disk.gauges(dispatcher.config.disk_free_min),
            **self._processes.counters(),
            **self._authentication.counters(),
            **self._connections.gauges(),
            **self._announcer.counters(),
        }


def counted(topics: int) -> str:
    """A number of topics, in words."""
    return f"{topics} topic{'s' * (topics != 1)}"
