"""Appends the publishes of one topic and acknowledges them, at once or when their level is reached."""

from __future__ import annotations

from quothd.requests.events import DiskLow, EventList
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothd.topics.append_burst import append_publishes
from quothd.topics.metadata import TopicMetadata
from quothd.topics.syncing import SHARE_FULL, Syncing, Unsynced
from quothlog import Appended, Log
from quothwire.errors import QuothError
from quothwire.protocol.messages import Published


class TopicPublishes:
    """The publishes of one open topic. Owned by the topic.

    room: bytes that the active segment certainly has room for, 0 if that is not known.
    """

    def __init__(self, log: Log, metadata: TopicMetadata, syncing: Syncing, events: EventList) -> None:
        self.room = 0
        self._appender = log.appender
        self._metadata = metadata
        self._syncing = syncing
        self._events = events
        self._publishes: list[PendingRequest] = []
        self._is_disk_low = False

    def fits(self, size: int) -> bool:
        """Return True if the active segment certainly has room for so many bytes."""
        if size > self.room:
            self.room = self._appender.bytes_left
        return size <= self.room

    def add(self, request: PendingRequest) -> None:
        """Keep a publish, to be appended with those that follow it."""
        self._publishes.append(request)

    def append(self, now: float) -> int:
        """Append what was kept; returns its bytes."""
        publishes, self._publishes = self._publishes, []
        if not publishes:
            return 0
        size = sum([request.size for request in publishes])
        self.room -= size
        if self._syncing.share > SHARE_FULL:
            self._syncing.sync_here(now)
            self._syncing.answer_reached(self._events)
        for request, outcome, durability in append_publishes(self._appender, publishes):
            self.acknowledge(request, outcome, durability)
        self._syncing.measure(now)
        return size

    def acknowledge(self, request: PendingRequest, outcome: Appended | QuothError, durability: str) -> None:
        """Answer a publish, at once or when its records are synced and visible."""
        if isinstance(outcome, QuothError):
            self.refuse(request, outcome)
            return
        self._is_disk_low = False
        topic = self._metadata.topic
        level = "synced" if "synced" in (durability, topic.settings.durability) else "written"
        reply = Published(topic.log_id, outcome.first, outcome.last, outcome.count, level, outcome.duplicate)
        reached = self._appender.synced if level == "synced" else self._appender.visible
        if outcome.last > reached.pointer:
            self._syncing.waiting.append(Unsynced(request, reply, outcome.last))
        else:
            self._events.reply(request, reply)

    def refuse(self, request: PendingRequest, problem: QuothError) -> None:
        """Answer with an error; a full disk is reported to the front end, and logged until it has room
        again."""
        if problem.code == "disk_low":
            self._events.add(DiskLow())
            if not self._is_disk_low:
                note("disk_low", topic=self._metadata.topic.name, problem=problem.text)
            self._is_disk_low = True
        self._events.refuse(request, problem)
