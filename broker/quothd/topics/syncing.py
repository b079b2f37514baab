"""Decides when a topic's records are synced, and keeps the acknowledgements that wait for that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from quothd.config.config import Config
from quothd.requests.events import EventList, SyncDone
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothlog import Log
from quothlog.appender import SyncRequest
from quothwire.batch import Bytes
from quothwire.errors import QuothError
from quothwire.protocol.messages import Reply

SHARE_SOON = 0.5
"""From this share of what may be unsynced on, an fsync does not wait for `sync_interval`."""
SHARE_FULL = 1.0
"""Above it, publishes wait for an fsync in their thread."""


class Unsynced(NamedTuple):
    """A reply that waits until the log is synced up to a pointer."""

    request: PendingRequest
    reply: Reply
    last: int
    payload: Bytes | None = None


class Syncing:
    """The fsyncs of one open log. Owned by its topic.

    share: how much is unsynced, of what a power cut may take; as of the last `measure`. waiting: the replies
    that wait for an fsync. submit: gives a request to the fsync thread.
    """

    def __init__(self, topic: str, log: Log, config: Config, submit: Callable[[SyncRequest], None]) -> None:
        self.share = 0.0
        self.config = config
        self._topic = topic
        self._log = log
        self._appender = log.appender
        self._submit = submit
        self.waiting: list[Unsynced] = []
        self._unsynced_since = math.inf
        self._running: SyncRequest | None = None

    @property
    def is_running(self) -> bool:
        """True while the fsync thread has a request of this log."""
        return self._running is not None

    @property
    def synced_pointer(self) -> int:
        """The newest pointer that survives a loss of power."""
        return self._appender.synced.pointer

    def owns(self, done: SyncDone) -> bool:
        """Return True for an fsync of this log."""
        return done.request is self._running

    def next_due(self) -> float:
        """The monotonic time at which an fsync has to begin; infinity if none has to."""
        return math.inf if self.is_running else self._unsynced_since + self.config.sync_interval

    def measure(self, now: float) -> None:
        """Take note of what the log holds now."""
        position, synced = self._appender.active.end, self._appender.synced
        self.share = max(
            (position.offset - synced.offset) / self.config.unsynced_bytes_max,
            (position.ordinal - synced.ordinal) / self.config.buffer_count_max,
        )
        if self._unsynced_since == math.inf and position.offset > synced.offset:
            self._unsynced_since = now

    def sync_here(self, now: float) -> None:
        """Sync in this thread, so that what is unsynced stays bounded. A failure shows in the log."""
        try:
            self._log.sync()
        except QuothError as problem:
            note("sync_failed", topic=self._topic, problem=problem)
        self._unsynced_since = math.inf
        self.measure(now)

    def begin_if_due(self, now: float, *, is_urgent: bool = False) -> None:
        """Give the fsync thread a request if one is due. is_urgent: more than the replies wait for it."""
        if self.is_running or self._unsynced_since == math.inf:
            return
        appender = self._appender
        if appender.write_failure.failure is not None or appender.active.end.offset == appender.synced.offset:
            self._unsynced_since = math.inf
            return
        is_long = now - self._unsynced_since >= self.config.sync_interval
        if is_long or is_urgent or self.waiting or self.share > SHARE_SOON:
            request = appender.begin_sync()
            self._unsynced_since = math.inf
            self._running = request
            self._submit(request)

    def finish(self, done: SyncDone, now: float) -> None:
        """Take note of an fsync that the thread has executed."""
        self._running = None
        if done.problem is not None:
            note("sync_failed", topic=self._topic, problem=done.problem)
            self._appender.write_failure.fail(done.problem)
        else:
            self._appender.finish_sync(done.request)
        self.measure(now)

    def answer_reached(self, events: EventList) -> None:
        """Answer the requests that an fsync has reached, or that none will reach any more."""
        waiting, self.waiting = self.waiting, []
        synced, failure = self._appender.synced.pointer, self._appender.write_failure.failure
        for one in waiting:
            if one.last <= synced:
                events.reply(one.request, one.reply, one.payload)
            elif failure is not None:
                events.refuse(one.request, failure)
            else:
                self.waiting.append(one)
